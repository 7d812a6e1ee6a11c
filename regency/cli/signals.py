"""Ctrl-C, SIGTERM and a closed terminal end a command in order, through its `with` blocks."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from regency.cli.exits import Exit


@contextmanager
def exit_on_termination() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise SystemExit and Ctrl-C raises KeyboardInterrupt. Main thread only."""

    def leave(number: int, _: FrameType | None) -> None:
        # Raised as instances: what sys.exit() and Python's own handler of Ctrl-C raise is a bare class with a value
        # until someone looks at it, and in a callback confluent-kafka turns that into a SystemError.
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(Exit.TERMINATED)

    before = {number: signal.signal(number, leave) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
