"""How far the brokers are with what they are told, for people and for tools."""

from __future__ import annotations

import msgspec

from regency.controller.sender import Sender
from regency.model.ids import BrokerId


class Standing(msgspec.Struct, frozen=True):
    """How far one broker is with what it is told."""

    broker: BrokerId
    unacknowledged: int
    oldest_attempt_ms: int
    """How long the oldest of what was sent waits for its acknowledgement; 0 where nothing does."""
    last_failure: str
    """Of the requests that fail now; empty where none does."""


def standing_of(broker: BrokerId, sender: Sender, now_ms: int) -> Standing:
    """How far the broker of a sender is."""
    failure = sender.last_failure if sender.failures else ""
    return Standing(broker, sender.desired.unacknowledged, sender.oldest_attempt_ms(now_ms), failure)
