"""Every known hole of Kafka is planted, or it is said why not; and what plants one says so."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from simulation.defects import DEFECTS, UNSEEN
from simulation.defects.holes import ELSEWHERE, HOLES

pytestmark = pytest.mark.sim

ISSUE = re.compile(r"(?:KAFKA|KIP)-\d+")
PLANTED = {**DEFECTS, **UNSEEN}


def issues_in(text: str) -> set[str]:
    return set(ISSUE.findall(text))


def test_every_hole_is_planted_or_it_is_said_why_not() -> None:
    assert [hole.ids for hole in HOLES if not hole.planted and not hole.why_not] == []


def test_the_holes_name_defects_that_there_are() -> None:
    assert [(hole.ids, name) for hole in HOLES for name in hole.defects if name not in PLANTED] == []


def test_what_plants_a_hole_is_named_there() -> None:
    """For every issue that a defect says it comes from, one of that issue's rows names the defect."""
    listed = {issue: set[str]() for issue in ELSEWHERE}
    for hole in HOLES:
        for issue in issues_in(hole.ids):
            listed.setdefault(issue, set()).update(hole.defects)
    missing = [
        (name, issue)
        for name, defect in PLANTED.items()
        for issue in sorted(issues_in(defect.source) - ELSEWHERE)
        if name not in listed.get(issue, ())
    ]
    assert missing == []


def test_no_row_is_there_twice() -> None:
    assert [ids for ids, times in Counter(hole.ids for hole in HOLES).items() if times > 1] == []
