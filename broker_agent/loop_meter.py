"""How busy the data loop is: how much of its time it waits for something to happen, and how late it comes to what is
due. The selector is the one place where the loop waits.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from time import perf_counter_ns

from regency.runtime.metrics.recent import RecentTimes

LOOK_S = 1.0
"""How often the loop is looked at."""
OVER_LOOKS = 60
"""Idleness is told over so many looks back."""


class MeteredSelector(selectors.DefaultSelector):
    """The selector of an asyncio loop, which knows for how long it has waited."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_ns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As ever, with the time counted."""
        began = perf_counter_ns()
        ready = super().select(timeout)
        self.waited_ns += perf_counter_ns() - began
        return ready


class LoopMeter:
    """Looks at the loop it runs on once a second. Read by any thread."""

    def __init__(self, selector: MeteredSelector) -> None:
        self.lag = RecentTimes()
        """How late the look came, on the clock of `now_ms`."""
        self._selector = selector
        self._looks: deque[tuple[int, int]] = deque([(perf_counter_ns(), selector.waited_ns)], maxlen=OVER_LOOKS + 1)
        self._handle: asyncio.TimerHandle | None = None

    @staticmethod
    def now_ms() -> int:
        """The clock of `lag`."""
        return perf_counter_ns() // 1_000_000

    def start(self) -> None:
        """Begin to look; called on the loop."""
        due = asyncio.get_running_loop().time() + LOOK_S
        self._handle = asyncio.get_running_loop().call_at(due, self._look, due)

    def stop(self) -> None:
        """Look no more."""
        if self._handle is not None:
            self._handle.cancel()

    @property
    def idle_share(self) -> float:
        """Share of the last minute in which the loop waited, 0 to 1; since the start where that is less."""
        looks = tuple(self._looks)
        (first_ns, first_waited), (last_ns, last_waited) = looks[0], looks[-1]
        if last_ns == first_ns:
            last_ns, last_waited = perf_counter_ns(), self._selector.waited_ns
        return min(max((last_waited - first_waited) / max(last_ns - first_ns, 1), 0.0), 1.0)

    def _look(self, due: float) -> None:
        late = asyncio.get_running_loop().time() - due
        self.lag.record(int(late * 1_000_000), self.now_ms())
        self._looks.append((perf_counter_ns(), self._selector.waited_ns))
        self.start()
