"""One step ahead: the next item is made on a thread of its own while the last is being used."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def read_ahead(items: Iterator[T], *, stop: Callable[[], object]) -> Generator[T]:
    """The same items and errors. `stop` ends a step that is under way; it is called from here, also at the end.

    `items` is never advanced by two threads at once, nor after this has ended.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")
    try:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item
    finally:
        stop()
        pool.shutdown()
