"""Who of those that are not in sync has the longest log: what is asked and answered about one partition."""

from __future__ import annotations

import msgspec

from regency.controller.state.election import LogEnd
from regency.model.ids import BrokerEpoch, BrokerId


class Inquiry(msgspec.Struct):
    """Who was asked how far its log of a partition goes, and what was answered; None for one who does not tell."""

    due_ms: int
    """When it is over, also with silent brokers; monotonic."""
    forced: bool = False
    """It was asked for: settings do not matter."""
    asked: dict[BrokerId, BrokerEpoch] = {}
    ends: dict[BrokerId, LogEnd | None] = {}

    @property
    def unheard(self) -> bool:
        """Whether one who was asked has not told."""
        return any(self.ends.get(broker) is None for broker in self.asked)
