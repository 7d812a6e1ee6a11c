"""Who triggers which transition: the two tables of the third article, a row each.

Every row does what triggers it and looks whether that replica or partition entered that state. Names are the table's.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from regency.controller.elections.controlled_shutdown import ControlledShutdown
from regency.controller.elections.leader_elections import ElectionType, ElectLeaders
from regency.controller.state.context import ControllerContext
from regency.controller.state.states import PartitionState as P
from regency.controller.state.states import ReplicaState as R
from regency.model import znodes
from regency.model.ids import NO_BROKER_EPOCH, TopicPartition
from regency.model.znodes import paths

T0 = TopicPartition("t", 0)
"""A topic of broker 2 and 3, led by 2, before every row; nobody else is on it."""


class Entered:
    """States entered since the last `clear`, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.replicas: list[tuple[TopicPartition, int, R]] = []
        self.partitions: list[tuple[TopicPartition, P]] = []
        set_replica, set_partition = ControllerContext.set_replica_state, ControllerContext.set_partition_state
        begin, begin_states = ControllerContext.begin_replicas, ControllerContext.begin_partitions

        def replica(context, partition, broker, state):
            self.replicas.append((partition, broker, state))
            set_replica(context, partition, broker, state)

        def partition(context, partition, state):
            self.partitions.append((partition, state))
            set_partition(context, partition, state)

        def begin_replicas(context, topic):
            ineligible = begin(context, topic)
            for partition in context.partitions_of(topic):
                for broker, state in context.replica_states(partition):
                    if state is R.ONLINE:
                        self.replicas.append((partition, broker, state))
            return ineligible

        def begin_partitions(context, topic, states):
            begin_states(context, topic, states)
            self.partitions += zip(context.topics[topic].names, states, strict=True)

        monkeypatch.setattr(ControllerContext, "set_replica_state", replica)
        monkeypatch.setattr(ControllerContext, "set_partition_state", partition)
        monkeypatch.setattr(ControllerContext, "begin_replicas", begin_replicas)
        monkeypatch.setattr(ControllerContext, "begin_partitions", begin_partitions)

    def clear(self) -> None:
        self.replicas.clear()
        self.partitions.clear()


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> Entered:
    return Entered(monkeypatch)


@pytest.fixture
def three(ruled):
    """Brokers 1 to 3, broker 1 rules, t on 2 and 3."""
    ruled.write_topic("t", {0: [2, 3]})
    return ruled


# What happens


def broker_startup(world, begin) -> None:
    world.kill_broker(3)
    begin()
    world.start_broker(3)


def new_partition(world, begin) -> None:
    begin()
    world.write_topic("t", {0: [2, 3]})


def broker_failure(world, begin) -> None:
    begin()
    world.kill_broker(2)


def failover(world, begin) -> None:
    begin()
    world.candidates[0].session.expire()
    world.settle()


def failover_after_death(world, begin) -> None:
    """The leader dies while nobody rules."""
    world.candidates[0].session.expire()
    begin()
    world.kill_broker(2)


def shutdown(world, begin) -> None:
    begin()
    world.candidates[0].ask(ControlledShutdown(3, NO_BROKER_EPOCH))


def shutdown_of_leader(world, begin) -> None:
    begin()
    world.candidates[0].ask(ControlledShutdown(2, NO_BROKER_EPOCH))


def deletion(world, begin) -> None:
    begin()
    world.ensemble.put(paths.delete_topic("t"), b"")
    world.settle()


def deletion_with_dead_replica(world, begin) -> None:
    world.kill_broker(3)
    deletion(world, begin)


def deletion_retry(world, begin) -> None:
    """The broker of the replica that could not be deleted returns."""
    deletion_with_dead_replica(world, lambda: None)
    begin()
    world.start_broker(3)


def reassign(world, begin) -> None:
    """From 2 and 3 to 1 and 2: replica 1 is added, catches up, and 3 goes."""
    world.ensemble.put(paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves([(T0, (1, 2))]))
    begin()
    world.settle()
    leader, _, epoch, controller = world.state("t")
    world.write_state("t", 0, leader, (1, 2, 3), epoch=epoch, controller=controller)
    world.notify_isr_change(T0)


def reassign_with_dead_replica(world, begin) -> None:
    """Broker 3 is dead when it is to give up its replica."""
    world.kill_broker(3)
    world.ensemble.put(paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves([(T0, (2, 1))]))
    world.settle()
    leader, _, epoch, controller = world.state("t")
    world.write_state("t", 0, leader, (2, 1), epoch=epoch, controller=controller)
    begin()
    world.notify_isr_change(T0)


def preferred_election(world, begin) -> None:
    world.kill_broker(2)
    world.start_broker(2)
    world.write_state("t", 0, 3, (3, 2), epoch=world.state("t")[2])
    world.notify_isr_change(T0)
    begin()
    world.candidates[0].ask(ElectLeaders(ElectionType.PREFERRED, (T0,)))


def leaderless_and_return(world, begin) -> None:
    """The whole ISR dies, one of it returns."""
    for broker in (3, 2):
        world.kill_broker(broker)
    begin()
    world.start_broker(2)


Scenario = Callable[..., None]

REPLICA_ROWS: list[tuple[R, str, Scenario, int]] = [
    (R.ONLINE, "KafkaController.onBrokerStartup", broker_startup, 3),
    (R.ONLINE, "KafkaController.onNewPartitionCreation", new_partition, 2),
    (R.ONLINE, "KafkaController.onPartitionReassignment", reassign, 1),
    (R.ONLINE, "ReplicaStateMachine.startup", failover, 2),
    (R.OFFLINE, "TopicDeletionManager.markTopicForDeletionRetry", deletion_retry, 3),
    (R.OFFLINE, "TopicDeletionManager.startReplicaDeletion", deletion, 3),
    (R.OFFLINE, "KafkaController.shutdownBroker", shutdown, 3),
    (R.OFFLINE, "KafkaController.onBrokerFailure", broker_failure, 2),
    (R.NEW, "KafkaController.onNewPartitionCreation", new_partition, 2),
    (R.NEW, "KafkaController.startNewReplicasForReassignedPartition", reassign, 1),
    (R.DELETION_STARTED, "TopicDeletionManager.startReplicaDeletion", deletion, 3),
    (R.DELETION_STARTED, "KafkaController.stopOldReplicasOfReassignedPartition", reassign, 3),
    (R.DELETION_SUCCESSFUL, "TopicDeletionManager.completeReplicaDeletion", deletion, 3),
    (R.DELETION_SUCCESSFUL, "KafkaController.stopOldReplicasOfReassignedPartition", reassign, 3),
    (R.DELETION_INELIGIBLE, "TopicDeletionManager.startReplicaDeletion", deletion_with_dead_replica, 3),
    (R.DELETION_INELIGIBLE, "KafkaController.stopOldReplicasOfReassignedPartition", reassign_with_dead_replica, 3),
    (R.NON_EXISTENT, "TopicDeletionManager.completeReplicaDeletion", deletion, 3),
    (R.NON_EXISTENT, "KafkaController.stopOldReplicasOfReassignedPartition", reassign, 3),
]

PARTITION_ROWS: list[tuple[P, str, Scenario]] = [
    (P.ONLINE, "KafkaController.shutdownBroker", shutdown_of_leader),
    (P.ONLINE, "KafkaController.onNewPartitionCreation", new_partition),
    (P.ONLINE, "KafkaController.onPreferredReplicaElection", preferred_election),
    (P.ONLINE, "PartitionStateMachine.triggerOnlinePartitionStateChange", leaderless_and_return),
    (P.ONLINE, "PartitionStateMachine.initializePartitionState", failover),
    (P.OFFLINE, "KafkaController.onBrokerFailure", broker_failure),
    (P.OFFLINE, "TopicDeletionManager.completeDeleteTopic", deletion),
    (P.NON_EXISTENT, "TopicDeletionManager.completeDeleteTopic", deletion),
    (P.NEW, "KafkaController.onNewPartitionCreation", new_partition),
]


def _name(row: tuple[object, ...]) -> str:
    return f"{row[0].value}-{row[1]}"


@pytest.mark.parametrize(("state", "trigger", "scenario", "broker"), REPLICA_ROWS, ids=map(_name, REPLICA_ROWS))
def test_replica_enters_the_state(request, entered, state, trigger, scenario, broker):
    world = request.getfixturevalue("ruled" if scenario is new_partition else "three")
    scenario(world, entered.clear)

    assert (T0, broker, state) in entered.replicas, trigger


@pytest.mark.parametrize(("state", "trigger", "scenario"), PARTITION_ROWS, ids=map(_name, PARTITION_ROWS))
def test_partition_enters_the_state(request, entered, state, trigger, scenario):
    world = request.getfixturevalue("ruled" if scenario is new_partition else "three")
    scenario(world, entered.clear)

    assert (T0, state) in entered.partitions, trigger


def test_reassignment_elects_within_online_in_the_write_that_ends_it(three):
    """OnlinePartition, KafkaController.moveReassignedPartitionLeaderIfRequired: here no transition of its own.

    Assignment, leader and ISR change in one write, so there is no moment at which another leads the old assignment.
    """
    three.ensemble.put(paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves([(T0, (3, 1))]))
    three.settle()
    leader, _, epoch, controller = three.state("t")
    assert leader == 2
    three.write_state("t", 0, leader, (1, 2, 3), epoch=epoch, controller=controller)
    three.notify_isr_change(T0)

    assert three.state("t")[:2] == (3, (1, 3))
    assert three.candidates[0].term.context.partition_state(T0) is P.ONLINE
