"""Crash points: their names, found in the sources without running them; who passes which; and processes that are struck
at the first they pass of those they are armed for.
"""

from __future__ import annotations

import ast
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import msgspec

from regency.model import crash_points
from simulation.kernel.scheduler import Process, ProcessDied, Scheduler

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


_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*){2}")
_PACKAGE = Path(crash_points.__file__).resolve().parent.parent
_CALLED = "crash_point"

AT_PORTS = frozenset(
    f"{port}.{when}"
    for port in ("zookeeper.write", "zookeeper.read", "grpc.call")
    for when in ("before_call", "after_reply")
)
"""Which the simulated ports pass themselves, in agents and in controllers: production names none there."""


class CrashPoint(msgspec.Struct, frozen=True):
    """One call of `crash_point`. `name` is None where it is not a literal."""

    name: str | None
    place: str
    """File, below the package, and line."""

    @property
    def is_well_named(self) -> bool:
        """Whether it is a literal of the form part.subject.when."""
        return self.name is not None and _NAME.fullmatch(self.name) is not None


def crash_points_in(source: str, file: str) -> list[CrashPoint]:
    """The calls of `crash_point` in one source text, in their order. Raises SyntaxError."""
    calls = (node for node in ast.walk(ast.parse(source, file)) if isinstance(node, ast.Call) and _is_called(node))
    found = [(call.lineno, CrashPoint(_literal(call), f"{file}:{call.lineno}")) for call in calls]
    return [point for _, point in sorted(found, key=lambda each: each[0])]


@cache
def crash_points_in_code() -> tuple[CrashPoint, ...]:
    """Every call of `crash_point` in the production sources, by file and line."""
    found: list[CrashPoint] = []
    for path in _sources():
        source = path.read_text("utf-8")
        if _CALLED in source:
            found += crash_points_in(source, path.relative_to(_PACKAGE).as_posix())
    return tuple(found)


def crash_point_names() -> list[str]:
    """The names of all crash points there are, sorted, each once."""
    return sorted({*AT_PORTS, *(point.name for point in crash_points_in_code() if point.name is not None)})


def _sources() -> Iterator[Path]:
    for folder in sorted(each for each in _PACKAGE.iterdir() if each.is_dir()):  # some are links, which rglob skips
        yield from sorted(folder.rglob("*.py"))


def _is_called(call: ast.Call) -> bool:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name == _CALLED
        case _:
            return False


def _literal(call: ast.Call) -> str | None:
    """The one argument, if it is a string that stands there."""
    if call.keywords or len(call.args) != 1 or not isinstance(call.args[0], ast.Constant):
        return None
    value = call.args[0].value
    return value if isinstance(value, str) else None
