"""A member restarts while the controller decides: no write that keeps it in the ISR lands, so nothing hides that."""

from __future__ import annotations

import pytest

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


def test_a_member_that_registered_after_its_leader_took_it_in_leaves_the_isr_with_the_next_dead(ruled):
    ruled.write_topic("t", {0: [1, 2, 3]})
    ruled.kill_broker(3)
    ruled.write_state("t", 0, 1, (1, 2, 3), epoch=1)  # the leader had not heard that it was dead, and told of nothing
    ruled.start_broker(3)

    ruled.kill_broker(2)

    assert ruled.state("t") == (1, (1,), 2, 1)


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
