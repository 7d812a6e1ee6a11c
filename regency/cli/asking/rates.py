"""How fast figures change, and how long until a follower has caught up or a volume is full. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

import msgspec

WINDOW_S = 10.0
"""Agents report once a second: over much less than this, reports that come early and late would show as swings."""


class Rates:
    """Change per second of figures by name, over the last `WINDOW_S` seconds of what was seen."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, deque[tuple[float, float]]] = {}

    def see(self, name: Hashable, count: float, now_s: float) -> float | None:
        """Note a counter, and give its rate; None after the first, and after one that is smaller than the one before.

        What is seen twice at the same moment counts once.
        """
        seen = self._seen.get(name)
        if seen and count < seen[-1][1]:
            seen.clear()
        return self.follow(name, count, now_s)

    def follow(self, name: Hashable, figure: float, now_s: float) -> float | None:
        """Note a figure that may fall too, and give its change per second; None after the first."""
        seen = self._seen.setdefault(name, deque())
        if not seen or seen[-1][0] < now_s:
            seen.append((now_s, figure))
        while len(seen) > 2 and now_s - seen[1][0] >= WINDOW_S:
            seen.popleft()
        (first_s, first), (last_s, last) = seen[0], seen[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else None

    def forget_all_but(self, names: set[Hashable]) -> None:
        """Forget figures that are no more."""
        for name in [each for each in self._seen if each not in names]:
            del self._seen[name]


class CatchUp(msgspec.Struct, frozen=True):
    """How a lag goes on. `per_s`: records by which it shrinks each second, negative where it grows; None: not known.

    `in_s`: seconds until nothing is left at this rate; None where it does not get less, or that is not known.
    """

    per_s: float | None = None
    in_s: float | None = None

    @property
    def told(self) -> str:
        """In some words; `?` where nothing is known."""
        if self.in_s is not None:
            return f"in sync in about {span(self.in_s)}" if self.in_s else "in sync soon"
        return "?" if self.per_s is None else "does not catch up"


def catch_up(lag: int | None, change_per_s: float | None) -> CatchUp:
    """From a lag in records, and its change per second."""
    if lag == 0:
        return CatchUp(None if change_per_s is None else -change_per_s, 0.0)
    if lag is None or change_per_s is None:
        return CatchUp()
    return CatchUp(-change_per_s, lag / -change_per_s if change_per_s < 0 else None)


def span(seconds: float) -> str:
    """A time for people: `90 s`, `3 min`, `9 h`, `12 days`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:,.0f} days"
