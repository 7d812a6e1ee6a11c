"""One connection of a client or follower: frames in, answers out in the order of the requests, everything bounded.

Kafka reads the next request of a connection only when the last one is answered. Here a run of produce requests goes on:
each is appended when it arrives, so their order is the order in the log, and only the answers wait (for acks=all).
Everything else waits for what is before it. So at most one large answer is in memory per connection, and an idempotent
producer's five requests in flight cost one replication round trip, not five.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from time import perf_counter_ns
from typing import Final, Protocol, cast

from regency.broker_agent.listener.buffers import (
    SMALL_BYTES,
    FrameOversized,
    FrameReader,
    IncomingRequests,
    UnsentAnswers,
)
from regency.broker_agent.listener.exchange import LONGEST_WAIT_MS, Exchange
from regency.broker_agent.listener.stats import KINDS, Closing, ListenerStats
from regency.broker_agent.listener.turns import Aside, Turns
from regency.kafka.apis import ApiKey
from regency.kafka.codec import Request, parse_request
from regency.kafka.decoder import FEW_ELEMENTS, FrameMalformed, TooManyElements, UnsupportedApi
from regency.model.clock import Clock

logger = logging.getLogger(__name__)

MAX_UNANSWERED: Final = 128
"""Produce requests of one connection that may wait for their acknowledgements; then it is not read from."""

WRITE_BUFFER_BYTES: Final = 64 << 10
"""Unsent answers above which no further request of the connection is begun, and which count as unsent."""

TRANSPORTS_CYCLE: Final = "_read_ready_cb"
"""By which asyncio's transports refer to themselves. A dead one that waits for the garbage collector keeps the last few
bytes of its buffer, where megabytes were, and the next answer of that size has no room there: memory grows with every
answer that is not read."""


class ConnectionHost(Protocol):
    """The listener, as its connections see it."""

    stats: ListenerStats
    clock: Clock
    turns: Turns
    aside: Aside
    unsent: UnsentAnswers
    incoming: IncomingRequests
    max_request_bytes: int
    max_idle_ms: int

    def opened(self, connection: Connection) -> Closing | None:
        """Take the connection on; why it must be closed, where there are too many."""
        ...

    def closed(self, connection: Connection) -> None:
        """It is gone."""
        ...

    def handle(self, exchange: Exchange) -> None:
        """Call the handler of the request. What it raises goes to `failed`."""
        ...

    def failed(self, exchange: Exchange, error: Exception) -> bool:
        """Log what a handler raised and answer an error; False when no answer is possible."""
        ...

    def reject_version(self, unsupported: UnsupportedApi) -> bytes | bytearray | None:
        """What to answer to a version that is not offered; None: close the connection."""
        ...


class Connection(asyncio.Protocol):
    """Protocol of one accepted socket on the listener called `listener`."""

    def __init__(self, host: ConnectionHost, listener: str) -> None:
        self._host = host
        self.listener = listener
        self.turns = host.turns
        self.aside = host.aside
        self._reader = FrameReader(host.max_request_bytes)
        self._unanswered: deque[Exchange] = deque()
        self._held: memoryview | None = None
        self._transport: asyncio.Transport | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._last_active_ms = 0
        self._writable = True
        self._reading = True
        self._is_in_line = False
        self._is_held = False
        self._decoding_bytes = 0
        self._is_counted = False
        self._closing = False
        self.peer = "unknown"
        self.peer_host = "unknown"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the socket is accepted."""
        self._transport = cast(asyncio.Transport, transport)
        _set_options(transport)
        name = transport.get_extra_info("peername")
        if name:
            self.peer_host = str(name[0])
            self.peer = f"{name[0]}:{name[1]} on {self.listener}"
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        refusal = self._host.opened(self)
        if refusal is not None:
            self.close_for(refusal, "try again later or raise the limit")
            return
        self._touch()
        self._arm_idle_timer(self._host.max_idle_ms)

    def connection_lost(self, error: Exception | None) -> None:
        """asyncio: the socket is closed, by whichever side."""
        is_used = not self._is_in_line and self._reading and self._held is None
        if not self._closing and is_used and self._reader.is_inside_frame:
            self._host.stats.count_closing(Closing.HALF_SENT, self.peer, str(error or "end of stream"))
        self._closing = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for exchange in self._unanswered:
            exchange.abandon()
        self._unanswered.clear()
        self._held = None
        if error is not None:
            logger.debug("lost the connection from %s: %s", self.peer, error)
        self._host.unsent.has_paid(self)
        self._host.incoming.holds_nothing(self)
        self._host.closed(self)
        transport, self._transport = self._transport, None
        if transport is not None:
            vars(transport).pop(TRANSPORTS_CYCLE, None)

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes have come."""
        self._touch()
        if not self._closing:
            self._reader.feed(data)
            if self._is_in_line:
                self._pause(True)  # it sends faster than it has its turn
            else:
                self._is_in_line = True
                self.turns.take(self._take_turn)

    def eof_received(self) -> bool:
        """asyncio: the client sends nothing more. As in Kafka that ends the connection, once the input is used.

        Where some waits for its turn, the end is met again when reading is resumed after it.
        """
        if self._is_in_line:
            self._pause(True)
        return self._is_in_line

    def pause_writing(self) -> None:
        """asyncio: the client does not read its answers as fast as they come."""
        self._writable = False
        self._host.unsent.owes(self)

    def resume_writing(self) -> None:
        """asyncio: it does again."""
        self._touch()
        self._writable = True
        self._host.unsent.has_paid(self)
        self._queue_up()

    @property
    def unsent_bytes(self) -> int:
        """What the client has yet to read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def cut_off(self, reason: Closing, detail: str) -> None:
        """Others need the memory that it takes."""
        self._host.stats.count_closing(reason, self.peer, detail)
        self.abort()

    def receive(self) -> None:
        """There may be room for more of its request."""
        self._queue_up()

    def hold(self, hold: bool) -> None:
        """Whether to begin nothing more, as a request is decoded or works on."""
        self._is_held = hold
        if not hold:
            self._queue_up()

    def answered(self) -> None:
        """An exchange is done: write every answer whose turn it is, then go on with what waits."""
        while self._unanswered and self._unanswered[0].done:
            exchange = self._unanswered.popleft()
            turn = perf_counter_ns()
            if exchange.frame is not None and self._transport is not None and not self._transport.is_closing():
                self._transport.write(exchange.frame)
            exchange.frame = None  # what is unsent has been copied; exchanges are in cycles, and these may live long
            exchange.times.record(
                exchange.request.version, exchange.began, exchange.handled, exchange.done_at, turn, perf_counter_ns()
            )
        if self._closing and not self._unanswered:
            self._close_gently()
        else:
            self._queue_up()

    def close_for(self, reason: Closing, detail: str) -> None:
        """Answer nothing more; count and log why. What is written already may still go out, until the idle timer
        says no."""
        if self._closing:
            self.abort()
        else:
            self._host.stats.count_closing(reason, self.peer, detail)
            self._closing = True
            self._close_gently()

    def failed(self, exchange: Exchange, error: Exception) -> None:
        """Answer what a handler did not foresee, or end the connection where that is impossible."""
        if not self._host.failed(exchange, error):
            self.close_for(Closing.FAILED, f"{exchange.request.api_key.name}: {error!r}")

    def finish(self) -> None:
        """Take no more requests, answer those begun, then close. A fetch that waits changes nothing and is dropped."""
        self._closing = True
        self._pause(True)
        if not self._unanswered or self._unanswered[0].request.api_key is ApiKey.FETCH:
            self._close_gently()

    def abort(self) -> None:
        """Close at once; unsent answers are dropped."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def _take_turn(self) -> bool:
        """Begin one request, if one may begin, and say whether more shall be received; whether more may begin."""
        begun = False
        try:
            frame = self._next_frame()
            if frame is not None:
                begun = True
                self._begin(frame)
        except FrameOversized as error:
            self.close_for(Closing.OVERSIZED, error.message)
        except FrameMalformed as error:
            self.close_for(Closing.MALFORMED, error.message)
        if not self._closing:
            may_receive = self._may_receive()
            self._pause(
                not may_receive or self._held is not None or self._reader.has_input or not self._may_begin_any()
            )
        self._is_in_line = begun and self._reader.has_input and self._may_begin_any()
        return self._is_in_line

    def _may_receive(self) -> bool:
        """Whether there is room for more than the requests hold that have come and not begun."""
        size = self._reader.partial_bytes + self._decoding_bytes
        if self._held is not None:
            size += len(self._held)
        if size < SMALL_BYTES and not self._is_counted:
            return True
        self._is_counted = size >= SMALL_BYTES
        return self._host.incoming.may_receive(self, size)

    def _next_frame(self) -> memoryview | None:
        """The next request, if it may begin now."""
        if not self._may_begin_any():
            return None
        frame = self._held if self._held is not None else self._reader.next_frame()
        self._held = None
        if frame is None or not self._unanswered or (_is_produce(frame) and self._only_produce_is_unanswered()):
            return frame
        self._held = frame
        return None

    def _may_begin_any(self) -> bool:
        is_ready = self._writable and not self._is_held
        return is_ready and not self._closing and len(self._unanswered) < MAX_UNANSWERED

    def _only_produce_is_unanswered(self) -> bool:
        # Whatever is no produce begins only when nothing is unanswered, and nothing but produce joins a produce.
        return self._unanswered[0].request.api_key is ApiKey.PRODUCE

    def _begin(self, frame: memoryview) -> None:
        try:
            request = parse_request(frame, FEW_ELEMENTS)
        except TooManyElements:
            self._is_held = True
            self._decoding_bytes = len(frame)
            self.aside.run(parse_request, frame).add_done_callback(self._decoded)
            return
        except UnsupportedApi as unsupported:
            answer = self._host.reject_version(unsupported)
            if answer is None or self._transport is None:
                self.close_for(Closing.UNSUPPORTED, unsupported.message)
            else:
                self._transport.write(answer)
            return
        self._handle(request)

    def _decoded(self, decoding: asyncio.Future[Request]) -> None:
        """A large request; what follows it has waited."""
        self._is_held = False
        self._decoding_bytes = 0
        if self._closing or decoding.cancelled():
            return
        error = decoding.exception()
        if error is None:
            self._handle(decoding.result())
            self._queue_up()
        else:
            self.close_for(Closing.MALFORMED, str(error))

    def _handle(self, request: Request) -> None:
        stats = self._host.stats
        stats.requests[request.api_key] += 1
        exchange = Exchange(self, self.listener, request, stats.timing.of(KINDS[request.api_key]))
        self._unanswered.append(exchange)
        try:
            self._host.handle(exchange)
        except Exception as error:  # noqa: BLE001 - a bug in a handler costs its request, not the data loop
            exchange.fail(error)
        exchange.handled = perf_counter_ns()

    def _queue_up(self) -> None:
        """Go on soon, if there is anything to go on with, and not now: answers come from inside other parts of the
        agent, which must not be entered again.
        """
        has_more = self._held is not None or self._reader.has_input or self._is_counted or not self._reading
        if has_more and not self._is_in_line and not self._closing:
            self._is_in_line = True
            self.turns.add(self._take_turn)

    def _pause(self, pause: bool) -> None:
        if self._transport is None or self._transport.is_closing() or pause is not self._reading:
            return
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
        self._reading = not pause

    def _close_gently(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _touch(self) -> None:
        self._last_active_ms = self._host.clock.monotonic_ms()

    def _arm_idle_timer(self, in_ms: int) -> None:
        if self._host.max_idle_ms >= 0:
            self._idle_timer = asyncio.get_running_loop().call_later(in_ms / 1000, self._look_whether_idle)

    def _look_whether_idle(self) -> None:
        """Close when nothing moved for too long. A long poll is no idleness; an answer that is not read is."""
        waits = bool(self._unanswered) and self._writable
        limit_ms = self._host.max_idle_ms + (LONGEST_WAIT_MS if waits else 0)
        left_ms = self._last_active_ms + limit_ms - self._host.clock.monotonic_ms()
        if left_ms > 0:
            self._arm_idle_timer(min(left_ms, max(self._host.max_idle_ms, 1)))
        else:
            self.close_for(Closing.IDLE, f"{self._host.max_idle_ms} ms")
            self.abort()


def _set_options(transport: asyncio.BaseTransport) -> None:
    """As Kafka: keepalive, by which peers that have vanished are found, and no Nagle.

    With Nagle a second answer shortly after a first would wait for the client's delayed acknowledgement, some 40 ms.
    asyncio sets that for sockets of proto IPPROTO_TCP alone, and what socket.create_server makes has proto 0.
    """
    accepted = transport.get_extra_info("socket")
    if accepted is not None and accepted.family in (socket.AF_INET, socket.AF_INET6):
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _is_produce(frame: memoryview) -> bool:
    return int.from_bytes(frame[:2], "big") == ApiKey.PRODUCE
