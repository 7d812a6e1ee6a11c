"""SIGTERM and a closed terminal end a command in order, through its `with` blocks."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from regency.cli.exits import Exit


@contextmanager
def exit_on_termination() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise SystemExit, as Ctrl-C raises KeyboardInterrupt. Main thread only."""

    def leave(_: int, __: FrameType | None) -> None:
        sys.exit(Exit.TERMINATED)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
