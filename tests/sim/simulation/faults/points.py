"""Crash points: counts who passes which, and kills or pauses a process at the one it is armed for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from regency.model import crash_points
from simulation.kernel.scheduler import Process, Scheduler

if TYPE_CHECKING:
    from collections.abc import Iterator


class Points:
    """Watches the crash points of one run."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.passed: Counter[str] = Counter()
        self.died_at: Counter[str] = Counter()
        self._scheduler = scheduler
        self._armed: dict[tuple[str, str], Callable[[Process], None]] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, production's crash points are watched."""
        crash_points.observe(self._reached)
        try:
            yield
        finally:
            crash_points.observe(None)

    def arm(self, process_name: str, point: str, strike: Callable[[Process], None]) -> None:
        """Call `strike` when a process of this name is at the point next; it may kill it or pause it."""
        self._armed[process_name, point] = strike

    def disarm(self, process_name: str, point: str) -> None:
        """Never mind."""
        self._armed.pop((process_name, point), None)

    def _reached(self, name: str) -> None:
        process = self._scheduler.process
        if process is not None:
            process.check_alive()
        self.passed[name] += 1
        if not self._armed or process is None:
            return
        strike = self._armed.pop((process.name, name), None)
        if strike is None:
            return
        self._scheduler.trace.note("point", process.name, "is at %s", name)
        self.died_at[name] += 1
        strike(process)
        process.check_alive()
        if process.paused and self._scheduler.current is not None:
            self._scheduler.sleep_us(0)
