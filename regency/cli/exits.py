"""Exit statuses of every command, and how an error becomes one."""

from __future__ import annotations

from enum import IntEnum

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
