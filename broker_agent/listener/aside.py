"""A thread for what a large request or answer takes: decoding, putting together, encoding.

Only for work that looks at nothing but what belongs to one request and what never changes, such as a snapshot of the
metadata. One at a time, so that a hundred of them take the memory of one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

FEW_ROWS: Final = 1_000
"""Of an answer, put together at once: the rows of a thousand partitions take some 10 ms."""


class Aside:
    """Data loop only; the work itself runs on the thread."""

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
