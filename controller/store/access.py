"""How the controller reads and writes ZooKeeper, whatever the subject: in bulk, patiently, every write fenced.

A lost connection is waited out within the session, bounded and without polling (`Retry`); ZkSessionLost is raised when
that is gone. ControllerMoved is raised when another controller has won. The stores of subjects are built on this.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import count
from typing import TypeVar

import msgspec

from regency.model.crash_points import crash_point
from regency.model.errors import ControllerMoved, ZnodeMalformed
from regency.model.ids import BrokerId, ControllerEpoch, ZkVersion
from regency.model.znodes import paths
from regency.runtime.zookeeper.fenced import FencedItem, ItemOutcome, fenced_write
from regency.runtime.zookeeper.ops import MAX_REQUEST_BYTES, op_size
from regency.runtime.zookeeper.session import (
    Check,
    Create,
    Op,
    SessionEvent,
    ZkCode,
    ZkConnectionLost,
    ZkSession,
    ZkSessionLost,
    Znode,
)

logger = logging.getLogger(__name__)


class Counters:
    """Counters that only grow; where the process restarts, from 0."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        """Events handled, by `cause`; those of a term that is over and those without a ruling controller among them."""
        self.failovers = 0
        """Elections won here whose failover was finished."""
        self.elections: Counter[str] = Counter()
        """Elections of a leader that are in ZooKeeper, one for each partition, by why there was one."""
        self.unclean_elections = 0
        """Leaders elected out of sync: records acknowledged before may be lost."""
        self.fenced_writes = 0
        """Batches of writes that ZooKeeper refused because another controller had won meanwhile."""
        self.repairs: Counter[str] = Counter()
        """Differences between reports and desired states that were put right, by kind."""


T = TypeVar("T")
Key = TypeVar("Key")

ATTEMPTS_IN_CONTACT = 5
"""How often a call may lose its connection while the session says it is connected, before it is given up."""


class Retry:
    """Repeats a call that lost its connection, as long as its session lives. Only for calls that may run twice."""

    def __init__(self, session: ZkSession) -> None:
        self._session = session
        self._changed = threading.Event()
        self.abandoned = False
        """Whether the process is ending."""
        session.listen(self._on_session_event)

    def until_done(self, call: Callable[[], T]) -> T:
        """The call's result. Raises ZkSessionLost when the session is gone, ZkConnectionLost after many losses."""
        generation = self._session.generation
        attempts = 0
        while True:
            self._changed.clear()
            try:
                return call()
            except ZkConnectionLost:
                if self._session.connected:
                    attempts += 1
                if attempts >= ATTEMPTS_IN_CONTACT:
                    raise
            crash_point("controller.contact.after_loss")
            self._await_contact(generation)

    def abandon(self) -> None:
        """Let every call that waits, now or later, end with ZkSessionLost: the process is ending."""
        self.abandoned = True
        self._changed.set()

    def _await_contact(self, generation: int) -> None:
        while True:
            if self.abandoned or self._session.generation != generation or self._session.session_id == 0:
                raise ZkSessionLost("The session with ZooKeeper ended while a call waited for contact.")
            if self._session.connected:
                return
            self._changed.wait(self._session.session_timeout_ms / 1000)
            self._changed.clear()

    def _on_session_event(self, _event: SessionEvent, _generation: int) -> None:
        self._changed.set()


LEFT_OUT = "It is left out until it is corrected; everything else goes on."
"""What comes of a znode that stays and cannot be read."""

LARGEST_OPERATION = MAX_REQUEST_BYTES - 1024
"""Bytes of an operation that still fits into one request with the check of the epoch and a chroot."""


class Fence(msgspec.Struct, frozen=True):
    """What a ruling controller's writes are checked against: its epoch, and the session that won it."""

    epoch: ControllerEpoch
    zk_version: int
    """Version of /controller_epoch as long as no other candidate has won."""
    generation: int


class EpochBehind(ControllerMoved):
    """A broker knows a higher controller epoch than ours although no other controller rules: /controller_epoch was set
    back.

    Rule again, beyond `seen`: brokers refuse whatever comes from a lower epoch than they have seen.
    """

    def __init__(self, message: str, seen: ControllerEpoch) -> None:
        super().__init__(message, hint="/controller_epoch was deleted or set back: rule again in a higher epoch.")
        self.seen = seen


class WriteCode(Enum):
    """What became of one write of a batch."""

    WRITTEN = "written"
    CONFLICT = "conflict"
    """The znode has another version: read it and decide again."""
    RESTARTED = "restarted"
    """A broker it names has registered again: read the registrations and decide again."""
    EXISTS = "exists"
    MISSING = "missing"
    FAILED = "failed"


class WriteResult(msgspec.Struct, frozen=True):
    """Outcome of one write; `zk_version` after it, where it was written."""

    code: WriteCode
    zk_version: ZkVersion = ZkVersion(-1)
    why: str = ""


_CODES = {
    ZkCode.BAD_VERSION: WriteCode.CONFLICT,
    ZkCode.NODE_EXISTS: WriteCode.EXISTS,
    ZkCode.NO_NODE: WriteCode.MISSING,
}


class StoreAccess:
    """One ZkSession in one controller epoch. The controller's thread calls it."""

    def __init__(self, session: ZkSession, retry: Retry, fence: Fence, counters: Counters) -> None:
        self.fence = fence
        self._counters = counters
        self._session = session
        self._retry = retry
        self._reported: set[tuple[str, int]] = set()
        self._versions: Mapping[BrokerId, ZkVersion] = {}
        self._guards: dict[tuple[BrokerId, ...], tuple[Check, ...]] = {}

    def know_incarnations(self, versions: Mapping[BrokerId, ZkVersion]) -> None:
        """From now on, brokers are guarded by these versions of their znodes in /brokers/incarnations."""
        if versions != self._versions:
            self._versions = versions
            self._guards = {}

    def guards(self, brokers: tuple[BrokerId, ...]) -> tuple[Check, ...]:
        """What holds as long as none of the brokers registers again; one that marks no incarnation goes unguarded."""
        guards = self._guards.get(brokers)
        if guards is None:
            known = [(each, self._versions[each]) for each in brokers if each in self._versions]
            guards = self._guards[brokers] = tuple(Check(paths.incarnation(each), version) for each, version in known)
        return guards

    def write(self, items: Sequence[FencedItem]) -> list[ItemOutcome]:
        """Write items, fenced, each for itself. Raises ControllerMoved, ZkSessionLost, ZkRequestTooLarge."""
        if not items:
            return []
        attempts = count()
        try:
            return self._retry.until_done(
                lambda: fenced_write(
                    self._session,
                    items,
                    epoch_path=paths.CONTROLLER_EPOCH,
                    epoch_version=self.fence.zk_version,
                    generation=self.fence.generation,
                    resumed=next(attempts) > 0,
                )
            )
        except ControllerMoved:
            self._counters.fenced_writes += 1
            raise

    def write_each(self, writes: Mapping[Key, tuple[Op, ...]], *, too_large: str) -> dict[Key, WriteResult]:
        """Write each for itself. FAILED, for this reason, where the first operation is too large for ZooKeeper."""
        fitting = {key: FencedItem(ops) for key, ops in writes.items() if op_size(ops[0]) <= LARGEST_OPERATION}
        outcomes = dict(zip(fitting, self.write(list(fitting.values())), strict=True))
        failed = WriteResult(WriteCode.FAILED, why=too_large)
        return {key: result_of(outcomes[key]) if key in outcomes else failed for key in writes}

    def children(self, path: str) -> tuple[str, ...]:
        """Names of a znode's children, sorted; none where there is no such znode.

        A parent that all write below is made again first: a cleanup by hand (`deleteall
        /admin/delete_topics`) would else have every later request lost, or refused for a reason that is none.
        """
        children = self._retry.until_done(lambda: self._session.children(path))
        if children is None and path in paths.PERSISTENT_PARENTS:
            logger.warning("%s is gone, deleted by hand: it is made again", path)
            self.write([FencedItem((Create(parent, b""),)) for parent in paths.PERSISTENT_PARENTS])
        return () if children is None else children.names

    def children_many(self, wanted: Sequence[str]) -> list[tuple[str, ...]]:
        """Names of the children of these znodes, in this order; none where there is no such znode."""
        if not wanted:
            return []
        found = self._retry.until_done(lambda: self._session.children_many(wanted))
        return [() if children is None else children.names for children in found]

    def read_many(self, wanted: Sequence[str]) -> list[Znode | None]:
        """These znodes, in this order; None for those that do not exist."""
        return self._retry.until_done(lambda: self._session.read_many(wanted)) if wanted else []

    def report(self, error: ZnodeMalformed, znode: Znode, consequence: str = LEFT_OUT) -> None:
        """Log once that a znode cannot be read, as long as it is not written again, and what comes of that."""
        self._report_once((znode.path, znode.stat.mzxid), error, consequence)

    def report_name(self, path: str, reason: str) -> None:
        """Log once that nothing of this name may stand there."""
        self._report_once((path, 0), ZnodeMalformed(path, reason), LEFT_OUT)

    def _report_once(self, seen: tuple[str, int], error: ZnodeMalformed, consequence: str) -> None:
        if seen not in self._reported:
            self._reported.add(seen)
            logger.error("%s %s", error, consequence)


def result_of(outcome: ItemOutcome) -> WriteResult:
    """What became of an item; `zk_version` is that of its last operation."""
    if outcome.guard is not None:
        return WriteResult(WriteCode.RESTARTED, why="a member restarted at this moment")
    if not outcome.ok:
        return WriteResult(_CODES.get(outcome.code, WriteCode.FAILED), why=outcome.code.value)
    stat = outcome.results[-1].stat
    return WriteResult(WriteCode.WRITTEN, ZkVersion(0 if stat is None else stat.version))
