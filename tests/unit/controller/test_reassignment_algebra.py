"""The algebra of reassignments on the very examples of ControllerContextTest."""

from __future__ import annotations

import pytest

from regency.controller.reassignment.rules import completed, retarget
from regency.model.facts import ReplicaAssignment

LIVE = range(1, 10)


@pytest.mark.parametrize(
    ("replicas", "adding", "removing", "target"),
    [
        ((1, 2, 3, 4, 5, 6), (2, 3, 4), (1, 5, 6), (2, 3, 4)),
        ((1, 2, 3, 4), (), (1, 4), (2, 3)),
        ((1, 2, 3, 4), (4,), (2,), (1, 3, 4)),
    ],
)
def test_partition_replica_assignment(replicas, adding, removing, target):
    assignment = ReplicaAssignment(replicas, adding, removing)

    assert assignment.is_reassigning
    assert assignment.target == target
    assert completed(assignment).replicas == target
    assert not completed(assignment).is_reassigning


def test_partition_replica_assignment_that_is_not_reassigned():
    assert not ReplicaAssignment((1, 2, 3)).is_reassigning
    assert ReplicaAssignment((1, 2, 3)).target == (1, 2, 3)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ((1, 2, 3, 4), (4, 2, 5, 3), ReplicaAssignment((4, 2, 5, 3, 1), (5,), (1,))),
        ((1, 2, 3), (4, 5, 6), ReplicaAssignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))),
        ((1, 2, 3), (3, 1, 2), ReplicaAssignment((3, 1, 2))),
    ],
)
def test_partition_replica_assignment_from_old_and_new(old, new, expected):
    assert retarget(ReplicaAssignment(old), new, old, LIVE) == expected


def test_reassign_to():
    # ControllerContextTest.testReassignTo; those that were being added are noted until they have been deleted
    isr = (1, 2, 3)
    first = retarget(ReplicaAssignment((1, 2, 3)), (4, 5, 6), isr, LIVE)
    second = retarget(first, (7, 8, 9), isr, LIVE)
    back = retarget(second, (1, 2, 3), isr, LIVE)

    assert first == ReplicaAssignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    assert second == ReplicaAssignment((7, 8, 9, 1, 2, 3), (7, 8, 9), (1, 2, 3), (4, 5, 6))
    assert (back.replicas, back.adding, back.removing) == ((1, 2, 3), (), ())
    assert sorted(back.deleting) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    "assignment",
    [
        ReplicaAssignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3)),
        ReplicaAssignment((4, 1, 2, 3), (4,), (3,)),
        ReplicaAssignment((1, 2, 3)),
    ],
)
def test_reassign_to_idempotence(assignment):
    # ControllerContextTest.testReassignToIdempotence
    again = retarget(assignment, assignment.target, assignment.origin, LIVE)

    assert (again.target, again.origin) == (assignment.target, assignment.origin)
    assert set(again.adding) == set(assignment.adding)
    assert set(again.removing) == set(assignment.removing)
