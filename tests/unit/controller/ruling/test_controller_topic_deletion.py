"""Deleting topics, step by step (reference 6, 10.7 and 10.11)."""

from __future__ import annotations

from functools import partial
from itertools import product

import pytest

from regency.controller.events import CreateTopics, NewTopic
from regency.controller.states import PartitionState as P
from regency.controller.states import ReplicaState as R
from regency.controller.topic_deletion import REASSIGNED_FIRST, deletion_path
from regency.controller.topic_deletion_requests import DeleteTopics, ListDeletions, TopicRef
from regency.model import znode_paths as paths
from regency.model import znodes
from regency.model.facts import ReplicaAssignment, TopicAssignment
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2 as pb
from regency.runtime.zk_session import Delete

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
STORAGE, UNKNOWN = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.fixture
def three(ruled):
    """Topic t with two partitions, each on brokers 1, 2 and 3."""
    ruled.write_topic("t", {0: [1, 2, 3], 1: [2, 3, 1]})
    for agent in ruled.agents.values():
        agent.received.clear()
    return ruled


def mark(world, *topics):
    for name in topics:
        world.ensemble.put(paths.delete_topic(name), b"")
    world.settle()


def is_gone(world, topic="t"):
    """Whether nothing of the topic is left, neither in ZooKeeper nor in the controller's memory."""
    left = [
        path
        for path in world.ensemble.nodes
        if path == paths.topic(topic)
        or path.startswith(paths.topic(topic) + "/")
        or path in (paths.topic_config(topic), paths.delete_topic(topic))
    ]
    context = term(world).context
    known = topic in context.topics or topic in {*context.topics_to_delete, *context.topics_deletion_started}
    return not left and not known and topic not in context.topics_ineligible


def term(world):
    return next(each for each in world.candidates if each.rules).term


def states(world, broker, topic="t"):
    """States of a broker's replicas."""
    context = term(world).context
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


def refuse_stops(agent, call, message):
    if isinstance(message, pb.StopReplicaRequest):
        agent.answers.append(pb.ControlResponse(error_code=UNKNOWN))
    return call(message)


def unanswered(world, *brokers):
    """These brokers do not do what a StopReplica asks for until `answer` is called."""
    held = {}
    for broker in brokers:
        agent = world.agents[broker]
        held[broker] = agent.call
        agent.call = partial(refuse_stops, agent, agent.call)

    def answer(*those):
        for broker in those:
            world.agents[broker].call = held[broker]
        world.clock.advance(20_000)
        world.settle()

    return answer


def bounce(world, broker):
    """The broker restarts before the controller looks."""
    world.ensemble.multi(0, [Delete(paths.broker(broker), None)])
    world.start_broker(broker)


def deletes(world, broker):
    """Partitions the broker was told to delete, in order."""
    return [
        TopicPartition(topic.topic, number)
        for message in world.agents[broker].of(pb.StopReplicaRequest)
        for topic in message.topics
        for number, delete in zip(topic.partition, topic.delete_partition, strict=True)
        if delete
    ]


def hosted(world, broker):
    """Topics the broker was told to host."""
    return {topic.topic for message in world.agents[broker].of(pb.LeaderAndIsrRequest) for topic in message.topics}


@pytest.mark.parametrize(("state", "online"), list(product(R, (True, False))))
def test_every_step_of_a_deletion_is_a_valid_transition(state, online):
    path = deletion_path(state, online=online)

    for previous, following in zip((state, *path), path, strict=False):
        assert previous in following.valid_previous
    end = path[-1] if path else state
    done = (R.DELETION_SUCCESSFUL, R.NON_EXISTENT)
    assert end in (*done, R.DELETION_STARTED if online else R.DELETION_INELIGIBLE)
    assert deletion_path(end, online=online) == ()


def test_initialization(three):
    # TopicDeletionManagerTest.testInitialization
    three.write_topic("u", {0: [1, 2]})
    manager, context = term(three).deletions, term(three).context
    context.set_assignment(TopicPartition("u", 0), ReplicaAssignment((1, 2, 3), adding=(3,)))

    manager.begin(["t", "u", "unknown"])

    assert context.topics_to_delete == {"t", "u"}
    assert context.topics_deletion_started == {"t"}
    assert context.topics_ineligible == {"u": REASSIGNED_FIRST}


def test_basic_deletion(three):
    # TopicDeletionManagerTest.testBasicDeletion
    answer = unanswered(three, 1, 2, 3)

    mark(three, "t")

    context = term(three).context
    assert [context.partition_state(each) for each in (T0, T1)] == [P.NON_EXISTENT] * 2
    assert [states(three, broker) for broker in (1, 2, 3)] == [[R.DELETION_STARTED] * 2] * 3
    assert context.topics_to_delete == context.topics_deletion_started == {"t"}
    assert not context.topics_ineligible
    assert three.ensemble.nodes[paths.topic("t")]

    answer(1, 2, 3)

    assert is_gone(three)
    assert [deletes(three, broker) for broker in (1, 2, 3)] == [[T0, T1, T0, T1]] * 3


def test_deletion_with_broker_offline(three):
    # TopicDeletionManagerTest.testDeletionWithBrokerOffline, DeleteTopicTest.testResumeDeleteTopicWithRecoveredFollower
    three.kill_broker(2)

    mark(three, "t")

    context = term(three).context
    assert states(three, 2) == [R.DELETION_INELIGIBLE] * 2
    assert states(three, 1) == states(three, 3) == [R.DELETION_SUCCESSFUL] * 2
    assert context.topics_ineligible == {"t": "broker 2 holds replicas and is not live"}
    assert three.ensemble.nodes[paths.delete_topic("t")]
    assert three.ensemble.nodes[paths.topic("t")]

    three.start_broker(2)

    assert is_gone(three)
    assert deletes(three, 2) == [T0, T1]
    assert hosted(three, 2) == set()  # KAFKA-13342


def test_broker_failure_after_deletion_started(three):
    # TopicDeletionManagerTest.testBrokerFailureAfterDeletionStarted; differs: who returns need not wait for the others
    answer = unanswered(three, 1, 2, 3)
    mark(three, "t")

    three.kill_broker(2)

    assert states(three, 2) == [R.DELETION_INELIGIBLE] * 2
    assert states(three, 1) == states(three, 3) == [R.DELETION_STARTED] * 2
    assert term(three).context.topics_ineligible

    three.start_broker(2)

    assert states(three, 2) == [R.DELETION_SUCCESSFUL] * 2
    assert not term(three).context.topics_ineligible
    answer(1, 3)
    assert is_gone(three)


def test_a_bounced_broker_is_told_again(three):
    unanswered(three, 2)
    mark(three, "t")
    assert states(three, 2) == [R.DELETION_STARTED] * 2

    bounce(three, 2)

    assert is_gone(three)
    assert hosted(three, 2) == set()


def test_a_broker_that_restarted_after_its_answer_is_told_once_more(three):
    # A power cut can bring back what was renamed a moment before.
    three.kill_broker(3)
    mark(three, "t")
    assert states(three, 1) == [R.DELETION_SUCCESSFUL] * 2

    bounce(three, 1)

    assert deletes(three, 1) == [T0, T1]
    assert hosted(three, 1) == set()


def test_storage_error_halts_until_the_broker_is_started_again(three):
    refuse_next_stop(three, 3, STORAGE, T1)

    mark(three, "t")

    assert states(three, 3) == [R.DELETION_SUCCESSFUL, R.DELETION_INELIGIBLE]
    assert term(three).context.topics_ineligible == {"t": "broker 3 holds replicas in a directory that failed"}
    bounce(three, 3)
    assert is_gone(three)


def test_any_other_error_is_tried_again(three):
    refuse_next_stop(three, 3, UNKNOWN, T1)

    mark(three, "t")

    assert states(three, 3) == [R.DELETION_SUCCESSFUL, R.DELETION_STARTED]
    three.clock.advance(1_000)
    three.settle()
    assert is_gone(three)


def test_delete_topic_with_all_alive_replicas(three):
    # DeleteTopicTest.testDeleteTopicWithAllAliveReplicas
    three.ensemble.put(paths.topic_config("t"), znodes.encode_config({"retention.ms": "1"}))
    mark(three, "t")

    assert is_gone(three)
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
    mark(three, "t")
    three.candidate(2)
    for agent in three.agents.values():
        agent.received.clear()

    three.candidates.pop(0).session.close()
    three.settle()

    assert term(three).epoch == 2
    assert states(three, 3) == [R.DELETION_INELIGIBLE] * 2
    assert hosted(three, 1) | hosted(three, 2) == set()
    three.start_broker(3)
    assert is_gone(three)


def test_partition_reassignment_during_delete_topic_keeps_it_from_beginning(three):
    # DeleteTopicTest.testPartitionReassignmentDuringDeleteTopic, the other way round: the reassignment came first.
    context = term(three).context
    context.set_assignment(T0, ReplicaAssignment((1, 2, 3), removing=(3,)))

    mark(three, "t")

    assert context.is_queued_for_deletion("t")
    assert not context.is_being_deleted("t")
    assert [states(three, broker) for broker in (1, 2, 3)] == [[R.ONLINE] * 2] * 3
    assert [each.waits_for for each in three.candidates[0].ask(ListDeletions())] == [REASSIGNED_FIRST]

    context.set_assignment(T0, ReplicaAssignment((1, 2, 3)))
    term(three).deletions.resume(["t"])
    term(three).hand_over()
    three.settle()

    assert is_gone(three)


def test_a_topic_that_waits_for_its_reassignment_is_served(three):
    context = term(three).context
    context.set_assignment(T0, ReplicaAssignment((1, 2, 3), removing=(3,)))
    mark(three, "t")

    three.kill_broker(2)
    three.start_broker(2)

    assert hosted(three, 2) == {"t"}
    assert three.state("t", 1)[0] == 3


def test_increase_partition_count_during_delete_topic(three):
    # DeleteTopicTest.testIncreasePartitionCountDuringDeleteTopic
    three.kill_broker(3)
    mark(three, "t")
    topic = znodes.decode_topic("", three.ensemble.nodes[paths.topic("t")].data, topic="t", zk_version=0, czxid=0)
    more = {**topic.partitions, 2: ReplicaAssignment((1, 2))}
    three.ensemble.put(paths.topic("t"), znodes.encode_topic(TopicAssignment("t", more, topic.topic_id)))
    three.settle()
    assert TopicPartition("t", 2) not in list(term(three).context.partitions())

    three.candidate(2)
    three.candidates.pop(0).session.close()
    three.settle()
    three.start_broker(3)

    assert is_gone(three)
    assert TopicPartition("t", 2) not in three.agents[1].states


def test_delete_topic_during_add_partition(three):
    # DeleteTopicTest.testDeleteTopicDuringAddPartition
    three.kill_broker(3)
    topic = znodes.decode_topic("", three.ensemble.nodes[paths.topic("t")].data, topic="t", zk_version=0, czxid=0)
    more = {**topic.partitions, 2: ReplicaAssignment((3, 1))}
    three.ensemble.put(paths.topic("t"), znodes.encode_topic(TopicAssignment("t", more, topic.topic_id)))
    mark(three, "t")

    three.start_broker(3)

    assert is_gone(three)


def test_add_partition_during_delete_topic(three):
    # DeleteTopicTest.testAddPartitionDuringDeleteTopic
    answer = unanswered(three, 1)
    mark(three, "t")
    topic = znodes.decode_topic("", three.ensemble.nodes[paths.topic("t")].data, topic="t", zk_version=0, czxid=0)
    more = {**topic.partitions, 2: ReplicaAssignment((2, 3))}
    three.ensemble.put(paths.topic("t"), znodes.encode_topic(TopicAssignment("t", more, topic.topic_id)))
    three.settle()

    answer(1)

    assert is_gone(three)
    assert TopicPartition("t", 2) not in three.agents[2].states


def test_recreate_topic_after_deletion(three):
    # DeleteTopicTest.testRecreateTopicAfterDeletion
    before = term(three).context.topic_id("t")
    mark(three, "t")

    (created,) = three.candidates[0].ask(CreateTopics((NewTopic("t", 1, 3),), validate_only=False))

    assert created.error is ErrorCode.NONE
    assert created.topic_id not in (None, before)
    assert sorted(three.state("t")[1]) == [1, 2, 3]
    assert all(agent.states[T0] for agent in three.agents.values())


def test_delete_non_existing_topic(three):
    # DeleteTopicTest.testDeleteNonExistingTopic
    (outcome,) = three.candidates[0].ask(DeleteTopics((TopicRef("nobody"),)))
    mark(three, "gone")

    assert outcome.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert three.ensemble.names(paths.DELETE_TOPICS) == ()
    assert three.state("t")[0] == 1


def test_delete_topic_already_marked_as_deleted(three):
    # DeleteTopicTest.testDeleteTopicAlreadyMarkedAsDeleted; differs: asking again is no error, as with Kafka's RPC
    three.kill_broker(3)
    mark(three, "t")

    (outcome,) = three.candidates[0].ask(DeleteTopics((TopicRef("t"),)))

    assert outcome.error is ErrorCode.NONE
    three.start_broker(3)
    assert is_gone(three)


@pytest.fixture
def forbidding(world):
    """As `three`, where topics may not be deleted."""
    world.start_brokers(1, 2, 3)
    candidate = world.candidate(1, delete_topic_enable=False)
    world.write_topic("t", {0: [1, 2, 3], 1: [2, 3, 1]})
    assert candidate.rules
    return world


def test_disable_delete_topic(forbidding):
    # DeleteTopicTest.testDisableDeleteTopic
    mark(forbidding, "t")

    assert forbidding.ensemble.names(paths.DELETE_TOPICS) == ()
    assert forbidding.state("t")[0] == 1
    assert not deletes(forbidding, 1)
    (outcome,) = forbidding.candidates[0].ask(DeleteTopics((TopicRef("t"),)))
    assert outcome.error is ErrorCode.TOPIC_DELETION_DISABLED


def test_deleting_partially_deleted_topic(three):
    # DeleteTopicTest.testDeletingPartiallyDeletedTopic
    for broker in (1, 2, 3):
        three.kill_broker(broker)
    three.ensemble.delete(paths.partition_state(T0))
    three.ensemble.delete(paths.topic_partition(T0))
    three.candidate(2)
    three.candidates.pop(0).session.close()
    mark(three, "t")

    three.start_brokers(1, 2, 3)

    assert is_gone(three)


def test_topics_are_deleted_by_id(three):
    topic_id = term(three).context.topic_id("t")

    found, missing = three.candidates[0].ask(
        DeleteTopics((TopicRef(topic_id=topic_id), TopicRef(topic_id=type(topic_id)(int=7))))
    )

    assert (found.name, found.topic_id, found.error) == ("t", topic_id, ErrorCode.NONE)
    assert missing.error is ErrorCode.UNKNOWN_TOPIC_ID
    assert is_gone(three)


@pytest.mark.parametrize("failover", [False, True])
def test_a_topic_that_cannot_be_read_is_deleted(ruled, failover):
    ruled.ensemble.put(paths.topic("t"), b"{")
    ruled.ensemble.put(paths.topic_partitions("t"), b"")
    ruled.ensemble.put(paths.topic_partition(T0), b"")
    ruled.ensemble.put(paths.partition_state(T0), b"{")
    ruled.settle()
    if failover:
        ruled.candidates.pop(0).session.close()
        ruled.ensemble.put(paths.delete_topic("t"), b"")
        ruled.candidate(2)
    else:
        mark(ruled, "t")

    assert is_gone(ruled)
    assert [deletes(ruled, broker) for broker in (1, 2, 3)] == [[T0]] * 3


def test_a_name_that_no_topic_may_have_is_removed(ruled):
    ruled.ensemble.put(paths.topic("a b"), znodes.encode_topic(TopicAssignment("a b", {0: ReplicaAssignment((1,))})))
    ruled.settle()

    mark(ruled, "a b")

    assert is_gone(ruled, "a b")
    assert not hosted(ruled, 1)


def test_whatever_stands_below_the_topic_is_removed(three):
    three.ensemble.put(paths.topic("t") + "/odd", b"")
    three.ensemble.put(paths.topic("t") + "/odd/child", b"x")
    three.ensemble.put(paths.partition_state(T0) + "/below", b"")

    mark(three, "t")

    assert is_gone(three)


def test_a_topic_made_anew_outside_is_not_hit_by_the_request_for_the_one_before(three):
    three.kill_broker(3)
    mark(three, "t")
    for path in sorted((each for each in three.ensemble.nodes if each.startswith(paths.topic("t"))), reverse=True):
        three.ensemble.delete(path)
    three.write_topic("t", {0: [1, 2]})

    assert three.ensemble.names(paths.DELETE_TOPICS) == ()
    assert not term(three).context.topics_to_delete
    assert three.state("t")[0] == 1


def test_a_topic_removed_outside_leaves_no_request_behind(three):
    three.ensemble.put(paths.topic_config("t"), znodes.encode_config({}))
    three.kill_broker(3)
    mark(three, "t")
    for path in sorted((each for each in three.ensemble.nodes if each.startswith(paths.topic("t"))), reverse=True):
        three.ensemble.delete(path)
    three.settle()

    assert is_gone(three)


def test_an_isr_change_brings_nobody_back(three):
    answer = unanswered(three, 1)
    mark(three, "t")
    three.write_state("t", 0, 1, [1, 2], epoch=0)
    three.agents[1].received.clear()

    three.notify_isr_change(T0)

    assert hosted(three, 1) == set()
    answer(1)
    assert is_gone(three)


def test_progress_names_the_brokers_that_are_missing(three):
    three.kill_broker(2)
    mark(three, "t")

    (progress,) = three.candidates[0].ask(ListDeletions())

    assert (progress.topic, progress.replicas, progress.deleted, progress.offline) == ("t", 6, 4, (2,))
    assert progress.waits_for == "broker 2 holds replicas and is not live"


@pytest.mark.timeout(20)
def test_a_thousand_topics_take_a_bounded_number_of_round_trips_and_requests(ruled):
    # KAFKA-9499
    names = [f"topic-{number}" for number in range(1_000)]
    wanted = tuple(NewTopic(name, 2, 3) for name in names)
    for start in range(0, len(wanted), 100):
        ruled.candidates[0].ask(CreateTopics(wanted[start : start + 100], validate_only=False))
    for agent in ruled.agents.values():
        agent.received.clear()
    session = ruled.candidates[0].session
    session.round_trips.clear()

    ruled.candidates[0].ask(DeleteTopics(tuple(map(TopicRef, names))))

    assert ruled.ensemble.names(paths.TOPICS) == ()
    assert ruled.ensemble.names(paths.DELETE_TOPICS) == ()
    assert [len(ruled.agents[broker].of(pb.StopReplicaRequest)) for broker in (1, 2, 3)] == [1, 1, 1]
    assert all(len(agent.received) < 20 for agent in ruled.agents.values())
    assert len(session.round_trips) < 40, session.round_trips
