"""What the demonstration found out."""

from __future__ import annotations

import msgspec

from regency.demo.ledger import Outage
from regency.demo.timeline import Entry


class DemoReport(msgspec.Struct, frozen=True):
    """Everything the demonstration found out. `seconds` is the time from the topic's creation to the comparison."""

    acked: int
    consumed: int
    lost: int
    duplicated: int
    unavailable_ms: int
    reordered: int
    corrupted: int
    failed: dict[str, int]
    killed_broker: int
    outages: list[Outage]
    missing: list[int]
    timeline: list[Entry]
    started_ms: int
    seconds: float

    @property
    def line(self) -> str:
        """The last line of the demonstration."""
        return (
            f"demo: acked={self.acked} consumed={self.consumed} lost={self.lost} duplicated={self.duplicated} "
            f"unavailable_ms={self.unavailable_ms}"
        )

    @property
    def passed(self) -> bool:
        """Whether every record was acknowledged and came back once, unchanged and in order."""
        return not (self.lost or self.duplicated or self.reordered or self.corrupted or self.failed)
