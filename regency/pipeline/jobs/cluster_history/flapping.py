"""How often each replica left the ISR, and came back. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from regency.pipeline.jobs.cluster_history.absences import BY_RETURN, BY_UNSEEN_RETURN, Absence

HOUR_MS = 3_600_000
FELL_BEHIND = "isr_shrink"
"""The event by which a leader takes out a replica that is behind for longer than replica.lag.time.max.ms."""


def flapping(found: Iterable[Absence]) -> list[tuple[object, ...]]:
    """Rows of table `isr_flapping`, of all absences of some partitions."""
    replicas: dict[tuple[str, int, int], list[Absence]] = {}
    for each in found:
        replicas.setdefault((each.topic, each.partition, each.broker), []).append(each)
    return [(*replica, *_told(own)) for replica, own in replicas.items()]


def _told(own: list[Absence]) -> tuple[int, ...]:
    left = sorted(each.left_ms for each in own)
    return (
        len(own),
        sum(each.left_by == FELL_BEHIND for each in own),
        sum(each.ended_by in (BY_RETURN, BY_UNSEEN_RETURN) for each in own),
        max(bisect_right(left, last) - bisect_left(left, last - HOUR_MS) for last in left),
        sum(each.out_ms for each in own),
        max(each.out_ms for each in own),
    )
