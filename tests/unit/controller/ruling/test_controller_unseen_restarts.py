"""A member restarts while the controller decides: no write that keeps it in the ISR lands, so nothing hides that."""

from __future__ import annotations

import pytest

from regency.controller.elections.leader_elections import ElectionType, ElectLeaders
from regency.controller.reassignment import moves as reassignment
from regency.controller.reassignment.requests import AlterReassignments
from regency.controller.store.cluster_store import ClusterStore
from regency.model.ids import TopicPartition
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Create, Delete


@pytest.fixture
def restart(ruled, monkeypatch):
    """Lets a broker register again, once, right before the next write of states; nobody has looked by then."""

    def at_next_write(broker, owner=ClusterStore, verb="update_states"):
        write, waiting = getattr(owner, verb), [broker]

        def with_restart(*given):
            for each in waiting:
                waiting.remove(each)
                ruled.agents[each] = type(ruled.agents[each])()
                again = Create(paths.broker(each), ruled.ensemble.nodes[paths.broker(each)].data, ephemeral=True)
                ruled.ensemble.multi(each, [Delete(paths.broker(each), None), again, ruled.mark_of(each)])
            return write(*given)

        monkeypatch.setattr(owner, verb, with_restart)

    return at_next_write


def test_who_restarted_is_not_elected_and_others_are(ruled, restart):
    ruled.write_topic("t", {0: [3, 2, 1], 1: [3, 1]})
    restart(2)

    ruled.kill_broker(3)

    assert ruled.state("t", 0) == (1, (1,), 1, 1)  # one write: 2 was never named
    assert ruled.state("t", 1) == (1, (1,), 1, 1)
    assert ruled.agents[2].states[TopicPartition("t", 0)] == (1, 1, (1,))
    assert ruled.term.context.restarted == set()


def test_who_restarted_leaves_the_isr_together_with_the_dead(ruled, restart):
    ruled.write_topic("t", {0: [1, 2, 3]})
    restart(2)

    ruled.kill_broker(3)

    assert ruled.state("t") == (1, (1,), 1, 1)


@pytest.fixture
def taken_in(ruled):
    """Lets a broker die, be taken in by a leader that had not heard of that and tells of nothing, and start again."""

    def in_isr(replicas, broker):
        ruled.write_topic("t", {0: replicas})
        ruled.kill_broker(broker)
        leader, isr, epoch, _ = ruled.state("t")
        ruled.write_state("t", 0, leader, tuple(each for each in replicas if each in (*isr, broker)), epoch=epoch)
        ruled.start_broker(broker)

    return in_isr


def test_a_member_that_registered_after_its_leader_took_it_in_leaves_the_isr_with_the_next_dead(ruled, taken_in):
    taken_in([1, 2, 3], 3)

    ruled.kill_broker(2)

    assert ruled.state("t") == (1, (1,), 2, 1)


def test_a_member_that_registered_after_its_leader_took_it_in_is_not_elected_and_leaves_with_the_election(
    ruled, taken_in
):
    taken_in([1, 3, 2], 3)

    ruled.kill_broker(1)

    assert ruled.state("t") == (2, (2,), 2, 1)


def test_a_member_that_registered_after_the_dead_leader_took_it_in_is_kept_as_the_last_and_leads(ruled, taken_in):
    taken_in([1, 3], 3)

    ruled.kill_broker(1)

    assert ruled.state("t")[:2] == (3, (3,))


def test_an_isr_that_was_read_without_a_notification_is_judged_by_the_next_event(ruled, taken_in):
    taken_in([3, 1, 2], 3)

    ruled.candidates[0].ask(ElectLeaders(ElectionType.PREFERRED, (TopicPartition("t", 0),)))

    assert ruled.state("t")[:2] == (1, (1, 2))
    assert ruled.term.context.unjudged == {}


def test_a_step_of_a_reassignment_leaves_out_a_member_that_registered_after_its_leader_took_it_in(ruled, taken_in):
    taken_in([1, 2, 3], 3)

    ruled.candidates[0].ask(AlterReassignments(((TopicPartition("t", 0), (1, 3)),)))

    assert ruled.state("t")[:2] == (1, (1, 2))
    assert ruled.term.context.reassigning == {TopicPartition("t", 0): None}
    ruled.rejoin("t", (1, 2, 3))
    assert ruled.term.context.reassigning == {}


def test_the_last_one_is_kept_and_leads_again_though_it_restarts_all_the_time(ruled, restart):
    ruled.write_topic("t", {0: [2, 3]})
    ruled.kill_broker(3)
    restart(2)

    ruled.bounce(2)

    assert ruled.state("t")[:2] == (2, (2,))


def test_a_broker_whose_incarnation_was_deleted_by_hand_goes_unguarded(ruled):
    ruled.write_topic("t", {0: [3, 2, 1]})
    del ruled.ensemble.nodes[paths.incarnation(2)]

    ruled.kill_broker(3)

    assert ruled.state("t") == (2, (2, 1), 1, 1)


def test_a_step_of_a_reassignment_leaves_out_who_restarted(ruled, restart):
    ruled.write_topic("t", {0: [1, 2]})
    restart(2, reassignment, "write_topics")

    ruled.candidates[0].ask(AlterReassignments(((TopicPartition("t", 0), (1, 2, 3)),)))

    assert ruled.state("t") == (1, (1,), 1, 1)
    assert ruled.term.context.reassigning == {TopicPartition("t", 0): None}
    ruled.rejoin("t", (2, 3))
    assert ruled.term.context.reassigning == {}
