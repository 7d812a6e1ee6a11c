"""Bytes of connections: frames out of what is received, and the memory of requests that have not begun and of answers
that are not sent, over all connections, each held within a budget.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

from regency.broker_agent.listener.stats import Closing, ListenerStats
from regency.model.clock import Clock
from regency.model.errors import RegencyError

_LENGTH_BYTES = 4


class FrameOversized(RegencyError):
    """A frame of negative size or of more than the allowed bytes was announced. Nothing was allocated for it."""

    code: ClassVar[str] = "frame_oversized"


class FrameReader:
    """Frames of at most `limit` bytes out of received pieces. Memory grows with what arrives, not with promises."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._received = memoryview(b"")
        self._length = bytearray()
        self._size: int | None = None
        self._partial = bytearray()

    @property
    def has_input(self) -> bool:
        """Whether received bytes wait to be looked at."""
        return len(self._received) > 0

    @property
    def is_inside_frame(self) -> bool:
        """Whether the end of the input, if it came now, would cut a frame in two."""
        return self.has_input or len(self._length) > 0

    @property
    def partial_bytes(self) -> int:
        """Received of a frame of which more is to come."""
        return len(self._partial)

    def feed(self, data: bytes) -> None:
        """Take what was received."""
        self._received = memoryview(bytes(self._received) + data if self._received else data)

    def next_frame(self) -> memoryview | None:
        """The next complete frame, without its length; None until more is received. Raises FrameOversized."""
        if self._size is None:
            self._size = self._read_length()
            if self._size is None:
                return None
        if not self._partial and len(self._received) >= self._size:
            frame = self._take(self._size)
        else:
            self._partial += self._take(self._size - len(self._partial))
            if len(self._partial) < self._size:
                return None
            frame, self._partial = memoryview(self._partial), bytearray()
        self._size = None
        self._length.clear()
        return frame

    def _read_length(self) -> int | None:
        self._length += self._take(_LENGTH_BYTES - len(self._length))
        if len(self._length) < _LENGTH_BYTES:
            return None
        size = int.from_bytes(self._length, "big", signed=True)
        if not 0 <= size <= self._limit:
            raise FrameOversized(f"A request of {size} bytes was announced, at most {self._limit} are taken.")
        return size

    def _take(self, count: int) -> memoryview:
        taken, self._received = self._received[:count], self._received[count:]
        return taken


SMALL_BYTES: Final = 64 << 10
"""Less of one connection is not counted."""

SLOW_MS: Final = 10_000
"""A request that has been coming in for so long ends its connection when others need the room."""

LOOK_S: Final = 1.0
"""How often that is looked at while a request waits."""


class Peer(Protocol):
    """A connection: with part of a request or one that may not begin yet, or with answers that are not all sent."""

    @property
    def unsent_bytes(self) -> int:
        """What is left to send."""
        ...

    def receive(self) -> None:
        """There may be room for more of its request: ask again."""
        ...

    def cut_off(self, reason: Closing, detail: str) -> None:
        """Close at once and drop what has come, or what is left."""
        ...


@dataclass(slots=True)
class _Share:
    size: int
    since_ms: int
    """When its request began to come in."""


class IncomingRequests:
    """The memory that requests take until they begin. Data loop only.

    Where the budget is used up, connections with large requests wait for room before more of them is received; the one
    whose request has been coming in for longest never does, so that some request always goes on. It has some seconds:
    then it is cut off, and what it kept is free. Small requests pass in any case: they come in one piece.
    """

    def __init__(self, budget: int, stats: ListenerStats, clock: Clock) -> None:
        """`budget`: bytes, -1: no bound; `stats` counts what is in use."""
        self._budget = budget
        self._stats = stats
        self._clock = clock
        self._shares: OrderedDict[Peer, _Share] = OrderedDict()
        """The oldest request first."""
        self._waiting: dict[Peer, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def may_receive(self, sender: Peer, size: int) -> bool:
        """Take in that `sender` holds `size` bytes; whether it may receive more now. If not, it will be asked to."""
        if size < SMALL_BYTES:
            self.holds_nothing(sender)
            return True
        share = self._shares.get(sender)
        if share is None or size < share.size:  # a new one, or the rest after one that has begun
            self.holds_nothing(sender)
            share = self._shares[sender] = _Share(0, self._clock.monotonic_ms())
        self._stats.incoming_bytes += size - share.size
        share.size = size
        if self._has_room(sender):
            return True
        self._waiting[sender] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)
        return False

    def holds_nothing(self, sender: Peer) -> None:
        """Its request has begun, or the connection has ended. Harmless where nothing was held."""
        share = self._shares.pop(sender, None)
        if share is not None:
            self._waiting.pop(sender, None)
            self._stats.incoming_bytes -= share.size
            self._tell()

    def _has_room(self, sender: Peer) -> bool:
        is_full = 0 <= self._budget < self._stats.incoming_bytes
        return not is_full or next(iter(self._shares)) is sender

    def _tell(self) -> None:
        """Those who wait, as far as there is room; the rest of them ask again when they have received some."""
        for sender in [sender for sender in self._waiting if self._has_room(sender)]:
            del self._waiting[sender]
            sender.receive()

    def _look(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        while self._waiting and self._stats.incoming_bytes > self._budget:
            sender, share = next(iter(self._shares.items()))
            age_ms = now_ms - share.since_ms
            if age_ms < SLOW_MS:
                break
            self.holds_nothing(sender)
            sender.cut_off(Closing.SLOW, f"{share.size} bytes in {age_ms} ms")
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)


STALLED_MS: Final = 30_000
"""A client that has taken nothing for so long is cut off when the budget is used up."""

LOOK_MS: Final = 10
"""Sizes are asked for no more often, where there is little room."""


@dataclass(slots=True)
class _Debt:
    size: int
    since_ms: int
    """When it last became smaller."""


class UnsentAnswers:
    """The memory that answers take until their clients have read them. Data loop only.

    Counted are connections that have more to send than they may before their next request is begun. Kafka sends records
    from the page cache; here an answer is in memory until the last byte is with the operating system. So a consumer's
    fetch is read with what is left of the budget, and waits as if there were no records when nothing is. Followers are
    not held back. A client that has taken no byte for a while loses its connection when others need the room, so that
    some answer always goes on.
    """

    def __init__(self, budget: int, stats: ListenerStats, clock: Clock) -> None:
        """`budget`: bytes, 1 or more; `stats` counts what is in use."""
        self._budget = budget
        self._stats = stats
        self._clock = clock
        self._debts: dict[Peer, _Debt] = {}
        self._looked_ms = 0

    def room(self, wanted: int) -> int:
        """Bytes that may be answered to a consumer: what is left of the budget, 0 or less where it is used up.

        Exact where it is less than `wanted`, as of some milliseconds ago.
        """
        now_ms = self._clock.monotonic_ms()
        if self._budget - self._stats.unsent_bytes < wanted and now_ms >= self._looked_ms + LOOK_MS:
            self._look(now_ms)
        return self._budget - self._stats.unsent_bytes

    def owes(self, debtor: Peer) -> None:
        """An answer was not sent at once."""
        now_ms = self._clock.monotonic_ms()
        self._debts[debtor] = _Debt(0, now_ms)
        self._take_size(debtor, now_ms)
        if self._stats.unsent_bytes > 2 * self._budget:
            self._look(now_ms)

    def has_paid(self, debtor: Peer) -> None:
        """Little or nothing is left of it, or the connection has ended. Harmless where nothing was."""
        debt = self._debts.pop(debtor, None)
        if debt is not None:
            self._stats.unsent_bytes -= debt.size

    def _look(self, now_ms: int) -> None:
        self._looked_ms = now_ms
        for debtor in self._debts:
            self._take_size(debtor, now_ms)
        for debtor, debt in sorted(self._debts.items(), key=lambda each: each[1].since_ms):
            stalled_ms = now_ms - debt.since_ms
            in_use = self._stats.unsent_bytes
            may_be_slow = in_use <= 2 * self._budget or len(self._debts) == 1
            if in_use < self._budget or (stalled_ms < STALLED_MS and may_be_slow):
                break
            self.has_paid(debtor)
            debtor.cut_off(Closing.UNREAD, f"{debt.size} bytes, none of them taken for {stalled_ms} ms")

    def _take_size(self, debtor: Peer, now_ms: int) -> None:
        debt, size = self._debts[debtor], debtor.unsent_bytes
        if size != debt.size:
            self._stats.unsent_bytes += size - debt.size
            debt.size, debt.since_ms = size, now_ms
