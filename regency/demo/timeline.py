"""What the demonstration found out, and decision records as a story: one line for what was decided together."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from regency.demo.ledger import Outage
from regency.history.records import Decision

_TOGETHER_MS = 1000


class Entry(msgspec.Struct, frozen=True):
    """One line of a timeline: decisions of one kind, with one outcome and one reason, made within a second."""

    time_ms: int
    """Wall clock of the first of them, milliseconds since 1970."""
    event: str
    subjects: tuple[str, ...]
    change: str
    """What became what, for example `leader 1 -> 2, isr [1, 2, 3] -> [2, 3]`."""
    why: str

    def __str__(self) -> str:
        if not self.subjects:
            return self.change
        subjects = ", ".join(self.subjects)
        return f"{subjects}: {self.change} ({self.why})" if self.change else f"{subjects} ({self.why})"


def timeline(decisions: Iterable[Decision], *, topic: str) -> list[Entry]:
    """The story of the controllers, the brokers and one topic's partitions, oldest first."""
    open_entries: dict[tuple[str, str, str, str], list[Decision]] = {}
    groups: list[list[Decision]] = []
    for decision in sorted(decisions, key=lambda each: each.time_ms):
        if not _concerns(decision, topic):
            continue
        key = (decision.event, decision.from_, decision.to, decision.why)
        group = open_entries.get(key)
        if group is None or decision.time_ms - group[0].time_ms > _TOGETHER_MS:
            group = open_entries[key] = []
            groups.append(group)
        group.append(decision)
    return [_entry(group) for group in groups]


def _concerns(decision: Decision, topic: str) -> bool:
    name, _, partition = decision.subject.rpartition("-")
    return not partition.isdigit() or name == topic


def _entry(group: list[Decision]) -> Entry:
    first = group[0]
    change = f"{first.from_} -> {first.to}" if first.from_ else first.to
    return Entry(first.time_ms, first.event, tuple(decision.subject for decision in group), change, first.why)


class DemoReport(msgspec.Struct, frozen=True, rename={"failed": "errors", "missing": "lost_records"}):
    """Everything the demonstration found out. `seconds` is the time from the topic's creation to the comparison.

    `failed` counts the records that were not acknowledged by reason; `missing` are the numbers of the first lost ones.
    """

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
