"""Runs of the whole system with consumer groups: they do what groups do, and what goes wrong is noticed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from simulation.defects import exposing
from simulation.faults.plan import Kind, plan
from simulation.judging.group_rules import NOTHING, Commit, _check_order
from simulation.judging.invariants import InvariantBroken
from simulation.kernel.clock import Trace
from simulation.run import run
from simulation.shape import DRILL_EVERY, shape_of

from regency.model.kafka_errors import ErrorCode

pytestmark = pytest.mark.sim

SEEDS = [seed for seed in range(1, 60) if shape_of("deep", seed).grouped]


def test_there_are_groups_in_a_share_of_the_deep_schedules_and_in_no_other() -> None:
    grouped = [seed for seed in range(300) if shape_of("deep", seed).grouped]
    assert 80 < len(grouped) < 120
    assert all(seed % DRILL_EVERY for seed in grouped)
    assert not any(shape_of("quick", seed).grouped for seed in range(300))


def test_without_groups_the_faults_of_a_seed_are_the_same() -> None:
    for seed in SEEDS:
        shape = shape_of("deep", seed)
        faults = [fault for fault in plan(shape, seed) if fault.kind not in (Kind.COORDINATOR, Kind.CLEANING)]
        assert plan(shape._replace(grouped=False).without_keys(), seed) == faults


def test_some_deep_schedules_compact_a_topic_of_keys_and_do_all_else_as_without() -> None:
    keyed = [seed for seed in range(400) if any(topic.is_keyed for topic in shape_of("deep", seed).topics)]
    assert 15 < len(keyed) < 50
    assert all(seed % DRILL_EVERY for seed in keyed)
    for seed in keyed:
        shape = shape_of("deep", seed)._replace(grouped=False)
        if not shape.topics[-1].unclean:
            faults = [fault for fault in plan(shape, seed) if fault.kind is not Kind.CLEANING]
            assert plan(shape.without_keys(), seed) == faults
        assert shape.without_keys().with_keys() == shape


def test_keyed_records_are_compacted_and_read() -> None:
    seed = next(seed for seed in SEEDS if not shape_of("deep", seed).topics[-1].is_keyed)
    result = run(seed, shape_of("deep", seed)._replace(grouped=False).with_keys())
    assert result.failure is None
    assert result.passed["log.compaction.before_end"] > 3


def test_a_defect_of_groups_is_looked_for_where_there_are_some_and_no_other_is() -> None:
    shape = shape_of("deep", 1)
    assert exposing(shape, "members-not-loaded").grouped
    assert not exposing(shape, "unfenced-writes").grouped
    assert exposing(shape, "deletions-forgotten").topics[-1].is_keyed
    assert not any(topic.is_keyed for topic in exposing(shape.with_keys(), "unfenced-writes").topics)
    assert exposing(shape, "") == shape


def test_members_get_assignments_and_coordinators_load_what_they_take_over() -> None:
    events: list[str] = []
    result = run(SEEDS[0], shape_of("deep", SEEDS[0]), trace=Trace(on=True, listener=events.append))
    assert result.failure is None
    assert result.faults[Kind.COORDINATOR.value] > 0
    assert result.passed["groups.load.before_serving"] > 1
    assert result.passed["groups.append.before_log"] > 50
    assert sum(" owns " in event for event in events) > 3


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("first-record-counts", "commits-kept"),
        ("members-not-loaded", "sessions-kept"),
        ("spread-by-settings", "NotConverged"),
    ],
)
def test_what_is_wrong_with_a_coordinator_is_noticed(name: str, broken: str) -> None:
    seeds = [seed for seed in range(1, 12) if seed % DRILL_EVERY]
    failures = (run(seed, exposing(shape_of("deep", seed), name), defect=name).failure for seed in seeds)
    failure = next((each for each in failures if each), "")
    assert broken in failure


# The judge of commits


def commit(offset: int, began: int, ended: int | None = None, error: ErrorCode = ErrorCode.NONE) -> Commit:
    """A commit; without an end nobody knows what became of it."""
    made = Commit(offset, began)
    if ended is not None:
        made.answered(error, ended)
    return made


def judged(commits: Sequence[Commit], *reads: tuple[int, int, int]) -> bool:
    """Whether reads (offset, from, to) fit the commits."""
    try:
        _check_order("g: t-0", commits, reads)
    except InvariantBroken as error:
        assert error.name == "commits-kept"
        return False
    return True


def test_a_read_brings_what_was_committed_last() -> None:
    commits = [commit(1, 0, 10), commit(2, 20, 30)]
    assert judged(commits, (1, 12, 14), (2, 40, 50))
    assert not judged(commits, (1, 40, 50)), "it went back"
    assert not judged(commits, (NOTHING, 40, 50)), "it was lost"
    assert not judged(commits, (3, 40, 50)), "nobody committed it"
    assert not judged(commits, (2, 12, 14)), "before it was committed"


def test_two_at_once_may_come_in_either_order_but_not_in_both() -> None:
    commits = [commit(1, 0, 10), commit(2, 5, 15)]
    assert judged(commits, (1, 20, 21), (1, 30, 31))
    assert judged(commits, (2, 20, 21))
    assert not judged(commits, (1, 20, 21), (2, 30, 31), (1, 40, 41))


def test_a_commit_without_an_answer_may_come_late_or_never_and_once() -> None:
    commits = [commit(1, 0), commit(2, 5, 15)]
    assert judged(commits, (2, 20, 21))
    assert judged(commits, (2, 20, 21), (1, 30, 31))
    assert not judged(commits, (2, 20, 21), (1, 30, 31), (2, 40, 41))


def test_a_commit_that_was_refused_is_never_read() -> None:
    commits = [commit(1, 0, 10), commit(2, 20, 30, ErrorCode.ILLEGAL_GENERATION)]
    assert judged(commits, (1, 40, 41))
    assert not judged(commits, (2, 40, 41))
    assert judged([commit(1, 0, 10), commit(2, 20, 30, ErrorCode.REQUEST_TIMED_OUT)], (2, 40, 41))
