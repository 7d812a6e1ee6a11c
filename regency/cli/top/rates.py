"""Rates from counters that are looked at from time to time and may begin anew. Passive."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

WINDOW_S = 10.0
"""Agents report once a second: over much less than this, reports that come early and late would show as swings."""


class Rates:
    """Growth per second of counters by name, over the last `WINDOW_S` seconds of what was seen."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, deque[tuple[float, int]]] = {}

    def see(self, name: Hashable, count: int, now_s: float) -> float | None:
        """Note a count, and give its rate; None after the first, and after one that is smaller than the one before."""
        seen = self._seen.setdefault(name, deque())
        if seen and count < seen[-1][1]:
            seen.clear()
        seen.append((now_s, count))
        while len(seen) > 2 and now_s - seen[1][0] >= WINDOW_S:
            seen.popleft()
        first_s, first = seen[0]
        return (count - first) / (now_s - first_s) if now_s > first_s else None

    def forget_all_but(self, names: set[Hashable]) -> None:
        """Forget counters that are no more."""
        for name in [each for each in self._seen if each not in names]:
            del self._seen[name]
