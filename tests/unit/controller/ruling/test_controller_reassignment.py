"""Reassignments: replicas are added, caught up and removed, whoever asks, and whatever happens meanwhile."""

from __future__ import annotations

import pytest

from regency.controller.reassignment_events import AlterReassignments, ListReassignments
from regency.model import znode_paths as paths
from regency.model import znodes
from regency.model.facts import ReplicaAssignment
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2 as pb
from regency.runtime.zk_session import Delete

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


@pytest.fixture
def four(world):
    """Brokers 1 to 4; broker 1's candidate rules in epoch 1."""
    world.start_brokers(1, 2, 3, 4)
    world.candidate(1)
    return world


def ask(world, *moves):
    """Ask the ruling controller by RPC; the error codes of the answer."""
    ruling = next(each for each in world.candidates if each.rules)
    return [outcome.error for outcome in ruling.ask(AlterReassignments(tuple(moves)))]


def under_way(world):
    ruling = next(each for each in world.candidates if each.rules)
    return dict(ruling.ask(ListReassignments(None)))


def write_asked(world, **targets):
    """Write /admin/reassign_partitions as another tool does; topics' partitions 0."""
    moves = [(TopicPartition(topic, 0), tuple(replicas)) for topic, replicas in targets.items()]
    world.ensemble.put(paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves(moves))
    world.settle()


def asked(world):
    node = world.ensemble.nodes.get(paths.REASSIGN_PARTITIONS)
    return None if node is None else dict(znodes.decode_asked_moves("/", node.data))


def all_assigned(world, name):
    data = world.ensemble.nodes[paths.topic(name)].data
    return znodes.decode_topic("/", data, topic=name, zk_version=0, czxid=0).partitions


def assigned(world, partition=T0):
    return all_assigned(world, partition.topic)[partition.partition]


def sync(world, *isr, partition=T0):
    """The leader takes these into the ISR, and says so."""
    leader, _, epoch, controller = world.state(*partition)
    world.write_state(*partition, leader, isr, epoch=epoch, controller=controller)
    world.notify_isr_change(partition)


def deleted_by(world, broker, partition=T0):
    """How often the broker was told to delete the partition."""
    stops = world.agents[broker].of(pb.StopReplicaRequest)
    return sum(
        delete and (topic.topic, number) == tuple(partition)
        for stop in stops
        for topic in stop.topics
        for number, delete in zip(topic.partition, topic.delete_partition, strict=True)
    )


def new_on(world, broker, partition=T0):
    """Whether the broker was told to make the replica anew, by each LeaderAndIsr that names it."""
    return [
        bool(topic.is_new and topic.is_new[row])
        for request in world.agents[broker].of(pb.LeaderAndIsrRequest)
        for topic in request.topics
        for row, number in enumerate(topic.partition)
        if (topic.topic, number) == tuple(partition)
    ]


def test_a_partition_moves_to_another_broker(four):
    """ControllerIntegrationTest.testPartitionReassignment; Kafka needs three leader epochs for it."""
    four.write_topic("t", {0: [1]})

    write_asked(four, t=[2])

    assert four.state("t") == (1, (1,), 1, 1)
    assert assigned(four) == ReplicaAssignment((2, 1), (2,), (1,))
    assert asked(four) == {T0: (2,)}
    assert new_on(four, 2) == [True]
    assert under_way(four) == {T0: ReplicaAssignment((2, 1), (2,), (1,))}

    sync(four, 1, 2)

    assert four.state("t") == (2, (2,), 2, 1)
    assert assigned(four) == ReplicaAssignment((2,))
    assert asked(four) is None
    assert deleted_by(four, 1) == 1
    assert under_way(four) == {}


def test_a_dead_target_halts_it_and_its_return_resumes_it(four):
    """testPartitionReassignmentWithOfflineReplicaHaltingProgress, …ResumesAfterReplicaComesOnline."""
    four.write_topic("t", {0: [1]})
    four.kill_broker(2)

    write_asked(four, t=[2])

    assert four.state("t") == (1, (1,), 1, 1)
    assert asked(four) == {T0: (2,)}

    four.start_broker(2)
    assert new_on(four, 2) == [True]
    sync(four, 1, 2)

    assert four.state("t") == (2, (2,), 2, 1)
    assert assigned(four) == ReplicaAssignment((2,))
    assert asked(four) is None


def test_a_target_that_dies_while_it_catches_up_is_waited_for(four):
    four.write_topic("t", {0: [1, 2]})
    assert ask(four, (T0, (1, 3))) == [ErrorCode.NONE]
    four.kill_broker(3)
    assert assigned(four) == ReplicaAssignment((1, 3, 2), (3,), (2,))
    four.start_broker(3)
    sync(four, 1, 2, 3)
    assert assigned(four).replicas == (1, 3)


def test_the_leader_stays_where_it_stays_a_replica(four):
    four.write_topic("t", {0: [1, 2]})
    assert ask(four, (T0, (3, 1))) == [ErrorCode.NONE]
    sync(four, 1, 2, 3)
    assert four.state("t") == (1, (1, 3), 2, 1)


def test_a_leader_that_is_removed_hands_over_to_the_first_target_in_sync(four):
    four.write_topic("t", {0: [1, 2]})
    ask(four, (T0, (3, 4)))
    sync(four, 1, 2, 3, 4)
    assert four.state("t") == (3, (3, 4), 2, 1)
    assert four.agents[3].states[T0] == (3, 2, (3, 4))
    assert deleted_by(four, 1) == deleted_by(four, 2) == 1


def test_it_waits_until_a_target_can_lead(four):
    """Kafka goes on without a leader."""
    four.write_topic("t", {0: [1, 2]})
    ask(four, (T0, (3,)))
    four.candidates[0].term.context.begin_shutdown(3)
    sync(four, 1, 2, 3)
    assert assigned(four).is_reassigning
    assert four.state("t")[0] == 1


def test_shrinking_and_reordering_are_one_step(four):
    four.write_topic("t", {0: [1, 2, 3], 1: [1, 2]})

    assert ask(four, (T0, (3, 1)), (T1, (2, 1))) == [ErrorCode.NONE, ErrorCode.NONE]

    assert assigned(four) == ReplicaAssignment((3, 1))
    assert four.state("t") == (1, (1, 3), 1, 1)
    assert assigned(four, T1) == ReplicaAssignment((2, 1))
    assert four.state("t", 1) == (1, (1, 2), 1, 1)
    assert deleted_by(four, 2) == 1


def test_what_is_so_already_is_left_alone(four):
    """ReassignPartitionsClusterTest.testReassignmentMatchesCurrentAssignment."""
    four.write_topic("t", {0: [1, 2]})
    assert ask(four, (T0, (1, 2))) == [ErrorCode.NONE]
    write_asked(four, t=[1, 2])
    assert asked(four) is None
    assert four.state("t") == (1, (1, 2), 0, 1)


def test_the_latest_ordering_wins_when_a_reassignment_is_repeated(four):
    """shouldUseLatestOrderingIfTwoConsecutiveReassignmentsHaveSameSetButDifferentOrdering."""
    four.write_topic("t", {0: [1, 2]})
    ask(four, (T0, (1, 2, 3)))
    ask(four, (T0, (3, 2, 1)))
    sync(four, 1, 2, 3)
    assert assigned(four) == ReplicaAssignment((3, 2, 1))


def test_the_znode_overrides_a_reassignment_by_rpc(four):
    """znodeReassignmentShouldOverrideApiTriggeredReassignment; who was to be added before is deleted again."""
    four.write_topic("t", {0: [1]})
    ask(four, (T0, (2,)))
    write_asked(four, t=[3])
    assert under_way(four) == {T0: ReplicaAssignment((3, 1), (3,), (1,))}
    assert deleted_by(four, 2) == 1
    sync(four, 1, 3)
    assert assigned(four) == ReplicaAssignment((3,))
    assert asked(four) is None


def test_an_rpc_overrides_the_znode_and_takes_its_partition_out(four):
    """shouldDeleteReassignmentZnodeAfterApiReassignmentForPartitionCompletes."""
    four.write_topic("a", {0: [1]})
    four.write_topic("t", {0: [1]})
    write_asked(four, a=[2], t=[2])
    ask(four, (T0, (3,)))
    assert asked(four) == {TopicPartition("a", 0): (2,)}
    sync(four, 1, 3)
    sync(four, 1, 2, partition=TopicPartition("a", 0))
    assert assigned(four) == ReplicaAssignment((3,))
    assert assigned(four, TopicPartition("a", 0)) == ReplicaAssignment((2,))
    assert asked(four) is None


def test_an_edit_of_the_znode_is_noticed(four):
    """Kafka misses it."""
    four.write_topic("t", {0: [1]})
    write_asked(four, t=[2])
    write_asked(four, t=[3])
    assert under_way(four) == {T0: ReplicaAssignment((3, 1), (3,), (1,))}
    assert asked(four) == {T0: (3,)}


def test_the_znode_may_be_written_again_as_soon_as_it_is_gone(four):
    """shouldPerformMultipleReassignmentOperationsOverVariousTopics."""
    four.write_topic("t", {0: [1]})
    for number, target in enumerate(((2,), (2, 3), (3, 2), (1, 3)), start=1):
        write_asked(four, t=target)
        leader, isr, *_ = four.state("t")
        if assigned(four).is_reassigning:
            sync(four, *dict.fromkeys((*isr, *target)))
        assert assigned(four).replicas == target, (number, leader)
        assert asked(four) is None


@pytest.mark.parametrize(
    "data",
    [b"{", b"", b"[]", b'{"version":1,"partitions":[{"topic":"t"}]}', b'{"version":1,"partitions":[]}', b"\xff"],
)
def test_a_znode_that_cannot_be_read_or_asks_for_nothing_is_removed(four, data):
    four.write_topic("t", {0: [1]})
    four.ensemble.put(paths.REASSIGN_PARTITIONS, data)
    four.settle()
    assert asked(four) is None
    assert assigned(four) == ReplicaAssignment((1,))


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
    assert asked(four) == {TopicPartition("t", 4): (9,)}
    assert under_way(four) == {TopicPartition("t", 4): ReplicaAssignment((9, 1), (9,), (1,))}


def test_an_rpc_is_validated_partition_by_partition(four):
    """PlaintextAdminIntegrationTest.testInvalidAlterPartitionReassignments; one bad entry harms no other."""
    four.write_topic("t", {0: [1], 1: [1]})
    errors = ask(
        four,
        (TopicPartition("nosuch", 0), (2,)),
        (TopicPartition("t", 9), (2,)),
        (TopicPartition("t", -1), (2,)),
        (T0, ()),
        (T0, ()),
        (T1, (1, 9)),
    )
    unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert errors == [unknown, unknown, unknown, invalid, invalid, invalid]
    assert ask(four, (T0, (-1,)), (T1, (2, 2))) == [invalid, invalid]
    assert ask(four, (T0, (2,)), (T0, (3,)), (T1, (2,)))[2:] == [ErrorCode.NONE]
    assert list(under_way(four)) == [T1]


def test_replicas_that_stay_need_not_be_live(four):
    four.write_topic("t", {0: [1, 2]})
    four.kill_broker(2)
    assert ask(four, (T0, (1, 2, 3))) == [ErrorCode.NONE]


def test_a_reassignment_is_cancelled(four):
    """shouldBeAbleToCancelThroughApi; ReassignPartitionsCommandTest.testCancellation: the second finds nothing."""
    four.write_topic("t", {0: [1, 2]})
    ask(four, (T0, (3, 2)))
    assert ask(four, (T0, None)) == [ErrorCode.NONE]
    assert set(assigned(four).replicas) == {1, 2}
    assert under_way(four) == {}
    assert deleted_by(four, 3) == 1
    assert ask(four, (T0, None)) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]


def test_cancelling_takes_the_partition_out_of_the_znode(four):
    """shouldBeAbleToCancelZkTriggeredReassignmentThroughApi."""
    four.write_topic("t", {0: [1]})
    write_asked(four, t=[2])
    assert ask(four, (T0, None)) == [ErrorCode.NONE]
    assert asked(four) is None
    assert assigned(four) == ReplicaAssignment((1,))


def test_cancelling_removes_also_who_is_in_sync_already(four):
    """testCancellationWithAddingReplicaInIsr."""
    four.write_topic("t", {0: [1, 2]})
    ask(four, (T0, (3, 4)))
    sync(four, 1, 2, 3)
    assert ask(four, (T0, None)) == [ErrorCode.NONE]
    assert four.state("t")[:2] == (1, (1, 2))
    assert deleted_by(four, 3) == deleted_by(four, 4) == 1


def test_cancelling_keeps_the_only_one_that_has_all_records_until_another_has(four):
    """Kafka would leave the partition without a leader, and the records on nobody."""
    four.write_topic("t", {0: [1]})
    ask(four, (T0, (2, 3)))
    sync(four, 1, 2)
    four.kill_broker(1)
    assert four.state("t")[0] == 2
    assert ask(four, (T0, None)) == [ErrorCode.NONE]
    assert four.state("t")[:2] == (2, (2,))
    assert assigned(four) == ReplicaAssignment((1, 2), (), (2,))
    four.start_broker(1)
    sync(four, 2, 1)
    assert assigned(four) == ReplicaAssignment((1,))
    assert four.state("t")[:2] == (1, (1,))


def test_cancel_replace_and_begin_in_one_request(four):
    """testCancelAndSetSomeReassignments."""
    four.write_topic("t", {0: [1], 1: [1], 2: [1], 3: [1]})
    ask(four, (T0, (2,)), (T1, (2,)))
    third, fourth = TopicPartition("t", 2), TopicPartition("t", 3)
    none = ErrorCode.NONE
    errors = ask(four, (T0, None), (T1, (3,)), (third, (4,)), (fourth, None))
    assert errors == [none, none, none, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
    assert {partition: each.target for partition, each in under_way(four).items()} == {T1: (3,), third: (4,)}


def test_listing_names_only_what_moves(four):
    """shouldListMovingPartitionsThroughApi."""
    four.write_topic("t", {0: [1], 1: [1]})
    ask(four, (T0, (2, 3)))
    ruling = four.candidates[0]
    wanted = (T0, T1, TopicPartition("nosuch", 0))
    assert ruling.ask(ListReassignments(wanted)) == ((T0, ReplicaAssignment((2, 3, 1), (2, 3), (1,))),)


def test_metadata_follows_every_leader_epoch(four):
    """KAFKA-9212: the epoch that LeaderAndIsr names is the one that metadata names."""
    four.write_topic("t", {0: [1]})
    ask(four, (T0, (2,)))
    metadata = four.candidates[0].channels.metadata
    told = pb.MetadataDelta.FromString(metadata.read(metadata.last)[0])
    assert told.topics[0].leader_epoch == [1] == [four.agents[1].states[T0][1]]
    assert list(told.topics[0].replicas) == [2, 1]


def test_thousands_move_at_once(four):
    four.write_topic("t", {number: [1, 2] for number in range(1_200)})
    moves = [(TopicPartition("t", number), (1, 3)) for number in range(1_200)]
    assert set(ask(four, *moves)) == {ErrorCode.NONE}
    assert len(under_way(four)) == 1_200
    for number in range(1_200):
        leader, isr, epoch, controller = four.state("t", number)
        four.write_state("t", number, leader, (*isr, 3), epoch=epoch, controller=controller)
    four.notify_isr_change(*(partition for partition, _ in moves))
    assert under_way(four) == {}
    assert set(all_assigned(four, "t").values()) == {ReplicaAssignment((1, 3))}


# Failover


def test_a_new_controller_goes_on(four):
    four.write_topic("t", {0: [1]})
    ask(four, (T0, (2,)))
    four.candidate(2)
    four.ensemble.multi(0, [Delete(paths.CONTROLLER, None)])
    four.settle()
    assert next(each for each in four.candidates if each.rules).term.epoch == 2
    sync(four, 1, 2)
    assert assigned(four) == ReplicaAssignment((2,))


def test_a_new_controller_prefers_the_znode(world):
    """shouldTriggerReassignmentWithZnodePrecedenceOnControllerStartup."""
    world.start_brokers(1, 2, 3)
    path = paths.topic("t")
    world.write_topic("t", {0: [1]})
    content = b'{"version":2,"partitions":{"0":[2,1],"1":[2,1]},"adding_replicas":{"0":[2],"1":[2]}}'
    world.ensemble.put(path, content)
    for number in (0, 1):
        world.ensemble.put(paths.partition_state(TopicPartition("t", number)), b"")
        world.write_state("t", number, 1, (1,), epoch=3, controller=0)
    world.ensemble.put(
        paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves([(T0, (3,)), (TopicPartition("nosuch", 0), (1,))])
    )
    world.candidate(1)
    assert assigned(world) == ReplicaAssignment((3, 1), (3,), (1,))
    assert assigned(world, T1) == ReplicaAssignment((2, 1), (2,))
    assert asked(world) == {T0: (3,)}
    assert new_on(world, 3) == [True]
    assert new_on(world, 2, T1) == [True]  # KAFKA-10314


def test_a_new_controller_completes_what_is_in_sync(world):
    """ControllerIntegrationTest: a crash before the topic znode was written."""
    world.start_brokers(1, 2, 3)
    content = b'{"version":2,"partitions":{"0":[2,1]},"adding_replicas":{"0":[2]},"removing_replicas":{"0":[1]}}'
    world.ensemble.put(paths.topic("t"), content)
    world.write_state("t", 0, 1, (1, 2), epoch=3, controller=0)
    world.candidate(3)
    assert assigned(world) == ReplicaAssignment((2,))
    assert world.state("t") == (2, (2,), 4, 1)
    assert deleted_by(world, 1) == 1


# Former replicas


def test_a_former_replica_is_remembered_until_its_broker_has_deleted_it(four):
    """Kafka forgets it."""
    four.write_topic("t", {0: [1, 2]})
    four.kill_broker(2)
    ask(four, (T0, (1, 3)))
    sync(four, 1, 3)
    assert assigned(four) == ReplicaAssignment((1, 3), deleting=(2,))
    assert under_way(four) == {}
    four.start_broker(2)
    assert deleted_by(four, 2) == 1
    assert new_on(four, 2) == []
    assert assigned(four) == ReplicaAssignment((1, 3))


def test_a_new_controller_has_former_replicas_deleted(world):
    world.start_brokers(1, 2)
    content = b'{"version":3,"partitions":{"0":[1]},"deleting_replicas":{"0":[2]},"x":1}'
    world.ensemble.put(paths.topic("t"), content)
    world.write_state("t", 0, 1, (1,), epoch=3, controller=0)
    world.candidate(1)
    assert deleted_by(world, 2) == 1
    assert assigned(world) == ReplicaAssignment((1,))
    assert b"deleting_replicas" not in world.ensemble.nodes[paths.topic("t")].data
    assert b'"x":1' in world.ensemble.nodes[paths.topic("t")].data


def test_a_former_replica_that_comes_back_is_no_former_replica_any_more(four):
    four.write_topic("t", {0: [1, 2]})
    four.kill_broker(2)
    ask(four, (T0, (1,)))
    assert assigned(four) == ReplicaAssignment((1,), deleting=(2,))
    write_asked(four, t=[1, 2])
    assert assigned(four) == ReplicaAssignment((1, 2), (2,))
    four.start_broker(2)
    assert new_on(four, 2) == [True]
    assert deleted_by(four, 2) == 0
    sync(four, 1, 2)
    assert assigned(four) == ReplicaAssignment((1, 2))


def test_unknown_fields_of_a_topic_survive_a_reassignment(four):
    """KAFKA-14190."""
    content = b'{"version":3,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{},"owner":"us"}'
    four.ensemble.put(paths.topic("t"), content)
    four.settle()
    topic_id = four.candidates[0].term.context.topic_id("t")
    ask(four, (T0, (1, 2)))
    assert b'"owner":"us"' in four.ensemble.nodes[paths.topic("t")].data
    assert four.candidates[0].term.context.topic_id("t") == topic_id
