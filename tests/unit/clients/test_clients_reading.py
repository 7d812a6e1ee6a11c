"""Reading replicas side by side, no faster than allowed: from brokers that are behind, gone, or have no room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from fake_replicas import T0, TOPIC_ID, FakeWire, Log, a_batch, states, three, verify

from regency.clients.replicas import reading
from regency.clients.replicas.pace import BrokerPace, Pace
from regency.clients.replicas.reading import Partition, PartitionResult, read_and_compare
from regency.clients.replicas.wire import Unanswered
from regency.kafka.fetching.values import FetchPartition
from regency.model.clock import ManualClock
from regency.model.ids import BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode

pytestmark = pytest.mark.usefixtures("no_pause")


def test_equal_replicas_agree_and_everything_is_read_once() -> None:
    counts: list[int] = []
    wire = three()
    [result] = verify(wire, progress=counts.append)
    assert states([result]) == [{1: "agrees", 2: "agrees", 3: "agrees"}]
    assert (result.divergences, result.damages, sum(counts)) == ([], [], 60)


def test_a_record_that_differs_is_placed() -> None:
    wire = three()
    wire.logs[2, T0].batches[11] = a_batch(11, value=b"another")
    [result] = verify(wire)
    assert states([result]) == [{1: "agrees", 2: "diverges", 3: "agrees"}]
    assert [(each.from_offset, each.to_offset) for each in result.divergences] == [(11, 11)]


def test_a_replica_behind_is_waited_for_and_then_said_to_be_behind() -> None:
    wire = three()
    wire.logs[2, T0].mark = 5
    [result] = verify(wire, patience_s=0)
    assert result.replicas[1].state == "behind"
    assert result.replicas[1].read_to == 5
    assert "its high watermark is 5, the partition's is 20" in result.replicas[1].detail
    assert result.divergences == []


def test_a_replica_whose_high_watermark_comes_is_not_behind() -> None:
    wire = three()
    wire.logs[3, T0].mark, wire.logs[3, T0].mark_rises_after = 5, 6
    assert states(verify(wire, patience_s=60)) == [{1: "agrees", 2: "agrees", 3: "agrees"}]


def test_a_difference_before_the_end_of_a_replica_that_is_behind_is_told_as_such() -> None:
    wire = three()
    wire.logs[2, T0].mark = 5
    wire.logs[2, T0].batches[3] = a_batch(3, epoch=1)
    assert states(verify(wire)) == [{1: "agrees", 2: "diverges", 3: "agrees"}]


def test_a_broker_that_goes_is_offline_and_the_others_are_compared() -> None:
    wire = three()
    wire.silent.add(2)
    wire.logs[3, T0].batches[7] = a_batch(7, value=b"another")
    [result] = verify(wire)
    assert states([result]) == [{1: "agrees", 2: "offline", 3: "diverges"}]
    assert result.replicas[1].detail == "it does not answer"


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, "failed"),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, "missing"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "failed"),
    ],
)
def test_what_a_broker_answers_is_told(error: ErrorCode, state: str) -> None:
    wire = three()
    wire.logs[2, T0].error, wire.logs[2, T0].error_at = error, 10
    [result] = verify(wire)
    assert states([result]) == [{1: "agrees", 2: state, 3: "agrees"}]


def test_retention_while_it_reads_is_no_difference() -> None:
    wire = three()
    wire.logs[2, T0].start = 0
    partitions = [Partition(T0, TOPIC_ID, 1, {BrokerId(b): log.place() for (b, _), log in wire.logs.items()})]
    wire.logs[2, T0].start = 8
    [result] = read_and_compare(wire, partitions, patience_s=0, on_progress=lambda _: None)  # type: ignore[arg-type]
    assert states([result]) == [{1: "agrees", 2: "agrees", 3: "agrees"}]
    assert result.divergences == []


def test_without_a_leader_the_highest_mark_counts() -> None:
    wire = three()
    wire.logs[1, T0].mark = 4
    [result] = verify(wire, leader=None)
    assert result.partition.bound == 20
    assert states([result]) == [{1: "behind", 2: "agrees", 3: "agrees"}]


def test_no_partition_starves_where_answers_have_room_for_one() -> None:
    names = [TopicPartition("t", number) for number in range(4)]
    wire = FakeWire({(broker, name): Log(7) for name in names for broker in (1, 2)})
    wire.narrow = True
    assert states(verify(wire)) == [{1: "agrees", 2: "agrees"}] * 4
    assert len(wire.fetches) <= 4 * 3 + 1


def test_partitions_are_read_in_groups_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "AT_ONCE", 2)
    names = [TopicPartition("t", number) for number in range(5)]
    wire = FakeWire({(1, name): Log(2) for name in names})
    assert [result.partition.name for result in verify(wire)] == names
    assert max(len(some) for fetch in wire.fetches for some in fetch.values()) == 2


def test_a_replica_that_cannot_tell_its_offsets_is_named_and_no_difference() -> None:
    wire = three()
    told = {
        BrokerId(1): wire.logs[1, T0].place(),
        BrokerId(2): ErrorCode.KAFKA_STORAGE_ERROR,
        BrokerId(3): Unanswered("x"),
    }
    partition = Partition(T0, TOPIC_ID, 1, told)
    [result] = read_and_compare(wire, [partition], patience_s=0, on_progress=lambda _: None)  # type: ignore[arg-type]
    assert states([result]) == [{1: "agrees", 2: "offline", 3: "offline"}]
    assert [verdict.log_start for verdict in result.replicas] == [0, None, None]


def test_a_replica_without_the_last_batches_below_the_mark_differs() -> None:
    """New records above the mark of the beginning are all that its broker has to show."""
    wire = three()
    partition = Partition(T0, TOPIC_ID, 1, {BrokerId(b): log.place() for (b, _), log in wire.logs.items()})
    for log in wire.logs.values():
        log.batches.update({offset: a_batch(offset) for offset in range(20, 24)})
        log.mark = log.end = 24
        log.most = 8
    for offset in (17, 18, 19):
        del wire.logs[2, T0].batches[offset]
    [result] = read_and_compare(wire, [partition], patience_s=0, on_progress=lambda _: None)  # type: ignore[arg-type]
    assert states([result]) == [{1: "agrees", 2: "diverges", 3: "agrees"}]
    assert [(each.from_offset, each.to_offset) for each in result.divergences] == [(17, 19)]
    assert result.divergences[0].first[BrokerId(2)] is None


def test_a_broker_that_shows_nothing_below_its_mark_ends_the_reading() -> None:
    wire = three()
    for offset in range(9, 20):
        del wire.logs[2, T0].batches[offset]
    [result] = verify(wire)
    assert states([result]) == [{1: "agrees", 2: "failed", 3: "agrees"}]
    assert "shows nothing at offset 9" in result.replicas[1].detail


def test_a_topic_that_was_deleted_meanwhile_is_missing() -> None:
    wire = three()
    for log in wire.logs.values():
        log.error, log.error_at = ErrorCode.UNKNOWN_TOPIC_ID, 10
    [result] = verify(wire)
    assert states([result]) == [dict.fromkeys((1, 2, 3), "missing")]
    assert "perhaps deleted meanwhile" in result.replicas[0].detail


class Paced:
    """A wire whose brokers heed `max_bytes`, and time that passes only where it is waited for."""

    def __init__(self, rate: int, *, batches: int = 20, value: bytes = b"v" * 100) -> None:
        self.clock = ManualClock()
        self.rate = rate
        self.wire = three(most=1)
        for log in self.wire.logs.values():
            log.batches = {offset: a_batch(offset, value=value) for offset in range(batches)}
            log.end = log.mark = batches
        self.size = sum(len(batch) for log in self.wire.logs.values() for batch in log.batches.values())
        self.hung_up = 0
        self.most: list[int] = []
        self.came: list[tuple[int, int]] = []
        """When, and how many bytes."""

    def fetch(self, wanted: Mapping[BrokerId, Sequence[FetchPartition]], *, max_bytes: int) -> dict[Any, Any]:
        self.most.append(max_bytes * len(wanted))
        found = self.wire.fetch(wanted, max_bytes=max_bytes)
        self.came.append((self.clock.monotonic_ms(), sum(len(fetched.records) for fetched in found.values())))
        return found

    def starts(self, wanted: Mapping[BrokerId, Sequence[TopicPartition]]) -> dict[Any, Any]:
        return self.wire.starts(wanted)

    def hang_up(self) -> None:
        self.hung_up += 1

    def verify(self) -> list[PartitionResult]:
        places = {BrokerId(broker): log.place() for (broker, _), log in self.wire.logs.items()}
        pace = Pace(self.rate, clock=self.clock, sleep=lambda seconds: self.clock.advance(round(seconds * 1000)))
        return list(
            read_and_compare(
                self,  # type: ignore[arg-type]
                [Partition(T0, TOPIC_ID, 1, places)],
                patience_s=0,
                on_progress=lambda _: None,
                pace=pace,
            )
        )


@pytest.mark.parametrize("rate", [700, 5_000])
def test_no_more_is_read_than_is_allowed_and_not_much_less(rate: int) -> None:
    paced = Paced(rate)
    began = paced.clock.monotonic_ms()
    assert states(paced.verify()) == [{1: "agrees", 2: "agrees", 3: "agrees"}]
    round_size = paced.came[0][1]
    read = 0
    for at, size in paced.came:
        assert read * 1000 <= rate * (at - began)
        read += size
    assert read == paced.size
    took_ms = paced.came[-1][0] - began
    assert took_ms <= (paced.size - round_size) * 1000 / rate + len(paced.came)
    assert set(paced.most) == {rate // 3 * 3}, "no answer is larger than what is allowed in a second"
    assert paced.hung_up == 0


def test_time_in_which_nothing_was_read_is_not_saved_up() -> None:
    clock = ManualClock()
    pace = Pace(100, clock=clock)
    pace.pay({BrokerId(1): 50})
    assert pace.pause_s == 0.5
    clock.advance(60_000)
    assert pace.pause_s == 0
    pace.pay({BrokerId(1): 200})
    assert pace.pause_s == 2
    pace.pay({BrokerId(1): 1})
    assert pace.pause_s == 2.01


def test_connections_do_not_rest_longer_than_brokers_let_them() -> None:
    paced = Paced(10, batches=3)
    assert states(paced.verify()) == [{1: "agrees", 2: "agrees", 3: "agrees"}]
    assert paced.hung_up == 2, "before each but the first"


def test_a_throttle_below_one_byte_for_each_broker_still_asks_for_something() -> None:
    assert [Pace(rate).answer_bytes(3) for rate in (1, 3, 9)] == [1, 1, 3]


def test_each_broker_has_a_pace_of_its_own_and_all_wait_for_the_slowest() -> None:
    clock = ManualClock()
    slow, fast = BrokerId(1), BrokerId(2)
    pace = BrokerPace({slow: 100, fast: 1_000}, clock=clock, sleep=lambda seconds: clock.advance(round(seconds * 1000)))
    assert pace.answer_bytes(2) == 100
    pace.pay({fast: 500})
    assert pace.pause_s == 0.5
    pace.pay({slow: 200, fast: 100})
    assert pace.pause_s == 2
    pace.wait()
    assert (clock.monotonic_ms(), pace.pause_s) == (2_000, 0)
