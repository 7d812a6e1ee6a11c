"""Damage found in replicas, what was left unread because of it, and where reading can go on behind it. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import msgspec


class Damaged(msgspec.Struct, frozen=True):
    """A batch that is not what its producer sent.

    `to_offset`: the last offset that was not read because of it; None where the batch was, and its checksum is wrong.
    """

    broker: int
    offset: int
    what: str
    to_offset: int | None = None


def unread(damages: Iterable[Damaged], broker: int) -> int:
    """How many offsets of a replica were not read because of damage."""
    return sum(
        each.to_offset - each.offset + 1 for each in damages if each.broker == broker and each.to_offset is not None
    )


def read_to(reached: int, damages: Iterable[Damaged], broker: int) -> int:
    """Where the last batch of a replica that was read ends, reading having come to `reached`."""
    for each in damages:
        if each.broker == broker and each.to_offset is not None and each.to_offset + 1 == reached:
            return each.offset
    return reached


def joined(damages: Iterable[Damaged]) -> list[Damaged]:
    """By broker and offset, each once; those that touch, as a border of pieces cuts them, in one."""
    found: list[Damaged] = []
    for each in sorted(set(damages), key=lambda damage: (damage.broker, damage.offset, damage.to_offset or -1)):
        last = found[-1] if found else None
        if last is None or last.broker != each.broker or last.to_offset is None or each.offset > last.to_offset + 1:
            found.append(each)
        elif each.to_offset is None:
            if each.offset > last.to_offset:
                found.append(each)
        elif each.to_offset > last.to_offset:
            found[-1] = Damaged(last.broker, last.offset, last.what, each.to_offset)
    return sorted(found, key=lambda damage: (damage.offset, damage.broker))


class SoundSearch:
    """Finds where a replica can be read again behind a batch that its broker does not hand out.

    Ever further ahead, then half-way back: a few questions, however much is damaged.

    `damaged` is the offset that was refused, `end` where reading ends, `what` the damage in words. `borders` are
    offsets above at which batches of other replicas begin: most often this one's next does, too.
    """

    def __init__(self, damaged: int, end: int, what: str, borders: Iterable[int]) -> None:
        self.damaged = damaged
        self.what = what
        self._borders = sorted({border for border in borders if damaged < border < end})
        self._refused = damaged
        self._end = end
        self._limit = end
        self._sound: int | None = None
        self._step = 1

    @property
    def until(self) -> int:
        """Offsets below are left out: as found so far; where nothing sound was, what the replica has by now."""
        return self._limit if self._sound is None else self._sound

    @property
    def probe(self) -> int | None:
        """The offset to ask for next; None where the search is over."""
        top = min(self._limit, self.until)
        nearest = self._at(self._refused + 1)
        if nearest >= top:
            return None
        if top < self._end:
            middle = self._at((self._refused + 1 + top) // 2)
            return middle if middle < top else nearest
        ahead = self._at(self._refused + self._step)
        return ahead if ahead < top else top - 1

    def refused(self, probe: int) -> None:
        """Nothing sound came from there."""
        self._refused = max(self._refused, probe)
        if self._sound is None:
            self._step *= 2

    def served(self, probe: int, base_offset: int) -> None:
        """From there came a batch that begins at `base_offset`.

        What is between the two has no batches; without a border there it may be the damaged one's, whose last offset
        it is not known.
        """
        sound = base_offset
        if base_offset <= self.damaged or (base_offset > probe and probe in self._borders):
            sound = probe
        self._sound = min(sound, self.until)
        self._limit = min(self._limit, max(probe, self._refused + 1))  # from here on up there is nothing nearer

    def nothing_from(self, probe: int) -> None:
        """The log, or what may be read of it, ends at or below."""
        self._limit = min(self._limit, probe)

    def _at(self, offset: int) -> int:
        """The next border; the offset itself where none is known."""
        place = bisect_left(self._borders, offset)
        return self._borders[place] if place < len(self._borders) else offset
