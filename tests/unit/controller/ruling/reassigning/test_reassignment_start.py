"""Reassignments that were asked for while no broker lived, and several that begin one after the other."""

from __future__ import annotations

from regency.model import znodes
from regency.model.facts import ReplicaAssignment
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Delete

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
T2 = TopicPartition("t", 2)


def test_reassignment_on_controller_startup(moving):
    # ReassignPartitionsClusterTest.shouldTriggerReassignmentOnControllerStartup: a move, one that is so, an unknown one
    moving.start_brokers(1, 2, 3)
    moving.candidate(1)
    moving.write_topic("t", {0: [1, 2], 1: [1, 2]})
    for broker in (1, 2, 3):
        moving.kill_broker(broker)
    moving.world.candidates.pop().session.close()
    asked = [(T0, (1, 3)), (T1, (1, 2)), (TopicPartition("unknown", 0), (3,))]
    moving.ensemble.put(paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves(asked))

    moving.start_brokers(1, 2, 3)
    moving.candidate(3)
    moving.sync(*dict.fromkeys((*moving.state("t")[1], 1, 2, 3)))

    assert moving.assigned(T0) == ReplicaAssignment((1, 3))
    assert moving.assigned(T1) == ReplicaAssignment((1, 2))
    assert moving.asked() is None
    assert moving.under_way() == {}


def test_reassignments_are_stacked(four):
    # ReassignPartitionsClusterTest.shouldBeAbleToIncrementallyStackDifferentReassignments
    four.write_topic("t", {0: [1], 1: [2], 2: [3]})

    for number, (partition, target) in enumerate([(T0, (2,)), (T1, (3,)), (T2, (4,))], start=1):
        assert four.ask((partition, target)) == [ErrorCode.NONE]
        assert len(four.under_way()) == number
    for partition, isr in ((T1, (2, 3)), (T0, (1, 2)), (T2, (3, 4))):
        four.sync(*isr, partition=partition)

    assert [four.assigned(each).replicas for each in (T0, T1, T2)] == [(2,), (3,), (4,)]


def test_reassignment_that_a_dead_controller_had_written_is_ended_by_each_that_follows(four):
    four.write_topic("t", {0: [1]})
    for broker in (2, 3):
        four.candidate(broker)
    four.kill_broker(4)
    four.write_asked(t=[4])

    for _ in range(3):
        four.ensemble.multi(0, [Delete(paths.CONTROLLER, None)])
        four.settle()
        assert four.assigned() == ReplicaAssignment((4, 1), (4,), (1,))
        assert four.asked() == {T0: (4,)}
    four.start_broker(4)
    four.sync(1, 4)

    assert four.assigned() == ReplicaAssignment((4,))
    assert four.asked() is None
