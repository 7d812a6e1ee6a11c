"""Where a simulated session stands: generation, deadline, connection, requests under way, who is told what when.

The counterpart of `core`, `link` and `dispatcher` in `regency.runtime.zookeeper`, whose rules it follows; it uses
their registry of watches. It never blocks: `session_port` does.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from regency.runtime.zookeeper.core import Watch, WatchRegistry
from regency.runtime.zookeeper.ops import SYNC_AND_READ
from regency.runtime.zookeeper.session import (
    SessionCallback,
    SessionEvent,
    WatchEvent,
    WatchEventType,
    WatchMode,
    ZkConnectionLost,
    ZkError,
    ZkSessionLost,
)
from simulation.kernel.scheduler import Process, Scheduler, Timer
from simulation.zookeeper.link import Wire
from simulation.zookeeper.server import ServerConnection

logger = logging.getLogger(__name__)

FIRST_PAUSE_MS: Final = 50
"""Between the end of a connection and the next attempt."""

Execute = Callable[[ServerConnection, Callable[[int, Any], None]], None]
"""Executes a request at the server's end, which calls the function with its zxid and the outcome."""


class Phase(Enum):
    """Where the session stands."""

    ABSENT = "absent"
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    CLOSED = "closed"


class Call:
    """A request under way, and what came of it: an outcome, or a ZkError."""

    __slots__ = ("_resume", "answer", "done", "sent_ms")

    def __init__(self, sent_ms: int) -> None:
        self.sent_ms = sent_ms
        self.done = False
        self.answer: Any = None
        self._resume: Callable[[Any], None] | None = None

    def finish(self, answer: Any) -> None:
        """What came of it; only the first time counts."""
        if not self.done:
            self.done, self.answer = True, answer
            if self._resume is not None:
                self._resume(None)

    def wait(self, scheduler: Scheduler, timeout_us: int | None = None) -> Any:
        """The outcome, once there is one; None where time is up. Raises the ZkError that there is instead."""
        if not self.done:
            scheduler.wait(self._register, timeout_us)
        if isinstance(self.answer, ZkError):
            raise self.answer
        return self.answer

    def _register(self, resume: Callable[[Any], None]) -> None:
        self._resume = resume


class SessionState:
    """One session at a time. `reconnect` is called whenever there is no connection and should be one."""

    def __init__(self, scheduler: Scheduler, process: Process, name: str, timeout_ms: int) -> None:
        self.scheduler = scheduler
        self.process = process
        self.name = name
        self.requested_timeout_ms = timeout_ms
        self.timeout_ms = timeout_ms
        self.generation = 0
        self.session_id = 0
        self.phase = Phase.ABSENT
        self.seen_zxid = 0
        self.watches = WatchRegistry()
        self.reconnect: Callable[[int], None] = lambda _: None
        self.in_callback = False
        self._wire: Wire | None = None
        self._in_flight: deque[Call] = deque()
        self._contact_ms = 0
        self._last_sent_ms = 0
        self._last_received_ms = 0
        self._ping = Call(0)
        self._ping.done = True
        self._timer: Timer | None = None
        self._changed: list[Callable[[Any], None]] = []
        self._listeners: list[SessionCallback] = []
        self._deliveries: deque[tuple[Watch | None, Callable[[], None]]] = deque()

    # What callers do

    def submit(self, execute: Execute, generation: int | None = None, *, multi: bool = False) -> Call:
        """Send a request. Raises as `SessionCore.submit` does where it cannot be."""
        return self._send(self.usable(generation), execute, multi=multi)

    def usable(self, generation: int | None) -> Wire:
        """The connection of a session that calls can use. Raises ZkSessionLost, ZkConnectionLost."""
        self.expire_if_due()
        if self.phase is Phase.CLOSED:
            raise ZkSessionLost("This ZooKeeper session has been closed.")
        if generation is not None and (generation != self.generation or self.phase is Phase.ABSENT):
            raise ZkSessionLost(f"ZooKeeper session {generation} is over; the last one is number {self.generation}.")
        if self.phase is Phase.ABSENT:
            raise ZkSessionLost("There is no session with ZooKeeper now.")
        if self._wire is None:
            raise ZkConnectionLost("No contact with ZooKeeper.", hint="Nothing was sent.")
        return self._wire

    def wait_changed(self, timeout_ms: int) -> None:
        """Wait until the phase changes, at most so long."""
        self.scheduler.wait(self._changed.append, self.process.clock.delay_us(timeout_ms))

    def add_listener(self, callback: SessionCallback) -> None:
        """Tell `callback` of session events from now on."""
        self._listeners.append(callback)

    def begin_close(self) -> Call | None:
        """Refuse further calls, and ask the server to end the session; None where there is nobody to ask."""
        wire, closed_before = self._wire, self.phase is Phase.CLOSED
        self._change(Phase.CLOSED)
        if wire is None or closed_before:
            return None
        return self._send(wire, lambda server, reply: server.close_session(reply))

    def die(self) -> None:
        """The process is dead: its connection ends, the session does not."""
        if self._wire is not None:
            self._wire.close()

    def drop(self, error: ZkError) -> None:
        """Give the connection up: every request under way ends with `error`."""
        wire, self._wire = self._wire, None
        in_flight, self._in_flight = self._in_flight, deque()
        if wire is not None:
            wire.close()
        for call in in_flight:
            call.finish(type(error)(error.message, hint=error.hint))

    # What connections bring

    def connected(self, wire: Wire, session_id: int, timeout_ms: int, asked_ms: int, armed: tuple[Watch, ...]) -> None:
        """There is a session on `wire`, with the watches `armed`; all are told to look again, before CONNECTED."""
        if not self.session_id:
            self.generation += 1
        self.session_id, self.timeout_ms, self._wire = session_id, timeout_ms, wire
        self._contact_ms = asked_ms
        self._last_sent_ms = self._last_received_ms = self.now_ms()
        known = {(watch.path, watch.mode) for watch in armed}
        for watch in self.watches.all():
            if (watch.path, watch.mode) not in known:
                self.send_add_watch(wire, watch.path, watch.mode)
            self._put_event(watch, WatchEvent(WatchEventType.LOOK_AGAIN, watch.path, watch.path))
        self._note("has session %x (number %d)", session_id, self.generation)
        self._put_session_event(SessionEvent.CONNECTED)
        self._change(Phase.CONNECTED)
        self._arm_timer()

    def heard(self, wire: Wire, kind: int, path: str, zxid: int) -> None:
        if wire is self._wire:
            self._last_received_ms = self.now_ms()
            self.seen_zxid = max(self.seen_zxid, zxid)
            for watch, event in self.watches.concerned(kind, path):
                self._put_event(watch, event)

    def disconnected(self, wire: Wire, why: str) -> None:
        """A connection has ended. Harmless where it was given up before."""
        if wire is not self._wire:
            return
        self.drop(ZkConnectionLost(f"Lost the connection to ZooKeeper: {why}.", hint=SYNC_AND_READ))
        if self.phase is Phase.CONNECTED:
            self._note("is suspended: %s", why)
            self._put_session_event(SessionEvent.SUSPENDED)
            self._change(Phase.SUSPENDED)
            self.reconnect(FIRST_PAUSE_MS)

    def expired(self, session_id: int) -> None:
        """A server says that it knows this session no more."""
        if self.phase is Phase.SUSPENDED and session_id == self.session_id:
            self._lose("a server says that it has expired")

    def expire_if_due(self) -> None:
        """Give the session up where nothing was heard for its timeout."""
        if self.phase in (Phase.CONNECTED, Phase.SUSPENDED):
            silent_ms = self.now_ms() - self._contact_ms
            if silent_ms >= self.timeout_ms:
                self._lose("its deadline has passed")

    def send_add_watch(self, wire: Wire, path: str, mode: WatchMode) -> Call:
        recursive = mode is WatchMode.PERSISTENT_RECURSIVE
        return self._send(wire, lambda server, reply: server.add_watch(path, recursive=recursive, reply=reply))

    def send_remove_watch(self, path: str) -> None:
        """Disarm a watch where there is a server to tell."""
        if self._wire is not None:
            self._send(self._wire, lambda server, reply: server.remove_watches(path, reply))

    def now_ms(self) -> int:
        return self.process.clock.monotonic_ms()

    def _send(self, wire: Wire, execute: Execute, *, multi: bool = False) -> Call:
        call = Call(self.now_ms())
        self._last_sent_ms = call.sent_ms
        self._in_flight.append(call)

        def reply(zxid: int, outcome: Any) -> None:
            wire.reply(lambda: self._answered(wire, call, zxid, outcome), multi=multi)

        wire.request(lambda server: execute(server, reply), multi=multi)
        return call

    def _answered(self, wire: Wire, call: Call, zxid: int, outcome: Any) -> None:
        if wire is self._wire:
            first = self._in_flight.popleft()
            assert first is call, "ZooKeeper answers in order"
            self._last_received_ms = self.now_ms()
            self._contact_ms = max(self._contact_ms, call.sent_ms)
            self.seen_zxid = max(self.seen_zxid, zxid)
            call.finish(outcome)

    def _lose(self, why: str) -> None:
        self._note("has lost session %x (number %d): %s", self.session_id, self.generation, why)
        had_wire = self._wire is not None
        self.drop(ZkConnectionLost(f"Lost the ZooKeeper session: {why}.", hint=SYNC_AND_READ))
        self.session_id = self.seen_zxid = 0
        self._put_session_event(SessionEvent.LOST)
        self._change(Phase.ABSENT)
        self.reconnect(FIRST_PAUSE_MS if had_wire else 0)

    def _change(self, phase: Phase) -> None:
        self.phase = phase
        changed, self._changed = self._changed, []
        for resume in changed:
            resume(None)

    # Time

    def _arm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due_ms = self._contact_ms + self.timeout_ms
        if self._wire is not None:
            due_ms = min(due_ms, self._last_sent_ms + self.timeout_ms // 3)
            if self._in_flight:
                due_ms = min(due_ms, self._last_received_ms + self.timeout_ms * 2 // 3)
        delay = max(self.process.clock.delay_us(due_ms - self.now_ms()), 1000)
        self._timer = self.scheduler.at(delay, self._tick, self.process, is_watched=False)

    def _tick(self) -> None:
        self._timer = None
        self.expire_if_due()
        wire, now_ms = self._wire, self.now_ms()
        if wire is not None:
            for call in self._in_flight:
                if now_ms - call.sent_ms < self.timeout_ms:
                    break
                call.finish(
                    ZkConnectionLost(
                        f"ZooKeeper did not answer within the session timeout of {self.timeout_ms} ms.",
                        hint=SYNC_AND_READ,
                    )
                )
            if self._in_flight and now_ms - self._last_received_ms >= self.timeout_ms * 2 // 3:
                self.disconnected(wire, "it has gone silent")
            elif self._ping.done and now_ms - self._last_sent_ms >= self.timeout_ms // 3:
                self._ping = self._send(wire, lambda server, reply: server.ping(reply))
        if self.phase in (Phase.CONNECTED, Phase.SUSPENDED):
            self._arm_timer()

    # Callbacks

    def _put_event(self, watch: Watch, event: WatchEvent) -> None:
        self._put(watch, lambda: watch.callback(event))

    def _put_session_event(self, event: SessionEvent) -> None:
        generation = self.generation
        for listener in tuple(self._listeners):
            self._put(None, lambda listener=listener: listener(event, generation))  # type: ignore[misc]

    def _put(self, watch: Watch | None, call: Callable[[], None]) -> None:
        self._deliveries.append((watch, call))
        self.scheduler.at(0, self._deliver, self.process)

    def _deliver(self) -> None:
        watch, call = self._deliveries.popleft()
        if self.phase is Phase.CLOSED or (watch is not None and not self.watches.is_current(watch)):
            return
        self.in_callback = True
        try:
            call()
        except Exception:  # a callback is foreign code: its fault must not cost the others their events
            logger.exception("a ZooKeeper callback failed")
        finally:
            self.in_callback = False

    def _note(self, words: str, *values: object) -> None:
        self.scheduler.trace.note("zk", self.name, words, *values)
