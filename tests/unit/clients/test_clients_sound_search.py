"""Where a replica can be read again behind damage: found in a few questions, whatever lies there."""

from __future__ import annotations

import random
from bisect import bisect_left
from typing import NamedTuple

from regency.clients.replicas.sound_search import SoundSearch

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
