"""ZkSession in simulation. It behaves as `regency.runtime.zookeeper.client` does over a real ensemble."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from regency.model.crash_points import crash_point
from regency.runtime.zookeeper.ops import (
    MAX_MULTI_BYTES,
    MAX_MULTI_OPS,
    MAX_REQUEST_BYTES,
    WINDOW,
    ChunkPlan,
    below,
    error_of,
)
from regency.runtime.zookeeper.session import (
    Children,
    Create,
    MultiOutcome,
    Op,
    OpOutcome,
    SessionCallback,
    SetData,
    WatchCallback,
    WatchMode,
    ZkCode,
    ZkConnectionLost,
    ZkError,
    ZkRequestTooLarge,
    Znode,
)
from simulation.kernel.scheduler import Process, Scheduler
from simulation.zookeeper import transactions
from simulation.zookeeper.connector import Connector
from simulation.zookeeper.link import ZkLink
from simulation.zookeeper.session_state import Call, Phase, SessionState
from simulation.zookeeper.transactions import Node, Result

if TYPE_CHECKING:
    from simulation.zookeeper.ensemble import Ensemble

_CHILDREN_MAX_PATHS: Final = 200
_CLOSE_PATIENCE_MS: Final = 2000
_STAT_BYTES: Final = 85
_ACL_BYTES: Final = 27
"""Of the open ACL, as a create carries it."""

_CODES: Final = {
    transactions.OK: ZkCode.ROLLED_BACK,
    transactions.RUNTIME_INCONSISTENCY: ZkCode.ROLLED_BACK,
    transactions.NO_NODE: ZkCode.NO_NODE,
    transactions.BAD_VERSION: ZkCode.BAD_VERSION,
    transactions.NO_CHILDREN_FOR_EPHEMERALS: ZkCode.NO_CHILDREN_FOR_EPHEMERALS,
    transactions.NODE_EXISTS: ZkCode.NODE_EXISTS,
    transactions.NOT_EMPTY: ZkCode.NOT_EMPTY,
}
_DONE: Final = OpOutcome(ZkCode.OK)

T = TypeVar("T")


class SimZkSession:
    """See ZkSession. Calls are made by actors of `process`; callbacks run on the scheduler's greenlet."""

    def __init__(
        self,
        scheduler: Scheduler,
        process: Process,
        ensemble: Ensemble,
        link: ZkLink,
        *,
        session_timeout_ms: int,
        name: str = "",
    ) -> None:
        self._scheduler = scheduler
        self._process = process
        self._link = link
        self._state = SessionState(scheduler, process, name or process.name, session_timeout_ms)
        self._connector = Connector(self._state, ensemble, link)
        link.owner = lambda: (ensemble, self._state.session_id)
        process.on_death(self._die)
        self._connector.again(0)

    @classmethod
    def connect(
        cls,
        scheduler: Scheduler,
        process: Process,
        ensemble: Ensemble,
        link: ZkLink,
        *,
        session_timeout_ms: int,
        name: str = "",
        connect_timeout_ms: int | None = None,
    ) -> Self:
        """A session, once there is one. Raises ZkError where there is none in time, as `zk_client.connect` does."""
        session = cls(scheduler, process, ensemble, link, session_timeout_ms=session_timeout_ms, name=name)
        patience_ms = session_timeout_ms if connect_timeout_ms is None else connect_timeout_ms
        if not session._wait_phase(lambda phase: phase is Phase.CONNECTED, patience_ms):
            session.close()
            raise ZkError(f"ZooKeeper gave no session within {patience_ms} ms.")
        return session

    @property
    def generation(self) -> int:
        return self._state.generation

    @property
    def session_id(self) -> int:
        return self._state.session_id

    @property
    def session_timeout_ms(self) -> int:
        return self._state.timeout_ms

    @property
    def connected(self) -> bool:
        return self._state.phase is Phase.CONNECTED

    def read(self, path: str) -> Znode | None:
        return self.read_many([path])[0]

    def read_many(self, paths: Sequence[str]) -> list[Znode | None]:
        """See ZkSession. Cut into MultiReads as the real one."""

        def submit(chunk: Sequence[str], generation: int) -> Call:
            return self._state.submit(lambda server, reply: server.read_many(chunk, reply), generation)

        def convert(path: str, node: Node) -> Znode:
            return Znode(path, node.data, node.stat)

        return self._bulk(ChunkPlan(paths), submit, lambda node: len(node.data), convert)

    def children(self, path: str) -> Children | None:
        return self.children_many([path])[0]

    def children_many(self, paths: Sequence[str]) -> list[Children | None]:
        """See ZkSession. Cut into MultiReads as the real one."""

        def submit(chunk: Sequence[str], generation: int) -> Call:
            return self._state.submit(lambda server, reply: server.children_many(chunk, reply), generation)

        def size(names: tuple[str, ...]) -> int:
            return sum(len(name) + 4 for name in names)

        return self._bulk(ChunkPlan(paths, max_paths=_CHILDREN_MAX_PATHS), submit, size, Children)

    def multi(self, ops: Sequence[Op], *, generation: int | None = None) -> MultiOutcome:
        check_size(ops)
        self._begin_call()
        (call,) = self._submit_multis([ops], generation)
        results = call.wait(self._scheduler)
        crash_point("zookeeper.write.after_reply")
        return _outcome(ops, results)

    def multi_pipelined(
        self, batches: Sequence[Sequence[Op]], *, generation: int | None = None
    ) -> list[MultiOutcome | ZkError]:
        self._begin_call()
        for ops in batches:
            check_size(ops)
        calls = self._submit_multis(batches, generation)
        results: list[MultiOutcome | ZkError] = []
        for ops, call in zip(batches, calls, strict=True):
            try:
                results.append(_outcome(ops, call.wait(self._scheduler)))
            except ZkError as error:
                results.append(error)
        crash_point("zookeeper.write.after_reply")
        return results

    def sync(self, path: str) -> None:
        self._begin_call()
        below("", path)
        state = self._state
        generation = state.generation
        deadline_ms = state.now_ms() + state.timeout_ms
        while True:
            self._wait_phase(
                lambda phase: phase is not Phase.SUSPENDED or state.generation != generation,
                max(deadline_ms - state.now_ms(), 0),
            )
            state.usable(generation)
            try:
                state.submit(lambda server, reply: server.sync(reply), generation).wait(self._scheduler)
            except ZkConnectionLost:
                if state.now_ms() >= deadline_ms:
                    raise
            else:
                return

    def watch(self, path: str, mode: WatchMode, callback: WatchCallback) -> None:
        self.watch_many([path], mode, callback)

    def watch_many(self, paths: Sequence[str], mode: WatchMode, callback: WatchCallback) -> None:
        self._begin_call()
        state = self._state
        calls: list[Call] = []
        refusal: ZkError | None = None
        for path in paths:
            below("", path)
            replaced = state.watches.add(path, mode, callback)
            try:
                wire = state.usable(None)
            except ZkError as error:
                refusal = error
                continue
            if replaced is not None and replaced.mode is not mode:
                state.send_remove_watch(path)
            calls.append(state.send_add_watch(wire, path, mode))
        if refusal is not None:
            raise refusal
        for call in calls:
            call.wait(self._scheduler)

    def unwatch(self, path: str) -> None:
        self._begin_call()
        below("", path)
        if self._state.watches.remove(path):
            self._state.send_remove_watch(path)

    def listen(self, callback: SessionCallback) -> None:
        self._state.add_listener(callback)

    def close(self) -> None:
        """See ZkSession. On the scheduler's own greenlet it does not wait for the server."""
        self._process.check_alive()
        state = self._state
        ended = state.begin_close()
        self._connector.stop()
        if ended is not None and self._scheduler.current is not None:
            with contextlib.suppress(ZkError):
                ended.wait(self._scheduler, self._process.clock.delay_us(_CLOSE_PATIENCE_MS))
        state.drop(ZkConnectionLost("This ZooKeeper session has been closed."))

    def _submit_multis(self, batches: Sequence[Sequence[Op]], generation: int | None) -> list[Call]:
        crash_point("zookeeper.write.before_call")
        sent = None if self._link.on_write is None else self._link.on_write(batches)
        self._state.usable(generation)
        calls = [self._submit_multi(ops, generation) for ops in batches]
        if sent is not None:
            sent()
        return calls

    def _submit_multi(self, ops: Sequence[Op], generation: int | None) -> Call:
        return self._state.submit(lambda server, reply: server.multi(ops, reply), generation, multi=True)

    def _bulk(
        self,
        plan: ChunkPlan,
        submit: Callable[[Sequence[str], int], Call],
        size: Callable[[Any], int],
        convert: Callable[[str, Any], T],
    ) -> list[T | None]:
        self._begin_call()
        crash_point("zookeeper.read.before_call")
        generation = self._state.generation
        found: list[T | None] = []
        under_way: deque[tuple[Sequence[str], Call]] = deque()
        while under_way or not plan.done:
            while not plan.done and len(under_way) < WINDOW:
                chunk = plan.next()
                for path in chunk:
                    below("", path)
                under_way.append((chunk, submit(chunk, generation)))
            chunk, call = under_way.popleft()
            parts = call.wait(self._scheduler)
            plan.learn(len(chunk), sum(_STAT_BYTES + size(part) for part in parts if part is not None))
            found.extend(None if part is None else convert(path, part) for path, part in zip(chunk, parts, strict=True))
        crash_point("zookeeper.read.after_reply")
        return found

    def _wait_phase(self, wanted: Callable[[Phase], bool], timeout_ms: int) -> bool:
        state = self._state
        deadline_ms = state.now_ms() + timeout_ms
        while not wanted(state.phase):
            left_ms = deadline_ms - state.now_ms()
            if left_ms <= 0:
                return False
            state.wait_changed(left_ms)
        return True

    def _begin_call(self) -> None:
        self._process.check_alive()
        if self._state.in_callback:
            raise RuntimeError("a ZooKeeper callback may not call the session: hand a mark to another thread")
        self._scheduler.compute()

    def _die(self) -> None:
        self._connector.stop()
        self._state.die()


def check_size(ops: Sequence[Op]) -> None:
    """Raises what `zk_ops.encode_ops` raises, for the same operations."""
    if not ops:
        raise ValueError("a multi of no operations")
    if len(ops) > MAX_MULTI_OPS:
        raise ZkRequestTooLarge(f"{len(ops)} operations in one multi; at most {MAX_MULTI_OPS} are sent.")
    size = largest = 0
    path = ""
    for op in ops:
        below("", op.path)
        own = 17 + len(op.path.encode())
        if isinstance(op, Create):
            own += 4 + len(op.data) + _ACL_BYTES
        elif op.version is not None and op.version < 0:
            raise ValueError(f"version {op.version} of {op.path} would match any; give the version that was read")
        if isinstance(op, SetData):
            own += 4 + len(op.data)
        size += own
        if own > largest:
            largest, path = own, op.path
    limit = MAX_REQUEST_BYTES if largest > MAX_MULTI_BYTES else MAX_MULTI_BYTES
    if size > limit:
        raise ZkRequestTooLarge(
            f"a multi of {len(ops)} operations takes {size} bytes, {largest} of them for {path};"
            f" at most {limit} are sent."
        )


def _outcome(ops: Sequence[Op], results: list[Result]) -> MultiOutcome:
    if all(result.error == transactions.OK for result in results):
        return MultiOutcome(tuple(_done(op, result) for op, result in zip(ops, results, strict=True)))
    outcomes: list[OpOutcome] = []
    for op, result in zip(ops, results, strict=True):
        code = _CODES.get(result.error)
        if code is None:
            raise error_of(result.error, f"{type(op).__name__.lower()} {op.path}")
        outcomes.append(OpOutcome(code))
    return MultiOutcome(tuple(outcomes))


def _done(op: Op, result: Result) -> OpOutcome:
    if isinstance(op, Create):
        return OpOutcome(ZkCode.OK, result.path)
    if isinstance(op, SetData) and result.node is not None:
        return OpOutcome(ZkCode.OK, stat=result.node.stat)
    return _DONE
