"""Which files of production code something crosses: those with a function that is entered on its way.

A way is given by its stages: calls that begin a piece of it. Everything that runs below one of them belongs to the way,
in whatever simulated process; everything beside them does not. `regency/model` is left out: values and their codecs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import regency

ROOT = Path(regency.__file__).resolve().parent.parent
LINKED = ("broker_agent", "controller")
COUNTED = ("broker_agent/", "controller/", "regency/kafka/", "regency/runtime/")


class Stage(NamedTuple):
    """A piece of a way: what runs below calls of these functions, by qualified name."""

    name: str
    functions: tuple[str, ...]
    kinds: Mapping[str, str] = {}
    """Types that some of their arguments must have."""

    def begins(self, frame: FrameType) -> bool:
        """Whether this is such a call."""
        if frame.f_code.co_qualname not in self.functions:
            return False
        return all(type(frame.f_locals[name]).__name__ == kind for name, kind in self.kinds.items())


class Crossed:
    """What has been entered so far: by stage, paths below the repository in order of first entry."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = stages
        self._functions = frozenset(name for stage in stages for name in stage.functions)
        self.entered = {stage.name: dict[str, None]() for stage in stages}

    def enter(self, frame: FrameType, event: str, _argument: Any) -> None:
        """A profile function: see sys.setprofile."""
        path = _below_root(frame.f_code.co_filename) if event == "call" else None
        above: FrameType | None = frame
        while path is not None and above is not None:
            if above.f_code.co_qualname in self._functions:
                for stage in self._stages:
                    if stage.begins(above):
                        self.entered[stage.name][path] = None
                        return
            above = above.f_back


def _below_root(filename: str) -> str | None:
    path = filename.removeprefix(f"{ROOT}/")
    if path.startswith(tuple(f"regency/{name}/" for name in LINKED)):
        path = path.removeprefix("regency/")
    return path if path.startswith(COUNTED) else None


@contextmanager
def crossed(stages: Sequence[Stage]) -> Iterator[Crossed]:
    """Record what is crossed in these stages, on this thread and its greenlets."""
    recorded = Crossed(stages)
    sys.setprofile(recorded.enter)
    try:
        yield recorded
    finally:
        sys.setprofile(None)


def as_listed(way: Crossed, replaced: Sequence[str]) -> str:
    """The way as docs/internals/map.md lists it: by stage and folder, each file where it comes first, and the count.

    `replaced` are the files on it in whose place the simulation puts its own.
    """
    seen: set[str] = set()
    lines: list[str] = []
    for stage, paths in (*way.entered.items(), ("not in the simulation", replaced)):
        folders: dict[str, list[str]] = {}
        for path in paths:
            assert (ROOT / path).is_file(), f"there is no {path}"
            folder, name = path.rsplit("/", 1)
            if path not in seen:
                folders.setdefault(folder, []).append(name.removesuffix(".py"))
        seen.update(paths)
        lines += [stage] if folders else []
        lines += [f"    {folder}: {', '.join(names)}" for folder, names in folders.items()]
    return "\n".join([*lines, f"{len(seen)} files"])


def listed(heading: str) -> str:
    """What stands in the first block below a heading of docs/internals/map.md."""
    page = (ROOT / "docs" / "internals" / "map.md").read_text()
    return page.split(f"\n## {heading}")[1].split("```\n")[1].rstrip("\n")
