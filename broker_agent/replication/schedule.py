"""Things to do every so often: passive, asked with the time."""

from __future__ import annotations

from collections.abc import Callable

from regency.model.log_config import NEVER


class Schedule:
    """Periodic calls. An interval of NEVER or longer is never due."""

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        self._tasks: list[_Task] = []

    def every(self, interval_ms: int, call: Callable[[int], object]) -> None:
        """Call with the time every `interval_ms` (1 or more), first after one interval."""
        if interval_ms < NEVER:
            self._tasks.append(_Task(interval_ms, self._start_ms + interval_ms, call))

    def run_due(self, now_ms: int) -> None:
        """Make every call that is due, once: what was missed is not made up for."""
        for task in self._tasks:
            if task.due_ms <= now_ms:
                task.due_ms = now_ms + task.interval_ms
                task.call(now_ms)

    @property
    def next_due_ms(self) -> int | None:
        """When something is due; None if never."""
        return min((task.due_ms for task in self._tasks), default=None)


class _Task:
    __slots__ = ("call", "due_ms", "interval_ms")

    def __init__(self, interval_ms: int, due_ms: int, call: Callable[[int], object]) -> None:
        self.interval_ms = interval_ms
        self.due_ms = due_ms
        self.call = call
