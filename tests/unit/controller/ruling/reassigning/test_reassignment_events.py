"""Reassignments while controllers and brokers come and go, and what becomes of former replicas."""

from __future__ import annotations

from regency.controller.events import NotController
from regency.controller.reassignment.moves import AGAIN_MS
from regency.controller.reassignment.requests import AlterReassignments
from regency.controller.topics.partition_creation import CreatePartitions, MorePartitions
from regency.model import znodes
from regency.model.crash_points import observe
from regency.model.facts import ReplicaAssignment
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths
from regency.protos import control_pb2 as pb
from regency.runtime.zookeeper.session import Delete, SetData

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def test_a_new_controller_goes_on(four):
    four.write_topic("t", {0: [1]})
    four.ask((T0, (2,)))
    four.candidate(2)
    four.ensemble.multi(0, [Delete(paths.CONTROLLER, None)])
    four.settle()
    assert next(each for each in four.candidates if each.rules).term.epoch == 2
    four.sync(1, 2)
    assert four.assigned() == ReplicaAssignment((2,))


def test_a_new_controller_prefers_the_znode(moving):
    """shouldTriggerReassignmentWithZnodePrecedenceOnControllerStartup."""
    moving.start_brokers(1, 2, 3)
    path = paths.topic("t")
    moving.write_topic("t", {0: [1]})
    content = b'{"version":2,"partitions":{"0":[2,1],"1":[2,1]},"adding_replicas":{"0":[2],"1":[2]}}'
    moving.ensemble.put(path, content)
    for number in (0, 1):
        moving.ensemble.put(paths.partition_state(TopicPartition("t", number)), b"")
        moving.write_state("t", number, 1, (1,), epoch=3, controller=0)
    moving.ensemble.put(
        paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves([(T0, (3,)), (TopicPartition("nosuch", 0), (1,))])
    )
    moving.candidate(1)
    assert moving.assigned() == ReplicaAssignment((3, 1), (3,), (1,))
    assert moving.assigned(T1) == ReplicaAssignment((2, 1), (2,))
    assert moving.asked() == {T0: (3,)}
    assert moving.new_on(3) == [True]
    assert moving.new_on(2, T1) == [True]  # KAFKA-10314


def test_a_new_controller_completes_what_is_in_sync(moving):
    """ControllerIntegrationTest: a crash before the topic znode was written."""
    moving.start_brokers(1, 2, 3)
    content = b'{"version":2,"partitions":{"0":[2,1]},"adding_replicas":{"0":[2]},"removing_replicas":{"0":[1]}}'
    moving.ensemble.put(paths.topic("t"), content)
    moving.write_state("t", 0, 1, (1, 2), epoch=3, controller=0)
    moving.candidate(3)
    assert moving.assigned() == ReplicaAssignment((2,))
    assert moving.state("t") == (2, (2,), 4, 1)
    assert moving.deleted_by(1) == 1


def test_a_partition_without_a_state_completes_its_reassignment_when_it_is_created(moving):
    """All replicas are in the first ISR, so no change of the ISR follows; its logs are asked for before that."""
    moving.start_brokers(1, 2, 3)
    content = b'{"version":2,"partitions":{"0":[2,1]},"adding_replicas":{"0":[2]},"removing_replicas":{"0":[1]}}'
    moving.ensemble.put(paths.topic("t"), content)
    moving.candidate(3)
    assert (moving.assigned(), moving.state("t")) == (ReplicaAssignment((2,)), (2, (2,), 1, 1))


def test_a_former_replica_is_remembered_until_its_broker_has_deleted_it(four):
    """Kafka forgets it."""
    four.write_topic("t", {0: [1, 2]})
    four.kill_broker(2)
    four.ask((T0, (1, 3)))
    four.sync(1, 3)
    assert four.assigned() == ReplicaAssignment((1, 3), deleting=(2,))
    assert four.under_way() == {}
    four.start_broker(2)
    assert four.deleted_by(2) == 1
    assert four.new_on(2) == []
    assert four.assigned() == ReplicaAssignment((1, 3))


def test_a_new_controller_has_former_replicas_deleted(moving):
    moving.start_brokers(1, 2)
    content = b'{"version":3,"partitions":{"0":[1]},"deleting_replicas":{"0":[2]},"x":1}'
    moving.ensemble.put(paths.topic("t"), content)
    moving.write_state("t", 0, 1, (1,), epoch=3, controller=0)
    moving.candidate(1)
    assert moving.deleted_by(2) == 1
    assert moving.assigned() == ReplicaAssignment((1,))
    assert b"deleting_replicas" not in moving.ensemble.nodes[paths.topic("t")].data
    assert b'"x":1' in moving.ensemble.nodes[paths.topic("t")].data


def test_a_former_replica_that_comes_back_is_no_former_replica_any_more(four):
    four.write_topic("t", {0: [1, 2]})
    four.kill_broker(2)
    four.ask((T0, (1,)))
    assert four.assigned() == ReplicaAssignment((1,), deleting=(2,))
    four.write_asked(t=[1, 2])
    assert four.assigned() == ReplicaAssignment((1, 2), (2,))
    four.start_broker(2)
    assert four.new_on(2) == [True]
    assert four.deleted_by(2) == 0
    four.sync(1, 2)
    assert four.assigned() == ReplicaAssignment((1, 2))


def test_unknown_fields_of_a_topic_survive_a_reassignment(four):
    """KAFKA-14190."""
    content = b'{"version":3,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{},"owner":"us"}'
    four.ensemble.put(paths.topic("t"), content)
    four.settle()
    topic_id = four.candidates[0].term.context.topic_id("t")
    four.ask((T0, (1, 2)))
    assert b'"owner":"us"' in four.ensemble.nodes[paths.topic("t")].data
    assert four.candidates[0].term.context.topic_id("t") == topic_id


def test_a_topic_that_is_written_while_it_moves_ends_there(four):
    content = b'{"version":2,"partitions":{"0":[2,1]},"adding_replicas":{"0":[2]},"removing_replicas":{"0":[1]}}'
    four.ensemble.put(paths.topic("t"), content)
    four.settle()
    assert four.assigned() == ReplicaAssignment((2,))
    assert four.state("t")[:2] == (2, (2,))


def test_a_step_that_others_kept_from_being_written_is_tried_again_a_while_later(four):
    four.write_topic("t", {0: [1]})
    topic = paths.topic("t")

    def write_it_too(point: str) -> None:
        if point == "controller.reassignment.before_write":
            four.ensemble.put(topic, four.ensemble.nodes[topic].data)

    observe(write_it_too)
    try:
        four.write_asked(t=(2,))
    finally:
        observe(None)
    four.pass_time(AGAIN_MS - 1)
    assert four.under_way() == {}
    four.pass_time(1)
    assert four.under_way() == {T0: ReplicaAssignment((2, 1), (2,), (1,))}


def test_a_topic_is_deleted_when_its_reassignment_is_over(four):
    """Topic deletion halts for a reassignment, and both end although a target was dead meanwhile."""
    four.write_topic("t", {0: [1]})
    four.kill_broker(4)
    four.write_asked(t=[4])
    four.ensemble.put(paths.delete_topic("t"), b"")
    four.settle()
    assert paths.topic("t") in four.ensemble.nodes
    assert four.ask((T0, (3,))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    four.start_broker(4)
    four.sync(1, 4)
    four.settle()
    assert paths.topic("t") not in four.ensemble.nodes
    assert paths.delete_topic("t") not in four.ensemble.nodes


def test_a_failed_directory_does_not_keep_a_replica_from_being_added(four):
    """ControllerIntegrationTest.testPartitionReassignmentToBrokerWithOfflineLogDir: it is made in one that works."""
    four.write_topic("t", {0: [1, 2]})
    four.candidates[0].term.context.mark_offline(2, [T0])
    four.ask((T0, (1, 3)))
    four.sync(1, 3)
    four.ask((T0, (1, 2)))
    assert four.new_on(2)[-1] is True
    four.sync(1, 3, 2)
    assert four.assigned().replicas == (1, 2)


def test_a_former_replica_in_a_failed_directory_is_deleted_after_a_restart(four):
    four.write_topic("t", {0: [1, 2]})
    refused = pb.ControlResponse(topics=[pb.PartitionErrors(topic="t", partition=[0], error_code=[56])])
    call = four.agents[2].call
    four.agents[2].call = lambda message: refused if isinstance(message, pb.StopReplicaRequest) else call(message)
    four.ask((T0, (1,)))
    assert four.assigned() == ReplicaAssignment((1,), deleting=(2,))
    four.kill_broker(2)
    four.start_broker(2)
    assert four.deleted_by(2) == 1
    assert four.assigned() == ReplicaAssignment((1,))


def test_a_broker_that_restarts_before_it_has_deleted_is_told_again(four):
    four.write_topic("t", {0: [1, 2]})
    busy = pb.ControlResponse(error_code=-1)
    call = four.agents[2].call
    four.agents[2].call = lambda message: busy if isinstance(message, pb.StopReplicaRequest) else call(message)
    four.ask((T0, (1,)))
    four.kill_broker(2)
    four.start_broker(2)
    assert four.deleted_by(2) == 1
    assert four.assigned() == ReplicaAssignment((1,))


def test_adding_partitions_waits_for_a_reassignment(four):
    """shouldCreatePartitionsForTopicNotInReassignment."""
    four.write_topic("t", {0: [1]})
    four.write_topic("u", {0: [1]})
    four.ask((T0, (2,)))
    wanted = tuple(MorePartitions(name, 2) for name in ("t", "u"))
    outcomes = four.candidates[0].ask(CreatePartitions(wanted, validate_only=False))
    assert [each.error for each in outcomes] == [ErrorCode.REASSIGNMENT_IN_PROGRESS, ErrorCode.NONE]


def test_a_change_of_the_replication_factor_can_be_refused(four):
    """KIP-860."""
    four.write_topic("t", {0: [1, 2], 1: [1, 2]})
    event = AlterReassignments(((T0, (1, 2, 3)), (T1, (3, 4))), keep_factor=True)
    outcomes = four.candidates[0].ask(event)
    assert [each.error for each in outcomes] == [ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.NONE]


def test_a_controller_that_was_deposed_writes_nothing(four):
    """ControllerIntegrationTest.testControllerMoveOnPartitionReassignment."""
    four.write_topic("t", {0: [1]})
    ruling = four.candidates[0]
    node = four.ensemble.nodes[paths.CONTROLLER_EPOCH]
    four.ensemble.multi(4242, [SetData(paths.CONTROLLER_EPOCH, b"9", node.version)])
    before = four.ensemble.nodes[paths.topic("t")].data
    event = AlterReassignments(((T0, (2,)),))
    ruling.loop.process(event)
    assert isinstance(event.reply.exception(0), NotController)
    assert four.ensemble.nodes[paths.topic("t")].data == before


def test_a_partition_that_never_had_a_leader_gets_one_from_whom_it_is_given_to(four):
    four.write_topic("t", {0: [9]})
    four.write_asked(t=[2])
    assert four.state("t")[:2] == (2, (2,))
    four.clock.advance(four.ruling.term.settings.regency_reconcile_interval_ms)  # its leader has nothing to tell of
    four.settle()
    assert four.assigned() == ReplicaAssignment((2,))  # nothing is waited for: there never was a broker 9


def test_what_is_asked_for_goes_with_its_topic(four):
    four.write_topic("t", {0: [1]})
    four.write_asked(t=[2])
    for path in sorted(four.ensemble.nodes, reverse=True):
        if path.startswith(paths.topic("t")):
            four.ensemble.delete(path)
    four.settle()
    assert four.under_way() == {}
    assert four.asked() is None
