"""Reassignments: replicas are added, caught up and removed, whoever asks for it and however."""

from __future__ import annotations

import pytest

from regency.controller.reassignment import moves as reassignment
from regency.controller.reassignment.requests import ListReassignments
from regency.model import znodes
from regency.model.facts import ReplicaAssignment
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths
from regency.protos import control_pb2 as pb

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def test_a_partition_moves_to_another_broker(four):
    """ControllerIntegrationTest.testPartitionReassignment; Kafka needs three leader epochs for it."""
    four.write_topic("t", {0: [1]})

    four.write_asked(t=[2])

    assert four.state("t") == (1, (1,), 1, 1)
    assert four.assigned() == ReplicaAssignment((2, 1), (2,), (1,))
    assert four.asked() == {T0: (2,)}
    assert four.new_on(2) == [True]
    assert four.under_way() == {T0: ReplicaAssignment((2, 1), (2,), (1,))}

    four.sync(1, 2)

    assert four.state("t") == (2, (2,), 2, 1)
    assert four.assigned() == ReplicaAssignment((2,))
    assert four.asked() is None
    assert four.deleted_by(1) == 1
    assert four.under_way() == {}


def test_a_dead_target_halts_it_and_its_return_resumes_it(four):
    """testPartitionReassignmentWithOfflineReplicaHaltingProgress, …ResumesAfterReplicaComesOnline."""
    four.write_topic("t", {0: [1]})
    four.kill_broker(2)

    four.write_asked(t=[2])

    assert four.state("t") == (1, (1,), 1, 1)
    assert four.asked() == {T0: (2,)}

    four.start_broker(2)
    assert four.new_on(2) == [True]
    four.sync(1, 2)

    assert four.state("t") == (2, (2,), 2, 1)
    assert four.assigned() == ReplicaAssignment((2,))
    assert four.asked() is None


def test_a_target_that_dies_while_it_catches_up_is_waited_for(four):
    four.write_topic("t", {0: [1, 2]})
    assert four.ask((T0, (1, 3))) == [ErrorCode.NONE]
    four.kill_broker(3)
    assert four.assigned() == ReplicaAssignment((1, 3, 2), (3,), (2,))
    four.start_broker(3)
    four.sync(1, 2, 3)
    assert four.assigned().replicas == (1, 3)


def test_the_leader_stays_where_it_stays_a_replica(four):
    four.write_topic("t", {0: [1, 2]})
    assert four.ask((T0, (3, 1))) == [ErrorCode.NONE]
    four.sync(1, 2, 3)
    assert four.state("t") == (1, (1, 3), 2, 1)


def test_a_leader_that_is_removed_hands_over_to_the_first_target_in_sync(four):
    four.write_topic("t", {0: [1, 2]})
    four.ask((T0, (3, 4)))
    four.sync(1, 2, 3, 4)
    assert four.state("t") == (3, (3, 4), 2, 1)
    assert four.agents[3].states[T0] == (3, 2, (3, 4))
    assert four.deleted_by(1) == four.deleted_by(2) == 1


def test_it_waits_until_a_target_can_lead(four):
    """Kafka goes on without a leader."""
    four.write_topic("t", {0: [1, 2]})
    four.ask((T0, (3,)))
    four.candidates[0].term.context.begin_shutdown(3)
    four.sync(1, 2, 3)
    assert four.assigned().is_reassigning
    assert four.state("t")[0] == 1


def test_shrinking_and_reordering_are_one_step(four):
    four.write_topic("t", {0: [1, 2, 3], 1: [1, 2]})

    assert four.ask((T0, (3, 1)), (T1, (2, 1))) == [ErrorCode.NONE, ErrorCode.NONE]

    assert four.assigned() == ReplicaAssignment((3, 1))
    assert four.state("t") == (1, (1, 3), 1, 1)
    assert four.assigned(T1) == ReplicaAssignment((2, 1))
    assert four.state("t", 1) == (1, (1, 2), 1, 1)
    assert four.deleted_by(2) == 1


def test_what_is_so_already_is_left_alone(four):
    """ReassignPartitionsClusterTest.testReassignmentMatchesCurrentAssignment."""
    four.write_topic("t", {0: [1, 2]})
    assert four.ask((T0, (1, 2))) == [ErrorCode.NONE]
    four.write_asked(t=[1, 2])
    assert four.asked() is None
    assert four.state("t") == (1, (1, 2), 0, 1)


def test_the_latest_ordering_wins_when_a_reassignment_is_repeated(four):
    """shouldUseLatestOrderingIfTwoConsecutiveReassignmentsHaveSameSetButDifferentOrdering."""
    four.write_topic("t", {0: [1, 2]})
    four.ask((T0, (1, 2, 3)))
    four.ask((T0, (3, 2, 1)))
    four.sync(1, 2, 3)
    assert four.assigned() == ReplicaAssignment((3, 2, 1))


def test_the_znode_overrides_a_reassignment_by_rpc(four):
    """znodeReassignmentShouldOverrideApiTriggeredReassignment; who was to be added before is deleted again."""
    four.write_topic("t", {0: [1]})
    four.ask((T0, (2,)))
    four.write_asked(t=[3])
    assert four.under_way() == {T0: ReplicaAssignment((3, 1), (3,), (1,))}
    assert four.deleted_by(2) == 1
    four.sync(1, 3)
    assert four.assigned() == ReplicaAssignment((3,))
    assert four.asked() is None


def test_an_rpc_overrides_the_znode_and_takes_its_partition_out(four):
    """shouldDeleteReassignmentZnodeAfterApiReassignmentForPartitionCompletes."""
    four.write_topic("a", {0: [1]})
    four.write_topic("t", {0: [1]})
    four.write_asked(a=[2], t=[2])
    four.ask((T0, (3,)))
    assert four.asked() == {TopicPartition("a", 0): (2,)}
    four.sync(1, 3)
    four.sync(1, 2, partition=TopicPartition("a", 0))
    assert four.assigned() == ReplicaAssignment((3,))
    assert four.assigned(TopicPartition("a", 0)) == ReplicaAssignment((2,))
    assert four.asked() is None


def test_an_edit_of_the_znode_is_noticed(four):
    """Kafka misses it."""
    four.write_topic("t", {0: [1]})
    four.write_asked(t=[2])
    four.write_asked(t=[3])
    assert four.under_way() == {T0: ReplicaAssignment((3, 1), (3,), (1,))}
    assert four.asked() == {T0: (3,)}


def test_the_znode_may_be_written_again_as_soon_as_it_is_gone(four):
    """shouldPerformMultipleReassignmentOperationsOverVariousTopics."""
    four.write_topic("t", {0: [1]})
    for number, target in enumerate(((2,), (2, 3), (3, 2), (1, 3)), start=1):
        four.write_asked(t=target)
        leader, isr, *_ = four.state("t")
        if four.assigned().is_reassigning:
            four.sync(*dict.fromkeys((*isr, *target)))
        assert four.assigned().replicas == target, (number, leader)
        assert four.asked() is None


@pytest.mark.parametrize(
    "data", [b"{", b"", b"[]", b'{"version":1,"partitions":[{"topic":"t"}]}', b'{"version":1,"partitions":[]}', b"\xff"]
)
def test_a_znode_that_cannot_be_read_or_asks_for_nothing_is_removed(four, data):
    four.write_topic("t", {0: [1]})
    four.ensemble.put(paths.REASSIGN_PARTITIONS, data)
    four.settle()
    assert four.asked() is None
    assert four.assigned() == ReplicaAssignment((1,))


def test_what_cannot_be_done_is_dropped_and_the_rest_is_done(four):
    """Unknown, empty, twice, below 0, contradictory. A dead broker is waited for, as Kafka does."""
    four.write_topic("t", {0: [1], 1: [1], 2: [1], 3: [1], 4: [1]})
    moves = [
        (TopicPartition("nosuch", 0), (2,)),
        (TopicPartition("t", 99), (2,)),
        (TopicPartition("t", -1), (2,)),
        (T0, ()),
        (T1, (2, 2)),
        (TopicPartition("t", 2), (-1, 2)),
        (TopicPartition("t", 3), (2,)),
        (TopicPartition("t", 3), (3,)),
        (TopicPartition("t", 4), (9,)),
    ]
    four.ensemble.put(paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves(moves))
    four.settle()
    assert four.asked() == {TopicPartition("t", 4): (9,)}
    assert four.under_way() == {TopicPartition("t", 4): ReplicaAssignment((9, 1), (9,), (1,))}


def test_each_refused_request_is_reported_however_many_there_were_before(four, caplog):
    """Each time the znode is made anew, and so of version 0 again."""
    four.write_topic("t", {0: [1]})
    caplog.set_level("INFO")
    for replicas in ((), (-1,)):
        four.ensemble.put(paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves([(T0, replicas)]))
        four.settle()
        assert four.asked() is None
    told = [record.getMessage() for record in caplog.records if "it is dropped" in record.getMessage()]
    assert len(told) == 2, told


def test_an_rpc_is_validated_partition_by_partition(four):
    """PlaintextAdminIntegrationTest.testInvalidAlterPartitionReassignments; one bad entry harms no other."""
    four.write_topic("t", {0: [1], 1: [1]})
    errors = four.ask(
        (TopicPartition("nosuch", 0), (2,)),
        (TopicPartition("t", 9), (2,)),
        (TopicPartition("t", -1), (2,)),
        (T0, ()),
        (T0, ()),
        (T1, (1, 9)),
    )
    unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert errors == [unknown, unknown, unknown, invalid, invalid, invalid]
    assert four.ask((T0, (-1,)), (T1, (2, 2))) == [invalid, invalid]
    assert four.ask((T0, (2,)), (T0, (3,)), (T1, (2,)))[2:] == [ErrorCode.NONE]
    assert list(four.under_way()) == [T1]


def test_replicas_that_stay_need_not_be_live(four):
    four.write_topic("t", {0: [1, 2]})
    four.kill_broker(2)
    assert four.ask((T0, (1, 2, 3))) == [ErrorCode.NONE]


def test_a_reassignment_is_cancelled(four):
    """shouldBeAbleToCancelThroughApi; ReassignPartitionsCommandTest.testCancellation: the second finds nothing."""
    four.write_topic("t", {0: [1, 2]})
    four.ask((T0, (3, 2)))
    assert four.ask((T0, None)) == [ErrorCode.NONE]
    assert set(four.assigned().replicas) == {1, 2}
    assert four.under_way() == {}
    assert four.deleted_by(3) == 1
    assert four.ask((T0, None)) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]


def test_a_partition_below_0_is_none(four):
    four.write_topic("t", {0: [1]})
    four.ask((T0, (2,)))
    assert four.ask((TopicPartition("t", -1), None)) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]


def test_cancelling_takes_the_partition_out_of_the_znode(four):
    """shouldBeAbleToCancelZkTriggeredReassignmentThroughApi."""
    four.write_topic("t", {0: [1]})
    four.write_asked(t=[2])
    assert four.ask((T0, None)) == [ErrorCode.NONE]
    assert four.asked() is None
    assert four.assigned() == ReplicaAssignment((1,))


def test_cancelling_removes_also_who_is_in_sync_already(four):
    """testCancellationWithAddingReplicaInIsr."""
    four.write_topic("t", {0: [1, 2]})
    four.ask((T0, (3, 4)))
    four.sync(1, 2, 3)
    assert four.ask((T0, None)) == [ErrorCode.NONE]
    assert four.state("t")[:2] == (1, (1, 2))
    assert four.deleted_by(3) == four.deleted_by(4) == 1


def test_cancelling_keeps_the_only_one_that_has_all_records_until_another_has(four):
    """Kafka would leave the partition without a leader, and the records on nobody."""
    four.write_topic("t", {0: [1]})
    four.ask((T0, (2, 3)))
    four.sync(1, 2)
    four.kill_broker(1)
    assert four.state("t")[0] == 2
    assert four.ask((T0, None)) == [ErrorCode.NONE]
    assert four.state("t")[:2] == (2, (2,))
    assert four.assigned() == ReplicaAssignment((1, 2), (), (2,))
    four.start_broker(1)
    four.sync(2, 1)
    assert four.assigned() == ReplicaAssignment((1,))
    assert four.state("t")[:2] == (1, (1,))


def test_cancel_replace_and_begin_in_one_request(four):
    """testCancelAndSetSomeReassignments."""
    four.write_topic("t", {0: [1], 1: [1], 2: [1], 3: [1]})
    four.ask((T0, (2,)), (T1, (2,)))
    third, fourth = TopicPartition("t", 2), TopicPartition("t", 3)
    none = ErrorCode.NONE
    errors = four.ask((T0, None), (T1, (3,)), (third, (4,)), (fourth, None))
    assert errors == [none, none, none, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
    assert {partition: each.target for partition, each in four.under_way().items()} == {T1: (3,), third: (4,)}


def test_listing_names_only_what_moves(four):
    """shouldListMovingPartitionsThroughApi."""
    four.write_topic("t", {0: [1], 1: [1]})
    four.ask((T0, (2, 3)))
    ruling = four.candidates[0]
    wanted = (T0, T1, TopicPartition("nosuch", 0))
    assert ruling.ask(ListReassignments(wanted)) == ((T0, ReplicaAssignment((2, 3, 1), (2, 3), (1,))),)


def test_metadata_follows_every_leader_epoch(four):
    """KAFKA-9212: the epoch that LeaderAndIsr names is the one that metadata names."""
    four.write_topic("t", {0: [1]})
    four.ask((T0, (2,)))
    metadata = four.candidates[0].channels.metadata
    told = pb.MetadataDelta.FromString(metadata.read(metadata.last)[0])
    assert told.topics[0].leader_epoch == [1] == [four.agents[1].states[T0][1]]
    assert list(told.topics[0].replicas) == [2, 1]


def test_many_move_at_once_in_few_writes(four, monkeypatch):
    monkeypatch.setattr(reassignment, "MOST_STATES", 20)
    four.write_topic("t", {number: [1, 2] for number in range(110)})
    moves = [(TopicPartition("t", number), (1, 3)) for number in range(110)]
    assert set(four.ask(*moves)) == {ErrorCode.NONE}
    assert len(four.under_way()) == 110
    for number in range(110):
        leader, isr, epoch, controller = four.state("t", number)
        four.write_state("t", number, leader, (*isr, 3), epoch=epoch, controller=controller)
    four.notify_isr_change(*(partition for partition, _ in moves))
    assert four.under_way() == {}
    assert set(four.all_assigned("t").values()) == {ReplicaAssignment((1, 3))}
