"""Crash points: counts who passes which, and has a process struck at the first it passes of those it is armed for."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from regency.model import crash_points
from simulation.kernel.scheduler import Process, ProcessDied, Scheduler

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTROLLER_PARTS = ("controller", "sender", "fenced")
"""First words of crash points in controller processes; all others are in agents."""

PORTS = ("zookeeper", "grpc")
"""First words of those that both pass."""

IN_BACKGROUND = (
    "log.background_flush.",
    "log.background_sync.",
    "log.checkpoint.",
    "log.clean_marker.",
    "log.directory.",
    "log.identity.",
    "log.new_file.",
    "log.recovery.",
    "log.removal.",
    "log.replacement.",
)
"""How points of logs begin that workers pass, or the thread that starts an agent: all others are the data loop's."""

LOCKED = frozenset({"log.checkpoint.before_rename"})
"""Where a lock is held that the data loop may want, over a rename. It would want to rename in that directory, too."""

FAVOURITES = 5
"""Of a seed."""

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
        self._armed.clear()

    def _reached(self, name: str) -> None:
        process = self._scheduler.process
        if process is not None and not process.alive:
            raise ProcessDied
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
    return point.startswith(CONTROLLER_PARTS + PORTS)


def is_of_agent(point: str) -> bool:
    return not point.startswith(CONTROLLER_PARTS)


def may_stand_still(point: str) -> bool:
    """Whether a thread may stand still there while the data loop goes on."""
    return point not in LOCKED and (not point.startswith("log.") or point.startswith(IN_BACKGROUND))


def favourites(points: Sequence[str], seed: int) -> frozenset[str]:
    """Those that a seed strikes rather than others, so that many seeds together strike at all."""
    first = seed * FAVOURITES % len(points)
    return frozenset([*points, *points][first : first + FAVOURITES])


def choose(points: Sequence[str], liked: Collection[str], passed: Counter[str], chance: random.Random) -> list[str]:
    """Points to lie in wait at: the first of them to be passed is the one.

    One that was passed in this run, by chance a rare one; or some that never were, or that are `liked`.
    """
    known = [name for name in points if passed[name]]
    unknown = [name for name in points if not passed[name]]
    favoured = [name for name in points if name in liked]
    choice = chance.random()
    if favoured and choice < 0.4:
        return favoured
    if known and (not unknown or choice < 0.7):
        return chance.choices(known, [1 / passed[name] ** (choice > 0.55) for name in known])
    return chance.sample(unknown, chance.randint(1, len(unknown)))
