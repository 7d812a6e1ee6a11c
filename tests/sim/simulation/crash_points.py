"""The names of all crash points: those in the production sources, found without running them, and those of the ports.

The report of what a run has hit, and what it has missed, starts from here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from regency.model import crash_points

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


def crash_points_in_code() -> list[CrashPoint]:
    """Every call of `crash_point` in the production sources, by file and line."""
    found: list[CrashPoint] = []
    for path in _sources():
        source = path.read_text("utf-8")
        if _CALLED in source:
            found += crash_points_in(source, path.relative_to(_PACKAGE).as_posix())
    return found


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
