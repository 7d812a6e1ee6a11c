"""How busy the data loop is: how much of its time it waits for something to happen, how late it comes to what is due,
and how long each of its steps takes. The selector is the one place where the loop waits: a step is all that the loop
does between two waits, for everything that was ready at once.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from time import perf_counter_ns, thread_time_ns

from regency.runtime.metrics.recent import RecentTimes

LOOK_S = 1.0
"""How often the loop is looked at."""
OVER_LOOKS = 60
"""Idleness is reported over so many looks back."""


class MeteredSelector(selectors.DefaultSelector):
    """The selector of an asyncio loop, which knows for how long it has waited, and what lay between two waits.

    Steps are distinguished by what they used of a processor and by the time that went by: a step that waits for a disk,
    or for a processor that others have, is long by the second alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waited_ns = 0
        self.steps_cpu = RecentTimes()
        """Processor time of the loop's thread in each step, on the clock of `LoopMeter.now_ms`."""
        self.steps_wall = RecentTimes()
        """Time that each step took, on the same clock."""
        self._step_cpu_ns = 0
        self._step_wall_ns = 0
        """When the running step began; 0 before the first."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As ever, with the times counted."""
        began = perf_counter_ns()
        if self._step_wall_ns:
            now_ms = began // 1_000_000
            self.steps_cpu.record((thread_time_ns() - self._step_cpu_ns) // 1000, now_ms)
            self.steps_wall.record((began - self._step_wall_ns) // 1000, now_ms)
        ready = super().select(timeout)
        self._step_cpu_ns, self._step_wall_ns = thread_time_ns(), perf_counter_ns()
        self.waited_ns += self._step_wall_ns - began
        return ready


class LoopMeter:
    """Looks at the loop it runs on once a second. Read by any thread."""

    def __init__(self, selector: MeteredSelector) -> None:
        self.lag = RecentTimes()
        """How late the look came, on the clock of `now_ms`."""
        self.steps = {"cpu": selector.steps_cpu, "wall": selector.steps_wall}
        """How long steps of the loop were, by the clock that tells it."""
        self.looked = 0
        """How often the loop has come to the look."""
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
        self.looked += 1
        self._looks.append((perf_counter_ns(), self._selector.waited_ns))
        self.start()
