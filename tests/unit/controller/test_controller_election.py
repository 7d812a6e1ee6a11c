"""Elections and ISR removals as pure rules, the reference's cases (10.5) first."""

from __future__ import annotations

import pytest

from regency.controller.state.election import (
    Election,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
    elect_reassigned,
    elect_unclean,
    remove_from_isr,
)

A = (2, 4)


def unclean(assignment, isr, live):
    return elect_unclean(assignment, isr, live, {})


@pytest.mark.parametrize(
    ("elect", "isr", "live", "leader", "new_isr"),
    [
        (elect_offline, (2, 4), {4}, 4, (4,)),
        (elect_offline, (2,), {4}, None, (2,)),
        (unclean, (2,), {4}, 4, (4,)),
        (elect_offline, (4, 2), {2, 4}, 2, (4, 2)),
        (unclean, (2,), set(), None, (2,)),
        (elect_offline, (9,), {9, 4}, None, (9,)),
    ],
)
def test_offline_election(elect, isr, live, leader, new_isr):
    elected = elect(A, isr, live)

    assert (elected.leader, elected.isr) == (leader, new_isr)
    assert elected.unclean == (elect is unclean and leader is not None)


@pytest.mark.parametrize(("isr", "live", "leader"), [((2, 4), {4}, 4), ((2, 4), set(), None), ((), {2}, None)])
def test_reassignment_elects_in_the_target_and_keeps_the_isr(isr, live, leader):
    elected = elect_reassigned(A, isr, live)

    assert (elected.leader, elected.isr) == (leader, isr)


@pytest.mark.parametrize(
    ("isr", "live", "leader"),
    [((2, 4), {2, 4}, 2), ((2,), set(), None), ((4,), {2, 4}, None), ((), set(), None), ((4, 2), {2}, 2)],
)
def test_preferred_election_takes_the_first_replica_or_none(isr, live, leader):
    elected = elect_preferred(A, isr, live)

    assert (elected.leader, elected.isr) == (leader, isr)


def test_preferred_election_without_replicas_elects_nobody():
    assert elect_preferred((), (), {1}).leader is None


@pytest.mark.parametrize(
    ("isr", "shutting_down", "expected"),
    [((2, 4), {2}, (4, (4,))), ((2,), {2}, (None, (2,))), ((2, 4), {2, 4}, (None, (2, 4)))],
)
def test_controlled_shutdown_elects_one_that_stays(isr, shutting_down, expected):
    elected = elect_for_shutdown(A, isr, {2, 4}, shutting_down)

    assert (elected.leader, elected.isr) == expected


def test_every_outcome_says_why():
    outcomes = [
        elect_offline(A, A, {4}),
        elect_offline(A, (2,), {4}),
        elect_reassigned(A, A, set()),
        elect_preferred(A, (4,), {2, 4}),
        elect_for_shutdown(A, A, {2, 4}, {2, 4}),
    ]
    assert [outcome.why for outcome in outcomes] == [
        "first live replica of [2, 4] that is in sync",
        "no member of the ISR [2] is live",
        "no live replica of the target [2, 4] is in the ISR [2, 4]",
        "preferred replica 2 is not in the ISR [4]",
        "every live member of the ISR [2, 4] is shutting down",
    ]
    assert isinstance(outcomes[0], Election)


@pytest.mark.parametrize(
    ("leader", "isr", "offline", "expected"),
    [
        (1, (1, 2, 3), {3}, (1, (1, 2))),
        (1, (1, 2, 3), {1}, (-1, (2, 3))),
        (1, (1,), {1}, (-1, (1,))),
        (1, (2, 1), {1, 2}, (-1, (1,))),
        (-1, (3, 2), {2, 3}, (-1, (2,))),
        (-1, (2,), {2}, None),
        (1, (1, 2), {3}, None),
        (5, (6,), {5}, (-1, (6,))),
    ],
)
def test_offline_replicas_leave_the_isr_but_never_empty_it(leader, isr, offline, expected):
    removal = remove_from_isr((1, 2, 3), leader, isr, offline)

    assert (removal and (removal.leader, removal.isr)) == expected


@pytest.mark.parametrize(
    ("isr", "offline", "back", "unsure", "expected"),
    [
        ((1, 2), {1, 2}, {2}, (), (-1, (2,))),
        ((1, 2), {1, 2}, {2}, (2,), (-1, (1,))),
        ((1, 2), {1, 2}, {1, 2}, (1,), (-1, (2,))),
        ((1, 2, 3), {1, 2, 3}, {2, 3}, (2,), (-1, (3,))),
        ((1, 2), {1, 2}, {1, 2}, (1, 2), (-1, (1,))),
        ((1, 2), {1}, (), (2,), (-1, (1,))),
        ((1, 2), {1}, (), (1, 2), (-1, (2,))),
        ((1, 2, 3), {1}, (), (2,), (-1, (2, 3))),
    ],
)
def test_of_all_who_go_one_is_kept_that_has_everything_and_can_lead_soon(isr, offline, back, unsure, expected):
    removal = remove_from_isr((1, 2, 3), 1, isr, offline, back=back, unsure=unsure)

    assert (removal.leader, removal.isr) == expected
