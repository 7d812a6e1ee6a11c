"""What the judge says: findings that people can read, counts, and their JSON. Verdicts of parts add up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ParamSpec

import msgspec

from regency.judge.operations import Operation, Poll, Send
from regency.judge.table import Allowance, Anomaly

Told_from = ParamSpec("Told_from")

DEFAULT_MOST: int = 10
"""Findings of each kind that a verdict keeps."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One anomaly: a sentence for people, and where to look."""

    anomaly: Anomaly
    topic: str
    partition: int
    sentence: str
    offsets: tuple[int, ...]
    values: tuple[int, ...] = ()
    operations: tuple[Operation, ...] = ()
    """Records of the history it follows from; of polls only the runs near the offsets."""
    topic_id: str = ""
    allowed: bool = False
    """Whether the configuration allows it."""


class Verdict(msgspec.Struct, frozen=True):
    """The judgement of a history. `counts` are of what is not allowed, `tolerated` of what is."""

    sends: int
    polls: int
    records_read: int
    unplaced: int
    """Operations not judged, because they overlap a re-creation of their topic and name no topic id."""
    counts: dict[Anomaly, int]
    tolerated: dict[Anomaly, int]
    findings: tuple[Finding, ...]
    """The first of each kind, those not allowed before those allowed, by kind, partition and offset."""

    @property
    def clean(self) -> bool:
        """Whether nothing was found that is not allowed."""
        return not self.counts

    def to_json(self) -> bytes:
        """The verdict as one JSON object."""
        return msgspec.json.encode(self)

    def summary(self) -> str:
        """A few lines for people: what was judged, counts, and one sentence per finding that is not allowed."""
        judged = f"{self.sends} sends, {self.polls} polls, {self.records_read} records read"
        if self.clean:
            return f"clean: {judged}{_counted('; allowed: ', self.tolerated)}"
        lines = [f"not clean: {judged}{_counted('; found: ', self.counts)}{_counted('; allowed: ', self.tolerated)}"]
        lines += [f"{each.anomaly}: {each.sentence}" for each in self.findings if not each.allowed]
        return "\n".join(lines)


class Findings:
    """Collects one partition's findings: counts all, builds only the first of each kind, those allowed apart."""

    def __init__(
        self, topic: str, partition: int, topic_id: str, allowed: frozenset[Anomaly] | Allowance, most: int
    ) -> None:
        self._where = (topic, partition, topic_id)
        self._allowed = allowed
        self._most = most
        self._kept: dict[tuple[bool, Anomaly], list[Finding]] = {}
        self._counts: dict[tuple[bool, Anomaly], int] = {}

    def add(
        self,
        anomaly: Anomaly,
        offsets: tuple[int, ...],
        about: Send | None,
        tell: Callable[Told_from, Told],
        *arguments: Told_from.args,
        **named: Told_from.kwargs,
    ) -> None:
        """Count an anomaly at `offsets`; `tell` is called with its arguments only if it is to be shown.

        `about` is the send it is about, whose acks and idempotence say what is allowed; None = about no single one.
        """
        allowed = self._allows(anomaly, about)
        count = self._counts.get((allowed, anomaly), 0)
        self._counts[allowed, anomaly] = count + 1
        if count < self._most:
            topic, partition, topic_id = self._where
            told = tell(*arguments, **named)
            finding = Finding(
                anomaly=anomaly,
                topic=topic,
                partition=partition,
                sentence=told.sentence,
                offsets=offsets,
                values=told.values,
                operations=tuple(_trimmed(each, offsets) for each in told.operations),
                topic_id=topic_id,
                allowed=allowed,
            )
            self._kept.setdefault((allowed, anomaly), []).append(finding)

    def verdict(self, *, sends: int, polls: int, records_read: int) -> Verdict:
        """What was collected."""
        return Verdict(
            sends=sends,
            polls=polls,
            records_read=records_read,
            unplaced=0,
            counts={kind: count for (allowed, kind), count in sorted(self._counts.items()) if not allowed},
            tolerated={kind: count for (allowed, kind), count in sorted(self._counts.items()) if allowed},
            findings=tuple(each for key in sorted(self._kept) for each in self._kept[key]),
        )

    def _allows(self, anomaly: Anomaly, about: Send | None) -> bool:
        if anomaly is Anomaly.UNJUDGED:
            return False
        if isinstance(self._allowed, Allowance):
            return self._allowed.allows(anomaly, None if about is None else (about.acks, about.idempotent))
        return anomaly in self._allowed


class Told(msgspec.Struct, frozen=True):
    """The readable part of a finding."""

    sentence: str
    values: tuple[int, ...] = ()
    operations: tuple[Operation, ...] = ()


def add_verdicts(verdicts: Iterable[Verdict], *, unplaced: int = 0, most: int = DEFAULT_MOST) -> Verdict:
    """The verdict on a history from those on its partitions, in any order: the same as if judged at once."""
    sends = polls = records_read = 0
    counts: dict[Anomaly, int] = {}
    tolerated: dict[Anomaly, int] = {}
    findings: dict[tuple[bool, Anomaly], list[Finding]] = {}
    for verdict in verdicts:
        sends += verdict.sends
        polls += verdict.polls
        records_read += verdict.records_read
        unplaced += verdict.unplaced
        for total, part in ((counts, verdict.counts), (tolerated, verdict.tolerated)):
            for kind, count in part.items():
                total[kind] = total.get(kind, 0) + count
        for finding in verdict.findings:
            findings.setdefault((finding.allowed, finding.anomaly), []).append(finding)
    kept = [
        each
        for key in sorted(findings)
        for each in sorted(findings[key], key=lambda each: (each.topic, each.partition, each.topic_id, each.offsets))[
            :most
        ]
    ]
    return Verdict(
        sends=sends,
        polls=polls,
        records_read=records_read,
        unplaced=unplaced,
        counts=dict(sorted(counts.items())),
        tolerated=dict(sorted(tolerated.items())),
        findings=tuple(kept),
    )


def _counted(title: str, counts: dict[Anomaly, int]) -> str:
    return title + ", ".join(f"{count} {kind}" for kind, count in counts.items()) if counts else ""


def _trimmed(operation: Operation, offsets: tuple[int, ...]) -> Operation:
    """A poll without the runs that are far from `offsets`, and of the near ones only the neighbours."""
    if not isinstance(operation, Poll):
        return operation
    runs = []
    for run in operation.runs:
        near = [offset for offset in offsets if run.offset - 1 <= offset <= run.end]
        if near:
            begin, end = max(min(near) - 1, run.offset), min(max(near) + 2, run.end)
            runs.append(
                msgspec.structs.replace(run, offset=begin, values=run.values[begin - run.offset : end - run.offset])
            )
    return msgspec.structs.replace(operation, runs=tuple(runs))
