"""Leader and ISR in ZooKeeper are the same whichever broker ruled when the others died.

The first article's puzzle: two replicas on A and B. With the controller on C, A and B are stopped one after the other:
no leader. With it on B, the same: B is left as leader, because the controller that took over did not move replicas of
dead brokers to OfflineReplica (Kafka before 2.3, KAFKA-3143).
"""

from __future__ import annotations

from itertools import permutations

import pytest

from regency.controller.state.states import PartitionState, ReplicaState
from regency.model.ids import TopicPartition
from regency.model.znodes import paths

A, B, C = 1, 2, 3
T0 = TopicPartition("t", 0)


def stop(world, broker) -> None:
    """The broker's process ends: its registration and its controller's session vanish together."""
    own = [each for each in world.candidates if each.broker == broker]
    for candidate in own:
        world.candidates.remove(candidate)
        candidate.session.close()
    world.ensemble.delete(paths.broker(broker))
    world.settle()


def stopped(world, ruler, order, replicas=(A, B)):
    """Three brokers, a topic on some of them; `ruler` rules; these stop in this order."""
    world.start_brokers(A, B, C)
    for broker in (ruler, *(each for each in (A, B, C) if each != ruler)):
        world.candidate(broker)
    assert world.candidates[0].rules
    world.write_topic("t", {0: list(replicas)})
    for broker in order:
        stop(world, broker)
    return world.state("t")[:2]


@pytest.mark.parametrize("order", [(A, B), (B, A)])
@pytest.mark.parametrize("ruler", [A, B, C])
def test_leader_and_isr_are_the_same_whoever_ruled(world, ruler, order):
    last = order[-1]

    assert stopped(world, ruler, order) == (-1, (last,))

    (survivor,) = world.candidates
    context = survivor.term.context
    assert [context.replica_state(T0, broker) for broker in (A, B)] == [ReplicaState.OFFLINE] * 2
    assert context.partition_state(T0) is PartitionState.OFFLINE
    world.start_broker(order[0])
    assert world.state("t")[:2] == (-1, (last,)), "the one that was not in sync does not lead"
    world.start_broker(last)
    assert world.state("t")[:2] == (last, (last,))


@pytest.mark.parametrize("ruler", [A, B, C])
def test_the_same_when_both_stop_at_once(world, ruler):
    world.start_brokers(A, B, C)
    for broker in (ruler, *(each for each in (A, B, C) if each != ruler)):
        world.candidate(broker)
    world.write_topic("t", {0: [A, B]})
    gone = [each for each in world.candidates if each.broker != C]
    world.candidates = [each for each in world.candidates if each.broker == C]
    for candidate in gone:
        candidate.session.close()
    for broker in (A, B):
        world.ensemble.delete(paths.broker(broker))
    world.settle()

    assert world.state("t")[:2] == (-1, (A,)), "the last leader that is known is kept"


@pytest.mark.parametrize("order", list(permutations((A, B))))
def test_the_same_with_three_replicas(new_world, order):
    outcomes = {ruler: stopped(new_world(), ruler, order, replicas=(A, B, C)) for ruler in (A, B, C)}

    assert set(outcomes.values()) == {(C, (C,))}
