"""The algebra of reassignments, over everything a cluster of seven brokers can ask for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from regency.controller.reassignment.rules import completed, is_complete, next_step, retarget
from regency.model.facts import ReplicaAssignment

BROKERS = st.integers(0, 6)
REPLICAS = st.lists(BROKERS, min_size=1, max_size=4, unique=True).map(tuple)
TARGETS = st.lists(REPLICAS, min_size=1, max_size=5)


@st.composite
def situations(draw):
    """An assignment that requests led to, an ISR within it, its leader, and who works."""
    online = draw(st.sets(BROKERS))
    assignment = ReplicaAssignment(draw(REPLICAS))
    isr = assignment.replicas
    for target in draw(st.lists(REPLICAS, max_size=3)):
        step = next_step(assignment, target, isr[0], isr, online)
        if step is not None:
            assignment, isr = step.assignment, step.isr
        joined = tuple(each for each in assignment.adding if draw(st.booleans()))
        isr = tuple(dict.fromkeys((*isr, *joined)))
        online = draw(st.sets(BROKERS))
        isr = tuple(each for each in isr if each in online) or isr[:1]
    return assignment, isr, draw(st.sampled_from((*isr, -1))), online


@given(situations(), REPLICAS)
def test_a_step_keeps_the_isr_within_the_replicas_and_the_leader_within_the_isr(situation, target):
    assignment, isr, leader, online = situation
    step = next_step(assignment, target, leader, isr, online)
    if step is not None:
        replicas = step.assignment.replicas
        assert step.isr and set(step.isr) <= set(replicas) & set(isr)
        assert step.leader in (*step.isr, -1)
        assert step.assignment.target == target
        assert set(step.assignment.adding) <= set(replicas) and set(step.assignment.removing) <= set(replicas)
        assert not set(step.assignment.adding) & set(step.assignment.removing)


@given(situations(), REPLICAS)
def test_no_step_loses_the_last_working_member_of_the_isr(situation, target):
    assignment, isr, leader, online = situation
    step = next_step(assignment, target, leader, isr, online)
    if step is not None and set(isr) & set(online):
        assert set(step.isr) & set(online)
        assert step.leader in online


@given(situations(), REPLICAS)
def test_nobody_is_forgotten_who_may_hold_a_log(situation, target):
    assignment, isr, leader, online = situation
    step = next_step(assignment, target, leader, isr, online)
    if step is not None:
        before = {*assignment.replicas, *assignment.deleting}
        after = {*step.assignment.replicas, *step.assignment.deleting}
        assert before <= after
        assert not set(step.assignment.replicas) & set(step.assignment.deleting)


@given(situations(), REPLICAS)
def test_the_same_request_again_changes_nothing(situation, target):
    assignment, isr, leader, online = situation
    step = next_step(assignment, target, leader, isr, online)
    if step is not None:
        assert next_step(step.assignment, target, step.leader, step.isr, online) is None
        assert next_step(step.assignment, None, step.leader, step.isr, online) is None


@given(situations(), REPLICAS)
def test_a_reassignment_completes_when_its_target_is_in_sync(situation, target):
    assignment, isr, leader, online = situation
    step = next_step(assignment, target, leader, isr, online)
    if step is not None and step.assignment.is_reassigning:
        everybody = tuple(dict.fromkeys((*step.isr, *target)))
        assert is_complete(step.assignment, everybody, {*target}) is True
        last = next_step(step.assignment, None, step.leader, everybody, {*target})
        assert last is not None
        assert last.assignment.replicas == target
        assert not last.assignment.is_reassigning
        assert last.assignment == completed(step.assignment)
        assert set(last.isr) == set(target)


@given(REPLICAS, REPLICAS)
def test_a_cancelled_reassignment_has_the_replicas_of_before(origin, target):
    everybody = {*origin, *target}
    moving = retarget(ReplicaAssignment(origin), target, origin, everybody)
    step = next_step(moving, moving.origin, origin[0], origin, everybody)
    if step is not None:
        assert set(step.assignment.replicas) == set(origin)
        assert not step.assignment.is_reassigning
        assert set(step.assignment.deleting) == set(target) - set(origin)


@given(REPLICAS, TARGETS)
def test_the_latest_target_wins(origin, targets):
    assignment = ReplicaAssignment(origin)
    everybody = set(range(7))
    for target in targets:
        assignment = retarget(assignment, target, origin, everybody)
    assert assignment.target == targets[-1]
    assert set(assignment.origin) == set(origin)
