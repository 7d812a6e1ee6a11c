"""The job reads in reasons which replicas there are: the reasons that the controller gives are those it knows."""

from __future__ import annotations

import re

from regency.controller.reassignment.moves import ReassignmentsWait
from regency.controller.reassignment.requests import AlterReassignments, ReassignmentsAsked
from regency.controller.reassignment.rules import next_step
from regency.controller.state.election import elect_for_shutdown, elect_offline, elect_preferred, elect_unclean
from regency.model.facts import ReplicaAssignment
from regency.model.ids import BrokerId
from regency.pipeline.jobs.cluster_history import lives


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def named(pattern: str, why: str) -> list[set[int]]:
    """The numbers of each list that a pattern finds."""
    found = re.search(pattern, why)
    assert found is not None, why
    return [{int(each) for each in group.split(",") if each} for group in found.groups()]


def test_a_reassignment_names_all_replicas_on_its_way_and_when_it_is_done() -> None:
    before = ReplicaAssignment(ids(2, 3, 1))
    online = ids(1, 2, 3, 4)
    begun = next_step(before, ids(2, 1, 4), BrokerId(2), ids(2, 1), online)
    assert begun is not None
    assert named(lives.MOVING, begun.why) == [{2, 1, 4}, {3}]
    assert set(begun.assignment.replicas) == {1, 2, 3, 4}
    done = next_step(begun.assignment, None, BrokerId(2), ids(2, 1, 4), online)
    assert done is not None
    assert named(lives.MOVED, done.why) == [{2, 1, 4}]
    shrunk = next_step(before, ids(2), BrokerId(2), ids(2, 3), online)
    assert shrunk is not None
    assert named(lives.MOVED, shrunk.why) == [{2}]
    assert re.search(lives.MOVED, begun.why) is re.search(lives.MOVING, done.why) is None


def test_elections_name_all_replicas() -> None:
    all_three, two = ids(2, 3, 1), ids(3, 1)
    for election in (
        elect_offline(all_three, two, two),
        elect_preferred(all_three, all_three, all_three),
        elect_for_shutdown(all_three, all_three, all_three, ids(2)),
        elect_unclean(all_three, ids(2), ids(3), {}),
        elect_unclean(all_three, ids(2), two, {}),
    ):
        assert named(lives.CHOSEN_OF, election.why) == [{1, 2, 3}], election


def test_events_that_only_reassign_are_called_so() -> None:
    assert {each.cause for each in (AlterReassignments, ReassignmentsAsked, ReassignmentsWait)} == {
        *lives.REASSIGNMENTS
    }
