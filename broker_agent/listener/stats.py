"""What the listener counts, in plain integers for the metrics; each kind of trouble is logged when first met."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from regency.broker_agent.listener.timing import Timing
from regency.broker_agent.listener.traffic import Traffic
from regency.kafka.apis import ApiKey
from regency.runtime.logging import is_power_of_ten

logger = logging.getLogger(__name__)


class Closing(Enum):
    """Why the listener closed a connection. The value is a phrase for people."""

    MALFORMED = "it sent what is no request"
    OVERSIZED = "it announced a request larger than socket.request.max.bytes, or of negative size"
    HALF_SENT = "it went away in the middle of a request"
    UNSUPPORTED = "it asked for an API or version that is not offered"
    UNACKNOWLEDGED = "a produce with acks=0 failed, which it can only learn this way"
    IDLE = "it was idle for connections.max.idle.ms"
    TOO_MANY = "max.connections or max.connections.per.ip is reached"
    UNREAD = "it did not read its answers, and regency.queued.max.response.bytes was used up"
    SLOW = "its request came in slowly, and queued.max.request.bytes was used up"
    NO_DESCRIPTORS = "there is no descriptor for it: see docs/operate/install.md about open files"
    FAILED = "its request failed in an unexpected way"


@dataclass(slots=True)
class ListenerStats:
    """Counters since the agent started."""

    accepted: int = 0
    open: int = 0
    closed_for: dict[Closing, int] = field(default_factory=lambda: dict.fromkeys(Closing, 0))
    requests: dict[ApiKey, int] = field(default_factory=lambda: dict.fromkeys(ApiKey, 0))
    handler_failures: int = 0
    unsent_bytes: int = 0
    """Of answers, over all connections."""
    incoming_bytes: int = 0
    """Of requests that have not begun, over all connections; what is small is not counted."""
    fetches_held_back: int = 0
    """Fetches of consumers that got no records, as too much was unsent."""
    open_by_listener: Counter[str] = field(default_factory=Counter)
    traffic: Traffic = field(default_factory=Traffic)
    timing: Timing = field(default_factory=Timing)

    def count_closing(self, reason: Closing, peer: str, detail: str) -> None:
        """Count a connection that is closed for `reason`; log the first one, and then every tenfold number."""
        self.closed_for[reason] += 1
        count = self.closed_for[reason]
        if is_power_of_ten(count):
            logger.warning("closed the connection from %s: %s (%s); %d so far", peer, reason.value, detail, count)
