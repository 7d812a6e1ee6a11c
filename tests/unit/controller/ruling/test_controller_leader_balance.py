"""Automatic leader balance: leadership goes back to preferred replicas by itself."""

from __future__ import annotations

import pytest

from regency.controller.elections.leader_elections import FIRST_CHECK_MS, imbalances, to_give_back
from regency.model import znodes
from regency.model.facts import ReplicaAssignment
from regency.model.ids import TopicPartition
from regency.model.znodes import paths

T0 = TopicPartition("t", 0)
INTERVAL_MS = 300_000


def balanced(world, **settings) -> None:
    """Brokers 2 and 3, and a controller of broker 2 under these settings."""
    world.start_brokers(2, 3)
    world.candidate(2, **settings)


def test_auto_preferred_replica_leader_election(world):
    """ControllerIntegrationTest.testAutoPreferredReplicaLeaderElection."""
    balanced(world)
    world.moved_away()
    assert world.state("t")[0] == 3

    world.pass_time(FIRST_CHECK_MS)
    assert world.state("t") == (2, (3, 2), 2, 1)

    world.kill_broker(2)
    world.start_broker(2)
    world.pass_time(INTERVAL_MS)
    assert world.state("t")[:2] == (3, (3,)), "the preferred replica is not in sync (KAFKA-9866)"
    world.rejoin("t", (2, 3))
    world.pass_time(INTERVAL_MS - 1)
    assert world.state("t")[0] == 3
    world.pass_time(1)
    assert world.state("t") == (2, (3, 2), 4, 1)


def test_auto_preferred_election_while_another_partition_is_reassigned(world):
    """ControllerIntegrationTest.testAutoPreferredReplicaLeaderElectionWithOtherReassigningPartitions (KAFKA-10149)."""
    balanced(world)
    world.start_broker(9)
    world.write_topic("other", {0: [3]})
    world.moved_away()
    moves = [(TopicPartition("other", 0), (9,))]
    world.ensemble.put(paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves(moves))
    world.settle()
    assert world.candidates[0].term.context.reassigning

    world.pass_time(FIRST_CHECK_MS)

    assert world.state("t")[0] == 2


def test_partition_being_reassigned_is_left_to_its_reassignment(world):
    """…WithSamePartitionBeingReassigned: Kafka's balance elects for it, too (since 3.4)."""
    balanced(world)
    world.start_broker(9)
    world.write_topic("t", {0: [2, 3]})
    world.ensemble.put(paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves([(T0, (3, 2, 9))]))
    world.settle()
    assert T0 in world.candidates[0].term.context.reassigning

    world.pass_time(FIRST_CHECK_MS)

    assert world.state("t")[0] == 2


def test_nothing_is_given_back_where_the_settings_do_not_want_it(world):
    balanced(world, auto_leader_rebalance_enable=False)
    world.moved_away()
    before = world.state("t")
    world.pass_time(10 * INTERVAL_MS)

    assert world.state("t") == before


def test_timer_dies_with_the_term(ruled):
    """Otherwise every failover would leave one more behind."""
    candidate = ruled.candidates[0]
    for _ in range(3):
        candidate.session.expire()
        candidate.settle()
    ruled.clock.advance(INTERVAL_MS)
    ruled.settle()
    later = [event for _, event in candidate.queue._later if type(event).__name__ == "LeaderBalanceDue"]

    assert [event.epoch for event in later] == [candidate.term.epoch]


@pytest.mark.parametrize(("elsewhere", "percentage", "given"), [(1, 10, 0), (2, 10, 2), (1, 0, 1), (10, 100, 0)])
def test_share_must_be_above_the_setting(ruled, elsewhere, percentage, given):
    """In Kafka strictly above."""
    ruled.write_topic("t", {number: [2, 3] for number in range(10)})
    for number in range(elsewhere):
        ruled.write_state("t", number, 3, (2, 3), epoch=1)
        ruled.notify_isr_change(TopicPartition("t", number))

    assert len(to_give_back(ruled.candidates[0].term.context, percentage=percentage)) == given


def test_only_what_the_preferred_replica_can_lead_at_once_is_given_back(ruled):
    """Not what is being reassigned or deleted, and not what is out of sync or on a failed directory.

    A reassignment of another partition does not matter (KAFKA-10149).
    """
    ruled.write_topic("t", {number: [2, 3] for number in range(5)})
    ruled.write_topic("deleted", {0: [2, 3]})
    context = ruled.candidates[0].term.context
    for number in range(5):
        ruled.write_state("t", number, 3, (3,) if number == 1 else (2, 3), epoch=1)
        ruled.notify_isr_change(TopicPartition("t", number))
    ruled.write_state("deleted", 0, 3, (2, 3), epoch=1)
    ruled.notify_isr_change(TopicPartition("deleted", 0))
    context.topics_to_delete.add("deleted")
    context.set_assignment(TopicPartition("t", 2), ReplicaAssignment((2, 3, 1), adding=(1,)))
    context.mark_offline(2, [TopicPartition("t", 3)])

    assert to_give_back(context, percentage=10) == [T0, TopicPartition("t", 4)]


def test_preferred_replica_imbalance(ruled):
    """ControllerContextTest.testPreferredReplicaImbalanceMetric, counted when asked: it cannot go negative."""
    ruled.write_topic("t", {0: [1, 2, 3], 1: [1, 2, 3], 2: [1, 2, 3]})
    context = ruled.candidates[0].term.context

    def count() -> int:
        return sum(len(each.led_elsewhere) for each in imbalances(context).values())

    assert count() == 0
    for number, expected in ((1, 1), (2, 2)):
        ruled.write_state("t", number, number + 1, (1, 2, 3), epoch=1)
        ruled.notify_isr_change(TopicPartition("t", number))
        assert count() == expected
    context.topics_to_delete.add("t")
    assert count() == 0


def test_preferred_replica_imbalance_on_concurrent_topic_deletion(ruled):
    """ControllerContextTest.testPreferredReplicaImbalanceMetricOnConcurrentTopicDeletion: it stays at 0."""
    for topic in ("a", "b"):
        ruled.write_topic(topic, {0: [2, 3]})
    context = ruled.candidates[0].term.context
    ruled.kill_broker(3)

    ruled.mark("a")
    ruled.kill_broker(2)
    ruled.mark("b")

    assert context.topics_to_delete == {"a", "b"}
    assert [each for each in imbalances(context).values() if each.led_elsewhere] == []
