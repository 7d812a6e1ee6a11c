"""What is wrong with the records of a topic, given the rows that were to be written and who attempted what. Pure.

A row that is there twice is a bug, but for one case: the earlier attempt was still sending, or what it had sent was
still on its way, when the later one had begun to read back. Nothing but a transaction could fence that
(docs/use/spark-write.md); it is counted, and told apart by the brokers' own time of appending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from regency.pipeline.sink.identity import HEADER_BYTES
from spark_kills.notes import Attempt, TaskName


class Signature(NamedTuple):
    """What header `regency.sink` of a watched record says."""

    task: TaskName
    position: int
    attempt: int


class Found(NamedTuple):
    """A record as a plain consumer has it."""

    partition: int
    offset: int
    value: bytes
    appended_ms: int
    """Wall clock of the broker that appended it."""
    signature: Signature


@dataclass
class Verdict:
    """What was found. `bugs` are in words, at most a few of each kind."""

    records: int = 0
    rows: int = 0
    late: int = 0
    """Rows that are there twice because an attempt that was given up was heard of too late: the documented limit."""
    bugs: list[str] = field(default_factory=list)


def signature(value: bytes) -> Signature:
    """What a header's value says. Raises ValueError for a value of another length."""
    if len(value) != HEADER_BYTES:
        raise ValueError(f"a header of {len(value)} bytes")
    task = TaskName(UUID(bytes=value[:16]), int.from_bytes(value[16:24]), int.from_bytes(value[24:28]))
    return Signature(task, int.from_bytes(value[28:36]), value[36] >> 1)


def judge(
    rows: Iterable[bytes],
    records: Sequence[Found],
    attempts: Mapping[TaskName, Mapping[int, Attempt]],
    *,
    whole: bool = True,
    in_order: bool = True,
) -> Verdict:
    """Compare records with the rows of one query, whose values all differ.

    `whole`: every row has to be there, since the query ended well. `in_order`: rows of a task keep their order within a
    partition, over all of its attempts; as for rows that have keys, or name their partition, and come in the same order
    each time.
    """
    wanted = set(rows)
    copies: dict[bytes, list[Found]] = {}
    for record in records:
        copies.setdefault(record.value, []).append(record)
    verdict = Verdict(records=len(records), rows=len(wanted))
    lost = wanted - copies.keys()
    if lost and whole:
        verdict.bugs.append(f"{len(lost)} rows are lost, such as {min(lost)!r}")
    stray = copies.keys() - wanted
    if stray:
        verdict.bugs.append(f"{len(stray)} records are no row, such as {min(stray)!r}")
    doubled = {value: found for value, found in copies.items() if len(found) > 1}
    _judge_doubled(verdict, doubled, attempts)
    if in_order:
        _judge_order(verdict, [record for record in records if record.value not in doubled])
    return verdict


def _judge_doubled(
    verdict: Verdict, doubled: Mapping[bytes, list[Found]], attempts: Mapping[TaskName, Mapping[int, Attempt]]
) -> None:
    kinds: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for value, found in sorted(doubled.items()):
        why = _why_doubled(sorted(found, key=lambda record: record.signature.attempt), attempts)
        if why is None:
            verdict.late += 1
            continue
        kinds[why] += 1
        examples.setdefault(why, f"{value!r} at {[(*record[:2], record.appended_ms) for record in found]}")
    verdict.bugs += [f"{count} rows are there twice: {why}; such as {examples[why]}" for why, count in kinds.items()]


def _why_doubled(found: Sequence[Found], attempts: Mapping[TaskName, Mapping[int, Attempt]]) -> str | None:
    """What is wrong with copies of a row, the earliest attempt's first; None where it is the limit."""
    for earlier, later in pairwise(found):
        if earlier.signature.task != later.signature.task:
            return "two tasks wrote them"
        if earlier.signature.attempt == later.signature.attempt:
            return "one attempt wrote them"
        asked_ms = attempts[later.signature.task][later.signature.attempt].asked_ms
        if asked_ms is None:
            return "an attempt that was not the first did not read back"
        if earlier.appended_ms < asked_ms:
            return "an attempt did not find what had been appended before it read back"
    return None


def _judge_order(verdict: Verdict, records: Iterable[Found]) -> None:
    last: dict[tuple[TaskName, int], Found] = {}
    turned: list[tuple[Found, Found]] = []
    for record in sorted(records, key=lambda each: (each.partition, each.offset)):
        place = (record.signature.task, record.partition)
        before = last.get(place)
        if before is not None and before.signature.position >= record.signature.position:
            turned.append((before, record))
        last[place] = record
    if turned:
        before, record = turned[0]
        verdict.bugs.append(
            f"{len(turned)} times rows of a task are not in their order, such as {record.value!r} at partition"
            f" {record.partition}, offset {record.offset}, after {before.value!r}"
        )
