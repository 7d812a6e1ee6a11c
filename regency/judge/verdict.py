"""The judge of client histories: whether what producers were told and consumers saw fits one log per partition.

A timeout is neither success nor failure: its record may be there once (idempotent producer), several times (plain one),
late, or never; where it is there, it is held to the same consistency as all others. Partitions are judged one by one.
A history too large for one machine is judged in pieces, each with all records of its partitions, with every
`Recreated` of their topics, and with the `Claims` of the whole; `add_verdicts` gives the verdict on the whole, the same
as if it was judged at once. O(n log n) for n records sent and read.

A history claims to be complete by a `Drained` or by any final read. What is missing of it then is a finding, which
nothing allows (`UNJUDGED`, see missing.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from regency.judge.findings import DEFAULT_MOST, Findings, Verdict, add_verdicts
from regency.judge.log import ReadLog, judge_log, sends_by_value
from regency.judge.missing import judge_missing
from regency.judge.operations import Operation, Poll
from regency.judge.parts import Claims, Configurations, Part, allowed_by_partition, split
from regency.judge.polls import judge_polls
from regency.judge.sends import judge_sends
from regency.judge.table import Allowance, Anomaly
from regency.model.ids import TopicPartition

Allowed = frozenset[Anomaly] | Allowance | Mapping[TopicPartition, frozenset[Anomaly] | Allowance]
"""What is allowed: everywhere, or by partition (see `allowed_by_partition`), where one not named allows nothing.

A frozenset allows its anomalies to all sends, an Allowance by the acks and the idempotence of the send they are about.
"""


def judge(
    history: Iterable[Operation],
    allowed: Allowed = frozenset(),
    *,
    most: int = DEFAULT_MOST,
    claims: Claims | None = None,
) -> Verdict:
    """Judge a history, its records in any order; keeps the first `most` findings of each kind.

    `claims` are those of the whole that it is a piece of; None = it is whole.
    Raises HistoryMalformed where a value or a number within a session was used twice, a partition has two final reads,
    or a topic id is unknown.
    """
    parts, unplaced = split(history, claims)
    return add_verdicts((_judge_part(part, allowed, most) for part in parts), unplaced=unplaced, most=most)


def _judge_part(part: Part, allowed: Allowed, most: int) -> Verdict:
    own = allowed if isinstance(allowed, frozenset | Allowance) else allowed.get(part.name, frozenset())
    findings = Findings(part.topic, part.partition, part.topic_id, own, most)
    log = ReadLog(part)
    judge_log(part, log, sends_by_value(part), findings)
    judge_sends(part, log, findings)
    judge_polls(part, log, findings)
    judge_missing(part, findings)
    polls = sum(isinstance(each, Poll) for session in part.polls.values() for each in session)
    return findings.verdict(sends=sum(map(len, part.sends.values())), polls=polls, records_read=log.records)


Producers = Configurations | Mapping[str, Configurations]
"""The configurations of all producers, or those of each topic's; see `allowed_by_partition`."""


def judge_piece(
    operations: Iterable[Operation],
    claims: Claims | None = None,
    *,
    allow: frozenset[Anomaly] = frozenset(),
    producers: Producers | None = None,
    most: int = DEFAULT_MOST,
) -> Verdict:
    """The verdict on all records of some partitions, where the whole history claims `claims`; None = this is the whole.

    `allow` says what is allowed everywhere; with `producers` it is what their configurations and the facts of the
    history allow instead. Raises HistoryMalformed.
    """
    own = list(operations)
    allowed = allow if producers is None else allowed_by_partition(own, producers)
    return judge(own, allowed, most=most, claims=claims)
