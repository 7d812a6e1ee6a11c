"""When work is done for requests: steps on the data loop, one in turn for all who have some to begin or to go on with;
and a thread beside it for what a large request or answer takes.

What an iteration of the loop gives to steps is bounded by time, however many they are and whatever they ask for; what
is left has its turn in the next iteration, after everything else that has become ready.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter_ns
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

FEW_ROWS: Final = 1_000
"""Of an answer, put together at once: the rows of a thousand partitions take some 10 ms."""

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


class Aside:
    """A thread for decoding, putting together and encoding. Data loop only, but for the work itself.

    Only for work that looks at nothing but what belongs to one request and what never changes, such as a snapshot of
    the metadata. One at a time, so that a hundred of them take the memory of one.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="large-requests")
        self._thread.submit(int)  # begun now: later there may be no memory for a thread

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Have it done when its turn comes. Cancelled when the agent stops."""
        return asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *args, **kwargs))

    async def if_large(self, is_large: bool, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same where it is worth the while, else at once."""
        return await self.run(work, *args, **kwargs) if is_large else work(*args, **kwargs)

    def close(self) -> None:
        """Begin nothing more."""
        self._thread.shutdown(wait=False, cancel_futures=True)
