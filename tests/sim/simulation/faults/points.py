"""Crash points: counts who passes which, and has a process struck at the first it passes of those it is armed for."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from regency.model import crash_points
from simulation.kernel.scheduler import Process, Scheduler

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTROLLER_PARTS = ("controller", "sender", "fenced")
"""First words of crash points in controller processes; all others are in agents."""

Strike = Callable[[Process], None]


class Trap:
    """Some points of some processes: whoever of them is at one of those first is struck, once."""

    __slots__ = ("names", "processes", "strike")

    def __init__(self, processes: Collection[str], names: Collection[str], strike: Strike) -> None:
        self.processes = processes
        self.names = names
        self.strike = strike


class Points:
    """Watches the crash points of one run."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.passed: Counter[str] = Counter()
        self.died_at: Counter[str] = Counter()
        """Where processes were struck: killed, paused or cut off."""
        self._scheduler = scheduler
        self._armed: dict[str, list[Trap]] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, production's crash points are watched."""
        crash_points.observe(self._reached)
        try:
            yield
        finally:
            crash_points.observe(None)

    def arm(self, processes: Collection[str], names: Collection[str], strike: Strike) -> None:
        """Call `strike` with the first of these processes that is at one of these points; it may kill or pause it."""
        trap = Trap(processes, names, strike)
        for name in names:
            self._armed.setdefault(name, []).append(trap)

    def disarm_all(self) -> None:
        """Nobody is struck any more."""
        self._armed.clear()

    def _reached(self, name: str) -> None:
        process = self._scheduler.process
        if process is not None:
            process.check_alive()
        self.passed[name] += 1
        if not self._armed or process is None:
            return
        for trap in self._armed.get(name, ()):
            if process.name in trap.processes:
                break
        else:
            return
        for each in trap.names:
            self._armed[each].remove(trap)
        self._scheduler.trace.note("point", process.name, "is at %s", name)
        self.died_at[name] += 1
        trap.strike(process)
        process.check_alive()
        if process.paused and self._scheduler.current is not None:
            self._scheduler.sleep_us(0)


def is_of_controller(point: str) -> bool:
    """Whether controller processes pass it, and not agents."""
    return point.partition(".")[0] in CONTROLLER_PARTS


def choose(points: Sequence[str], passed: Counter[str], chance: random.Random) -> list[str]:
    """Points to lie in wait at: one that was passed in this run, rather a rare one; or many that never were.

    Of those that never were, the first to be passed is the one: something rare, or the first of its kind.
    """
    known = [name for name in points if passed[name]]
    unknown = [name for name in points if not passed[name]]
    if known and (not unknown or chance.random() < 0.4):
        return chance.choices(known, [1 / passed[name] for name in known])
    return chance.sample(unknown, chance.randint(1, len(unknown)))
