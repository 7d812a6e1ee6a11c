"""What a context makes of assignments it is given (ControllerContextTest)."""

from __future__ import annotations

import pytest

from regency.controller.state.context import ControllerContext
from regency.controller.state.states import ReplicaState
from regency.model.facts import Broker, Endpoint, ReplicaAssignment, TopicAssignment
from regency.model.ids import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def context() -> ControllerContext:
    context = ControllerContext()
    for number in (1, 2, 3):
        context.add_broker(Broker(number, 1, (Endpoint("CONTROL", "h", 1),)))
    context.put_topic(TopicAssignment("t", {0: ReplicaAssignment((1, 2, 3), (1,), (2,)), 1: ReplicaAssignment((3,))}))
    return context


def test_update_partition_replica_assignment_does_not_overwrite(context):
    context.put_topic(TopicAssignment("t", {0: ReplicaAssignment((3, 2, 1)), 1: ReplicaAssignment((3,))}))

    assert context.assignment(T0) == ReplicaAssignment((1, 2, 3), (1,), (2,))
    assert list(context.reassigning) == [T0]


def test_update_partition_full_replica_assignment(context):
    context.set_assignment(T0, ReplicaAssignment((2, 3), (3,)))
    context.set_assignment(T1, ReplicaAssignment((1,)))

    assert context.assignment(T0) == ReplicaAssignment((2, 3), (3,))
    assert context.assignment(T1) == ReplicaAssignment((1,))
    assert context.partitions_on([3]) == [T0]

    context.set_assignment(T0, ReplicaAssignment((2,)))
    assert list(context.reassigning) == []


def test_partition_replica_assignment_for_topic(context):
    assert {each: context.assignment(each).replicas for each in context.partitions()} == {T0: (1, 2, 3), T1: (3,)}


def test_replica_states_are_per_replica_and_empty_where_nothing_is_known(context):
    context.set_replica_state(T0, 2, ReplicaState.ONLINE)

    states = [context.replica_state(T0, broker) for broker in (1, 2, 3)]
    assert states == [ReplicaState.NON_EXISTENT, ReplicaState.ONLINE, ReplicaState.NON_EXISTENT]
