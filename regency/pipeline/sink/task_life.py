"""Whether Spark still wants what a task does. It tells a Python worker nothing when it gives up a task, or dies.

It closes the connection the rows come by, and lets the worker go on. To who reads rows that looks like their end, if
it happens between two batches; and who waits for brokers to acknowledge what was queued would wait, and send, for long.
"""

from __future__ import annotations

import inspect
import select
from typing import Final, Self

from regency.pipeline.errors import PipelineError

_CLOSED: Final = select.POLLHUP | select.POLLERR | select.POLLNVAL | getattr(select, "POLLRDHUP", 0)


class TaskGivenUp(PipelineError):
    """Spark has closed the connection to this task: another attempt of it may begin at any time, or its driver died."""

    code = "pipeline_task_given_up"


class TaskLife:
    """The connection a task's rows come by, as its own thread finds it."""

    def __init__(self, descriptor: int | None) -> None:
        self._poll = None
        if descriptor is not None:
            self._poll = select.poll()
            self._poll.register(descriptor, _CLOSED)

    @classmethod
    def of_this_task(cls) -> Self:
        """Call it inside of a task. Where no connection is found, as outside of Spark, a task lives for ever.

        PySpark (4.2, 4.3) hands out no connection; it is a local variable of the caller of the worker's main.
        """
        frame = inspect.currentframe()
        while frame is not None:
            descriptor = _descriptor(frame.f_locals.get("infile"))
            if descriptor is not None:
                return cls(descriptor)
            frame = frame.f_back
        return cls(None)

    def check(self) -> None:
        """Raise TaskGivenUp if the connection is closed. Does not wait."""
        if self._poll is not None and self._poll.poll(0):
            raise TaskGivenUp(
                "Spark has given up this task.", hint="Nothing is wrong with it; what it queued is dropped."
            )


def _descriptor(file: object) -> int | None:
    try:
        number: int = file.fileno()  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return None
    return number
