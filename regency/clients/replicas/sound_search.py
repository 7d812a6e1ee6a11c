"""Finds where a replica can be read again behind a batch that its broker does not hand out. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable


class SoundSearch:
    """Ever further ahead, then half-way back: a few questions, however much is damaged.

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
