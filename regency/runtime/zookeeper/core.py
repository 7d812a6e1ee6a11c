"""The state of a session with ZooKeeper: generation, deadline, connection, watches, and notices.

Passive: no thread, no socket. Callers' threads, the I/O thread and the dispatcher meet here under one lock, which is
never held while a callback runs. What may be written is decided here: a request is queued only on the connection of
the generation that is asked for, and handed out to be sent only before that generation's deadline.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from enum import Enum
from typing import Final

import msgspec

from regency.model.clock import Clock
from regency.runtime.metrics.recent import RecentTimes
from regency.runtime.zookeeper.link import Link
from regency.runtime.zookeeper.ops import SYNC_AND_READ, below, without_chroot
from regency.runtime.zookeeper.session import (
    SessionEvent,
    WatchCallback,
    WatchEvent,
    WatchEventType,
    WatchMode,
    ZkAuthFailed,
    ZkConnectionLost,
    ZkError,
    ZkSessionLost,
)
from regency.runtime.zookeeper.wire import (
    ConnectReply,
    FrameReader,
    OpCode,
    Reply,
    decode_notice,
    encode_add_watch,
    encode_remove_watches,
)

logger = logging.getLogger(__name__)

_EVENT_TYPES: Final = {
    1: WatchEventType.CREATED,
    2: WatchEventType.DELETED,
    3: WatchEventType.DATA_CHANGED,
    4: WatchEventType.CHILDREN_CHANGED,
}


class Watch(msgspec.Struct, frozen=True):
    """One registration. `number` tells apart a watch from the one that replaced it."""

    path: str
    mode: WatchMode
    callback: WatchCallback
    number: int


class WatchRegistry:
    """At most one watch per path; they stay until removed, whatever happens to connection and session."""

    def __init__(self) -> None:
        self._watches: dict[str, Watch] = {}
        self._count = 0

    def add(self, path: str, mode: WatchMode, callback: WatchCallback) -> Watch | None:
        """Register; returns the watch on the same path that this one replaces."""
        replaced = self._watches.get(path)
        self._count += 1
        self._watches[path] = Watch(path, mode, callback, self._count)
        return replaced

    def remove(self, path: str) -> bool:
        """Forget the watch on `path`; whether there was one."""
        return self._watches.pop(path, None) is not None

    def is_current(self, watch: Watch) -> bool:
        """Whether `watch` has neither been removed nor replaced."""
        return self._watches.get(watch.path) is watch

    def all(self) -> tuple[Watch, ...]:
        """Every watch, oldest path first."""
        return tuple(self._watches.values())

    def concerned(self, kind: int, changed: str) -> Iterator[tuple[Watch, WatchEvent]]:
        """The watches that cover a notice of ZooKeeper's `kind` at `changed`, with what each shall be told.

        A plain watch covers its own path only, a recursive one all below too, but never a change of children.
        """
        event_type = _EVENT_TYPES.get(kind)
        if event_type is None:
            return
        path, watch = changed, self._watches.get(changed)
        if watch and (watch.mode is WatchMode.PERSISTENT or event_type is not WatchEventType.CHILDREN_CHANGED):
            yield watch, WatchEvent(event_type, path, path)
        while path != "/" and event_type is not WatchEventType.CHILDREN_CHANGED:
            path = path.rpartition("/")[0] or "/"
            watch = self._watches.get(path)
            if watch and watch.mode is WatchMode.PERSISTENT_RECURSIVE:
                yield watch, WatchEvent(event_type, changed, path)


_SEND_BYTES: Final = 64 * 1024
"""From so many on, what is still to be sent waits for the next turn."""


class Phase(Enum):
    """Where the session stands."""

    ABSENT = "absent"
    """There is none: before the first, and between a lost one and the next."""
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    CLOSED = "closed"


class Attempt(msgspec.Struct, frozen=True):
    """What to ask of the next server: a new session where `session_id` is 0, else that one again."""

    generation: int
    session_id: int
    password: bytes
    last_zxid: int
    watches: tuple[Watch, ...]


class Delivery(msgspec.Struct, frozen=True):
    """Something to be told by the dispatcher: to one watch, or to every listener."""

    watch: Watch | None = None
    watch_event: WatchEvent | None = None
    session_event: SessionEvent | None = None
    generation: int = 0


class SessionCore:
    """One session at a time. `deliver` and `wake` must not block: they are called under the lock."""

    def __init__(
        self,
        *,
        timeout_ms: int,
        hosts: str,
        chroot: str,
        clock: Clock,
        deliver: Callable[[Delivery], None],
        wake: Callable[[], None],
        latencies: RecentTimes | None = None,
        on_refusal: Callable[[], None] | None = None,
    ) -> None:
        """`latencies` takes each request's time, `on_refusal` is called for refused credentials; under the lock."""
        self._latencies = latencies or RecentTimes()
        self.requested_timeout_ms = timeout_ms
        self.timeout_ms = timeout_ms
        """Negotiated; what was asked for before there is a session."""
        self.generation = 0
        self.session_id = 0
        self.phase = Phase.ABSENT
        self.changed = threading.Condition()
        """Guards everything here, and may be entered again; notified when `phase` or `failure` changes."""
        self.failure = ""
        """Why the last attempt to connect failed; empty when connected."""
        self.auth_failure = ""
        """What ZooKeeper said when it refused our credentials; empty where it did not."""
        self._on_refusal = on_refusal
        self._hosts = hosts
        self._chroot = chroot
        self._clock = clock
        self._deliver = deliver
        self._wake = wake
        self._password = b""
        self._link: Link | None = None
        self._contact_ms = 0
        self._last_zxid = 0
        self._watches = WatchRegistry()

    # What callers do

    def submit(self, requests: Sequence[tuple[OpCode, bytes]], *, generation: int | None = None) -> list[Future[Reply]]:
        """Queue all of `requests` in order on the connection there is, or none of them.

        Raises ZkSessionLost where there is no session or not the one of `generation`, ZkConnectionLost while suspended.
        """
        with self.changed:
            link = self._usable_link(generation)
            futures = [link.submit(op_code, payload) for op_code, payload in requests]
            self._wake()
            return futures

    def wait_connected(self, generation: int, timeout_ms: int) -> None:
        """Block while the session of `generation` is suspended. Raises as `submit` does if it is not connected then."""
        with self.changed:
            self.changed.wait_for(
                lambda: self.phase is not Phase.SUSPENDED or self.generation != generation, timeout_ms / 1000
            )
            self._usable_link(generation)

    def add_watches(self, paths: Sequence[str], mode: WatchMode, callback: WatchCallback) -> list[Future[Reply]]:
        """Register watches and queue their arming. Where this raises, all are registered, and armed on reconnect."""
        whole = [below(self._chroot, path) for path in paths]
        with self.changed:
            replaced = [self._watches.add(path, mode, callback) for path in paths]
            link = self._usable_link(None)
            futures = []
            for path, former in zip(whole, replaced, strict=True):
                if former and former.mode is not mode:
                    link.submit(OpCode.REMOVE_WATCHES, encode_remove_watches(path))
                futures.append(link.submit(OpCode.ADD_WATCH, encode_add_watch(path, mode.value)))
            self._wake()
            return futures

    def remove_watch(self, path: str) -> None:
        """Forget a watch at once, and tell the server when there is one to tell."""
        whole = below(self._chroot, path)
        with self.changed:
            if self._watches.remove(path) and self._link:
                self._link.submit(OpCode.REMOVE_WATCHES, encode_remove_watches(whole))
                self._wake()

    def is_current(self, watch: Watch) -> bool:
        """Whether an event for `watch` still has a listener."""
        with self.changed:
            return self.phase is not Phase.CLOSED and self._watches.is_current(watch)

    def begin_close(self) -> Future[Reply] | None:
        """Refuse all further calls and queue the end of the session; None where it has no listener."""
        with self.changed:
            link, closed_before = self._link, self.phase is Phase.CLOSED
            self.phase = Phase.CLOSED
            self.changed.notify_all()
            future = link.submit(OpCode.CLOSE, b"") if link and not closed_before else None
            self._wake()
            return future

    def _usable_link(self, generation: int | None) -> Link:
        self.expire_if_due()
        if self.phase is Phase.CLOSED:
            raise ZkSessionLost("This ZooKeeper session has been closed.")
        if generation is not None and (generation != self.generation or self.phase is Phase.ABSENT):
            now = "there is none now" if self.phase is Phase.ABSENT else f"the current one is number {self.generation}"
            raise ZkSessionLost(f"ZooKeeper session {generation} is over; {now}.")
        if self.auth_failure and self.phase is not Phase.CONNECTED:
            raise ZkAuthFailed(self.auth_failure)
        if self.phase is Phase.ABSENT:
            raise ZkSessionLost(f"There is no session with ZooKeeper at {self._hosts} now.")
        if self._link is None:
            raise ZkConnectionLost(f"No contact with ZooKeeper at {self._hosts}.", hint="Nothing was sent.")
        return self._link

    # What the dispatcher does

    def deadline_ms(self) -> int | None:
        """When the session must be taken for lost if nothing is heard; None where there is none."""
        with self.changed:
            if self.phase not in (Phase.CONNECTED, Phase.SUSPENDED):
                return None
            contact_ms = max(self._contact_ms, self._link.contact_ms) if self._link else self._contact_ms
            return contact_ms + self.timeout_ms

    def expire_if_due(self) -> None:
        """Give the session up if its deadline has passed, whatever the I/O thread is waiting for."""
        with self.changed:
            deadline_ms, now_ms = self.deadline_ms(), self._clock.monotonic_ms()
            if deadline_ms is not None and now_ms >= deadline_ms:
                silent_ms = now_ms - deadline_ms + self.timeout_ms
                self._lose(f"no contact for {silent_ms} ms, the session timeout is {self.timeout_ms} ms")

    def _lose(self, why: str) -> None:
        logger.warning("lost ZooKeeper session 0x%x (number %d): %s", self.session_id, self.generation, why)
        self._drop_link(ZkConnectionLost(f"Lost the ZooKeeper session: {why}.", hint=SYNC_AND_READ))
        self.session_id, self._password, self._last_zxid = 0, b"", 0
        self.phase = Phase.ABSENT
        self._deliver(Delivery(session_event=SessionEvent.LOST, generation=self.generation))
        self.changed.notify_all()
        self._wake()

    def _drop_link(self, error: ZkError) -> None:
        link, self._link = self._link, None
        if link:
            self._contact_ms = max(self._contact_ms, link.contact_ms)
            self._last_zxid = max(self._last_zxid, link.last_zxid)
            link.fail(error)

    # What the I/O thread does

    def attempt(self) -> Attempt:
        """What the next connection shall ask for."""
        with self.changed:
            self.expire_if_due()
            return Attempt(self.generation, self.session_id, self._password, self._last_zxid, self._watches.all())

    def wants(self, attempt: Attempt) -> bool:
        """Whether what `attempt` asks for is still wanted: not where the session was given up or closed meanwhile."""
        with self.changed:
            now = (self.generation, self.session_id)
            return self.phase is not Phase.CLOSED and now == (attempt.generation, attempt.session_id)

    def connected(self, attempt: Attempt, reply: ConnectReply, asked_ms: int, reader: FrameReader) -> Link | None:
        """A server granted what `attempt` asked for at `asked_ms`, and the watches of the attempt are armed.

        Returns the link to serve, or None where the session was given up or closed meanwhile: close the connection.
        """
        with self.changed:
            self.expire_if_due()
            if not self.wants(attempt):
                return None
            if not self.session_id:
                self.generation += 1
            self.session_id, self._password, self.timeout_ms = reply.session_id, reply.password, reply.timeout_ms
            link = Link(
                timeout_ms=reply.timeout_ms,
                now_ms=self._clock.monotonic_ms(),
                contact_ms=asked_ms,
                reader=reader,
                latencies=self._latencies,
            )
            self._link, self._contact_ms, self.phase = link, asked_ms, Phase.CONNECTED
            self.failure = self.auth_failure = ""
            self._welcome(link, attempt)
            self.changed.notify_all()
            return link

    def _welcome(self, link: Link, attempt: Attempt) -> None:
        armed = {(watch.path, watch.mode) for watch in attempt.watches}
        for watch in self._watches.all():
            if (watch.path, watch.mode) not in armed:
                whole = below(self._chroot, watch.path)
                link.submit(OpCode.ADD_WATCH, encode_add_watch(whole, watch.mode.value))
            event = WatchEvent(WatchEventType.LOOK_AGAIN, watch.path, watch.path)
            self._deliver(Delivery(watch=watch, watch_event=event))
        logger.info(
            "ZooKeeper session 0x%x (number %d) connected, timeout %d ms, %d watches armed",
            self.session_id,
            self.generation,
            self.timeout_ms,
            len(self._watches.all()),
        )
        self._deliver(Delivery(session_event=SessionEvent.CONNECTED, generation=self.generation))

    def refused(self, attempt: Attempt, reason: str) -> None:
        """A server says that the session of `attempt` has expired."""
        with self.changed:
            if self.phase is Phase.SUSPENDED and attempt.session_id == self.session_id:
                self._lose(reason)

    def not_connected(self, reason: str, *, auth: bool = False) -> None:
        """An attempt failed; `auth`: because ZooKeeper refused our credentials."""
        with self.changed:
            if auth and self._on_refusal is not None:
                self._on_refusal()
            if auth and reason != self.auth_failure:
                logger.error("%s", reason)
            self.failure, self.auth_failure = reason, reason if auth else ""
            self.changed.notify_all()

    def disconnected(self, link: Link, why: str) -> None:
        """The connection of `link` is gone. Harmless where it was given up before."""
        with self.changed:
            if link is not self._link:
                return
            self._drop_link(ZkConnectionLost(f"Lost the connection to ZooKeeper: {why}.", hint=SYNC_AND_READ))
            if self.phase is Phase.CONNECTED:
                logger.warning("lost the connection of ZooKeeper session 0x%x: %s", self.session_id, why)
                self.phase, self.failure = Phase.SUSPENDED, why
                self._deliver(Delivery(session_event=SessionEvent.SUSPENDED, generation=self.generation))
            self.changed.notify_all()

    def outgoing(self, link: Link) -> bytes | None:
        """What to send next, as much as goes well at once; None: `link` is of no more use, close its connection."""
        with self.changed:
            self.expire_if_due()
            if link is not self._link:
                return None
            now_ms, frames, size = self._clock.monotonic_ms(), [], 0
            while size < _SEND_BYTES and (frame := link.take(now_ms)):
                frames.append(frame)
                size += len(frame)
            return b"".join(frames)

    def incoming(self, link: Link, data: bytes) -> None:
        """Bytes from the server. Raises WireError."""
        with self.changed:
            if link is not self._link:
                return
            for reply in link.receive(data, self._clock.monotonic_ms()):
                kind, path = decode_notice(reply.body)
                for watch, event in self._watches.concerned(kind, without_chroot(self._chroot, path)):
                    self._deliver(Delivery(watch=watch, watch_event=event))

    def idle_ms(self, link: Link) -> int | None:
        """How long nothing is due on `link`, in milliseconds; None: it has gone silent or is of no more use."""
        with self.changed:
            now_ms = self._clock.monotonic_ms()
            if link is not self._link or link.overdue(now_ms):
                return None
            return max(link.next_due_ms() - now_ms, 0)
