"""A line of a history file as a row: what `regency.history.records` takes for a decision, within ranges. No Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from regency.history.records import Decision, decode_decision

RECORD = (
    "origin string, line string, problem string, controller_epoch long, number long, event string, subject string, "
    "`from` string, `to` string, why string, time_ms long, source long, role string, leader long, isr array<long>, "
    "leader_epoch long, version long, phases array<array<string>>, malformed boolean"
)
"""A row: where a line is from, and the fields of `Decision`, null where it is none; or a `problem` without a line."""
PARTITION = r"(.*)-(\d+)"
"""All of the subject of a decision that wrote the state of a partition: topic and number."""
LATEST_MS = 4_102_444_800_000
"""Year 2100: a time from then on is no time in milliseconds, and a span so long none of a failover."""
_ABOUT = re.compile(PARTITION, re.DOTALL | re.ASCII)
_INT32, _INT64 = 1 << 31, 1 << 63
_TEXT, _LONG = pa.string(), pa.int64()
_TYPES: dict[str, pa.DataType] = {
    "origin": _TEXT,
    "line": _TEXT,
    "problem": _TEXT,
    "controller_epoch": _LONG,
    "number": _LONG,
    "event": _TEXT,
    "subject": _TEXT,
    "from": _TEXT,
    "to": _TEXT,
    "why": _TEXT,
    "time_ms": _LONG,
    "source": _LONG,
    "role": _TEXT,
    "leader": _LONG,
    "isr": pa.list_(_LONG),
    "leader_epoch": _LONG,
    "version": _LONG,
    "phases": pa.list_(pa.list_(_TEXT)),
    "malformed": pa.bool_(),
}


def decision_of(line: bytes) -> Decision | None:
    """The decision on a line; None where it is none, or has a number that is none of its field.

    Ids, epochs and versions have 32 bits, numbers 64; times are from 1970 to 2099, and parts of a failover as long at
    most; the number of a partition whose state was written has 31 bits.
    """
    decision = decode_decision(line)
    return decision if decision is not None and _fits(decision) else None


def parsed_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as of RECORD, of (origin, line, problem); lines with nothing on them are left out."""
    columns: dict[str, list[Any]] = {name: [] for name in _TYPES}
    for origin, line, problem in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        if line is not None and not line.strip():
            continue
        decision = None if line is None else decision_of(line)
        text = None if line is None else line.decode(errors="replace")
        row = (origin, text, problem, *_fields(decision), line is not None and decision is None)
        for own, value in zip(columns.values(), row, strict=True):
            own.append(value)
    return pa.RecordBatch.from_pydict({name: pa.array(columns[name], of) for name, of in _TYPES.items()})


def _fields(decision: Decision | None) -> Sequence[object]:
    if decision is None:
        return (None,) * 15
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
    )


def _fits(decision: Decision) -> bool:
    small = (decision.controller_epoch, decision.source, decision.leader, decision.leader_epoch, decision.version)
    if any(each is not None and not -_INT32 <= each < _INT32 for each in (*small, *(decision.isr or ()))):
        return False
    if not -_INT64 <= decision.number < _INT64 or not 0 <= decision.time_ms < LATEST_MS:
        return False
    if any(not 0 <= ms < LATEST_MS for _, ms in decision.phases or ()):
        return False
    about = _ABOUT.fullmatch(decision.subject) if decision.version is not None and decision.leader is not None else None
    return about is None or (len(about[2]) <= 10 and int(about[2]) < _INT32)
