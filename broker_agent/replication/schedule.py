"""Things to do every so often: passive, asked with the time."""

from __future__ import annotations

from collections.abc import Callable

from regency.broker_agent.steps import Steps
from regency.model.clock import Clock
from regency.model.settings.log_config import NEVER

_SLICE_MS = 10
_SLICE_STEPS = 1_000
"""How long, and for how many steps, work that looks at every log goes on before it lets others in."""


class Schedule:
    """Periodic calls. An interval of NEVER or longer is never due."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_ms = clock.monotonic_ms()
        self._tasks: list[_Task] = []

    def every(self, interval_ms: int, call: Callable[[int], Steps[None] | None]) -> Callable[[], None]:
        """Call with the time every `interval_ms` (1 or more), first after one interval. Returns what makes it due now.

        Steps that the call returns are taken by and by; while some are left, the call is not made again.
        """
        task = _Task(interval_ms, self._start_ms + interval_ms, call)
        if interval_ms < NEVER:
            self._tasks.append(task)

        def make_due() -> None:
            task.due_ms = self._clock.monotonic_ms()

        return make_due

    def run_due(self, now_ms: int) -> None:
        """Make every call that is due, once: what was missed is not made up for. Go on with what was begun."""
        for task in self._tasks:
            if task.due_ms <= now_ms:
                task.due_ms = now_ms + task.interval_ms
                if task.steps is None:
                    task.steps = task.call(now_ms)
        self._go_on()

    def _go_on(self) -> None:
        left, stop_ms = _SLICE_STEPS, self._clock.monotonic_ms() + _SLICE_MS
        for task in self._tasks:
            while task.steps is not None:
                if not left or self._clock.monotonic_ms() >= stop_ms:
                    return
                left -= 1
                if next(task.steps, _END) is _END:
                    task.steps = None

    @property
    def next_due_ms(self) -> int | None:
        """When something is due; None if never."""
        if any(task.steps is not None for task in self._tasks):
            return self._clock.monotonic_ms() + 1
        return min((task.due_ms for task in self._tasks), default=None)


_END = object()


class _Task:
    __slots__ = ("call", "due_ms", "interval_ms", "steps")

    def __init__(self, interval_ms: int, due_ms: int, call: Callable[[int], Steps[None] | None]) -> None:
        self.interval_ms = interval_ms
        self.due_ms = due_ms
        self.call = call
        self.steps: Steps[None] | None = None
