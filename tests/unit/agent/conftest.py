"""Parts of the agent's tests: a ZooKeeper in memory that can lose replies and sessions, and queues for threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import pytest

from regency.runtime.zookeeper.session import (
    Children,
    Create,
    Delete,
    MultiOutcome,
    Op,
    OpOutcome,
    SessionCallback,
    SessionEvent,
    SetData,
    Stat,
    WatchCallback,
    WatchEvent,
    WatchEventType,
    WatchMode,
    ZkCode,
    ZkConnectionLost,
    ZkError,
    ZkSessionLost,
    Znode,
)

T = TypeVar("T")


class MemoryZooKeeper:
    """The tree of znodes. Sessions share it."""

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {}
        self.zxid = 0
        self.sessions = 0x100
        self.watchers: list[tuple[str, WatchMode, WatchCallback]] = []
        self._in_multi = False
        self._changed: list[tuple[str, WatchEventType]] = []

    def put(self, path: str, data: bytes = b"", owner: int = 0) -> Znode:
        """Create or replace a znode, as somebody else would."""
        self.zxid += 1
        return self._put(path, data, owner)

    def remove(self, path: str) -> None:
        """Delete a znode, as somebody else would."""
        self.zxid += 1
        self._remove(path)

    def _put(self, path: str, data: bytes, owner: int) -> Znode:
        held = self.nodes.get(path)
        if held is None:
            stat = Stat(self.zxid, self.zxid, 0, owner, 0)
            parent = self.nodes.get(path.rpartition("/")[0])
            if parent is not None:
                grown = msgspec.structs.replace(parent.stat, pzxid=self.zxid)
                self.nodes[parent.path] = msgspec.structs.replace(parent, stat=grown)
        else:
            stat = Stat(held.stat.czxid, self.zxid, held.stat.version + 1, held.stat.ephemeral_owner, 0)
        self.nodes[path] = Znode(path, data, stat)
        self._changed.append((path, WatchEventType.CREATED if held is None else WatchEventType.DATA_CHANGED))
        self._tell_unless_in_multi()
        return self.nodes[path]

    def _remove(self, path: str) -> None:
        del self.nodes[path]
        self._changed.append((path, WatchEventType.DELETED))
        self._tell_unless_in_multi()

    def _tell_unless_in_multi(self) -> None:
        if not self._in_multi:
            changed, self._changed = self._changed, []
            for path, kind in changed:
                self.tell(path, kind)

    def tell(self, path: str, kind: WatchEventType) -> None:
        for watched, mode, callback in self.watchers:
            if path == watched or (mode is WatchMode.PERSISTENT_RECURSIVE and path.startswith(watched + "/")):
                callback(WatchEvent(kind, path, watched))

    def names(self, parent: str) -> tuple[str, ...]:
        prefix = parent + "/"
        return tuple(
            sorted(p[len(prefix) :] for p in self.nodes if p.startswith(prefix) and "/" not in p[len(prefix) :])
        )

    def apply(self, ops: Sequence[Op], session_id: int) -> MultiOutcome:
        before, outcomes = dict(self.nodes), []
        self.zxid += 1
        self._in_multi = True
        for op in ops:
            code = self._code(op)
            outcomes.append(self._do(op, session_id) if code is ZkCode.OK else OpOutcome(code))
            if code is not ZkCode.OK:
                self.nodes, self._changed = before, []
                rolled_back = OpOutcome(ZkCode.ROLLED_BACK)
                done = len(outcomes) - 1
                outcomes = [*[rolled_back] * done, outcomes[-1], *[rolled_back] * (len(ops) - done - 1)]
                break
        self._in_multi = False
        self._tell_unless_in_multi()
        return MultiOutcome(tuple(outcomes))

    def _code(self, op: Op) -> ZkCode:
        held = self.nodes.get(op.path)
        if isinstance(op, Create):
            return ZkCode.NODE_EXISTS if held is not None and not op.sequential else ZkCode.OK
        if held is None:
            return ZkCode.NO_NODE
        if op.version is not None and op.version != held.stat.version:
            return ZkCode.BAD_VERSION
        return ZkCode.OK

    def _do(self, op: Op, session_id: int) -> OpOutcome:
        if isinstance(op, Create):
            path = f"{op.path}{self.zxid:010d}" if op.sequential else op.path
            self._put(path, op.data, session_id if op.ephemeral else 0)
            return OpOutcome(ZkCode.OK, path=path)
        if isinstance(op, SetData):
            return OpOutcome(ZkCode.OK, stat=self._put(op.path, op.data, 0).stat)
        if isinstance(op, Delete):
            self._remove(op.path)
        return OpOutcome(ZkCode.OK)


class MemorySession:
    """A ZkSession on a MemoryZooKeeper, in the hands of a test."""

    def __init__(self, server: MemoryZooKeeper) -> None:
        self.server = server
        self.generation = 0
        self.session_id = 0
        self.session_timeout_ms = 3000
        self.connected = False
        self.lose_replies = 0
        """How many of the next multis take effect but are not answered."""
        self.multis: list[Sequence[Op]] = []
        self._listeners: list[SessionCallback] = []
        self.new_session()

    def new_session(self) -> None:
        """A new generation is connected; ephemerals of the old one stay (nobody expired them yet)."""
        self.server.sessions += 1
        self.session_id = self.server.sessions
        self.generation += 1
        self.connected = True
        self._event(SessionEvent.CONNECTED)

    def expire(self) -> None:
        """The session is over and its ephemerals are gone."""
        owned = [path for path, node in self.server.nodes.items() if node.stat.ephemeral_owner == self.session_id]
        for path in owned:
            self.server.remove(path)
        self.connected = False
        self.session_id = 0
        self._event(SessionEvent.LOST)

    def suspend(self) -> None:
        self.connected = False
        self._event(SessionEvent.SUSPENDED)

    def resume(self) -> None:
        self.connected = True
        for watched, _mode, callback in list(self.server.watchers):
            callback(WatchEvent(WatchEventType.LOOK_AGAIN, watched, watched))
        self._event(SessionEvent.CONNECTED)

    def _event(self, event: SessionEvent) -> None:
        for listener in list(self._listeners):
            listener(event, self.generation)

    def _usable(self, generation: int | None = None) -> None:
        if (generation is not None and generation != self.generation) or not self.session_id:
            raise ZkSessionLost("the session is gone")
        if not self.connected:
            raise ZkConnectionLost("no contact")

    def read(self, path: str) -> Znode | None:
        self._usable()
        return self.server.nodes.get(path)

    def read_many(self, paths: Sequence[str]) -> list[Znode | None]:
        self._usable()
        return [self.server.nodes.get(path) for path in paths]

    def children(self, path: str) -> Children | None:
        self._usable()
        return Children(path, self.server.names(path))

    def children_many(self, paths: Sequence[str]) -> list[Children | None]:
        return [self.children(path) for path in paths]

    def multi(self, ops: Sequence[Op], *, generation: int | None = None) -> MultiOutcome:
        self._usable(generation)
        self.multis.append(ops)
        outcome = self.server.apply(ops, self.session_id)
        if self.lose_replies:
            self.lose_replies -= 1
            raise ZkConnectionLost("the reply was lost")
        return outcome

    def multi_pipelined(
        self, batches: Sequence[Sequence[Op]], *, generation: int | None = None
    ) -> list[MultiOutcome | ZkError]:
        self._usable(generation)
        outcomes: list[MultiOutcome | ZkError] = []
        for ops in batches:
            try:
                outcomes.append(self.multi(ops, generation=generation))
            except ZkConnectionLost as error:
                outcomes.append(error)
        return outcomes

    def sync(self, path: str) -> None:
        self._usable()

    def watch(self, path: str, mode: WatchMode, callback: WatchCallback) -> None:
        self.server.watchers.append((path, mode, callback))

    def unwatch(self, path: str) -> None:
        self.server.watchers = [watcher for watcher in self.server.watchers if watcher[0] != path]

    def listen(self, callback: SessionCallback) -> None:
        self._listeners.append(callback)

    def close(self) -> None:
        if self.session_id:
            self.expire()


class ManualLoop:
    """Stands for the data loop, its worker pool and its timers: what is handed in runs when the test says so."""

    def __init__(self) -> None:
        self.posted: list[Callable[[], None]] = []
        self.delayed: list[tuple[int, Callable[[], None]]] = []
        self.calls = 0

    def post(self, work: Callable[[], None]) -> None:
        self.posted.append(work)

    def later(self, delay_ms: int, work: Callable[[], None]) -> None:
        self.delayed.append((delay_ms, work))

    def call(self, work: Callable[[], T], *, timeout_ms: int) -> T:
        self.calls += 1
        return work()

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        def run() -> None:
            outcome: T | BaseException
            try:
                outcome = work()
            except Exception as error:  # noqa: BLE001 (carried to `done`)
                outcome = error
            done(outcome)

        self.posted.append(run)

    def run(self) -> None:
        """Run what was posted, and what that posted, until there is nothing left."""
        while self.posted:
            self.posted.pop(0)()

    def run_delayed(self) -> None:
        """Let every delay pass once."""
        due, self.delayed = self.delayed, []
        for _, work in due:
            work()
        self.run()


@pytest.fixture
def zookeeper() -> MemoryZooKeeper:
    return MemoryZooKeeper()


@pytest.fixture
def session(zookeeper: MemoryZooKeeper) -> MemorySession:
    return MemorySession(zookeeper)


@pytest.fixture
def another_session(zookeeper: MemoryZooKeeper) -> MemorySession:
    return MemorySession(zookeeper)


@pytest.fixture
def loop() -> ManualLoop:
    return ManualLoop()
