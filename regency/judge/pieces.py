"""A history in pieces of one partition each, for where the whole is too large. Pure; see judge.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from regency.judge.findings import DEFAULT_MOST, Verdict
from regency.judge.operations import Operation
from regency.judge.parts import Claims, Configurations, allowed_by_partition
from regency.judge.table import Anomaly
from regency.judge.verdict import judge

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
