"""Replicas that were compacted each by itself: they may lack what compaction takes, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from fake_replicas import T0, TOPIC_ID, FakeWire, Log

from regency.clients.replicas.compacted import Batch
from regency.clients.replicas.comparison import Comparison
from regency.clients.replicas.reading import Partition, read_and_compare
from regency.kafka.record_batch import read_header, stamp
from regency.model.ids import BrokerId, LeaderEpoch, Offset

Record = tuple[int, bytes | None, bytes | None]
"""Offset, key and value."""
PER_BATCH = 4


def batch(base: int, last: int, records: Iterable[Record], *, is_transactional: bool = False) -> Batch:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=1, is_transactional=is_transactional, producer_id=-1, producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )  # fmt: skip
    for offset, key, value in records:
        assert builder.append(offset - base, timestamp=1_000 + offset, key=key, value=value, headers=[("h", b"1")])
    data = bytearray(builder.build())
    stamp(data, Offset(base), LeaderEpoch(0))
    header = read_header(data)
    return Batch(base, last, 0, header.crc, header.size, bytes(data))


def log(records: Sequence[Record]) -> list[Batch]:
    """Batches of four offsets each; those of which no record is left are gone."""
    batches: dict[int, list[Record]] = {}
    for record in records:
        batches.setdefault(record[0] // PER_BATCH, []).append(record)
    return [batch(number * PER_BATCH, (number + 1) * PER_BATCH - 1, some) for number, some in sorted(batches.items())]


def compacted(records: Sequence[Record], to: int, *, tombstones_to: int = 0) -> list[Record]:
    """What a cleaning up to an offset leaves; tombstones below another one are old enough to go."""
    last = {key: offset for offset, key, _ in records if offset < to}
    return [
        (offset, key, value)
        for offset, key, value in records
        if offset >= to or (last[key] == offset and key is not None and (value is not None or offset >= tombstones_to))
    ]


def compare(logs: Mapping[int, Sequence[Batch]], ends: Mapping[int, int] | None = None) -> Comparison:
    comparison = Comparison(dict.fromkeys(logs, 0), is_compacted=True)
    for broker, batches in logs.items():
        comparison.take(broker, batches)
        comparison.pass_to(broker, (ends or {}).get(broker, 0))
        comparison.end(broker)
    comparison.advance()
    comparison.finish()
    return comparison


def places(comparison: Comparison) -> list[int]:
    return [offset for each in comparison.divergences for offset in range(each.from_offset, each.to_offset + 1)]


def some_records(chance: random.Random, count: int) -> list[Record]:
    return [
        (offset, b"k%d" % chance.randrange(6), None if chance.random() < 0.2 else b"%d" % offset)
        for offset in range(count)
    ]


@pytest.mark.parametrize("seed", range(60))
def test_whatever_compaction_leaves_of_one_log_agrees_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    count = 4 * chance.randint(3, 12)
    whole = some_records(chance, count)
    cleaned = {
        broker: compacted(whole, to, tombstones_to=chance.randint(0, to))
        for broker, to in enumerate((chance.randint(0, count) for _ in range(3)), start=1)
    }
    ends = dict.fromkeys(cleaned, count)
    found = compare({broker: log(records) for broker, records in cleaned.items()}, ends)
    assert (places(found), found.differs) == ([], set())

    last = {key: offset for offset, key, value in whole}
    values = sorted(offset for offset in last.values() if whole[offset][2] is not None)
    if not values:
        return
    victim, broker = chance.choice(values), chance.choice(sorted(cleaned))
    key = whole[victim][1]
    lossy = [each for each in cleaned[broker] if each[0] != victim]
    other = [(offset, key, b"other") if offset == victim else (offset, *rest) for offset, *rest in cleaned[broker]]
    for wrong in (lossy, other):
        found = compare({each: log(wrong if each == broker else cleaned[each]) for each in cleaned}, ends)
        assert places(found) == [victim]
        assert found.differs == {broker}


def test_a_replica_that_is_behind_or_begins_later_lacks_nothing_there() -> None:
    whole = [(offset, b"k%d" % offset, b"v") for offset in range(12)]
    logs = {1: log(compacted(whole, 8)), 2: log(compacted(whole, 8)), 3: log(whole[:8])}
    assert places(compare(logs, {1: 12, 2: 12, 3: 8})) == []
    comparison = Comparison({1: 0, 2: 4}, is_compacted=True)
    comparison.take(1, log(whole))
    comparison.take(2, log(whole[4:]))
    comparison.end(1)
    comparison.end(2)
    comparison.advance()
    comparison.finish()
    assert places(comparison) == []


def test_an_older_value_in_place_of_a_tombstone_differs() -> None:
    whole: list[Record] = [(0, b"k", b"v"), (1, b"k2", b"v"), (5, b"k", None), (6, b"k2", b"v"), (9, b"other", b"v")]
    kept = [whole[0], whole[3], whole[4]]
    assert places(compare({1: log(whole), 2: log(whole), 3: log(kept)}, dict.fromkeys((1, 2, 3), 12))) == [5]


def test_keys_in_transactions_are_not_judged() -> None:
    whole = [(0, b"k", b"v"), (4, b"k", b"of an open or aborted transaction"), (9, b"other", b"v")]
    first, second, third = log(whole)
    second = batch(4, 7, [whole[1]], is_transactional=True)
    assert places(compare({1: [first, second, third], 2: [first, third]}, {1: 12, 2: 12})) == []


def test_records_without_a_key_and_what_is_superseded_are_the_same_where_they_are() -> None:
    whole = [(0, None, b"v"), (1, b"k", b"v"), (4, b"k", b"w")]
    first, second = log(whole)
    other_key = batch(0, 3, [whole[0], (1, b"k2", b"v"), (2, b"k2", b"x")])
    other_value = batch(0, 3, [(0, None, b"w"), whole[1]])
    other_epoch = first._replace(leader_epoch=7)
    for wrong, where in ((other_key, [1, 2]), (other_value, [0]), (other_epoch, [0, 1])):
        assert places(compare({1: [first, second], 2: [wrong, second]}, {1: 8, 2: 8})) == where


class Compacting(FakeWire):
    """Two brokers; the second one has lost the record at `lost`, and both have more by the second look."""

    def __init__(self, records: Sequence[Record], more: Sequence[Record], lost: int) -> None:
        super().__init__({(broker, T0): Log(0) for broker in (1, 2)})
        self.whole = [*records, *more]
        self.lost = lost
        self.show(records[-1][0] + 1)

    def show(self, mark: int) -> None:
        for (broker, _), each in self.logs.items():
            kept = [record for record in self.whole if broker == 1 or record[0] != self.lost]
            each.batches = {
                offset: one.data for one in log(kept) for offset in range(one.base_offset, one.last_offset + 1)
            }
            each.mark = each.end = mark
            each.most = 1

    def places(self, *_: Any) -> dict[Any, Any]:
        self.show(self.whole[-1][0] + 1)
        return {key: each.place() for key, each in self.logs.items()}


@pytest.mark.parametrize("is_overwritten", [True, False])
def test_what_was_compacted_while_it_was_read_is_no_difference(is_overwritten: bool) -> None:
    records = [(offset, b"k%d" % offset, b"v") for offset in range(8)]
    more = [(offset, b"k5" if is_overwritten else b"new", b"w") for offset in range(8, 12)]
    wire = Compacting(records, more, lost=5)
    partition = Partition(
        T0, TOPIC_ID, 1, {BrokerId(b): each.place() for (b, _), each in wire.logs.items()}, is_compacted=True
    )
    [found] = read_and_compare(wire, [partition], patience_s=0, on_progress=lambda _: None)  # type: ignore[arg-type]
    assert [each.from_offset for each in found.divergences] == ([] if is_overwritten else [5])
    assert {each.broker: each.state for each in found.replicas}[1] == "agrees"


def test_records_without_a_key_may_go() -> None:
    whole: list[Record] = [(0, None, b"v"), (1, b"k", b"v"), (4, None, b"v"), (9, b"k2", b"v")]
    found = compare({1: log(whole), 2: log(compacted(whole, 12))}, {1: 12, 2: 12})
    assert places(found) == []


def test_what_cannot_be_read_differs_as_it_is() -> None:
    whole = [(offset, b"k%d" % offset, b"v") for offset in range(8)]
    first, second = log(whole)
    broken = second._replace(crc=7, data=second.data[:61] + b"\xff" * (len(second.data) - 61))
    assert places(compare({1: [first, second], 2: [first, broken]}, {1: 8, 2: 8})) == [4, 5, 6, 7]
