"""The memory that requests take until they begin, over all connections, held within a budget.

Where the budget is used up, connections with large requests wait for room before more of them is received; the one
whose request has been coming in for longest never does, so that some request always goes on. It has some seconds: then
it is cut off, and what it kept is free. Small requests pass in any case: they come in one piece.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Protocol

from regency.broker_agent.listener.stats import Closing, ListenerStats
from regency.model.clock import Clock

SMALL_BYTES: Final = 64 << 10
"""Less of one connection is not counted."""

SLOW_MS: Final = 10_000
"""A request that has been coming in for so long ends its connection when others need the room."""

LOOK_S: Final = 1.0
"""How often that is looked at while a request waits."""


class Sender(Protocol):
    """A connection with part of a request, or with one that may not begin yet."""

    def receive(self) -> None:
        """There may be room for more: ask again."""
        ...

    def cut_off(self, reason: Closing, detail: str) -> None:
        """Close at once and drop what has come."""
        ...


@dataclass(slots=True)
class _Share:
    size: int
    since_ms: int
    """When its request began to come in."""


class IncomingRequests:
    """Who holds how much. Data loop only."""

    def __init__(self, budget: int, stats: ListenerStats, clock: Clock) -> None:
        """`budget`: bytes, -1: no bound; `stats` counts what is in use."""
        self._budget = budget
        self._stats = stats
        self._clock = clock
        self._shares: OrderedDict[Sender, _Share] = OrderedDict()
        """The oldest request first."""
        self._waiting: dict[Sender, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def may_receive(self, sender: Sender, size: int) -> bool:
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

    def holds_nothing(self, sender: Sender) -> None:
        """Its request has begun, or the connection has ended. Harmless where nothing was held."""
        share = self._shares.pop(sender, None)
        if share is not None:
            self._waiting.pop(sender, None)
            self._stats.incoming_bytes -= share.size
            self._tell()

    def _has_room(self, sender: Sender) -> bool:
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
