"""One step is made ahead of what is used, on another thread, and ends when it is wanted no more."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from regency.pipeline.records.partition_records import read_ahead


def test_items_come_in_order_and_one_is_made_ahead() -> None:
    made: list[int] = []
    ready = [threading.Event() for _ in range(5)]

    def items() -> Iterator[int]:
        for number in range(4):
            made.append(number)
            ready[number].set()
            yield number
        ready[4].set()

    stopped: list[bool] = []
    used = []
    for number in read_ahead(items(), stop=lambda: stopped.append(True)):
        assert ready[number + 1].wait(2)
        assert made == list(range(min(number + 2, 4)))
        used.append(number)
    assert used == [0, 1, 2, 3]
    assert stopped == [True]


def test_an_error_comes_after_what_was_made_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    ahead = read_ahead(items(), stop=lambda: None)
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="broken"):
        next(ahead)


def test_who_stops_using_ends_what_is_under_way() -> None:
    stop = threading.Event()
    threads = []

    def items() -> Iterator[int]:
        threads.append(threading.current_thread())
        yield 1
        stop.wait(10)
        yield 2

    ahead = read_ahead(items(), stop=stop.set)
    assert next(ahead) == 1
    ahead.close()  # type: ignore[attr-defined]
    assert stop.is_set()
    threads[0].join(2)
    assert not threads[0].is_alive()
