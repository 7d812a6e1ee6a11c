"""Reading replicas side by side: from brokers that are behind, gone, damaged, or have no room in their answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from regency.broker_agent.replication.api import FetchedPartition, FetchPartition, ListedOffset
from regency.clients import reading
from regency.clients.damages import Damaged, unread
from regency.clients.pace import BrokerPace, Pace
from regency.clients.reading import Partition, PartitionResult, read_and_compare
from regency.clients.replica_wire import Place, Unanswered
from regency.model.clock import ManualClock
from regency.model.ids import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.record_batch import stamp

TOPIC_ID = TopicId(UUID(int=9))
T0 = TopicPartition("t", 0)
NONE = ErrorCode.NONE


def a_batch(offset: int, *, epoch: int = 0, value: bytes = b"v") -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 20,
    )  # fmt: skip
    assert builder.append(0, timestamp=1_000 + offset, key=None, value=value, headers=[])
    batch = bytearray(builder.build())
    stamp(batch, Offset(offset), LeaderEpoch(epoch))
    return bytes(batch)


class Log:
    """One replica on one broker: a batch per offset, told up to its high watermark, at most `most` at a time."""

    def __init__(self, count: int, *, mark: int | None = None, start: int = 0, most: int = 3) -> None:
        self.batches = {offset: a_batch(offset) for offset in range(start, count)}
        self.mark = count if mark is None else mark
        self.start, self.end, self.most = start, count, most
        self.error = NONE
        self.error_at = -1
        self.refused: set[int] = set()
        """Offsets of batches that its broker finds damaged: no read that reaches one is answered."""
        self.start_after: dict[int, int] = {}
        """Where the log begins once the offset was refused one batch at a time."""
        self.mark_rises_after = -1
        """Number of the fetch after which the high watermark is at the end."""

    def place(self) -> Place:
        return Place(Offset(self.start), Offset(self.end), Offset(self.mark))

    def fetch(self, offset: int, most_bytes: int = 1 << 20) -> FetchedPartition:
        most = 1 if most_bytes == 1 else self.most
        if offset >= self.start and self.refused & set(range(offset, min(self.mark, offset + most))):
            if most == 1:
                self.start = self.start_after.get(offset, self.start)
            return FetchedPartition(ErrorCode.CORRUPT_MESSAGE)
        if self.error is not NONE and offset >= self.error_at:
            return FetchedPartition(self.error)
        if not self.start <= offset <= self.end:
            return FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.mark_rises_after -= 1
        if self.mark_rises_after == 0:
            self.mark = self.end
        shown = [self.batches[each] for each in range(offset, min(self.mark, offset + most)) if each in self.batches]
        return FetchedPartition(NONE, Offset(self.mark), Offset(self.start), b"".join(shown))


class FakeWire:
    """Brokers' replicas; who is `silent` answers nothing. The first partition of a request alone is answered fully if
    `narrow`."""

    def __init__(self, logs: Mapping[tuple[int, TopicPartition], Log]) -> None:
        self.logs = logs
        self.silent: set[int] = set()
        self.narrow = False
        self.fetches: list[dict[int, list[tuple[TopicPartition, int]]]] = []

    def fetch(self, wanted: Mapping[BrokerId, Sequence[FetchPartition]], *, max_bytes: int) -> dict[Any, Any]:
        assert max_bytes > 0
        self.fetches.append(
            {b: [(one.topic_partition, one.fetch_offset) for one in some] for b, some in wanted.items()}
        )
        found: dict[Any, Any] = {}
        for broker, some in wanted.items():
            for number, one in enumerate(some):
                key = (broker, one.topic_partition)
                if broker in self.silent:
                    found[key] = Unanswered("it does not answer")
                    continue
                fetched = self.logs[key].fetch(one.fetch_offset, one.max_bytes)
                if self.narrow and number:
                    fetched = FetchedPartition(fetched.error, fetched.high_watermark, fetched.log_start_offset)
                found[key] = fetched
        return found

    def starts(self, wanted: Mapping[BrokerId, Sequence[TopicPartition]]) -> dict[Any, Any]:
        return {
            (broker, name): ListedOffset(NONE, -1, Offset(self.logs[broker, name].start))
            for broker, some in wanted.items()
            for name in some
        }


def verify(
    wire: FakeWire, *, leader: int | None = 1, patience_s: float = 0, progress: Any = None
) -> list[PartitionResult]:
    partitions = [
        Partition(name, TOPIC_ID, leader, {BrokerId(b): log.place() for (b, n), log in wire.logs.items() if n == name})
        for name in dict.fromkeys(name for _, name in wire.logs)
    ]
    return list(
        read_and_compare(wire, partitions, patience_s=patience_s, on_progress=progress or (lambda _: None))  # type: ignore[arg-type]
    )


def states(results: Iterable[PartitionResult]) -> list[dict[int, str]]:
    return [{verdict.broker: verdict.state for verdict in result.replicas} for result in results]


def three(**options: Any) -> FakeWire:
    return FakeWire({(number, T0): Log(20, **options) for number in (1, 2, 3)})


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_PAUSE_S", 0)


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


def test_a_flipped_byte_is_damage_of_that_replica_and_no_divergence() -> None:
    """The checksum in the header is still the producer's."""
    wire = three()
    broken = bytearray(a_batch(4))
    broken[-1] ^= 1
    wire.logs[3, T0].batches[4] = bytes(broken)
    [result] = verify(wire)
    assert states([result]) == [{1: "agrees", 2: "agrees", 3: "damaged"}]
    assert [(damage.broker, damage.offset) for damage in result.damages] == [(3, 4)]
    assert result.divergences == []


def test_bytes_that_are_no_batch_are_left_out_and_what_follows_is_read() -> None:
    wire = three()
    broken = bytearray(a_batch(4))
    broken[16] = 9
    wire.logs[3, T0].batches[4] = bytes(broken)
    [result] = verify(wire)
    assert states([result]) == [{1: "agrees", 2: "agrees", 3: "damaged"}]
    [damage] = result.damages
    assert (damage.broker, damage.offset, damage.to_offset) == (3, 4, 4)
    assert damage.what.startswith("no batch begins there: ")
    assert result.replicas[2].read_to == 20


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


@pytest.mark.parametrize("refused", [0, 7, 19])
def test_damage_that_the_broker_itself_finds_is_placed_and_what_is_before_it_compared(refused: int) -> None:
    wire = three()
    wire.logs[2, T0].refused = {refused}
    [result] = verify(wire)
    assert states([result]) == [{1: "agrees", 2: "damaged", 3: "agrees"}]
    assert result.damages == [Damaged(2, refused, "its broker finds the batch damaged", refused)]
    assert result.replicas[1].read_to == (19 if refused == 19 else 20)
    assert result.divergences == []


def test_behind_damage_more_damage_and_differences_are_found() -> None:
    wire = three()
    wire.logs[2, T0].refused = {4, 5, 11}
    wire.logs[2, T0].batches[8] = a_batch(8, value=b"another")
    [result] = verify(wire)
    assert [(each.broker, each.offset, each.to_offset) for each in result.damages] == [(2, 4, 5), (2, 11, 11)]
    assert [(each.from_offset, each.to_offset) for each in result.divergences] == [(8, 8)]
    assert states([result]) == [{1: "agrees", 2: "damaged", 3: "agrees"}]


@pytest.mark.parametrize("brokers", [(1,), (1, 2, 3)])
def test_what_cannot_be_read_to_the_end_is_said_to_be_unread(brokers: tuple[int, ...]) -> None:
    wire = FakeWire({(number, T0): Log(1000, most=40) for number in brokers})
    wire.logs[1, T0].refused = set(range(600, 1000))
    [result] = verify(wire)
    assert result.damages == [Damaged(1, 600, "its broker finds the batch damaged", 999)]
    assert unread(result.damages, 1) == 400
    assert (result.replicas[0].state, result.replicas[0].read_to) == ("damaged", 600)
    assert result.divergences == []
    assert len(wire.fetches) < 60


def test_a_broker_that_goes_while_the_end_of_damage_is_looked_for_has_it_all_the_same() -> None:
    wire = three()
    wire.logs[2, T0].refused = set(range(5, 20))
    wire.logs[2, T0].error, wire.logs[2, T0].error_at = ErrorCode.NOT_LEADER_OR_FOLLOWER, 9
    wire.logs[2, T0].refused -= set(range(9, 20))
    [result] = verify(wire)
    assert result.damages == [Damaged(2, 5, "its broker finds the batch damaged", 19)]
    assert (result.replicas[1].state, result.replicas[1].read_to) == ("damaged", 5)
    assert "does not host it" in result.replicas[1].detail


def test_damage_and_the_end_of_a_replica_that_is_behind() -> None:
    wire = three()
    wire.logs[2, T0].refused = {5}
    wire.logs[2, T0].mark = 6
    [result] = verify(wire)
    assert [(each.offset, each.to_offset) for each in result.damages] == [(5, 5)]
    assert (result.replicas[1].state, result.replicas[1].read_to) == ("damaged", 5)
    assert "its high watermark is 6, the partition's is 20" in result.replicas[1].detail


def test_what_is_behind_damage_at_the_mark_is_waited_for() -> None:
    wire = three()
    wire.logs[2, T0].refused = {5}
    wire.logs[2, T0].mark = 6
    wire.logs[2, T0].mark_rises_after = 5
    [result] = verify(wire, patience_s=60)
    assert [(each.offset, each.to_offset) for each in result.damages] == [(5, 5)]
    assert (result.replicas[1].state, result.replicas[1].read_to) == ("damaged", 20)


def test_retention_that_removes_the_damage_meanwhile_is_no_end() -> None:
    wire = three()
    partitions = [Partition(T0, TOPIC_ID, 1, {BrokerId(b): log.place() for (b, _), log in wire.logs.items()})]
    log = wire.logs[2, T0]
    log.refused = {5, 6, 7}
    log.start_after = {5: 12}
    [result] = read_and_compare(wire, partitions, patience_s=0, on_progress=lambda _: None)  # type: ignore[arg-type]
    assert result.replicas[1].state == "damaged"
    assert [(each.offset, each.to_offset) for each in result.damages] == [(5, 11)]
    assert result.replicas[1].read_to == 20
    asked = [offset for fetch in wire.fetches for _, offset in fetch.get(2, []) if offset >= 12]
    assert asked == [12, 15, 18], "several batches at a time again"


def test_damage_in_many_partitions_is_placed_where_answers_have_room_for_one() -> None:
    names = [TopicPartition("t", number) for number in range(4)]
    wire = FakeWire({(broker, name): Log(9) for name in names for broker in (1, 2)})
    wire.narrow = True
    for name in names[1:]:
        wire.logs[2, name].refused = {4}
    results = verify(wire)
    assert states(results) == [{1: "agrees", 2: "agrees"}, *[{1: "agrees", 2: "damaged"}] * 3]
    assert [damage.offset for result in results for damage in result.damages] == [4, 4, 4]


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


def test_a_topic_that_was_deleted_meanwhile_is_missing() -> None:
    wire = three()
    for log in wire.logs.values():
        log.error, log.error_at = ErrorCode.UNKNOWN_TOPIC_ID, 10
    [result] = verify(wire)
    assert states([result]) == [dict.fromkeys((1, 2, 3), "missing")]
    assert "perhaps deleted meanwhile" in result.replicas[0].detail
