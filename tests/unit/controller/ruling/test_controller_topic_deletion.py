"""How topics are deleted, replica by replica."""

from __future__ import annotations

from itertools import product

import pytest

from regency.controller.machines.topic_deletion import REASSIGNED_FIRST, deletion_path
from regency.controller.state.states import PartitionState as P
from regency.controller.state.states import ReplicaState as R
from regency.controller.topics.deletion_requests import ListDeletions
from regency.model import znodes
from regency.model.facts import ReplicaAssignment
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths
from regency.protos import control_pb2 as pb

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
STORAGE, UNKNOWN = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.fixture
def three(ruled):
    """Topic t with two partitions, each on brokers 1, 2 and 3."""
    ruled.write_topic("t", {0: [1, 2, 3], 1: [2, 3, 1]})
    for agent in ruled.agents.values():
        agent.received.clear()
    return ruled


def states(world, broker, topic="t"):
    """States of a broker's replicas."""
    context = world.term.context
    return [
        context.replica_state(TopicPartition(topic, number), broker) for number, _ in context.topics[topic].partitions()
    ]


def refuse_next_stop(world, broker, code, *partitions):
    """Let the broker answer the next StopReplica with an error for these partitions."""
    agent = world.agents[broker]
    call = agent.call

    def answering(message):
        if isinstance(message, pb.StopReplicaRequest):
            agent.call = call
            numbers = [each.partition for each in partitions]
            refused = pb.PartitionErrors(topic="t", partition=numbers, error_code=[code] * len(numbers))
            agent.answers.append(pb.ControlResponse(topics=[refused]))
        return call(message)

    agent.call = answering


@pytest.mark.parametrize(("state", "online"), list(product(R, (True, False))))
@pytest.mark.parametrize("awaited", [True, False])
def test_every_step_of_a_deletion_is_a_valid_transition(state, online, awaited):
    path = deletion_path(state, online=online, awaited=awaited)

    for previous, following in zip((state, *path), path, strict=False):
        assert previous in following.valid_previous
    end = path[-1] if path else state
    done = (R.DELETION_SUCCESSFUL, R.NON_EXISTENT)
    assert end in (*done, R.DELETION_STARTED if online else R.DELETION_INELIGIBLE)
    assert awaited or end in done
    assert deletion_path(end, online=online, awaited=awaited) == ()


def test_initialization(three):
    # TopicDeletionManagerTest.testInitialization
    three.write_topic("u", {0: [1, 2]})
    manager, context = three.term.deletions, three.term.context
    context.set_assignment(TopicPartition("u", 0), ReplicaAssignment((1, 2, 3), adding=(3,)))

    manager.begin(["t", "u", "unknown"])

    assert context.topics_to_delete == {"t", "u"}
    assert context.topics_deletion_started == {"t"}
    assert context.topics_ineligible == {"u": REASSIGNED_FIRST}


def test_basic_deletion(three):
    # TopicDeletionManagerTest.testBasicDeletion
    answer = three.hold_stops(1, 2, 3)

    three.mark("t")

    context = three.term.context
    assert [context.partition_state(each) for each in (T0, T1)] == [P.NON_EXISTENT] * 2
    assert [states(three, broker) for broker in (1, 2, 3)] == [[R.DELETION_STARTED] * 2] * 3
    assert context.topics_to_delete == context.topics_deletion_started == {"t"}
    assert not context.topics_ineligible
    assert three.ensemble.nodes[paths.topic("t")]

    answer(1, 2, 3)

    assert three.is_gone()
    assert [three.agents[broker].deletes() for broker in (1, 2, 3)] == [[T0, T1, T0, T1]] * 3


def test_deletion_with_broker_offline(three):
    # TopicDeletionManagerTest.testDeletionWithBrokerOffline, DeleteTopicTest.testResumeDeleteTopicWithRecoveredFollower
    three.kill_broker(2)

    three.mark("t")

    context = three.term.context
    assert states(three, 2) == [R.DELETION_INELIGIBLE] * 2
    assert states(three, 1) == states(three, 3) == [R.DELETION_SUCCESSFUL] * 2
    why = "broker 2 holds replicas and is not live (gone for good? `regency brokers forget 2`)"
    assert context.topics_ineligible == {"t": why}
    assert three.ensemble.nodes[paths.delete_topic("t")]
    assert three.ensemble.nodes[paths.topic("t")]

    three.start_broker(2)

    assert three.is_gone()
    assert three.agents[2].deletes() == [T0, T1]
    assert three.agents[2].topics() == set()  # KAFKA-13342


def test_broker_failure_after_deletion_started(three):
    # TopicDeletionManagerTest.testBrokerFailureAfterDeletionStarted; differs: who returns need not wait for the others
    answer = three.hold_stops(1, 2, 3)
    three.mark("t")

    three.kill_broker(2)

    assert states(three, 2) == [R.DELETION_INELIGIBLE] * 2
    assert states(three, 1) == states(three, 3) == [R.DELETION_STARTED] * 2
    assert three.term.context.topics_ineligible

    three.start_broker(2)

    assert states(three, 2) == [R.DELETION_SUCCESSFUL] * 2
    assert not three.term.context.topics_ineligible
    answer(1, 3)
    assert three.is_gone()


def test_a_bounced_broker_is_told_again(three):
    three.hold_stops(2)
    three.mark("t")
    assert states(three, 2) == [R.DELETION_STARTED] * 2

    three.bounce(2)

    assert three.is_gone()
    assert three.agents[2].topics() == set()


def test_a_broker_that_restarted_after_its_answer_is_told_once_more(three):
    # A power cut can bring back what was renamed a moment before.
    three.kill_broker(3)
    three.mark("t")
    assert states(three, 1) == [R.DELETION_SUCCESSFUL] * 2

    three.bounce(1)

    assert three.agents[1].deletes() == [T0, T1]
    assert three.agents[1].topics() == set()


def test_storage_error_halts_until_the_broker_is_started_again(three):
    refuse_next_stop(three, 3, STORAGE, T1)

    three.mark("t")

    assert states(three, 3) == [R.DELETION_SUCCESSFUL, R.DELETION_INELIGIBLE]
    (why,) = three.term.context.topics_ineligible.values()
    assert why == "broker 3 holds replicas in a directory that failed (repair it, then restart that broker)"
    three.bounce(3)
    assert three.is_gone()


def test_any_other_error_is_tried_again(three):
    refuse_next_stop(three, 3, UNKNOWN, T1)

    three.mark("t")

    assert states(three, 3) == [R.DELETION_SUCCESSFUL, R.DELETION_STARTED]
    three.clock.advance(1_000)
    three.settle()
    assert three.is_gone()


def test_delete_topic_with_all_alive_replicas(three):
    # DeleteTopicTest.testDeleteTopicWithAllAliveReplicas
    three.ensemble.put(paths.topic_config("t"), znodes.encode_config({"retention.ms": "1"}))
    three.mark("t")

    assert three.is_gone()
    deltas = [
        pb.MetadataDelta.FromString(data)
        for message in three.agents[1].of(pb.UpdateMetadataRequest)
        for data in message.deltas
    ]
    advertised = [list(topic.leader) for delta in deltas for topic in delta.topics]
    removed = [topic.topic for delta in deltas for topic in delta.removed_topics]
    assert (advertised, removed) == ([[-2, -2]], ["t"])


def test_resume_delete_topic_on_controller_failover(three):
    # DeleteTopicTest.testResumeDeleteTopicOnControllerFailover
    three.kill_broker(3)
    three.mark("t")
    three.candidate(2)
    for agent in three.agents.values():
        agent.received.clear()

    three.candidates.pop(0).session.close()
    three.settle()

    assert three.term.epoch == 2
    assert states(three, 3) == [R.DELETION_INELIGIBLE] * 2
    assert three.agents[1].topics() | three.agents[2].topics() == set()
    three.start_broker(3)
    assert three.is_gone()


def test_partition_reassignment_during_delete_topic_keeps_it_from_beginning(three):
    # DeleteTopicTest.testPartitionReassignmentDuringDeleteTopic, the other way round: the reassignment came first.
    context = three.term.context
    context.set_assignment(T0, ReplicaAssignment((1, 2, 3), removing=(3,)))

    three.mark("t")

    assert context.is_queued_for_deletion("t")
    assert not context.is_being_deleted("t")
    assert [states(three, broker) for broker in (1, 2, 3)] == [[R.ONLINE] * 2] * 3
    assert [each.waits_for for each in three.candidates[0].ask(ListDeletions())] == [REASSIGNED_FIRST]

    context.set_assignment(T0, ReplicaAssignment((1, 2, 3)))
    three.term.deletions.resume(["t"])
    three.term.hand_over()
    three.settle()

    assert three.is_gone()


def test_a_topic_that_waits_for_its_reassignment_is_served(three):
    context = three.term.context
    context.set_assignment(T0, ReplicaAssignment((1, 2, 3), removing=(3,)))
    three.mark("t")

    three.kill_broker(2)
    three.start_broker(2)

    assert three.agents[2].topics() == {"t"}
    assert three.state("t", 1)[0] == 3


def test_an_isr_change_brings_nobody_back(three):
    answer = three.hold_stops(1)
    three.mark("t")
    three.write_state("t", 0, 1, [1, 2], epoch=0)
    three.agents[1].received.clear()

    three.notify_isr_change(T0)

    assert three.agents[1].topics() == set()
    answer(1)
    assert three.is_gone()
