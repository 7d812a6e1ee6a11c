from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from simulation.faults.points import CrashPoint, crash_point_names, crash_points_in, crash_points_in_code

from regency.model.crash_points import crash_point, observe

AT_LEAST = 60


pytestmark = pytest.mark.timeout(60)
"""Every file of the code is parsed: seconds on a busy machine."""


@pytest.fixture
def reached() -> Iterator[list[str]]:
    names: list[str] = []
    observe(names.append)
    yield names
    observe(None)


def test_every_crash_point_is_a_literal_of_the_form_part_subject_when() -> None:
    assert [point for point in crash_points_in_code() if not point.is_well_named] == []


def test_every_crash_point_stands_at_one_place_only() -> None:
    times = Counter(point.name for point in crash_points_in_code())

    assert {name: count for name, count in times.items() if count > 1} == {}


def test_there_are_enough_crash_points_inside_the_log_and_outside_of_it() -> None:
    names = crash_point_names()

    assert len(names) >= AT_LEAST
    assert {name.partition(".")[0] for name in names} >= {"agent", "controller", "fetcher", "log", "replication"}


def test_a_name_that_is_computed_is_found_as_one_that_cannot_be_counted() -> None:
    source = 'crash_point("a.b.c")\ncrash_point(f"a.{b}.c")\npoints.crash_point("A.b")\nother("a.b.c")\n'

    found = crash_points_in(source, "part.py")

    assert found == [CrashPoint("a.b.c", "part.py:1"), CrashPoint(None, "part.py:2"), CrashPoint("A.b", "part.py:3")]
    assert [point.is_well_named for point in found] == [True, False, False]


def test_nobody_hears_of_a_crash_point_unless_somebody_observes(reached: list[str]) -> None:
    crash_point("test.observed.once")
    observe(None)
    crash_point("test.unobserved.once")

    assert reached == ["test.observed.once"]
