"""How replicas are asked: few requests, all brokers at once, and who does not answer is not asked again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from regency.clients.nodes import Node
from regency.clients.replicas import wire as replica_wire
from regency.clients.replicas.wire import Place, ReplicaWire, Unanswered
from regency.kafka.codec import DescribeLogDirsRequest, FetchRequest, ListOffsetsRequest
from regency.kafka.peer import PeerUnavailable
from regency.model.ids import BrokerId, Offset, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode

TOPIC_ID = TopicId(UUID(int=9))
NAMES = [TopicPartition("t", number) for number in range(5)]
IDS = {"t": TOPIC_ID}


class FakePeer:
    """A broker whose replicas all go from 2 to `end`, with the high watermark one below."""

    def __init__(self, host: str, **_: Any) -> None:
        self.host = host
        self.asked: list[tuple[str, int, list[int]]] = []
        self.ends: dict[int, int] = {}
        self.errors: dict[int, ErrorCode] = {}
        self.dead = False
        self.closed = False
        self.after_listing: Callable[[], None] = lambda: None

    def exchange(self, message: Any, version: int) -> Any:
        if self.dead:
            raise PeerUnavailable(f"The exchange with {self.host} did not answer.")
        if isinstance(message, ListOffsetsRequest):
            assert (message.replica_id, version) == (-2, 7)
            rows = [self._listed(row.partition_index, row.timestamp) for row in message.topics[0].partitions]
            self.asked.append(
                ("list", message.topics[0].partitions[0].timestamp, [row.partition_index for row in rows])
            )
            self.after_listing()
            return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=rows)])
        if isinstance(message, DescribeLogDirsRequest):
            return self._described([(each.topic, each.partitions) for each in message.topics])
        assert isinstance(message, FetchRequest)
        assert (message.replica_state.replica_id, message.session_epoch, message.max_wait_ms) == (-2, -1, 0)
        wanted = message.topics[0].partitions
        self.asked.append(("fetch", message.max_bytes, [row.partition for row in wanted]))
        rows = [self._fetched(row.partition, row.fetch_offset) for row in wanted]
        return SimpleNamespace(
            error_code=0, session_id=0, responses=[SimpleNamespace(topic_id=TOPIC_ID, partitions=rows)]
        )

    def _described(self, wanted: list[tuple[str, list[int]]]) -> Any:
        """Of each partition 100 bytes for each of its numbers, and a future log that is no replica yet."""
        self.asked.append(("describe", 0, [number for _, numbers in wanted for number in numbers]))
        logs = [
            SimpleNamespace(partition_index=number, partition_size=size, is_future_key=future)
            for _, numbers in wanted
            for number in numbers
            for size, future in ((100 * number, False), (7, True))
        ]
        return SimpleNamespace(results=[SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=logs)])])

    def _listed(self, partition: int, timestamp: int) -> Any:
        error = self.errors.get(partition, ErrorCode.NONE)
        offset = -1 if error is not ErrorCode.NONE else 2 if timestamp == -2 else self.ends.get(partition, 10)
        return SimpleNamespace(
            partition_index=partition,
            error_code=int(error),
            timestamp=-1,
            offset=offset,
            leader_epoch=0,
            producers=None,
        )

    def _fetched(self, partition: int, offset: int) -> Any:
        end = self.ends.get(partition, 10)
        error = ErrorCode.OFFSET_OUT_OF_RANGE if offset > end else ErrorCode.NONE
        return SimpleNamespace(
            partition_index=partition,
            error_code=int(error),
            high_watermark=end - 1,
            log_start_offset=2,
            records=b"",
            diverging_epoch=None,
        )

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakePeer]:
    made: dict[str, FakePeer] = {}

    def make(host: str, _: int, **options: Any) -> FakePeer:
        made[host] = FakePeer(host, **options)
        return made[host]

    monkeypatch.setattr(replica_wire, "PeerConnection", make)
    return made


def nodes(*numbers: int) -> Mapping[BrokerId, Node]:
    return {BrokerId(number): Node(BrokerId(number), f"broker-{number}", 9092) for number in numbers}


def test_places_take_two_requests_per_broker(peers: dict[str, FakePeer]) -> None:
    with replica_wire.replica_wire(nodes(1, 2)) as wire:
        places = wire.places({BrokerId(1): NAMES, BrokerId(2): NAMES[:2]}, IDS)
    assert places == {
        (broker, name): Place(Offset(2), Offset(10), Offset(9))
        for broker, names in ((1, NAMES), (2, NAMES[:2]))
        for name in names
    }
    assert peers["broker-1"].asked == [("list", -1, [0, 1, 2, 3, 4]), ("fetch", 0, [0, 1, 2, 3, 4])]
    assert peers["broker-2"].asked == [("list", -1, [0, 1]), ("fetch", 0, [0, 1])]
    assert all(peer.closed for peer in peers.values())


def test_many_partitions_are_asked_in_pieces(peers: dict[str, FakePeer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_wire, "PARTITIONS_AT_ONCE", 2)
    with replica_wire.replica_wire(nodes(1)) as wire:
        assert len(wire.places({BrokerId(1): NAMES}, IDS)) == 5
    assert [len(partitions) for _, _, partitions in peers["broker-1"].asked] == [2, 2, 2, 2, 1, 1]


def test_a_replica_that_answers_an_error_is_told_with_it(peers: dict[str, FakePeer]) -> None:
    with replica_wire.replica_wire(nodes(1)) as wire:
        peers["broker-1"].errors[3] = ErrorCode.KAFKA_STORAGE_ERROR
        places = wire.places({BrokerId(1): NAMES}, IDS)
    assert places[BrokerId(1), NAMES[3]] is ErrorCode.KAFKA_STORAGE_ERROR
    assert isinstance(places[BrokerId(1), NAMES[4]], Place)
    assert peers["broker-1"].asked[1] == ("fetch", 0, [0, 1, 2, 4])


def test_a_log_that_was_cut_between_the_two_questions_is_asked_again(peers: dict[str, FakePeer]) -> None:
    with replica_wire.replica_wire(nodes(1)) as wire:
        peers["broker-1"].after_listing = lambda: peers["broker-1"].ends.update({1: 6})
        places = wire.places({BrokerId(1): NAMES[:2]}, IDS)
    assert places[BrokerId(1), NAMES[1]] == Place(Offset(2), Offset(6), Offset(5))
    assert [partitions for _, _, partitions in peers["broker-1"].asked] == [[0, 1], [0, 1], [1], [1]]


def test_a_broker_that_does_not_answer_is_asked_once_and_others_are_told(peers: dict[str, FakePeer]) -> None:
    with replica_wire.replica_wire(nodes(1, 2)) as wire:
        peers["broker-2"].dead = True
        places = wire.places({BrokerId(number): NAMES[:1] for number in (1, 2, 3)}, IDS)
        assert isinstance(places[BrokerId(1), NAMES[0]], Place)
        assert places[BrokerId(2), NAMES[0]] == Unanswered("The exchange with broker-2 did not answer.")
        assert places[BrokerId(3), NAMES[0]] == Unanswered("broker 3 is not live")
        peers["broker-2"].dead = False
        assert isinstance(wire.starts({BrokerId(2): NAMES})[BrokerId(2), NAMES[0]], Unanswered)
        assert list(wire.silent) == [2]


def test_nothing_is_asked_about_nothing(peers: dict[str, FakePeer]) -> None:
    wire = ReplicaWire(nodes(1))
    assert wire.starts({}) == wire.places({BrokerId(1): []}, IDS) == wire.fetch({}, max_bytes=1) == {}
    wire.close()
    assert peers["broker-1"].asked == []


def test_sizes_are_those_of_logs_that_are_replicas_and_of_brokers_that_answer(peers: dict[str, FakePeer]) -> None:
    with replica_wire.replica_wire(nodes(1, 2)) as wire:
        peers["broker-2"].dead = True
        sizes = wire.sizes({BrokerId(1): NAMES[1:3], BrokerId(2): NAMES[:1]})
    assert sizes == {(BrokerId(1), NAMES[1]): 100, (BrokerId(1), NAMES[2]): 200}
    assert peers["broker-1"].asked == [("describe", 0, [1, 2])]
