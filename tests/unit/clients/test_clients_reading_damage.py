"""Reading replicas on behind damage: the search for what is sound, and what is said to be unread."""

from __future__ import annotations

import random
from bisect import bisect_left
from typing import NamedTuple

import pytest
from fake_replicas import T0, TOPIC_ID, FakeWire, Log, a_batch, states, three, verify

from regency.clients.replicas.damages import Damaged, SoundSearch, unread
from regency.clients.replicas.reading import Partition, read_and_compare
from regency.model.ids import BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode

pytestmark = pytest.mark.usefixtures("no_pause")


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


MOST_QUESTIONS = 64


class Layout(NamedTuple):
    """Batches (first and last offset, whether sound) in their order, and where what may be read of the log ends."""

    batches: list[tuple[int, int, bool]]
    mark: int

    def ask(self, search: SoundSearch, offset: int) -> bool:
        """Tell the search what its broker answers; whether that is a sound batch, or that there is nothing."""
        if offset >= self.mark:
            search.nothing_from(offset)
            return True
        first, _, sound = self.batches[bisect_left(self.batches, offset, key=lambda batch: batch[1])]
        if sound:
            search.served(offset, first)
        else:
            search.refused(offset)
        return sound


def searched(layout: Layout, end: int, borders: list[int]) -> tuple[int, int]:
    """Where reading goes on behind the first damaged batch, and after how many questions."""
    damaged = next(first for first, _, sound in layout.batches if not sound)
    search = SoundSearch(damaged, end, "damage", borders)
    for asked in range(MOST_QUESTIONS):
        if search.probe is None:
            return search.until, asked
        layout.ask(search, search.probe)
    raise AssertionError(f"still asking for {search.probe} behind {damaged}")


def random_layout(draw: random.Random) -> tuple[Layout, int]:
    """Some hundred batches, with damage and gaps, one of them damaged at least; and where reading ends."""
    batches, at = [], 0
    for _ in range(draw.randrange(2, 200)):
        at += draw.choice((0, 0, 0, draw.randrange(40)))
        last = at + draw.randrange(30)
        batches.append((at, last, draw.random() < 0.7))
        at = last + 1
    hurt = draw.randrange(len(batches))
    batches[hurt] = (*batches[hurt][:2], False)
    return Layout(batches, draw.choice((at, draw.randrange(batches[hurt][1], at) + 1))), at


def test_reading_goes_on_where_something_sound_is_or_nothing_any_more() -> None:
    for seed in range(3000):
        draw = random.Random(seed)
        layout, end = random_layout(draw)
        known = [first for first, _, _ in layout.batches]
        borders = draw.choice(([], known, draw.sample(known, len(known) // 2)))
        until, _ = searched(layout, end, borders)
        damaged = next(first for first, _, sound in layout.batches if not sound)
        assert damaged < until <= end, seed
        if until < min(end, layout.mark):
            assert layout.ask(SoundSearch(damaged, end, "", ()), until), f"{seed}: what is refused is not read again"


def test_a_gap_behind_damage_is_no_reason_to_ask_for_ever() -> None:
    layout = Layout([(0, 39, False), (40, 44, True), (80, 119, True)], 120)
    assert searched(layout, 120, [])[0] in (40, 80)


def test_a_long_way_to_where_nothing_follows_is_not_gone_step_by_step() -> None:
    layout = Layout([(offset, offset + 99, False) for offset in range(0, 600_000, 100)], 600_000)
    assert searched(layout, 1_000_000, [])[0] == 600_000
