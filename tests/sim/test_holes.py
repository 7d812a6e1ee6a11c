"""Every known hole of Kafka is planted, or it is said why not; and what plants one says so."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from simulation.defects import DEFECTS, UNSEEN
from simulation.tables import printed

pytestmark = pytest.mark.sim

ISSUE = re.compile(r"(?:KAFKA|KIP)-\d+")
PLANTED = {**DEFECTS, **UNSEEN}
ELSEWHERE = {"KAFKA-13140", *(f"KIP-{number}" for number in (33, 98, 106, 107, 112, 345, 405, 497, 516, 534))}
"""What sources of defects name and the rows do not."""


def holes() -> Iterator[tuple[str, list[str], str]]:
    """Source, defects, and why there is none or not all of it is planted, of every row."""
    for line in printed("holes").split("|---|---|---|---|\n")[1].splitlines():
        source, _, planted, why_not = map(str.strip, re.split(r"(?<!\\)\|", line)[1:-1])
        yield source, planted.split(", ") if planted else [], why_not


def test_every_hole_is_planted_by_defects_that_there_are_or_it_is_said_why_not() -> None:
    assert [source for source, planted, why_not in holes() if not planted and not why_not] == []
    assert [(source, name) for source, planted, _ in holes() for name in planted if name not in PLANTED] == []


def test_what_plants_a_hole_is_named_there() -> None:
    """For every issue that a defect says it comes from, one of that issue's rows names the defect."""
    listed: dict[str, set[str]] = {}
    for source, planted, _ in holes():
        for issue in ISSUE.findall(source):
            listed.setdefault(issue, set()).update(planted)
    missing = [
        (name, issue)
        for name, defect in PLANTED.items()
        for issue in sorted({*ISSUE.findall(defect.source)} - ELSEWHERE)
        if name not in listed.get(issue, ())
    ]
    assert missing == []
