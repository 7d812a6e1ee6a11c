"""What production code of the controller can write and react to, found in its sources and its routes."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

import regency.controller
from regency.controller import routes
from regency.controller.controller import Controller
from regency.controller.events import ControllerChanged, Event, SessionEnded, ShutDown

_FOLDER: Final = Path(regency.controller.__file__).resolve().parent
_SESSION_CALLS: Final = frozenset({"multi", "multi_pipelined", "fenced_write"})
_STORES: Final = frozenset({"access", "_access"})
_ITSELF: Final = "store.access.write"
"""Through which all stores write: what is written there is theirs."""


class Verb(NamedTuple):
    """A function that writes to ZooKeeper."""

    file: str
    """Below controller/, with dots and without .py."""
    name: str

    def __str__(self) -> str:
        return f"{self.file}.{self.name}"


@cache
def writing_verbs() -> frozenset[Verb]:
    """Every function of the controller that writes through a store's access, or straight through the session."""
    found = {verb for path in sorted(_FOLDER.rglob("*.py")) for verb in _verbs_in(path)}
    return frozenset(verb for verb in found if str(verb) != _ITSELF)


def handled_events() -> frozenset[str]:
    """Every kind of event there is a handler for."""
    own: tuple[type[Event], ...] = (ControllerChanged, SessionEnded, ShutDown)
    return frozenset(kind.__name__ for kind in (*own, *routes.NOTIFICATIONS, *routes.ANSWERS, *routes.REQUESTS))


def verb_of(frame: FrameType | None) -> Verb | None:
    """The innermost of them that runs in a frame or in one that has called it."""
    verbs = _known()
    while frame is not None:
        verb = verbs.get((frame.f_code.co_filename, frame.f_code.co_name))
        if verb is not None:
            return verb
        frame = frame.f_back
    return None


def event_of(frame: FrameType | None) -> str:
    """The kind of event that a controller's thread processes in a frame or in one that has called it; or nothing."""
    code = Controller.process.__code__
    while frame is not None:
        if frame.f_code is code:
            return type(frame.f_locals["event"]).__name__
        frame = frame.f_back
    return ""


@cache
def _known() -> dict[tuple[str, str], Verb]:
    loaded = Path(regency.controller.__file__).parent
    return {(f"{loaded.joinpath(*verb.file.split('.'))}.py", verb.name): verb for verb in writing_verbs()}


def _verbs_in(path: Path) -> list[Verb]:
    tree = ast.parse(path.read_text("utf-8"), str(path))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    file = ".".join(path.relative_to(_FOLDER).with_suffix("").parts)
    return [Verb(file, each.name) for each in functions if any(map(_writes, ast.walk(each)))]


def _writes(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    match node.func:
        case ast.Name(id=name):
            return name in _SESSION_CALLS
        case ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr="write" | "write_each"):
            return owner in _STORES
        case ast.Attribute(attr=name):
            return name in _SESSION_CALLS
    return False
