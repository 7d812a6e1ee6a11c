"""A line of a history file as a row: what `regency.history.records` takes for a decision, within ranges. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import pyarrow as pa

from regency.history.records import Decision, decode_decision
from regency.pipeline.jobs.cluster_history.packed import batch_of, packed

RECORD = (
    "controller_epoch long not null, number long not null, event string, subject string, `from` string, `to` string, "
    "why string, time_ms long, source long not null, role string not null, leader long, isr array<long>, "
    "leader_epoch long, version long, phases array<array<string>>, topic string, partition int"
)
"""Fields of `Decision`; `topic` and `partition` are those whose state was written.

Spark would look for nulls in what it is not told to have none, each time elsewhere, and shuffle all for each.
"""
READ = (
    "origin string, lines long, decisions long, malformed long, a_malformed_line string, problem string, records binary"
)
"""What a batch of lines has of one origin, or, of all of them, `records`: packed rows as of RECORD."""
EXCERPT = 200
"""Characters of a malformed line that are kept."""
LATEST_MS = 4_102_444_800_000
"""Year 2100: a time from then on is no time in milliseconds, and a span so long none of a failover."""
_INT32, _INT64 = 1 << 31, 1 << 63
_DIGITS = 10
"""Of the largest number with 31 bits."""


def decision_of(line: bytes) -> Decision | None:
    """The decision on a line; None where it is none, or has a number that is none of its field.

    Ids, epochs and versions have 32 bits, numbers 64; times are from 1970 to 2099, and parts of a failover as long at
    most; the number of a partition whose state was written has 31 bits.
    """
    decision = decode_decision(line)
    return decision if decision is not None and _fits(decision) else None


@dataclass(slots=True)
class _Origin:
    lines: int = 0
    decisions: int = 0
    malformed: int = 0
    a_malformed_line: str | None = None
    problem: str | None = None


def parsed_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as of READ, of (origin, line, problem), one of the two; lines with nothing on them are left out."""
    records: list[Sequence[object]] = []
    origins: dict[str, _Origin] = {}
    for name, line, problem in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        if line is not None and not line.strip():
            continue
        origin = origins.get(name) or origins.setdefault(name, _Origin())
        if line is None:
            origin.problem = problem
            continue
        origin.lines += 1
        decision = decision_of(line)
        if decision is not None:
            origin.decisions += 1
            records.append(_fields(decision))
        else:
            origin.malformed += 1
            excerpt = line.decode(errors="replace")[:EXCERPT]
            origin.a_malformed_line = min(excerpt, origin.a_malformed_line or excerpt)
    rows: list[Sequence[object]] = [(name, *astuple(origin), None) for name, origin in origins.items()]
    if records:
        rows.append((None,) * 6 + (packed(RECORD, records),))
    return batch_of(READ, rows)


def _fields(decision: Decision) -> Sequence[object]:
    phases = decision.phases
    return (
        decision.controller_epoch,
        decision.number,
        decision.event,
        decision.subject,
        decision.from_,
        decision.to,
        decision.why,
        decision.time_ms,
        decision.source,
        decision.role,
        decision.leader,
        decision.isr,
        decision.leader_epoch,
        decision.version,
        None if phases is None else [(name, str(ms)) for name, ms in phases],
        *_about(decision),
    )


def _about(decision: Decision) -> tuple[str, int] | tuple[None, None]:
    """Topic and partition whose state a decision wrote."""
    topic, dash, number = decision.subject.rpartition("-")
    if decision.version is None or decision.leader is None or not (dash and number.isascii() and number.isdigit()):
        return None, None
    return topic, int(number) if len(number) <= _DIGITS else _INT32


def _fits(decision: Decision) -> bool:
    small = [0, decision.controller_epoch, decision.source, *(decision.isr or ()), _about(decision)[1] or 0]
    small += [each for each in (decision.leader, decision.leader_epoch, decision.version) if each is not None]
    spans = [decision.time_ms, *(ms for _, ms in decision.phases or ())]
    return (
        min(small) >= -_INT32
        and max(small) < _INT32
        and -_INT64 <= decision.number < _INT64
        and min(spans) >= 0
        and max(spans) < LATEST_MS
    )
