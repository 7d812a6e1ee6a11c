"""Sees every write that controllers send to ZooKeeper and every request they send to agents, and stops one at one.

Writes are numbered together with requests, in the order in which they are sent, from `begin` on.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import regency.controller
from regency.controller import routes
from regency.controller.controller import Controller
from regency.controller.events import ControllerChanged, Event, SessionEnded, ShutDown
from regency.protos import control_pb2 as pb
from regency.runtime.zookeeper.session import Op
from simulation.cluster.channels import ControlAsked
from simulation.kernel.scheduler import Process
from simulation.world import World
from simulation.zookeeper.link import ZkLink

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


class Moment(NamedTuple):
    """A write, or a request to an agent, that a controller is about to send."""

    number: int
    process: str
    verb: str
    """Which function writes; or the method that is asked for."""
    event: str
    """What the controller's thread reacts to meanwhile; empty for requests, which other threads send."""
    what: str
    is_write: bool

    def __str__(self) -> str:
        during = f" ({self.event})" if self.event else ""
        return f"{self.number}: {self.process}{during} {self.verb} {self.what}"


class When(Enum):
    """Where in sending something a process is paused."""

    BEFORE = "before it is sent"
    SENT = "when it is sent, its answer unread"
    HELD = "when it is sent, while it is on its way"


class Watch:
    """Watches the controllers of a world; `strike` is called with the process that stands still from then on."""

    def __init__(self, world: World, number: int, when: When, strike: Callable[[Process, Moment], None]) -> None:
        self.moments: list[Moment] = []
        self.silenced: set[tuple[str, str]] = set()
        """Hosts, and addresses that are not reached from there."""
        self._world = world
        self._number = number
        self._when = when
        self._strike = strike
        self._counting = False
        self._struck: Moment | None = None
        self._counted: ControlAsked | None = None
        self._let_go: Callable[[], None] | None = None
        for broker in world.hosts:
            name = f"controller-{broker}"
            link = world.zk_links[name] = ZkLink(world.scheduler)
            link.on_write = lambda batches, link=link: self._writes(link, batches)
        world.network.on_ask = self._asks
        world.network.tap = self._sends

    def begin(self) -> None:
        self._counting = True

    def stop(self) -> None:
        self._counting = False

    def let_go(self) -> None:
        """What was held on its way arrives now."""
        let_go, self._let_go = self._let_go, None
        if let_go is not None:
            let_go()

    # Writes

    def _writes(self, link: ZkLink, batches: Sequence[Sequence[Op]]) -> Callable[[], None] | None:
        scheduler = self._world.scheduler
        actor = scheduler.current
        if actor is None or not self._counting:
            return None
        process, frame = actor.process, sys._getframe(1)
        verb = verb_of(frame)
        assert verb is not None, f"{process.name} writes {batches} where no writing function was found"
        paths = [f"{type(op).__name__.lower()} {op.path}" for ops in batches for op in ops]
        moment = self._note(process, str(verb), event_of(frame), ", ".join(paths), is_write=True)
        if moment.number != self._number or self._struck is not None:
            return None
        self._struck = moment
        if self._when is When.BEFORE:
            self._pause(process)
            scheduler.sleep_us(0)
            return None
        if self._when is When.HELD:
            link.suffer(there=True, back=False, extra_us=0)
            self._let_go = link.heal
        return lambda: self._pause(process)

    # Requests

    def _asks(self, process: Process, address: str, request: Any) -> None:
        if self._counting:
            moment = self._note_request(process, address, request)
            self._counted = request
            if self._is_next(moment) and self._when is When.BEFORE:
                self._struck = moment
                self._pause(process)
                self._world.scheduler.sleep_us(0)

    def _sends(self, process: Process, source: str, address: str, request: Any) -> bool:
        """A request is sent: whether it gets lost."""
        if (source, address) in self.silenced:
            return True
        if not isinstance(request, ControlAsked) or not self._counting:
            return False
        counted, self._counted = self._counted, None
        moment = self.moments[-1] if counted is request else self._note_request(process, address, request)
        if not self._is_next(moment):
            return False
        self._struck = moment
        self._pause(process)
        if self._when is When.SENT:
            return False
        # Where no thread of its own waits, what would be sent after the pause is sent after it.
        self._let_go = lambda: self._world.network.deliver(process, source, address, request)
        return True

    def _is_next(self, moment: Moment) -> bool:
        return moment.number == self._number and self._struck is None

    def _note_request(self, process: Process, address: str, request: ControlAsked) -> Moment:
        return self._note(process, _METHODS[request.rpc.DESCRIPTOR.name], "", f"to {address}", is_write=False)

    # Both

    def _note(self, process: Process, verb: str, event: str, what: str, *, is_write: bool) -> Moment:
        moment = Moment(len(self.moments) + 1, process.name, verb, event, what, is_write)
        self.moments.append(moment)
        return moment

    def _pause(self, process: Process) -> None:
        assert self._struck is not None
        self._world.note("fault", process.name, "is paused %s: %s", self._when.value, self._struck)
        process.pause()
        self._strike(process, self._struck)


_METHODS: Final = {
    method.input_type.name: method.name for method in pb.DESCRIPTOR.services_by_name["AgentControl"].methods
}
REQUESTS: Final = frozenset(_METHODS.values())
"""Everything a controller can ask agents for."""
