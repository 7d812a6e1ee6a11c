"""Failover: everything is read in order, and what happened while nobody ruled is put right."""

from __future__ import annotations

import pytest

from regency.controller import failover
from regency.controller.channel.request_batch import RequestBatch
from regency.controller.machines.partition_state_machine import PartitionStateMachine
from regency.controller.machines.replica_state_machine import ReplicaStateMachine
from regency.controller.machines.topic_deletion import TopicDeletionManager
from regency.controller.state.states import PartitionState, ReplicaState
from regency.controller.store.cluster_store import ClusterStore
from regency.controller.term import Term
from regency.model.ids import TopicPartition
from regency.model.znodes import paths
from regency.protos import control_pb2 as pb
from regency.runtime.zookeeper.session import ZkSessionLost

T0 = TopicPartition("t", 0)


def test_failover_goes_in_order(world, monkeypatch):
    world.start_brokers(1, 2)
    world.write_topic("t", {0: [3, 1]})
    world.write_state("t", 0, 3, [3, 1])
    world.notify_isr_change(T0)
    steps = []
    handle = ReplicaStateMachine.handle

    def moved(self, replicas, target):
        moving = list(replicas)
        steps.extend((target, each.broker) for each in moving)
        return handle(self, moving, target)

    monkeypatch.setattr(ReplicaStateMachine, "handle", moved)

    for owner, name in [
        (ClusterStore, "delete_notifications"),
        (ClusterStore, "registered_brokers"),
        (ClusterStore, "read_topics"),
        (ClusterStore, "set_topic_ids"),
        (ClusterStore, "read_states"),
        (ReplicaStateMachine, "startup"),
        (PartitionStateMachine, "startup"),
        (failover, "resume_reassignments"),
        (TopicDeletionManager, "resume"),
        (failover, "on_elections_asked"),
        (failover, "begin_balancing"),
        (failover, "begin_reconciling"),
        (failover, "look_after_notifications"),
        (Term, "hand_over"),
    ]:
        wrapped = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *a, _w=wrapped, _n=f"{owner.__name__}.{name}", **o: (steps.append(_n), _w(*a, **o))[1]
        )
    world.candidate(1)

    assert steps[: steps.index("Term.hand_over") + 1] == [
        "ClusterStore.delete_notifications",
        "ClusterStore.registered_brokers",
        "ClusterStore.read_topics",
        "ClusterStore.set_topic_ids",
        "ClusterStore.read_states",
        "ReplicaStateMachine.startup",
        "PartitionStateMachine.startup",
        (ReplicaState.OFFLINE, 3),
        "regency.controller.failover.resume_reassignments",
        "TopicDeletionManager.resume",
        "regency.controller.failover.on_elections_asked",
        "regency.controller.failover.begin_balancing",
        "regency.controller.failover.begin_reconciling",
        "regency.controller.failover.look_after_notifications",
        "Term.hand_over",
    ]
    assert world.ensemble.names(paths.ISR_CHANGE_NOTIFICATION) == ()


def test_failover_moves_leaders_and_isrs_off_brokers_that_died_while_nobody_ruled(world):
    world.start_brokers(1, 2)
    world.write_topic("t", {0: [3, 1, 2], 1: [1, 3], 2: [3]})
    world.write_state("t", 0, 3, [3, 1, 2], epoch=4)
    world.write_state("t", 1, 1, [1, 3], epoch=4)
    world.write_state("t", 2, 3, [3], epoch=4)
    for broker in (1, 2):  # they registered before those states were written
        world.ensemble.nodes[paths.broker(broker)].czxid = 1

    world.candidate(1)

    assert world.state("t", 0) == (1, (1, 2), 5, 1)
    assert world.state("t", 1) == (1, (1,), 5, 1)
    assert world.state("t", 2) == (-1, (3,), 5, 1)
    assert world.candidates[0].controller.view.offline_partitions == 1
    assert world.agents[2].states == {T0: (1, 5, (1, 2))}
    (full,) = world.agents[1].of(pb.LeaderAndIsrRequest)
    assert full.full and full.last_chunk


@pytest.mark.parametrize("failover", [True, False])
def test_new_leaders_are_told_before_many_isrs_are_shrunk(world, monkeypatch, failover):
    monkeypatch.setattr("regency.controller.term.MANY_WRITES", 1)
    world.start_brokers(1, 2, 3)
    if not failover:
        world.candidate(1)
    world.write_topic("t", {0: [3, 1, 2], 1: [1, 3, 2]})
    if failover:
        world.write_state("t", 0, 3, [3, 1, 2], controller=0)
        world.write_state("t", 1, 1, [1, 3, 2], controller=0)
        for broker in (1, 2):
            world.ensemble.nodes[paths.broker(broker)].czxid = 1
    told = []
    hand_over = RequestBatch.hand_over

    def watched(batch, channels):
        told.append((world.state("t", 0), world.state("t", 1)))
        hand_over(batch, channels)

    monkeypatch.setattr(RequestBatch, "hand_over", watched)
    world.kill_broker(3)
    if failover:
        world.candidate(1)

    unchanged = 0 if failover else 1
    assert told[:2] == [((1, (1, 2), 1, 1), (1, (1, 3, 2), 0, unchanged)), ((1, (1, 2), 1, 1), (1, (1, 2), 1, 1))]
    assert world.agents[2].states == {T0: (1, 1, (1, 2)), TopicPartition("t", 1): (1, 1, (1, 2))}


def test_startup_with_replica_without_leader(world):
    # ReplicaStateMachineTest.testStartupWithReplicaWithoutLeader, testStartupOfflinePartition, …OnlinePartition
    world.start_brokers(5)
    world.write_topic("t", {0: [100], 1: [5, 100], 2: [100]})
    world.write_state("t", 1, 5, [5])
    world.write_state("t", 2, 100, [100])

    world.candidate(5)

    context, partitions = world.term.context, [TopicPartition("t", number) for number in range(3)]
    assert [context.replica_state(each, 100) for each in partitions] == [ReplicaState.OFFLINE] * 3
    assert context.replica_state(partitions[1], 5) is ReplicaState.ONLINE
    states = [context.partition_state(each) for each in partitions]
    assert states == [PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE]


def test_failover_leaves_what_is_well_alone(world):
    world.start_brokers(1, 2)
    world.write_topic("t", {0: [1, 2]})
    world.write_state("t", 0, 2, [2, 1], epoch=4, controller=0)
    for broker in (1, 2):
        world.ensemble.nodes[paths.broker(broker)].czxid = 1

    world.candidate(1)

    assert world.state("t") == (2, (2, 1), 4, 0)
    assert world.agents[1].states == {T0: (2, 4, (2, 1))}


@pytest.mark.parametrize("many", [1, 1000])
def test_broker_that_bounced_while_nobody_ruled_is_handled_as_bounced(world, monkeypatch, many):
    monkeypatch.setattr("regency.controller.term.MANY_WRITES", many)
    world.start_brokers(1, 2)
    world.write_topic("t", {0: [1, 2], 1: [2, 1], 2: [1]})
    for partition, (leader, isr) in enumerate([(1, (1, 2)), (2, (2, 1)), (1, (1,))]):
        world.write_state("t", partition, leader, isr, epoch=4, controller=0)
    world.ensemble.nodes[paths.broker(2)].czxid = 1
    world.ensemble.nodes[paths.broker(1)].czxid = world.ensemble.zxid + 1
    world.ensemble.zxid += 1

    world.candidate(1)

    assert world.state("t", 0) == (2, (2,), 5, 1)
    assert world.state("t", 1) == (2, (2,), 5, 1)
    assert world.state("t", 2) == (1, (1,), 6, 1)
    assert world.candidates[0].term.context.offline_replicas == {}
    assert world.agents[1].states == {
        TopicPartition("t", 0): (2, 5, (2,)),
        TopicPartition("t", 1): (2, 5, (2,)),
        TopicPartition("t", 2): (1, 6, (1,)),
    }
    (full,) = (each for each in world.agents[1].of(pb.LeaderAndIsrRequest) if each.full)
    assert sorted(full.topics[0].partition) == [0, 1, 2]


def test_bounced_member_leads_where_the_leader_died_while_nobody_ruled(world):
    world.write_topic("t", {0: [2, 1, 3]})
    world.write_state("t", 0, 2, [2, 1, 3], epoch=4, controller=0)
    world.start_brokers(1, 3)

    world.candidate(1)

    assert world.state("t") == (1, (1,), 6, 1)
    assert world.agents[3].states == {T0: (1, 6, (1,))}


def test_all_brokers_start_again_and_the_last_leader_leads(world):
    world.write_topic("t", {0: [1, 2]})
    world.write_state("t", 0, 2, [1, 2], epoch=4, controller=0)
    world.candidate(1)
    assert world.state("t") == (-1, (2,), 5, 1)

    world.start_brokers(1, 2)

    assert world.state("t") == (2, (2,), 6, 1)


def test_session_survives_a_lost_connection_and_everything_is_read_again(ruled):
    candidate = ruled.candidates[0]
    candidate.session.connected = False
    watches, candidate.session._watches = candidate.session._watches, {}
    ruled.write_topic("t", {0: [2]})
    candidate.session._watches = watches

    candidate.session.reconnect()
    ruled.settle()

    assert candidate.controller.view.epoch == 1
    assert ruled.state("t") == (2, (2,), 0, 1)


def test_session_that_ends_in_the_middle_of_a_handler_ends_the_term(ruled):
    candidate = ruled.candidates[0]

    def expire() -> None:
        candidate.session.expire()
        raise ZkSessionLost("The session is gone.")

    candidate.session.before_write = expire
    ruled.write_topic("t", {0: [2]})

    assert candidate.controller.view.epoch == 2
    assert ruled.state("t") == (2, (2,), 0, 2)
