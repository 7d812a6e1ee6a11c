"""Shares the data loop among all who have requests to begin or to go on with: one step each, in turn.

What an iteration of the loop gives them is bounded by time, however many they are and whatever they ask for; what is
left has its turn in the next iteration, after everything else that has become ready.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Final

BUDGET_NS: Final = 10_000_000
"""Of one iteration of the loop; the step that is going on when it is used up is ended."""

Step = Callable[[], bool]
"""Does some milliseconds of work at most; whether there is more. Raises nothing."""


class Turns:
    """Steps in the order in which they are asked for. Data loop only."""

    def __init__(self) -> None:
        self._waiting: deque[Step] = deque()
        self._until = 0
        """When the time of this iteration is used up, on the clock of `perf_counter_ns`; 0: nothing of it is."""

    def take(self, step: Step) -> bool:
        """Call `step` now, if it is no other's turn and there is time left, else as `add`; whether it was called."""
        if self._waiting or (self._until and perf_counter_ns() >= self._until):
            self._waiting.append(step)
            return False
        if not self._until:
            self._begin()
        if step():
            self._waiting.append(step)
        return True

    def add(self, step: Step) -> None:
        """Call `step` soon, not now, and again while it says that there is more."""
        self._waiting.append(step)
        if not self._until:
            self._begin()

    def _begin(self) -> None:
        self._until = perf_counter_ns() + BUDGET_NS
        asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        """In the next iteration. The one after which no caller waits is followed by a look that finds nothing to do."""
        waiting = self._waiting
        if not waiting:
            self._until = 0
            return
        self._begin()
        while waiting:
            step = waiting.popleft()
            if step():
                waiting.append(step)
            if perf_counter_ns() >= self._until:
                break
