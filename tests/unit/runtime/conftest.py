"""A ZooKeeper in memory behind the ZkSession port, which loses replies when told to; and a session core without I/O."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from regency.model.clock import ManualClock
from regency.runtime.zookeeper.core import Delivery, SessionCore
from regency.runtime.zookeeper.link import Link
from regency.runtime.zookeeper.session import (
    Check,
    Create,
    Delete,
    MultiOutcome,
    Op,
    OpOutcome,
    SetData,
    Stat,
    ZkCode,
    ZkConnectionLost,
    ZkError,
    ZkSessionLost,
    Znode,
)
from regency.runtime.zookeeper.wire import ConnectReply, FrameReader


class ZkInMemory:
    """What fenced_write uses of a ZkSession.

    `faults` are taken one per multi: "", "before", "after" (the reply is lost before or after the multi is applied),
    "over" (the session ends instead). `away`: how many calls find no connection.
    """

    def __init__(self) -> None:
        self.generation = 1
        self.session_id = 77
        self.znodes: dict[str, Znode] = {}
        self.faults: list[str] = []
        self.sync_faults = 0
        self.away = 0
        self.sent: list[list[Op]] = []
        self.between = lambda: None

    def put(self, path: str, data: bytes = b"", version: int = 0, owner: int = 0) -> None:
        self.znodes[path] = Znode(path, data, Stat(1, 1, version, owner, 0))

    def multi_pipelined(
        self, batches: Sequence[Sequence[Op]], *, generation: int | None = None
    ) -> list[MultiOutcome | ZkError]:
        if generation != self.generation:
            raise ZkSessionLost("over")
        if self.away:
            self.away -= 1
            raise ZkConnectionLost("no contact")
        return [self._multi(list(ops)) for ops in batches]

    def _multi(self, ops: list[Op]) -> MultiOutcome | ZkError:
        self.sent.append(ops)
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "over":
            return ZkSessionLost("over")
        if fault == "before":
            return ZkConnectionLost("lost")
        outcome = self._apply(ops)
        return ZkConnectionLost("lost") if fault == "after" else outcome

    def _apply(self, ops: list[Op]) -> MultiOutcome:
        before = dict(self.znodes)
        results: list[OpOutcome] = []
        for index, op in enumerate(ops):
            outcome = self._apply_one(op)
            if not outcome.ok:
                self.znodes = before
                rolled_back = OpOutcome(ZkCode.ROLLED_BACK)
                return MultiOutcome((*[rolled_back] * index, outcome, *[rolled_back] * (len(ops) - index - 1)))
            results.append(outcome)
        return MultiOutcome(tuple(results))

    def _apply_one(self, op: Op) -> OpOutcome:
        znode = self.znodes.get(op.path)
        if isinstance(op, Create):
            if znode:
                return OpOutcome(ZkCode.NODE_EXISTS)
            self.put(op.path, op.data, owner=self.session_id if op.ephemeral else 0)
            return OpOutcome(ZkCode.OK, op.path)
        if znode is None:
            return OpOutcome(ZkCode.NO_NODE)
        if op.version is not None and op.version != znode.stat.version:
            return OpOutcome(ZkCode.BAD_VERSION)
        match op:
            case SetData():
                self.put(op.path, op.data, op.version + 1)
                return OpOutcome(ZkCode.OK, stat=self.znodes[op.path].stat)
            case Delete():
                del self.znodes[op.path]
            case Check():
                pass
        return OpOutcome(ZkCode.OK)

    def sync(self, path: str) -> None:
        if self.sync_faults:
            self.sync_faults -= 1
            raise ZkConnectionLost("lost")
        self.between()

    def read_many(self, paths: Sequence[str]) -> list[Znode | None]:
        return [self.znodes.get(path) for path in paths]


@pytest.fixture
def zk() -> ZkInMemory:
    zk = ZkInMemory()
    zk.put("/epoch", b"5", version=5)
    return zk


class Bench:
    """A SessionCore with a clock that is moved by hand, and what it delivered."""

    def __init__(self, timeout_ms: int = 3000, chroot: str = "") -> None:
        self.clock = ManualClock()
        self.delivered: list[Delivery] = []
        self.wakes = 0
        self.core = SessionCore(
            timeout_ms=timeout_ms,
            hosts="zk:2181",
            chroot=chroot,
            clock=self.clock,
            deliver=self.delivered.append,
            wake=self._wake,
        )

    def _wake(self) -> None:
        self.wakes += 1

    def connect(self, session_id: int = 11) -> Link:
        attempt = self.core.attempt()
        reply = ConnectReply(self.core.requested_timeout_ms, attempt.session_id or session_id, b"p" * 16)
        link = self.core.connected(attempt, reply, self.clock.monotonic_ms(), FrameReader())
        assert link is not None
        return link

    def events(self) -> list[tuple[str, int]]:
        return [(one.session_event.value, one.generation) for one in self.delivered if one.session_event]


@pytest.fixture
def bench() -> Bench:
    return Bench()
