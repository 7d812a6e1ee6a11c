"""Requests on one connection to ZooKeeper: what waits to be sent, what waits for its reply, when it has gone silent.

Passive: no socket, no thread, no clock; the owner's lock guards it. A request belongs to one link and dies with it, so
none can ever be sent on another connection or under another session than the one it was meant for.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import Final

import msgspec

from regency.runtime.metrics.recent import RecentTimes
from regency.runtime.zookeeper.session import ZkError
from regency.runtime.zookeeper.wire import FrameReader, OpCode, Reply, WireError, Xid, decode_reply, request_frame

MAX_IN_FLIGHT: Final = 256
MAX_IN_FLIGHT_BYTES: Final = 4 * 1024 * 1024
"""Beyond either, requests wait here: what stands in the server's queue delays pings and what others ask."""

_MAX_XID: Final = 2**31 - 1


class _Request(msgspec.Struct, gc=False):
    xid: int
    frame: bytes
    future: Future[Reply]
    sent_ms: int = 0


class Link:
    """One connection that has a session. All times are monotonic milliseconds of the owner's clock."""

    def __init__(
        self,
        *,
        timeout_ms: int,
        now_ms: int,
        contact_ms: int,
        reader: FrameReader,
        latencies: RecentTimes | None = None,
    ) -> None:
        """`latencies` takes the time of each request, from when it was sent."""
        self.contact_ms = contact_ms
        """When the newest request was sent that the server has answered: it cannot expire the session earlier than
        the session timeout after this."""
        self.last_zxid = 0
        self.broken = ""
        """Why the connection is of no more use; empty while it is."""
        self._timeout_ms = timeout_ms
        self._reader = reader
        self._waiting: deque[_Request] = deque()
        self._in_flight: deque[_Request] = deque()
        self._in_flight_bytes = 0
        self._next_xid = 1
        self._ping_sent_ms: int | None = None
        self._last_sent_ms = now_ms
        self._last_received_ms = now_ms
        self._latencies = latencies or RecentTimes()

    def submit(self, op_code: OpCode, payload: bytes) -> Future[Reply]:
        """Queue a request. Its future gets the reply, or the error given to `fail`."""
        xid = self._next_xid
        self._next_xid = xid % _MAX_XID + 1
        future: Future[Reply] = Future()
        self._waiting.append(_Request(xid, request_frame(xid, op_code, payload), future))
        return future

    def take(self, now_ms: int) -> bytes:
        """The next request to put on the wire, or a ping where one is due, or nothing. Skips cancelled requests."""
        while self._waiting and self._may_send():
            request = self._waiting.popleft()
            if not request.future.set_running_or_notify_cancel():
                continue
            request.sent_ms = self._last_sent_ms = now_ms
            self._in_flight.append(request)
            self._in_flight_bytes += len(request.frame)
            return request.frame
        if self._ping_sent_ms is None and now_ms - self._last_sent_ms >= self._timeout_ms // 3:
            self._ping_sent_ms = self._last_sent_ms = now_ms
            return request_frame(Xid.PING, OpCode.PING, b"")
        return b""

    def receive(self, data: bytes, now_ms: int) -> list[Reply]:
        """Complete the requests that `data` answers; returns the watch events in it. Raises WireError."""
        notices: list[Reply] = []
        self._last_received_ms = now_ms
        for frame in self._reader.feed(data):
            reply = decode_reply(frame)
            if reply.zxid > 0:
                self.last_zxid = max(self.last_zxid, reply.zxid)
            if reply.xid == Xid.WATCH:
                notices.append(reply)
            elif reply.xid == Xid.PING:
                self._acknowledge(self._ping_sent_ms)
                self._ping_sent_ms = None
            else:
                self._complete(reply)
        return notices

    def overdue(self, now_ms: int) -> bool:
        """Whether the server owes an answer and has said nothing for two thirds of the session timeout."""
        owes = bool(self._in_flight) or self._ping_sent_ms is not None
        return owes and now_ms - self._last_received_ms >= self._timeout_ms * 2 // 3

    def next_due_ms(self) -> int:
        """When `take` or `overdue` may have something to say next, if nothing else happens."""
        ping_due = self._last_sent_ms + self._timeout_ms // 3
        silence_due = self._last_received_ms + self._timeout_ms * 2 // 3
        owes = bool(self._in_flight) or self._ping_sent_ms is not None
        if self._ping_sent_ms is not None:
            return silence_due
        return min(ping_due, silence_due) if owes else ping_due

    def fail(self, error: ZkError) -> None:
        """End every request with `error`: the connection is gone."""
        self.broken = self.broken or error.message
        requests = [*self._in_flight, *(r for r in self._waiting if r.future.set_running_or_notify_cancel())]
        self._in_flight.clear()
        self._waiting.clear()
        for request in requests:
            request.future.set_exception(type(error)(error.message, hint=error.hint))

    def _may_send(self) -> bool:
        if not self._in_flight:
            return True
        return len(self._in_flight) < MAX_IN_FLIGHT and self._in_flight_bytes < MAX_IN_FLIGHT_BYTES

    def _complete(self, reply: Reply) -> None:
        if not self._in_flight or self._in_flight[0].xid != reply.xid:
            raise WireError(f"a reply to request {reply.xid}, which is not the one that is due")
        request = self._in_flight.popleft()
        self._in_flight_bytes -= len(request.frame)
        self._acknowledge(request.sent_ms)
        self._latencies.record((self._last_received_ms - request.sent_ms) * 1000, self._last_received_ms)
        request.future.set_result(reply)

    def _acknowledge(self, sent_ms: int | None) -> None:
        if sent_ms is not None:
            self.contact_ms = max(self.contact_ms, sent_ms)
