"""Who asks for the deletion of which topics, in what state they are, and what happens meanwhile."""

from __future__ import annotations

import pytest

from regency.controller.topics.creation import CreateTopics, NewTopic
from regency.controller.topics.deletion_requests import DeleteTopics, ListDeletions, TopicRef
from regency.model import znodes
from regency.model.facts import ReplicaAssignment, TopicAssignment
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths

T0 = TopicPartition("t", 0)


@pytest.fixture
def three(ruled):
    """Topic t with two partitions, each on brokers 1, 2 and 3."""
    ruled.write_topic("t", {0: [1, 2, 3], 1: [2, 3, 1]})
    for agent in ruled.agents.values():
        agent.received.clear()
    return ruled


def test_increase_partition_count_during_delete_topic(three):
    # DeleteTopicTest.testIncreasePartitionCountDuringDeleteTopic
    three.kill_broker(3)
    three.mark("t")
    topic = znodes.decode_topic("", three.ensemble.nodes[paths.topic("t")].data, topic="t", zk_version=0, czxid=0)
    more = {**topic.partitions, 2: ReplicaAssignment((1, 2))}
    three.ensemble.put(paths.topic("t"), znodes.encode_topic(TopicAssignment("t", more, topic.topic_id)))
    three.settle()
    assert TopicPartition("t", 2) not in list(three.term.context.partitions())

    three.candidate(2)
    three.candidates.pop(0).session.close()
    three.settle()
    three.start_broker(3)

    assert three.is_gone()
    assert TopicPartition("t", 2) not in three.agents[1].states


def test_delete_topic_during_add_partition(three):
    # DeleteTopicTest.testDeleteTopicDuringAddPartition
    three.kill_broker(3)
    topic = znodes.decode_topic("", three.ensemble.nodes[paths.topic("t")].data, topic="t", zk_version=0, czxid=0)
    more = {**topic.partitions, 2: ReplicaAssignment((3, 1))}
    three.ensemble.put(paths.topic("t"), znodes.encode_topic(TopicAssignment("t", more, topic.topic_id)))
    three.mark("t")

    three.start_broker(3)

    assert three.is_gone()


def test_add_partition_during_delete_topic(three):
    # DeleteTopicTest.testAddPartitionDuringDeleteTopic
    answer = three.hold_stops(1)
    three.mark("t")
    topic = znodes.decode_topic("", three.ensemble.nodes[paths.topic("t")].data, topic="t", zk_version=0, czxid=0)
    more = {**topic.partitions, 2: ReplicaAssignment((2, 3))}
    three.ensemble.put(paths.topic("t"), znodes.encode_topic(TopicAssignment("t", more, topic.topic_id)))
    three.settle()

    answer(1)

    assert three.is_gone()
    assert TopicPartition("t", 2) not in three.agents[2].states


def test_recreate_topic_after_deletion(three):
    # DeleteTopicTest.testRecreateTopicAfterDeletion
    before = three.term.context.topic_id("t")
    three.mark("t")

    (created,) = three.candidates[0].ask(CreateTopics((NewTopic("t", 1, 3),), validate_only=False))

    assert created.error is ErrorCode.NONE
    assert created.topic_id not in (None, before)
    assert sorted(three.state("t")[1]) == [1, 2, 3]
    assert all(agent.states[T0] for agent in three.agents.values())


def test_delete_non_existing_topic(three):
    # DeleteTopicTest.testDeleteNonExistingTopic
    (outcome,) = three.candidates[0].ask(DeleteTopics((TopicRef("nobody"),)))
    three.mark("gone")

    assert outcome.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert three.ensemble.names(paths.DELETE_TOPICS) == ()
    assert three.state("t")[0] == 1


def test_delete_topic_already_marked_as_deleted(three):
    # DeleteTopicTest.testDeleteTopicAlreadyMarkedAsDeleted; differs: asking again is no error, as with Kafka's RPC
    three.kill_broker(3)
    three.mark("t")

    (outcome,) = three.candidates[0].ask(DeleteTopics((TopicRef("t"),)))

    assert outcome.error is ErrorCode.NONE
    three.start_broker(3)
    assert three.is_gone()


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
    forbidding.mark("t")

    assert forbidding.ensemble.names(paths.DELETE_TOPICS) == ()
    assert forbidding.state("t")[0] == 1
    assert not forbidding.agents[1].deletes()
    (outcome,) = forbidding.candidates[0].ask(DeleteTopics((TopicRef("t"),)))
    assert outcome.error is ErrorCode.TOPIC_DELETION_DISABLED


def test_topics_of_brokers_are_not_deleted_unless_a_marker_says_so(three):
    three.write_topic("__consumer_offsets", {0: [1, 2, 3]})

    wanted = (TopicRef("__consumer_offsets"), TopicRef("t"))
    refused, deleted = three.candidates[0].ask(DeleteTopics(wanted))

    assert (refused.error, deleted.error) == (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE)
    assert "__consumer_offsets" in three.term.context.topics
    three.mark("__consumer_offsets")
    assert "__consumer_offsets" not in three.term.context.topics


def test_deleting_partially_deleted_topic(three):
    # DeleteTopicTest.testDeletingPartiallyDeletedTopic
    for broker in (1, 2, 3):
        three.kill_broker(broker)
    three.ensemble.delete(paths.partition_state(T0))
    three.ensemble.delete(paths.topic_partition(T0))
    three.candidate(2)
    three.candidates.pop(0).session.close()
    three.mark("t")

    three.start_brokers(1, 2, 3)

    assert three.is_gone()


def test_topics_are_deleted_by_id(three):
    topic_id = three.term.context.topic_id("t")

    found, missing = three.candidates[0].ask(
        DeleteTopics((TopicRef(topic_id=topic_id), TopicRef(topic_id=type(topic_id)(int=7))))
    )

    assert (found.name, found.topic_id, found.error) == ("t", topic_id, ErrorCode.NONE)
    assert missing.error is ErrorCode.UNKNOWN_TOPIC_ID
    assert three.is_gone()


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
        ruled.mark("t")

    assert ruled.is_gone()
    assert [ruled.agents[broker].deletes() for broker in (1, 2, 3)] == [[T0]] * 3


def test_a_name_that_no_topic_may_have_is_removed(ruled):
    ruled.ensemble.put(paths.topic("a b"), znodes.encode_topic(TopicAssignment("a b", {0: ReplicaAssignment((1,))})))
    ruled.settle()

    ruled.mark("a b")

    assert ruled.is_gone("a b")
    assert not ruled.agents[1].topics()


def test_whatever_stands_below_the_topic_is_removed(three):
    three.ensemble.put(paths.topic("t") + "/odd", b"")
    three.ensemble.put(paths.topic("t") + "/odd/child", b"x")
    three.ensemble.put(paths.partition_state(T0) + "/below", b"")

    three.mark("t")

    assert three.is_gone()


def test_a_topic_made_anew_outside_is_not_hit_by_the_request_for_the_one_before(three):
    three.kill_broker(3)
    three.mark("t")
    for path in sorted((each for each in three.ensemble.nodes if each.startswith(paths.topic("t"))), reverse=True):
        three.ensemble.delete(path)
    three.write_topic("t", {0: [1, 2]})

    assert three.ensemble.names(paths.DELETE_TOPICS) == ()
    assert not three.term.context.topics_to_delete
    assert three.state("t")[0] == 1


def test_a_topic_removed_outside_leaves_no_request_behind(three):
    three.ensemble.put(paths.topic_config("t"), znodes.encode_config({}))
    three.kill_broker(3)
    three.mark("t")
    for path in sorted((each for each in three.ensemble.nodes if each.startswith(paths.topic("t"))), reverse=True):
        three.ensemble.delete(path)
    three.settle()

    assert three.is_gone()


def test_progress_names_the_brokers_that_are_missing(three):
    three.kill_broker(2)
    three.mark("t")

    (progress,) = three.candidates[0].ask(ListDeletions())

    assert (progress.topic, progress.replicas, progress.deleted, progress.offline) == ("t", 6, 4, (2,))
    assert progress.waits_for == "broker 2 holds replicas and is not live (gone for good? `regency brokers forget 2`)"
