"""ZkSession over a real ZooKeeper ensemble. `connect` is the way in.

kazoo's wire records are used, its client is not: it reports no LOST while ZooKeeper is away, queues writes over
reconnects and expiries, and knows neither MultiRead nor persistent watches.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from itertools import accumulate
from typing import Final, TypeVar

from regency.model.clock import Clock, SystemClock
from regency.runtime.metrics.recent import RecentTimes
from regency.runtime.zookeeper.core import Phase, SessionCore
from regency.runtime.zookeeper.dispatcher import Dispatcher
from regency.runtime.zookeeper.hosts import ConnectString, parse_connect_string
from regency.runtime.zookeeper.io import IoThread
from regency.runtime.zookeeper.ops import SYNC_AND_READ, below, decode_outcome, encode_ops, error_of
from regency.runtime.zookeeper.records import (
    decode_children,
    decode_children_many,
    decode_read_many,
    encode_get_children,
    encode_multi_read,
    encode_path,
)
from regency.runtime.zookeeper.session import (
    Children,
    Create,
    MultiOutcome,
    Op,
    SessionCallback,
    WatchCallback,
    WatchMode,
    ZkAuthFailed,
    ZkCode,
    ZkConnectionLost,
    ZkError,
    ZkSession,
    Znode,
)
from regency.runtime.zookeeper.tcp import Waker
from regency.runtime.zookeeper.wire import ErrorNumber, OpCode, Reply, WireError

logger = logging.getLogger(__name__)

_CLOSE_PATIENCE_S: Final = 2.0
_CHILDREN_MAX_PATHS: Final = 200

T = TypeVar("T")


def connect(
    connect_string: str,
    *,
    session_timeout_ms: int,
    digest_auth: str = "",
    name: str = "",
    clock: Clock | None = None,
    connect_timeout_ms: int | None = None,
    set_acl: bool = False,
    latencies: RecentTimes | None = None,
    on_refusal: Callable[[], None] | None = None,
) -> ZkSession:
    """A session with the ensemble of `connect_string` ("host:port,host:port/chroot"); a missing chroot is created.

    Blocks until the first session exists, at most `connect_timeout_ms` (default: the session timeout). `digest_auth` is
    "user:password", empty for none; `set_acl` makes what we create everybody's to read and only that user's to change.
    `name` stands in the names of the threads. `latencies` takes the time of each request, `on_refusal` is called
    each time our credentials are refused; both on one thread.

    Raises ZkConnectStringInvalid, ZkAuthFailed where the credentials are refused, and ZkError naming the hosts where no
    server gave a session in time.
    """
    target = parse_connect_string(connect_string)
    client = ZkClient(
        target,
        session_timeout_ms,
        digest_auth,
        name or target.hosts,
        clock or SystemClock(),
        set_acl,
        latencies,
        on_refusal,
    )
    try:
        client.wait_connected(session_timeout_ms if connect_timeout_ms is None else connect_timeout_ms)
        client.create_chroot()
    except BaseException:
        client.close()
        raise
    return client


class ZkClient:
    """See ZkSession. Use `connect`. Two threads: I/O and callbacks."""

    def __init__(
        self,
        target: ConnectString,
        session_timeout_ms: int,
        digest_auth: str,
        name: str,
        clock: Clock,
        set_acl: bool,
        latencies: RecentTimes | None = None,
        on_refusal: Callable[[], None] | None = None,
    ) -> None:
        self._target = target
        self._clock = clock
        self._restrict = set_acl
        waker = Waker()
        self._dispatcher = Dispatcher(name, clock)
        self._core = SessionCore(
            timeout_ms=session_timeout_ms,
            hosts=target.hosts,
            chroot=target.chroot,
            clock=clock,
            deliver=self._dispatcher.put,
            wake=waker.wake,
            latencies=latencies,
            on_refusal=on_refusal,
        )
        self._io = IoThread(name, target, self._core, waker, clock, digest_auth)
        self._dispatcher.start(self._core)
        self._io.start()

    def wait_connected(self, timeout_ms: int) -> None:
        """Block until there is a session; see `connect` for what is raised."""
        core = self._core
        with core.changed:
            core.changed.wait_for(lambda: core.phase is Phase.CONNECTED or core.auth_failure, timeout_ms / 1000)
            if core.phase is Phase.CONNECTED:
                return
            if core.auth_failure:
                raise ZkAuthFailed(core.auth_failure, hint="Correct regency.zookeeper.digest.auth.")
            raise ZkError(
                f"ZooKeeper at {self._target.hosts} gave no session within {timeout_ms} ms"
                f" ({core.failure or 'no answer'}).",
                hint="Start it, or correct zookeeper.connect.",
            )

    def create_chroot(self) -> None:
        """Create what is missing of the chroot. Raises ZkAuthFailed, and ZkError for other refusals."""
        parts = self._target.chroot.split("/")[1:]
        for depth in range(len(parts)):
            path = "/" + "/".join(parts[: depth + 1])
            (result,) = self._multi([Create(path)], None, chroot="").results
            if result.code is ZkCode.NO_AUTH and not self._is_there(path):
                raise ZkAuthFailed(
                    f"The chroot {path} at {self._target.hosts} is missing, and we may not create it.",
                    hint="Create it for us, or correct zookeeper.connect or regency.zookeeper.digest.auth.",
                )
            if result.code not in (ZkCode.OK, ZkCode.NODE_EXISTS, ZkCode.NO_AUTH):
                raise ZkError(f"cannot create the chroot {path} at {self._target.hosts}: {result.code.value}.")

    def _is_there(self, path: str) -> bool:
        """Whether there is a znode, from the root, which we need not be allowed to read.

        ZooKeeper looks first whether we may create something there, then whether it is there already.
        """
        self._raise_for(self._call(OpCode.SYNC, encode_path(path)), f"sync {path}")
        reply = self._call(OpCode.MULTI_READ, encode_multi_read(OpCode.GET_DATA, [path]))
        self._raise_for(reply, f"read {path}")
        (found,) = self._decoded(lambda: decode_read_many(reply.body, [path]))
        return found != ErrorNumber.NO_NODE

    @property
    def generation(self) -> int:
        """See ZkSession."""
        return self._core.generation

    @property
    def session_id(self) -> int:
        """See ZkSession."""
        return self._core.session_id

    @property
    def session_timeout_ms(self) -> int:
        """See ZkSession."""
        return self._core.timeout_ms

    @property
    def connected(self) -> bool:
        """See ZkSession."""
        return self._core.phase is Phase.CONNECTED

    def read(self, path: str) -> Znode | None:
        """See ZkSession."""
        return self.read_many([path])[0]

    def read_many(self, paths: Sequence[str]) -> list[Znode | None]:
        """See ZkSession. The bound on time holds for each MultiRead."""

        def decode(body: bytes, chunk: Sequence[str]) -> Sequence[Znode | int]:
            return decode_read_many(body, chunk)

        return self._bulk(OpCode.GET_DATA, ChunkPlan(paths), decode)

    def children(self, path: str) -> Children | None:
        """See ZkSession. A request of its own, however many children there are."""
        reply = self._call(OpCode.GET_CHILDREN, encode_get_children(below(self._target.chroot, path)))
        if reply.error == ErrorNumber.NO_NODE:
            return None
        self._raise_for(reply, f"children of {path}")
        return Children(path, self._decoded(lambda: decode_children(reply.body)))

    def children_many(self, paths: Sequence[str]) -> list[Children | None]:
        """See ZkSession. The bound on time holds for each MultiRead."""

        def decode(body: bytes, chunk: Sequence[str]) -> Sequence[Children | int]:
            found = decode_children_many(body)
            if len(found) != len(chunk):
                raise WireError(f"{len(found)} results for {len(chunk)} paths")
            pairs = zip(chunk, found, strict=True)
            return [names if isinstance(names, int) else Children(path, names) for path, names in pairs]

        return self._bulk(OpCode.GET_CHILDREN, ChunkPlan(paths, max_paths=_CHILDREN_MAX_PATHS), decode)

    def multi(self, ops: Sequence[Op], *, generation: int | None = None) -> MultiOutcome:
        """See ZkSession."""
        return self._multi(ops, generation, chroot=self._target.chroot)

    def multi_pipelined(
        self, batches: Sequence[Sequence[Op]], *, generation: int | None = None
    ) -> list[MultiOutcome | ZkError]:
        """See ZkSession. All sizes are checked before the first batch is sent; the bound on time holds for each."""
        self._refuse_callbacks()
        payloads = [encode_ops(ops, self._target.chroot, restrict=self._restrict) for ops in batches]
        futures = self._core.submit([(OpCode.MULTI, payload) for payload in payloads], generation=generation)
        results: list[MultiOutcome | ZkError] = []
        for ops, future in zip(batches, futures, strict=True):
            try:
                results.append(self._outcome(ops, self._wait(future), self._target.chroot))
            except ZkError as error:
                results.append(error)
        return results

    def sync(self, path: str) -> None:
        """See ZkSession."""
        self._refuse_callbacks()
        generation = self._core.generation
        payload = encode_path(below(self._target.chroot, path))
        deadline_ms = self._clock.monotonic_ms() + self._core.timeout_ms
        while True:
            self._core.wait_connected(generation, max(deadline_ms - self._clock.monotonic_ms(), 0))
            try:
                reply = self._call(OpCode.SYNC, payload, generation)
                break
            except ZkConnectionLost:
                if self._clock.monotonic_ms() >= deadline_ms:
                    raise
        self._raise_for(reply, f"sync {path}")

    def watch(self, path: str, mode: WatchMode, callback: WatchCallback) -> None:
        """See ZkSession."""
        self.watch_many([path], mode, callback)

    def watch_many(self, paths: Sequence[str], mode: WatchMode, callback: WatchCallback) -> None:
        """See ZkSession. The bound on time holds for each path."""
        self._refuse_callbacks()
        futures = self._core.add_watches(paths, mode, callback)
        for path, future in zip(paths, futures, strict=True):
            self._raise_for(self._wait(future), f"watch {path}")

    def unwatch(self, path: str) -> None:
        """See ZkSession. Nothing is delivered to it after this, but for what its callback is just being told."""
        self._refuse_callbacks()
        self._core.remove_watch(path)

    def listen(self, callback: SessionCallback) -> None:
        """See ZkSession."""
        self._dispatcher.listen(callback)

    def close(self) -> None:
        """See ZkSession. Bounded by some seconds also where the server does not answer."""
        ended = self._core.begin_close()
        if ended:
            with contextlib.suppress(ZkError, TimeoutError, CancelledError):
                ended.result(_CLOSE_PATIENCE_S)
        self._io.stop(_CLOSE_PATIENCE_S)
        self._dispatcher.stop(_CLOSE_PATIENCE_S)

    def _multi(self, ops: Sequence[Op], generation: int | None, *, chroot: str) -> MultiOutcome:
        payload = encode_ops(ops, chroot, restrict=self._restrict)
        return self._outcome(ops, self._call(OpCode.MULTI, payload, generation), chroot)

    def _outcome(self, ops: Sequence[Op], reply: Reply, chroot: str) -> MultiOutcome:
        self._raise_for(reply, f"multi of {len(ops)} operations from {ops[0].path}")
        return self._decoded(lambda: decode_outcome(ops, reply.body, chroot))

    def _bulk(
        self, op_code: OpCode, plan: ChunkPlan, decode: Callable[[bytes, Sequence[str]], Sequence[T | int]]
    ) -> list[T | None]:
        self._refuse_callbacks()
        generation = self._core.generation
        found: list[T | None] = []
        under_way: deque[tuple[Sequence[str], Future[Reply]]] = deque()
        while under_way or not plan.done:
            while not plan.done and len(under_way) < WINDOW:
                chunk = plan.next()
                payload = encode_multi_read(op_code, [below(self._target.chroot, path) for path in chunk])
                (future,) = self._core.submit([(OpCode.MULTI_READ, payload)], generation=generation)
                under_way.append((chunk, future))
            chunk, future = under_way.popleft()
            reply = self._wait(future)
            self._raise_for(reply, f"read of {len(chunk)} znodes from {chunk[0]}")
            plan.learn(len(chunk), len(reply.body))
            parts = self._decoded(lambda: decode(reply.body, chunk))  # noqa: B023
            for path, part in zip(chunk, parts, strict=True):
                if isinstance(part, int) and part != ErrorNumber.NO_NODE:
                    raise error_of(part, f"read {path}")
            found += [None if isinstance(part, int) else part for part in parts]
        return found

    def _call(self, op_code: OpCode, payload: bytes, generation: int | None = None) -> Reply:
        self._refuse_callbacks()
        (future,) = self._core.submit([(op_code, payload)], generation=generation)
        return self._wait(future)

    def _wait(self, future: Future[Reply]) -> Reply:
        timeout_ms = self._core.timeout_ms
        try:
            return future.result(timeout_ms / 1000)
        except TimeoutError:
            sent = not future.cancel()
            raise ZkConnectionLost(
                f"ZooKeeper at {self._target.hosts} did not answer within the session timeout of {timeout_ms} ms.",
                hint=SYNC_AND_READ if sent else "Nothing was sent.",
            ) from None

    def _refuse_callbacks(self) -> None:
        if self._dispatcher.on_this_thread():
            raise RuntimeError("a ZooKeeper callback may not call the session: hand a mark to another thread")

    def _raise_for(self, reply: Reply, what: str) -> None:
        if reply.error:
            raise error_of(reply.error, what)

    def _decoded(self, decode: Callable[[], T]) -> T:
        try:
            return decode()
        except WireError as error:
            raise ZkError(f"ZooKeeper at {self._target.hosts} answered what cannot be read: {error}.") from error


MAX_PATHS: Final = 500
FIRST_PATHS: Final = 32
MAX_REQUEST_BYTES: Final = 256 * 1024
TARGET_REPLY_BYTES: Final = 512 * 1024
WINDOW: Final = 4
"""Requests under way at a time: enough that the server never waits for us."""


class ChunkPlan:
    """Cuts a list of paths into requests."""

    def __init__(self, paths: Sequence[str], *, max_paths: int = MAX_PATHS) -> None:
        self._paths = paths
        self._next = 0
        self._max_paths = max_paths
        self._limit = min(FIRST_PATHS, max_paths)

    @property
    def done(self) -> bool:
        """Whether every path is in a chunk."""
        return self._next >= len(self._paths)

    def next(self) -> Sequence[str]:
        """The next chunk, at least one path; call only while not `done`."""
        chunk = self._paths[self._next : self._next + self._limit]
        if sum(map(len, chunk)) + 16 * len(chunk) > MAX_REQUEST_BYTES:
            sizes = accumulate(len(path) + 16 for path in chunk)
            fitting = sum(size <= MAX_REQUEST_BYTES for size in sizes)
            chunk = chunk[: max(fitting, 1)]
        self._next += len(chunk)
        return chunk

    def learn(self, paths: int, reply_bytes: int) -> None:
        """A chunk of `paths` paths gave a reply of that size: the next ones aim at the target, at most doubling."""
        fitting = TARGET_REPLY_BYTES * paths // max(reply_bytes, 1)
        self._limit = max(1, min(fitting, self._limit * 2, self._max_paths))
