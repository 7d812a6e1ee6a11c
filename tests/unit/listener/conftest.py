"""A listener on loopback over fakes of the ReplicaManager, the controller and ZooKeeper, and a raw client that
speaks the codec."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from regency.broker_agent.admin_forwarder import CreatedTopicResult, NewTopicSpec
from regency.broker_agent.listener.server import KafkaListener
from regency.broker_agent.metadata import BrokerNode, PartitionMetadata
from regency.broker_agent.metadata_cache import MetadataCache, MetadataChange, MetadataUpdate, TopicDelta
from regency.broker_agent.replication.api import (
    EpochEndOffset,
    FetchedPartition,
    FetchParams,
    FetchPartition,
    ListedOffset,
    ProduceResult,
)
from regency.broker_agent.wire.apis import ApiKey
from regency.broker_agent.wire.codec import Message, decode_response, encode_request
from regency.model.clock import SystemClock
from regency.model.errors import RegencyError
from regency.model.facts import Endpoint
from regency.model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    ProducerId,
    TopicId,
    TopicPartition,
    ZkVersion,
)
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings

LISTENER = "PLAINTEXT"


def topic_id(name: str) -> TopicId:
    return TopicId(UUID(bytes=name.encode().ljust(16, b"-")[:16]))


class FakeReplicas:
    """Logs in memory, every batch one offset per record; acks=all waits while `hold` is set."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        self.hold = False
        self.held: list[Callable[[], None]] = []
        self.appended: list[tuple[TopicPartition, bytes]] = []
        self.fetches: list[tuple[FetchParams, list[FetchPartition]]] = []
        self.waiting: list[Callable[[], None]] = []
        self.cancelled = 0
        self.fail: Exception | None = None
        self.errors: dict[TopicPartition, FetchedPartition] = {}
        self.names: dict[TopicId, str] = {}
        self.produce_errors: dict[TopicPartition, ProduceResult] = {}

    def end(self, key: TopicPartition) -> int:
        return sum(count for count, _ in self.logs[key])

    def append(
        self,
        acks: int,
        timeout_ms: int,
        batches: Mapping[TopicPartition, memoryview],
        respond: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> None:
        if self.fail is not None:
            raise self.fail
        results = {}
        for key, batch in batches.items():
            if key in self.produce_errors:
                results[key] = self.produce_errors[key]
            elif key not in self.logs:
                results[key] = ProduceResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                base = self.end(key)
                (last_delta,) = struct.unpack_from(">i", batch, 23)
                self.logs[key].append((last_delta + 1, struct.pack(">q", base) + batch[8:]))
                self.appended.append((key, bytes(batch)))
                results[key] = ProduceResult(ErrorCode.NONE, Offset(base), -1, Offset(0))
        if acks == -1 and self.hold:
            self.held.append(lambda: respond(results))
        else:
            respond(results)
        waiting, self.waiting = self.waiting, []
        for look in waiting:
            look()

    def fetch(
        self,
        params: FetchParams,
        partitions: Sequence[FetchPartition],
        respond: Callable[[dict[TopicPartition, FetchedPartition]], None],
    ) -> Callable[[], None]:
        self.fetches.append((params, list(partitions)))
        if self.fail is not None:
            raise self.fail
        loop = asyncio.get_running_loop()
        over = False

        def look(last: bool = False) -> None:
            nonlocal over
            if over:
                return
            results = {wanted.topic_partition: self._read(wanted) for wanted in partitions}
            ready = not results or any(
                len(result.records) or result.error is not ErrorCode.NONE for result in results.values()
            )
            if ready or last or params.max_wait_ms <= 0:
                over = True
                respond(results)
            else:
                self.waiting.append(look)

        def cancel() -> None:
            nonlocal over
            over = True
            self.cancelled += 1

        look()
        if not over:
            loop.call_later(params.max_wait_ms / 1000, look, True)
        return cancel

    def _read(self, wanted: FetchPartition) -> FetchedPartition:
        key = wanted.topic_partition
        if key in self.errors:
            return self.errors[key]
        if key not in self.logs:
            return FetchedPartition(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        base, records = 0, b""
        for count, batch in self.logs[key]:
            if base + count > wanted.fetch_offset:
                records += batch
            base += count
        return FetchedPartition(ErrorCode.NONE, Offset(base), Offset(0), records)

    def topic_name(self, topic_id: TopicId) -> str | None:
        return self.names.get(topic_id)

    def list_offset(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        current_leader_epoch: LeaderEpoch,
        replica_id: BrokerId,
    ) -> ListedOffset:
        if topic_partition not in self.logs:
            return ListedOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if timestamp >= 0:
            return ListedOffset(ErrorCode.OFFSET_NOT_AVAILABLE)
        offset = {-1: self.end(topic_partition), -2: 0, -3: 0}[timestamp]
        return ListedOffset(ErrorCode.NONE, -1, Offset(offset), LeaderEpoch(7))

    def end_offset_for_epoch(
        self,
        topic_partition: TopicPartition,
        current_leader_epoch: LeaderEpoch,
        leader_epoch: LeaderEpoch,
    ) -> tuple[ErrorCode, EpochEndOffset]:
        if topic_partition not in self.logs:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, EpochEndOffset()
        return ErrorCode.NONE, EpochEndOffset(leader_epoch, Offset(self.end(topic_partition)))


@dataclass
class FakeContext:
    partitions: Sequence[FetchPartition]
    session_id: int = 0

    def finish(
        self, results: Mapping[TopicPartition, FetchedPartition]
    ) -> tuple[int, Mapping[TopicPartition, FetchedPartition]]:
        return self.session_id, results


@dataclass
class FakeSessions:
    """Remembers what it was asked; answers a sessionless context, or `error`."""

    asked: list[tuple[int, int, list[FetchPartition], list[TopicPartition], bool]] = field(default_factory=list)
    error: ErrorCode | None = None
    session_id: int = 0

    def resolve(
        self,
        session_id: int,
        session_epoch: int,
        partitions: Sequence[FetchPartition],
        forgotten: Sequence[TopicPartition],
        privileged: bool,
        now: int,
    ) -> FakeContext | ErrorCode:
        self.asked.append((session_id, session_epoch, list(partitions), list(forgotten), privileged))
        return self.error if self.error is not None else FakeContext(partitions, self.session_id)


class FakeAdmin:
    """Creates topics by telling the harness; `fail` is raised, `refuse` answered."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[NewTopicSpec], bool, int, bool]] = []
        self.fail: Exception | None = None
        self.refuse: ErrorCode = ErrorCode.NONE
        self.created: Callable[[NewTopicSpec], None] = lambda spec: None

    async def create_topics(
        self, topics: Sequence[NewTopicSpec], *, validate_only: bool, timeout_ms: int, require_local: bool
    ) -> list[CreatedTopicResult]:
        self.asked.append((list(topics), validate_only, timeout_ms, require_local))
        if self.fail is not None:
            raise self.fail
        if self.refuse is not ErrorCode.NONE:
            return [CreatedTopicResult(spec.name, self.refuse, "refused by the controller") for spec in topics]
        if not validate_only:
            for spec in topics:
                self.created(spec)
        return [
            CreatedTopicResult(
                spec.name, ErrorCode.NONE, "", topic_id(spec.name), spec.num_partitions, spec.replication_factor
            )
            for spec in topics
        ]


class FakeProducerIds:
    def __init__(self) -> None:
        self.next = 4000
        self.fail: RegencyError | None = None

    async def allocate(self) -> ProducerId:
        if self.fail is not None:
            raise self.fail
        self.next += 1
        return ProducerId(self.next)


class Client:
    """A raw connection. Timeouts only keep a broken test from hanging."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation_id = 0
        self._sent: list[tuple[int, ApiKey, int]] = []

    def send(self, message: Message, version: int) -> None:
        self._correlation_id += 1
        self._sent.append((self._correlation_id, ApiKey(message.API_KEY), version))
        self.writer.write(encode_request(version, self._correlation_id, "test", message))

    async def receive(self) -> Message:
        """The next answer, which must belong to the oldest unanswered request."""
        correlation_id, api, version = self._sent.pop(0)
        answered, message = decode_response(api, version, await self.receive_frame())
        assert answered == correlation_id
        return message

    async def receive_frame(self) -> bytes:
        size = int.from_bytes(await asyncio.wait_for(self.reader.readexactly(4), 10), "big")
        return await asyncio.wait_for(self.reader.readexactly(size), 10)

    async def ask(self, message: Message, version: int) -> Message:
        self.send(message, version)
        return await self.receive()

    async def closed_by_listener(self) -> bool:
        """Wait for the end of the stream; False when bytes come instead."""
        try:
            return await asyncio.wait_for(self.reader.read(1), 10) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass


class Harness:
    """A listener of broker 1 among brokers 1, 2 and 3, and what it talks to."""

    def __init__(self, *, published: bool = True, **settings: Any) -> None:
        self.settings = BrokerSettings(broker_id=BrokerId(1), **settings)
        self.replicas = FakeReplicas()
        self.sessions = FakeSessions()
        self.metadata = MetadataCache()
        self.admin = FakeAdmin()
        self.admin.created = self._created
        self.producer_ids = FakeProducerIds()
        self.topics: dict[str, list[PartitionMetadata]] = {}
        self.endpoints: dict[int, tuple[Endpoint, ...]] = {
            broker: (Endpoint(LISTENER, "127.0.0.1", 9090 + broker), Endpoint("INNER", f"inner{broker}", 7070))
            for broker in (1, 2, 3)
        }
        self.listener = KafkaListener(
            self.settings,
            self.replicas,
            self.sessions,
            self.metadata,
            self.admin,
            self.producer_ids,
            "cluster-id",
            SystemClock(),
        )
        self.port = 0
        self._clients: list[Client] = []
        self._published = published

    def publish(self) -> None:
        """Let the metadata show brokers and topics as they are set here; broker 1 rules in epoch 5."""
        brokers = [
            BrokerNode(BrokerId(broker), BrokerEpoch(100 + broker), endpoints, f"rack{broker}")
            for broker, endpoints in sorted(self.endpoints.items())
        ]
        topics = [TopicDelta(name, topic_id(name), partitions) for name, partitions in sorted(self.topics.items())]
        refused = self.metadata.apply(
            MetadataUpdate(ControllerEpoch(5), BrokerId(1), [MetadataChange(brokers, topics)], 1, True, True, True)
        )
        assert refused is None

    def with_topic(self, name: str, partitions: int = 1, leader: int = 1, *, hosted: bool = True) -> None:
        """A topic that broker `leader` leads; hosted: with a log here."""
        self.topics[name] = [
            PartitionMetadata(
                number,
                BrokerId(leader),
                LeaderEpoch(7),
                ZkVersion(0),
                (BrokerId(1), BrokerId(2)),
                (BrokerId(1), BrokerId(2), BrokerId(3)),
            )
            for number in range(partitions)
        ]
        if hosted:
            for number in range(partitions):
                self.replicas.logs[TopicPartition(name, number)] = []
        self.publish()

    def _created(self, spec: NewTopicSpec) -> None:
        self.with_topic(spec.name, len(spec.assignments) or spec.num_partitions)

    async def start(self) -> None:
        self.port = await self.listener.start(Endpoint(LISTENER, "127.0.0.1", 0))
        self.endpoints[1] = (Endpoint(LISTENER, "127.0.0.1", self.port), *self.endpoints[1][1:])
        if self._published:
            self.publish()

    async def connect(self, port: int | None = None) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", port or self.port))
        self._clients.append(client)
        return client

    async def eventually(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition; give up after ten seconds, saying for what."""

        async def look() -> None:
            while not condition():
                await asyncio.sleep(0.005)

        try:
            await asyncio.wait_for(look(), 10)
        except TimeoutError:
            raise AssertionError(f"waited in vain until {what}") from None

    async def stop(self) -> None:
        for client in self._clients:
            await client.close()
        await self.listener.stop(grace_ms=0)


Scenario = Callable[[Harness], Awaitable[None]]


@pytest.fixture
def serve() -> Callable[..., None]:
    """serve(scenario, **settings): run an async scenario against a fresh listener."""

    def run(scenario: Scenario, **settings: Any) -> None:
        async def main() -> None:
            harness = Harness(**settings)
            await harness.start()
            try:
                await scenario(harness)
            finally:
                await harness.stop()

        asyncio.run(main())

    return run


@pytest.fixture
def batch() -> Callable[..., bytes]:
    """batch(records=1, attributes=0, magic=2): a record batch whose header is plausible and whose records are not
    there."""

    def build(records: int = 1, attributes: int = 0, magic: int = 2, payload: bytes = b"payload") -> bytes:
        after_length = struct.pack(">ibIhiqqqhii", -1, magic, 0, attributes, records - 1, 0, 0, -1, -1, -1, records)
        return struct.pack(">qi", 0, len(after_length) + len(payload)) + after_length + payload

    return build
