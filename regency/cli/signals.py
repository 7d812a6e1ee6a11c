"""Ctrl-C, SIGTERM and a closed terminal end a command in order, through its `with` blocks."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from regency.cli.exits import Exit


class Ending:
    """Whether the command was told to end, and by what."""

    def __init__(self) -> None:
        self.status: Exit | None = None
        """The exit status that says so; None while nobody has asked."""


@contextmanager
def exit_on_termination() -> Iterator[Ending]:
    """Inside, SIGTERM and SIGHUP raise SystemExit and Ctrl-C raises KeyboardInterrupt. Main thread only.

    Code in C that the signal interrupts may put an error of its own in the place of these: ask the `Ending` as well.
    """
    ending = Ending()

    def leave(number: int, _: FrameType | None) -> None:
        # Raised as instances: what sys.exit() and Python's own handler of Ctrl-C raise is a bare class with a value
        # until someone looks at it, and in a callback confluent-kafka turns that into a SystemError.
        if number == signal.SIGINT:
            ending.status = Exit.INTERRUPTED
            raise KeyboardInterrupt
        ending.status = Exit.TERMINATED
        raise SystemExit(Exit.TERMINATED)

    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it: this command outlives its terminal
        signals.append(signal.SIGHUP)
    before = {number: signal.signal(number, leave) for number in signals}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
