"""What the job found out, in figures; without Spark, so that its schema is there for all."""

from __future__ import annotations

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """A file or an agent that gave less than it has, or a process whose records contradict each other."""

    origin: str
    malformed: int
    why: str


class Summary(msgspec.Struct, frozen=True):
    """What `regency pipeline cluster-history -o json` prints and its file has. Times are milliseconds since 1970."""

    tables: str
    report: str
    begin_ms: int
    end_ms: int
    origins: int
    decisions: int
    duplicates: int
    """Decisions found more than once, counted each time but the first."""
    malformed: int
    """Lines that are no decisions."""
    partitions: int
    leaderless_ms: int
    """Of all partitions together."""
    leaderless_intervals: int
    leaderless_now: int
    """Partitions that have no leader at the end."""
    failovers: int
    elections: int
    unclean_elections: int
    isr_absences: int
    problems: list[Problem]
