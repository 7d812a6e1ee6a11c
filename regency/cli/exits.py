"""How commands end: their exit statuses, how an error becomes one, and signals, which end a command in order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import FrameType

from regency.cluster.errors import ClusterRunning, ClusterTimeout
from regency.model.errors import RegencyError


class Exit(IntEnum):
    """What the exit status of a command says."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNHEALTHY = 3
    IN_PROGRESS = 4
    TIMED_OUT = 5
    REFUSED = 6
    """For safety: going on could lose something."""
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS = {
    Exit.DONE: "done; of a question: all is well",
    Exit.FAILED: "it failed, or what was compared differs; the last line on stderr says what and what to do next",
    Exit.USAGE: "wrong use: an option or a value that cannot be; nothing was asked of the cluster",
    Exit.UNHEALTHY: "something is missing: a broker, a leader, a replica, a directory",
    Exit.IN_PROGRESS: "under way, or no controller rules now: ask again",
    Exit.TIMED_OUT: "no answer in time, or not done within `--timeout`; what was begun goes on",
    Exit.REFUSED: "refused for safety: going on could lose something; `--yes`, where the message says so",
    Exit.INTERRUPTED: "Ctrl-C",
    Exit.TERMINATED: "SIGTERM or SIGHUP",
}
"""The exit statuses in words, for docs/reference/commands.md."""


class CommandFailed(RegencyError):
    """A command could not do what was asked; the message is for the user."""

    code = "command_failed"

    def __init__(self, message: str, *, hint: str = "", status: Exit = Exit.FAILED) -> None:
        super().__init__(message, hint=hint)
        self.status = status


def status_of(error: RegencyError) -> Exit:
    """The exit status for an error."""
    match error:
        case CommandFailed():
            return error.status
        case ClusterTimeout():
            return Exit.TIMED_OUT
        case ClusterRunning():
            return Exit.REFUSED
        case _:
            return Exit.FAILED


class Ending:
    """Whether the command was told to end, and by what."""

    def __init__(self) -> None:
        self.status: Exit | None = None
        """The exit status that says so; None while no signal has come."""


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
