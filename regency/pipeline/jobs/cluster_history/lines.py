"""A line of a history file as a row: what `regency.history.records` takes for a decision, within ranges. No Spark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from regency.history.records import Decision, decode_decision
from regency.pipeline.jobs.cluster_history import arrow_types

RECORD = (
    "origin string, line string, problem string, controller_epoch long, number long, event string, subject string, "
    "`from` string, `to` string, why string, time_ms long, source long, role string, leader long, isr array<long>, "
    "leader_epoch long, version long, phases array<array<string>>, topic string, partition int, malformed boolean"
)
"""A row: where a line is from, whether it is `malformed`, and its beginning, or the fields of `Decision`.

`topic` and `partition` are those whose state was written. Or a `problem` without a line: then `malformed` is null.
"""
EXCERPT = 200
"""Characters of a malformed line that are kept."""
LATEST_MS = 4_102_444_800_000
"""Year 2100: a time from then on is no time in milliseconds, and a span so long none of a failover."""
_INT32, _INT64 = 1 << 31, 1 << 63
_DIGITS = 10
"""Of the largest number with 31 bits."""
_FIELDS = arrow_types.fields(RECORD)


def decision_of(line: bytes) -> Decision | None:
    """The decision on a line; None where it is none, or has a number that is none of its field.

    Ids, epochs and versions have 32 bits, numbers 64; times are from 1970 to 2099, and parts of a failover as long at
    most; the number of a partition whose state was written has 31 bits.
    """
    decision = decode_decision(line)
    return decision if decision is not None and _fits(decision) else None


def parsed_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as of RECORD, of (origin, line, problem); lines with nothing on them are left out."""
    rows: list[Sequence[object]] = []
    for origin, line, problem in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        if line is None:
            rows.append((origin, None, problem, *_fields(None), None))
        elif line.strip():
            decision = decision_of(line)
            text = None if decision is not None else line.decode(errors="replace")[:EXCERPT]
            rows.append((origin, text, problem, *_fields(decision), decision is None))
    columns = zip(*rows, strict=True) if rows else [()] * len(_FIELDS)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _FIELDS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(_FIELDS))


def _fields(decision: Decision | None) -> Sequence[object]:
    if decision is None:
        return (None,) * 17
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
