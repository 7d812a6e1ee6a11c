"""A cluster of made-up brokers behind real messages: what is asked and answered passes through the codec both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from regency.clients import connections
from regency.clients.connections import Connections
from regency.clients.replicas import reading
from regency.clients.settings import ClientSettings, client_settings
from regency.kafka.apis import ApiKey
from regency.kafka.codec import (
    DescribeConfigsResponse,
    FetchResponse,
    ListOffsetsResponse,
    MetadataResponse,
    decode_response,
    encode_request,
    encode_response,
    parse_request,
)
from regency.kafka.peer import PeerUnavailable
from regency.kafka.record_batch import read_header, stamp
from regency.model.clock import ManualClock
from regency.model.ids import LeaderEpoch, Offset
from regency.model.kafka_errors import ErrorCode

NOW = 1_700_000_000_000


def make_batch(base: int, values: list[bytes], *, timestamp: int = NOW) -> bytes:
    """A batch as a broker has it, in leader epoch 3."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for number, value in enumerate(values):
        builder.append(number, timestamp=timestamp, key=None, value=value, headers=[])
    made = bytearray(builder.build())
    stamp(made, Offset(base), LeaderEpoch(3))
    return bytes(made)


class FakeLog:
    """A partition with `count` records, in batches of `each`."""

    def __init__(self, leader: int, count: int, each: int = 10) -> None:
        self.leader = leader
        self.epoch = 3
        self.start = 0
        self.batches = [
            make_batch(base, [b"value %d" % number for number in range(base, min(base + each, count))])
            for base in range(0, count, each)
        ]
        self.high_watermark = self.end = count
        self.timestamps: dict[int, int] = {}
        """Offsets by timestamp that is asked for."""
        self.damaged: set[int] = set()
        """Base offsets of batches the leader finds damaged."""


class FakeCluster:
    """Brokers 1 to 3; each answers as it is told to."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.dead: dict[int, str] = {}
        self.logs: dict[tuple[str, int], FakeLog] = {}
        self.ids: dict[str, UUID] = {}
        self.ignorant: dict[int, set[str]] = {}
        """Topics that a broker does not know."""
        self.errors: dict[int, list[ErrorCode]] = {}
        """What a broker answers to its next fetches and offset questions, in place of what it has."""
        self.before: Callable[[int, Any], object] = lambda broker, message: None
        self.asked: list[tuple[int, Any]] = []
        self.timeouts: list[int | None] = []
        self.closed: set[int] = set()
        self.largest: dict[str, int] = {}
        """max.message.bytes of topics."""
        self.poll_ms = 0
        """How long an answer without records takes."""

    def add(self, topic: str, *logs: FakeLog) -> None:
        self.ids[topic] = UUID(int=len(self.ids) + 1)
        for number, log in enumerate(logs):
            self.logs[topic, number] = log

    def exchange(self, broker: int, client_id: str, message: Any, version: int, timeout_ms: int | None) -> Any:
        self.timeouts.append(timeout_ms)
        if broker in self.closed:
            raise PeerUnavailable(f"The connection to broker-{broker} was closed.")
        frame = encode_request(version, 1, client_id, message)[4:]
        request = parse_request(frame)
        self.asked.append((broker, request.message))
        self.before(broker, request.message)
        if broker in self.dead:
            if self.dead[broker] == "paused":
                self.clock.advance(timeout_ms or 0)
            raise PeerUnavailable(f"The exchange with broker-{broker}:9092 failed: {self.dead[broker]}.")
        answers = {
            ApiKey.METADATA: self._metadata,
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.FETCH: self._fetch,
            ApiKey.DESCRIBE_CONFIGS: self._describe_configs,
        }
        answer = answers[request.api_key](broker, request.message, version)
        return decode_response(request.api_key, version, encode_response(request.api_key, version, 1, answer)[4:])[1]

    def questions(self, kind: type) -> list[tuple[int, Any]]:
        return [(broker, message) for broker, message in self.asked if isinstance(message, kind)]

    def _metadata(self, broker: int, message: Any, version: int) -> Any:
        assert not message.allow_auto_topic_creation
        names = sorted(self.ids) if message.topics is None else [topic.name for topic in message.topics]
        return MetadataResponse(
            version=version,
            cluster_id="c",
            controller_id=1,
            brokers=[
                MetadataResponse.MetadataResponseBroker(
                    version=version, node_id=number, host=f"broker-{number}", port=9092, rack=None
                )
                for number in (1, 2, 3)
            ],
            topics=[self._topic(broker, name, version) for name in names],
        )

    def _topic(self, broker: int, name: str, version: int) -> Any:
        known = name in self.ids and name not in self.ignorant.get(broker, ())
        partition_class = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
        partitions = [
            partition_class(
                version=version,
                error_code=0 if log.leader > 0 else int(ErrorCode.LEADER_NOT_AVAILABLE),
                partition_index=number,
                leader_id=log.leader,
                leader_epoch=log.epoch,
                replica_nodes=[],
                isr_nodes=[],
                offline_replicas=[],
            )
            for (topic, number), log in self.logs.items()
            if topic == name and known
        ]
        return MetadataResponse.MetadataResponseTopic(
            version=version,
            error_code=0 if known else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            name=name,
            topic_id=self.ids[name] if known else UUID(int=0),
            partitions=partitions,
        )

    def _error(self, broker: int, log: FakeLog | None, epoch: int) -> ErrorCode:
        if self.errors.get(broker):
            return self.errors[broker].pop(0)
        if log is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if log.leader != broker:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if epoch != log.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH if epoch < log.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE

    def _list_offsets(self, broker: int, message: Any, version: int) -> Any:
        assert message.replica_id in (-1, -2)
        topic_class = ListOffsetsResponse.ListOffsetsTopicResponse
        topics = []
        for topic in message.topics:
            rows = []
            for asked in topic.partitions:
                log = self.logs.get((topic.name, asked.partition_index))
                error = self._error(broker, log, asked.current_leader_epoch)
                offset = -1
                if log is not None and error is ErrorCode.NONE:
                    end = log.high_watermark if message.replica_id == -1 else log.end
                    offset = {-1: end, -2: log.start}.get(asked.timestamp, log.timestamps.get(asked.timestamp, -1))
                rows.append(
                    topic_class.ListOffsetsPartitionResponse(
                        version=version,
                        partition_index=asked.partition_index,
                        error_code=int(error),
                        timestamp=-1,
                        offset=offset,
                        leader_epoch=0,
                    )
                )
            topics.append(topic_class(version=version, name=topic.name, partitions=rows))
        return ListOffsetsResponse(version=version, topics=topics)

    def _describe_configs(self, broker: int, message: Any, version: int) -> Any:
        result = DescribeConfigsResponse.DescribeConfigsResult
        found = []
        for asked in message.resources:
            assert (asked.resource_type, asked.configuration_keys) == (2, ["max.message.bytes"])
            known = asked.resource_name in self.largest
            error = ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            config = result.DescribeConfigsResourceResult(
                version=version,
                name="max.message.bytes",
                value=str(self.largest.get(asked.resource_name)),
                read_only=False,
                config_source=1,
                is_sensitive=False,
                synonyms=[],
                config_type=3,
                documentation=None,
            )
            found.append(
                result(
                    version=version,
                    error_code=int(error),
                    error_message=None,
                    resource_type=2,
                    resource_name=asked.resource_name,
                    configs=[config] if known else [],
                )
            )
        return DescribeConfigsResponse(version=version, throttle_time_ms=0, results=found)

    def _fetch(self, broker: int, message: Any, version: int) -> Any:
        assert (message.replica_state.replica_id, message.session_epoch, message.isolation_level) == (-1, -1, 0)
        (topic,) = message.topics
        (asked,) = topic.partitions
        names = {topic_id: name for name, topic_id in self.ids.items()}
        log = self.logs.get((names.get(topic.topic_id, ""), asked.partition))
        error = self._error(broker, log, asked.current_leader_epoch) if topic.topic_id in names else None
        records, start, high_watermark = b"", -1, -1
        if error is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        elif error is ErrorCode.NONE:
            assert log is not None
            error, records = self._read(log, asked.fetch_offset, asked.partition_max_bytes)
            start, high_watermark = log.start, log.high_watermark
            if not records:
                self.clock.advance(self.poll_ms)
        topic_class = FetchResponse.FetchableTopicResponse
        row = topic_class.PartitionData(
            version=version,
            partition_index=asked.partition,
            error_code=int(error),
            high_watermark=high_watermark,
            last_stable_offset=high_watermark,
            log_start_offset=start,
            records=records,
        )
        return FetchResponse(
            version=version,
            error_code=0,
            session_id=0,
            responses=[topic_class(version=version, topic_id=topic.topic_id, partitions=[row])],
        )

    @staticmethod
    def _read(log: FakeLog, offset: int, most: int) -> tuple[ErrorCode, bytes]:
        if not log.start <= offset <= log.end:
            return ErrorCode.OFFSET_OUT_OF_RANGE, b""
        found = b""
        for batch in log.batches:
            header = read_header(batch) if batch[16] == 2 else None
            if header is not None and header.last_offset < offset:
                continue
            if header is not None and header.base_offset >= log.high_watermark:
                break
            if header is not None and header.base_offset in log.damaged:
                return (ErrorCode.NONE, found) if found else (ErrorCode.CORRUPT_MESSAGE, b"")
            if found and len(found) + len(batch) > most:
                break
            found += batch
        return ErrorCode.NONE, found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> FakeCluster:
    made = FakeCluster(clock)

    class FakePeer:
        def __init__(self, host: str, port: int, *, client_id: str, **_: Any) -> None:
            self._broker = int(host.rpartition("-")[2])
            self._client_id = client_id

        def exchange(self, message: Any, version: int, *, timeout_ms: int | None = None) -> Any:
            return made.exchange(self._broker, self._client_id, message, version, timeout_ms)

        def close(self) -> None:
            made.closed.add(self._broker)

    monkeypatch.setattr(connections, "PeerConnection", FakePeer)
    return made


@pytest.fixture
def settings() -> ClientSettings:
    return client_settings({"bootstrap.servers": "broker-1:9092,broker-2:9092,broker-3:9092"})


@pytest.fixture
def links(cluster: FakeCluster, clock: ManualClock, settings: ClientSettings) -> Connections:
    """Connections whose waits move the clock."""
    return Connections(settings, clock=clock, sleep=lambda seconds: clock.advance(max(1, round(seconds * 1000))))


@pytest.fixture
def log() -> type[FakeLog]:
    return FakeLog


@pytest.fixture
def batch() -> Callable[..., bytes]:
    return make_batch


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads replicas asks again at once."""
    monkeypatch.setattr(reading, "_PAUSE_S", 0)
