"""Partitions read in pieces come out as if they had been read in one, whatever the borders cut."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from msgspec.structs import replace

from regency.clients.replicas import reading
from regency.clients.replicas.damages import Damaged
from regency.clients.replicas.reading import Partition, PartitionResult, read_and_compare
from regency.clients.replicas.wire import Place, Unanswered
from regency.kafka.fetching.values import FetchedPartition, FetchPartition, ListedOffset
from regency.kafka.record_batch import read_header, stamp
from regency.model.ids import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.pipeline.jobs.replica_audit.merge import after_another_look, is_worth_another_look, merged

TOPIC_ID = TopicId(UUID(int=9))
T0 = TopicPartition("t", 0)
END = 40


@cache
def records(count: int, value: bytes) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 20,
    )  # fmt: skip
    for number in range(count):
        assert builder.append(number, timestamp=1_000 + number, key=None, value=value, headers=[])
    return bytes(builder.build())


def a_batch(offset: int, count: int, *, epoch: int = 0, value: bytes = b"v") -> bytes:
    batch = bytearray(records(count, value))
    stamp(batch, Offset(offset), LeaderEpoch(epoch))
    return bytes(batch)


class Replica:
    """Batches of some records each, told up to the high watermark, `most` at a time."""

    def __init__(self, batches: Sequence[bytes], *, start: int = 0, mark: int = END, most: int = 2) -> None:
        self.batches = list(batches)
        self.start, self.mark, self.most = start, mark, most
        self.refused_at = -1

    @property
    def end(self) -> int:
        return max((read_header(batch).next_offset for batch in self.batches), default=self.start)

    def place(self) -> Place:
        return Place(Offset(self.start), Offset(self.end), Offset(self.mark))

    def fetch(self, offset: int, most_bytes: int) -> FetchedPartition:
        if not self.start <= offset <= self.end:
            return FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE)
        headers = [(read_header(batch), batch) for batch in self.batches]
        there = [one for one in headers if one[0].last_offset >= offset and one[0].base_offset < self.mark]
        shown = there[: 1 if most_bytes == 1 else self.most]
        if any(header.base_offset <= self.refused_at <= header.last_offset for header, _ in shown):
            return FetchedPartition(ErrorCode.CORRUPT_MESSAGE)
        return FetchedPartition(
            ErrorCode.NONE, Offset(self.mark), Offset(self.start), b"".join(batch for _, batch in shown)
        )


class FakeWire:
    def __init__(self, replicas: Mapping[int, Replica]) -> None:
        self.replicas = replicas

    def fetch(self, wanted: Mapping[BrokerId, Sequence[FetchPartition]], *, max_bytes: int) -> dict[Any, Any]:
        assert max_bytes > 0
        return {
            (broker, one.topic_partition): self.replicas[broker].fetch(one.fetch_offset, one.max_bytes)
            for broker, some in wanted.items()
            for one in some
        }

    def starts(self, wanted: Mapping[BrokerId, Sequence[TopicPartition]]) -> dict[Any, Any]:
        return {
            (broker, name): ListedOffset(ErrorCode.NONE, -1, Offset(self.replicas[broker].start))
            for broker, some in wanted.items()
            for name in some
        }


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_PAUSE_S", 0)


def partition_of(replicas: Mapping[int, Replica], **silent: str) -> Partition:
    places: dict[BrokerId, Any] = {BrokerId(broker): replica.place() for broker, replica in replicas.items()}
    places |= {BrokerId(int(broker[1:])): Unanswered(why) for broker, why in silent.items()}
    return Partition(T0, TOPIC_ID, 1, places)


def read(replicas: Mapping[int, Replica], partition: Partition) -> PartitionResult:
    wire: Any = FakeWire(replicas)
    [result] = read_and_compare(wire, [partition], patience_s=0, on_progress=lambda _: None)
    return result


def read_in_pieces(replicas: Mapping[int, Replica], partition: Partition, borders: Sequence[int]) -> PartitionResult:
    edges = [0, *borders, partition.bound]
    pieces = [replace(partition, begin=begin, end=end) for begin, end in pairwise(edges)]
    return merged(partition, [read(replicas, piece) for piece in pieces])


def told(result: PartitionResult) -> Any:
    return (
        [(verdict.broker, verdict.state, verdict.log_start, verdict.read_to) for verdict in result.replicas],
        [(each.from_offset, each.to_offset, each.first) for each in result.divergences],
        [(damage.broker, damage.offset, damage.what) for damage in result.damages],
    )


def a_log(choose: random.Random, end: int = END) -> list[bytes]:
    batches = []
    offset = 0
    while offset < end:
        count = min(choose.randint(1, 7), end - offset)
        batches.append(a_batch(offset, count))
        offset += count
    return batches


def changed(log: Sequence[bytes], choose: random.Random) -> list[bytes]:
    """A batch of the log is another, flipped in one bit, of another epoch, or in two."""
    at = choose.randrange(len(log))
    header = read_header(log[at])
    count = header.last_offset_delta + 1
    match choose.choice(("value", "flip", "epoch", "two")):
        case "value":
            there = [a_batch(header.base_offset, count, value=b"another")]
        case "flip":
            there = [log[at][:-1] + bytes([log[at][-1] ^ 1])]
        case "epoch":
            there = [a_batch(header.base_offset, count, epoch=1)]
        case _:
            first = choose.randint(1, count)
            there = [a_batch(header.base_offset, first)]
            there += [a_batch(header.base_offset + first, count - first)] if first < count else []
    return [*log[:at], *there, *log[at + 1 :]]


def a_cluster(choose: random.Random) -> dict[int, Replica]:
    log = a_log(choose)
    replicas = {broker: Replica(log, most=choose.randint(1, 4)) for broker in (1, 2, 3)}
    for broker in choose.sample((1, 2, 3), choose.randint(0, 2)):
        replicas[broker].batches = changed(log, choose)
    if choose.random() < 0.4:  # retention, in the middle of a batch too, as DeleteRecords leaves it
        late = replicas[choose.choice((2, 3))]
        late.start = choose.randrange(END)
        late.batches = [batch for batch in late.batches if read_header(batch).last_offset >= late.start]
    return replicas


@pytest.mark.parametrize("seed", range(60))
def test_in_pieces_replicas_come_out_as_in_one(seed: int) -> None:
    choose = random.Random(seed)
    for _ in range(5):
        replicas = a_cluster(choose)
        partition = partition_of(replicas)
        borders = sorted(choose.sample(range(1, END), choose.randint(1, 6)))
        assert told(read_in_pieces(replicas, partition, borders)) == told(read(replicas, partition)), borders


def test_the_seeds_reach_every_kind_of_finding() -> None:
    states: set[str] = set()
    joined = 0
    for seed in range(60):
        choose = random.Random(seed)
        result = read(replicas := a_cluster(choose), partition_of(replicas))
        states |= {verdict.state for verdict in result.replicas}
        joined += sum(each.to_offset > each.from_offset for each in result.divergences)
    assert states == {"agrees", "diverges", "damaged"}
    assert joined > 5


def test_a_replica_that_lags_is_read_as_far_as_it_goes() -> None:
    log = a_log(random.Random(1))
    replicas = {broker: Replica(log) for broker in (1, 2, 3)}
    replicas[2].batches = [batch for batch in log if read_header(batch).next_offset <= 21]
    replicas[2].mark = replicas[2].end
    partition = partition_of(replicas, b4="broker 4 is not live")
    result = read_in_pieces(replicas, partition, [5, 13, 22, 30])
    assert [(each.broker, each.state, each.read_to) for each in result.replicas] == [
        (1, "agrees", END),
        (2, "behind", replicas[2].end),
        (3, "agrees", END),
        (4, "offline", None),
    ]
    assert result.divergences == []
    assert f"its high watermark is {replicas[2].end}, the partition's is {END}" in result.replicas[1].detail


@pytest.mark.parametrize("seed", range(20))
def test_what_a_broker_refuses_is_left_out_in_pieces_as_in_one(seed: int) -> None:
    choose = random.Random(seed)
    for _ in range(5):
        replicas = {broker: Replica(log, most=choose.randint(1, 4)) for log in [a_log(choose)] for broker in (1, 2, 3)}
        replicas[2].refused_at = choose.randrange(END)
        partition = partition_of(replicas)
        borders = sorted(choose.sample(range(1, END), choose.randint(1, 6)))
        whole = read(replicas, partition)
        [batch] = [one for one in map(read_header, replicas[2].batches) if
                   one.base_offset <= replicas[2].refused_at <= one.last_offset]  # fmt: skip
        found = Damaged(2, batch.base_offset, "its broker finds the batch damaged", batch.last_offset)
        assert (whole.damages, whole.divergences) == ([found], [])
        assert told(read_in_pieces(replicas, partition, borders)) == told(whole), borders


@pytest.mark.parametrize("borders", [[], [20]])
def test_damage_does_not_hide_what_is_behind_it(borders: list[int]) -> None:
    log = [a_batch(offset, 5) for offset in range(0, END, 5)]
    replicas = {broker: Replica(log) for broker in (1, 2, 3)}
    replicas[3].refused_at = 12
    replicas[3].batches[6] = a_batch(30, 5, value=b"another")
    partition = partition_of(replicas)
    result = read_in_pieces(replicas, partition, borders)
    assert [(each.broker, each.state, each.read_to) for each in result.replicas] == [
        (1, "agrees", END),
        (2, "agrees", END),
        (3, "damaged", END),
    ]
    assert [(damage.broker, damage.offset, damage.to_offset) for damage in result.damages] == [(3, 10, 14)]
    assert [(each.from_offset, each.to_offset) for each in result.divergences] == [(30, 34)]


def test_another_look_is_worth_it_where_a_replica_is_there_by_now() -> None:
    log = a_log(random.Random(2))
    replicas = {broker: Replica(log) for broker in (1, 2, 3)}
    whole = partition_of(replicas)
    away = replace(partition_of({1: replicas[1], 3: replicas[3]}, b2="it does not answer"), end=END)
    out_of_reach = read({1: replicas[1], 3: replicas[3]}, away)
    assert is_worth_another_look(out_of_reach, whole)
    assert not is_worth_another_look(out_of_reach, away), "it is still away"

    replicas[2].batches = [*log[:-1], a_batch(read_header(log[-1]).base_offset, 1, value=b"another")]
    replicas[2].batches[-1] = a_batch(
        read_header(log[-1]).base_offset, read_header(log[-1]).last_offset_delta + 1, value=b"another"
    )
    different = read(replicas, replace(whole, end=END))
    assert [verdict.state for verdict in different.replicas] == ["agrees", "diverges", "agrees"]
    assert is_worth_another_look(different, whole)

    cut = {broker: Replica(log[:3], mark=read_header(log[2]).next_offset) for broker in (1, 2, 3)}
    assert not is_worth_another_look(different, partition_of(cut)), "the log was cut: there is nothing to look at"

    replicas[2].batches = [log[0][:-1] + bytes([log[0][-1] ^ 1]), *log[1:]]
    damaged = read(replicas, replace(whole, end=END))
    assert [verdict.state for verdict in damaged.replicas] == ["agrees", "damaged", "agrees"]
    assert not is_worth_another_look(damaged, whole), "damage on a disk stays"


def looks(
    first: Mapping[int, Replica], second: Mapping[int, Replica], **silent: str
) -> tuple[list[tuple[int, str, int | None, str]], list[tuple[int, int]], list[int]]:
    """Verdicts, ranges that differ and damaged brokers after two looks, the second at those that are there by then."""
    before = read(first, replace(partition_of(first), end=END))
    result = after_another_look(before, read(second, replace(partition_of(second, **silent), end=END)))
    return (
        [(each.broker, each.state, each.read_to, each.detail) for each in result.replicas],
        [(each.from_offset, each.to_offset) for each in result.divergences],
        [each.broker for each in result.damages],
    )


def fives(**changed: int) -> dict[int, Replica]:
    """Three replicas; `b2=15`: broker 2 has another batch at that offset."""
    log = [a_batch(offset, 5) for offset in range(0, END, 5)]
    replicas = {broker: Replica(log) for broker in (1, 2, 3)}
    for broker, offset in changed.items():
        replicas[int(broker[1:])].batches[offset // 5] = a_batch(offset, 5, value=b"another")
    return replicas


def test_damage_stands_also_when_its_broker_is_away_at_the_second_look() -> None:
    first = fives(b2=15)
    first[1].refused_at = 7
    second = {2: first[2], 3: first[3]}
    assert looks(first, second, b1="it does not answer") == (
        [(2, "diverges", END, ""), (3, "agrees", END, ""), (1, "damaged", END, "it does not answer")],
        [(15, 19)],
        [1],
    )


def test_a_replica_that_cannot_be_read_by_the_second_look_agrees_no_more() -> None:
    first = fives()
    before = read({1: first[1], 2: first[2]}, replace(partition_of(first, b3="it does not answer"), end=END))
    second = read(first, replace(partition_of(first), end=END))
    failed = replace(second.replicas[1], state="failed", detail="its broker cannot read it at offset 5", read_to=5)
    after = PartitionResult(second.partition, [second.replicas[0], failed, second.replicas[2]], [], [])
    told = after_another_look(before, after)
    assert [(each.state, each.detail) for each in told.replicas if each.broker == failed.broker] == [
        ("failed", "its broker cannot read it at offset 5")
    ]


def test_damage_that_is_not_there_any_more_stands() -> None:
    first = fives(b2=15)
    first[1].refused_at = 7
    agree = "agrees", END, ""
    assert looks(first, fives()) == ([(1, "damaged", END, ""), (2, *agree), (3, *agree)], [], [1])


def test_the_second_look_counts_where_all_are_still_there() -> None:
    agree = "agrees", END, ""
    assert looks(fives(b2=15), fives()) == ([(1, *agree), (2, *agree), (3, *agree)], [], [])
    assert looks(fives(b2=15), fives(b3=20))[1] == [(20, 24)]


def test_what_differed_and_is_away_now_differed() -> None:
    first = fives(b2=15)
    verdicts, ranges, _ = looks(first, {1: first[1], 3: first[3]}, b2="it does not answer")
    assert sorted(verdicts) == [(1, "agrees", END, ""), (2, "diverges", END, ""), (3, "agrees", END, "")]
    assert ranges == [(15, 19)]


def test_who_differs_from_most_does_so_also_when_one_of_them_is_away_now() -> None:
    """Of the two that are left nobody could say which is right."""
    first = fives(b2=15)
    verdicts, ranges, _ = looks(first, {2: first[2], 3: first[3]}, b1="it does not answer")
    assert (1, "agrees", END, "") in verdicts
    assert (2, "diverges", END, "") in verdicts
    assert ranges == [(15, 19)]


def test_who_was_mended_agrees_also_when_a_third_is_away_now() -> None:
    verdicts, ranges, _ = looks(fives(b2=15), {2: fives()[2], 3: fives()[3]}, b1="it does not answer")
    assert {state for _, state, _, _ in verdicts} == {"agrees"}
    assert ranges == []
