"""How far the brokers are with what they are told, for people and for tools."""

from __future__ import annotations

import msgspec

from regency.controller.channel.sender import Sender
from regency.model.ids import BrokerId


class BrokerBacklog(msgspec.Struct, frozen=True):
    """How far one broker is with what it is told."""

    broker: BrokerId
    unacknowledged: int
    oldest_attempt_ms: int
    """How long the oldest of what was sent waits for its acknowledgement; 0 where nothing does."""
    last_failure: str
    """Of the requests that fail now; empty where none does."""
    waiting: int = 0
    """Desired states that are not being told right now: they wait for a request that is in flight, or for a delay."""
    oldest_ms: int = 0
    """How long the oldest of what is not acknowledged is wanted already; 0 where nothing is."""


def backlog_of(broker: BrokerId, sender: Sender, now_ms: int, waiting_since_ms: int | None = None) -> BrokerBacklog:
    """How far the broker of a sender is; `waiting_since_ms`: when the oldest of what waits was wanted first."""
    failure = sender.last_failure if sender.failures else ""
    attempt_ms = sender.oldest_attempt_ms(now_ms)
    desired = sender.desired
    waited_ms = now_ms - waiting_since_ms if desired.waiting and waiting_since_ms is not None else 0
    return BrokerBacklog(
        broker, desired.unacknowledged, attempt_ms, failure, desired.waiting, max(attempt_ms, waited_ms)
    )
