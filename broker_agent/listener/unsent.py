"""The memory that answers take until their clients have read them, over all connections, held within a budget.

Kafka sends records from the page cache. Here an answer lies in memory until the last byte is with the operating system,
and a client that reads slowly, or nothing at all, keeps it there. So a consumer's fetch is read with what is left of
the budget, and waits as if there were no records when nothing is. Followers are not held back. A client that has taken
no byte for a while loses its connection when others need the room, so that some answer always goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from regency.broker_agent.listener.stats import Closing, ListenerStats
from regency.model.clock import Clock

STALLED_MS: Final = 30_000
"""A client that has taken nothing for so long is cut off when the budget is used up."""

LOOK_MS: Final = 10
"""Sizes are asked for no more often, where there is little room."""


class Debtor(Protocol):
    """A connection whose answers are not all sent."""

    @property
    def unsent_bytes(self) -> int:
        """What is left."""
        ...

    def cut_off(self, reason: Closing, detail: str) -> None:
        """Close at once and drop what is left."""
        ...


@dataclass(slots=True)
class _Debt:
    size: int
    since_ms: int
    """When it last became smaller."""


class UnsentAnswers:
    """Counts connections that have more to send than they may before their next request is begun. Data loop only."""

    def __init__(self, budget: int, stats: ListenerStats, clock: Clock) -> None:
        """`budget`: bytes, 1 or more; `stats` counts what is in use."""
        self._budget = budget
        self._stats = stats
        self._clock = clock
        self._debts: dict[Debtor, _Debt] = {}
        self._looked_ms = 0

    def room(self, wanted: int) -> int:
        """Bytes that may be answered to a consumer: what is left of the budget, 0 or less where it is used up.

        Exact where it is less than `wanted`, as of some milliseconds ago.
        """
        now_ms = self._clock.monotonic_ms()
        if self._budget - self._stats.unsent_bytes < wanted and now_ms >= self._looked_ms + LOOK_MS:
            self._look(now_ms)
        return self._budget - self._stats.unsent_bytes

    def owes(self, debtor: Debtor) -> None:
        """An answer was not sent at once."""
        now_ms = self._clock.monotonic_ms()
        self._debts[debtor] = _Debt(0, now_ms)
        self._take_size(debtor, now_ms)
        if self._stats.unsent_bytes > 2 * self._budget:
            self._look(now_ms)

    def has_paid(self, debtor: Debtor) -> None:
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

    def _take_size(self, debtor: Debtor, now_ms: int) -> None:
        debt, size = self._debts[debtor], debtor.unsent_bytes
        if size != debt.size:
            self._stats.unsent_bytes += size - debt.size
            debt.size, debt.since_ms = size, now_ms
