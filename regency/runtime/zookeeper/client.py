"""ZkSession over a real ZooKeeper ensemble: `connect` is the way in; the thread that calls back is here too.

That thread is apart from the one of `io`, so that neither a slow callback delays a ping nor a hanging DNS lookup delays
LOST. kazoo's wire records are used, its client is not: it reports no LOST while ZooKeeper is away, queues writes over
reconnects and expiries, and knows neither MultiRead nor persistent watches.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Final, TypeVar

from regency.model.clock import Clock, SystemClock
from regency.runtime.metrics.recent import RecentTimes
from regency.runtime.zookeeper import wire
from regency.runtime.zookeeper.core import Delivery, Phase, SessionCore
from regency.runtime.zookeeper.hosts import ConnectString, parse_connect_string
from regency.runtime.zookeeper.io import IoThread, Waker
from regency.runtime.zookeeper.ops import SYNC_AND_READ, WINDOW, ChunkPlan, below, decode_outcome, encode_ops, error_of
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

logger = logging.getLogger(__name__)

_MAX_WAIT_MS: Final = 3_600_000
_CLOSE_PATIENCE_S: Final = 2.0
_CHILDREN_MAX_PATHS: Final = 200

T = TypeVar("T")


class Dispatcher:
    """Tells watches and listeners what happened, in the order it was put, and gives up a session that is overdue.

    A callback that raises is logged and the next one is called.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._clock = clock
        self._queue: queue.SimpleQueue[tuple[Delivery, tuple[SessionCallback, ...]] | None] = queue.SimpleQueue()
        self._listeners: list[SessionCallback] = []
        self._thread = threading.Thread(target=self._run, name=f"zk-callbacks-{name}", daemon=True)
        self._core: SessionCore | None = None

    def start(self, core: SessionCore) -> None:
        """Begin to call back and to guard the deadline of `core`."""
        self._core = core
        self._thread.start()

    def put(self, delivery: Delivery) -> None:
        """Deliver after everything put before, to those who listen by now. Never blocks."""
        self._queue.put((delivery, tuple(self._listeners)))

    def listen(self, callback: SessionCallback) -> None:
        """Add a listener of session events that are put from now on."""
        self._listeners.append(callback)

    def on_this_thread(self) -> bool:
        """Whether the caller is a callback."""
        return threading.current_thread() is self._thread

    def stop(self, timeout_s: float) -> None:
        """End the thread once what it is doing is done; waits at most `timeout_s`, and not at all from a callback."""
        self._core = None
        self._queue.put(None)
        if self._thread.is_alive() and not self.on_this_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while core := self._core:
            deadline_ms = core.deadline_ms()
            wait_ms = _MAX_WAIT_MS if deadline_ms is None else max(deadline_ms - self._clock.monotonic_ms(), 0)
            try:
                entry = self._queue.get(timeout=wait_ms / 1000)
            except queue.Empty:
                core.expire_if_due()
                continue
            if entry:
                self._deliver(core, *entry)

    def _deliver(self, core: SessionCore, delivery: Delivery, listeners: tuple[SessionCallback, ...]) -> None:
        if delivery.watch and delivery.watch_event:
            if core.is_current(delivery.watch):
                self._call(partial(delivery.watch.callback, delivery.watch_event), delivery)
        elif delivery.session_event:
            for listener in listeners:
                self._call(partial(listener, delivery.session_event, delivery.generation), delivery)

    def _call(self, callback: Callable[[], None], delivery: Delivery) -> None:
        try:
            callback()
        except Exception:  # a callback is foreign code: its fault must not cost the others their events
            logger.exception("a ZooKeeper callback failed on %s", delivery.watch_event or delivery.session_event)


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
    name, clock, waker = name or target.hosts, clock or SystemClock(), Waker()
    dispatcher = Dispatcher(name, clock)
    core = SessionCore(
        timeout_ms=session_timeout_ms,
        hosts=target.hosts,
        chroot=target.chroot,
        clock=clock,
        deliver=dispatcher.put,
        wake=waker.wake,
        latencies=latencies,
        on_refusal=on_refusal,
    )
    io = IoThread(name, target, core, waker, clock, digest_auth)
    client = ZkClient(target, core, dispatcher, io, clock, restrict=set_acl)
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
        core: SessionCore,
        dispatcher: Dispatcher,
        io: IoThread,
        clock: Clock,
        *,
        restrict: bool,
    ) -> None:
        self._target = target
        self._core = core
        self._dispatcher = dispatcher
        self._io = io
        self._clock = clock
        self._restrict = restrict
        dispatcher.start(core)
        io.start()

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
        self._raise_for(self._call(wire.OpCode.SYNC, wire.encode_path(path)), f"sync {path}")
        reply = self._call(wire.OpCode.MULTI_READ, wire.encode_multi_read(wire.OpCode.GET_DATA, [path]))
        self._raise_for(reply, f"read {path}")
        (found,) = self._decoded(lambda: wire.decode_read_many(reply.body, [path]))
        return found != wire.ErrorNumber.NO_NODE

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
        return self._bulk(wire.OpCode.GET_DATA, ChunkPlan(paths), wire.decode_read_many)

    def children(self, path: str) -> Children | None:
        """See ZkSession. A request of its own, however many children there are."""
        reply = self._call(wire.OpCode.GET_CHILDREN, wire.encode_get_children(below(self._target.chroot, path)))
        if reply.error == wire.ErrorNumber.NO_NODE:
            return None
        self._raise_for(reply, f"children of {path}")
        return Children(path, self._decoded(lambda: wire.decode_children(reply.body)))

    def children_many(self, paths: Sequence[str]) -> list[Children | None]:
        """See ZkSession. The bound on time holds for each MultiRead."""
        return self._bulk(
            wire.OpCode.GET_CHILDREN, ChunkPlan(paths, max_paths=_CHILDREN_MAX_PATHS), wire.decode_children_many
        )

    def multi(self, ops: Sequence[Op], *, generation: int | None = None) -> MultiOutcome:
        """See ZkSession."""
        return self._multi(ops, generation, chroot=self._target.chroot)

    def multi_pipelined(
        self, batches: Sequence[Sequence[Op]], *, generation: int | None = None
    ) -> list[MultiOutcome | ZkError]:
        """See ZkSession. All sizes are checked before the first batch is sent; the bound on time holds for each."""
        self._refuse_callbacks()
        payloads = [encode_ops(ops, self._target.chroot, restrict=self._restrict) for ops in batches]
        futures = self._core.submit([(wire.OpCode.MULTI, payload) for payload in payloads], generation=generation)
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
        payload = wire.encode_path(below(self._target.chroot, path))
        deadline_ms = self._clock.monotonic_ms() + self._core.timeout_ms
        while True:
            self._core.wait_connected(generation, max(deadline_ms - self._clock.monotonic_ms(), 0))
            try:
                reply = self._call(wire.OpCode.SYNC, payload, generation)
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
        return self._outcome(ops, self._call(wire.OpCode.MULTI, payload, generation), chroot)

    def _outcome(self, ops: Sequence[Op], reply: wire.Reply, chroot: str) -> MultiOutcome:
        self._raise_for(reply, f"multi of {len(ops)} operations from {ops[0].path}")
        return self._decoded(lambda: decode_outcome(ops, reply.body, chroot))

    def _bulk(
        self, op_code: wire.OpCode, plan: ChunkPlan, decode: Callable[[bytes, Sequence[str]], Sequence[T | int]]
    ) -> list[T | None]:
        self._refuse_callbacks()
        generation = self._core.generation
        found: list[T | None] = []
        under_way: deque[tuple[Sequence[str], Future[wire.Reply]]] = deque()
        while under_way or not plan.done:
            while not plan.done and len(under_way) < WINDOW:
                chunk = plan.next()
                payload = wire.encode_multi_read(op_code, [below(self._target.chroot, path) for path in chunk])
                (future,) = self._core.submit([(wire.OpCode.MULTI_READ, payload)], generation=generation)
                under_way.append((chunk, future))
            chunk, future = under_way.popleft()
            reply = self._wait(future)
            self._raise_for(reply, f"read of {len(chunk)} znodes from {chunk[0]}")
            plan.learn(len(chunk), len(reply.body))
            parts = self._decoded(lambda: decode(reply.body, chunk))  # noqa: B023
            for path, part in zip(chunk, parts, strict=True):
                if isinstance(part, int) and part != wire.ErrorNumber.NO_NODE:
                    raise error_of(part, f"read {path}")
            found += [None if isinstance(part, int) else part for part in parts]
        return found

    def _call(self, op_code: wire.OpCode, payload: bytes, generation: int | None = None) -> wire.Reply:
        self._refuse_callbacks()
        (future,) = self._core.submit([(op_code, payload)], generation=generation)
        return self._wait(future)

    def _wait(self, future: Future[wire.Reply]) -> wire.Reply:
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

    def _raise_for(self, reply: wire.Reply, what: str) -> None:
        if reply.error:
            raise error_of(reply.error, what)

    def _decoded(self, decode: Callable[[], T]) -> T:
        try:
            return decode()
        except wire.WireError as error:
            raise ZkError(f"ZooKeeper at {self._target.hosts} answered what cannot be read: {error}.") from error
