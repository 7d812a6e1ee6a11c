"""CreatePartitions: what is added and where, what is refused and why, and what other tools do to a topic meanwhile."""

from __future__ import annotations

import logging

import msgspec
import pytest

from regency.controller.topics import partition_creation
from regency.controller.topics.creation import CreateTopics, NewTopic
from regency.controller.topics.partition_creation import CreatePartitions, MorePartitions
from regency.model import znodes
from regency.model.facts import ReplicaAssignment, TopicAssignment
from regency.model.ids import TopicPartition
from regency.model.znodes import paths


def grow(world, *topics: MorePartitions, validate_only: bool = False):
    return world.candidates[0].ask(CreatePartitions(topics, validate_only=validate_only))


def assignment(world, topic: str) -> dict[int, tuple[int, ...]]:
    path = paths.topic(topic)
    read = znodes.decode_topic(path, world.ensemble.nodes[path].data, topic=topic, zk_version=0, czxid=0)
    return {number: each.replicas for number, each in read.partitions.items()}


# AddPartitionsTest.testIncrementPartitions
def test_added_partitions_are_led_when_the_answer_comes(ruled):
    ruled.write_topic("t", {0: [2, 3]})

    (outcome,) = grow(ruled, MorePartitions("t", 3))

    assert (outcome.topic, outcome.error.name, outcome.message) == ("t", "NONE", "")
    assert assignment(ruled, "t") == {0: (2, 3), 1: (3, 1), 2: (1, 2)}
    assert ruled.state("t", 1) == (3, (3, 1), 0, 1)
    assert ruled.state("t", 2) == (1, (1, 2), 0, 1)
    for broker, partition in ((3, 1), (1, 1), (1, 2), (2, 2)):
        assert TopicPartition("t", partition) in ruled.agents[broker].states


# AddPartitionsTest.testReplicaPlacementAllServers, testReplicaPlacementPartialServers
@pytest.mark.parametrize("racks", [(None, None, None, None, None), ("a", "a", "b", "b", "c")])
@pytest.mark.parametrize("first", [1, 4, 7])
def test_placement_goes_on_where_the_topics_own_ended(world, racks, first):
    for broker, rack in enumerate(racks, start=1):
        world.start_broker(broker, rack=rack)
    candidate = world.candidate(1)
    candidate.ask(CreateTopics((NewTopic("once", 16, 3), NewTopic("more", first, 3)), validate_only=False))
    start = assignment(world, "once")[0][0]
    world.write_topic("grown", {number: each for number, each in assignment(world, "once").items() if number < first})

    grow(world, MorePartitions("grown", 16))

    assert assignment(world, "grown") == assignment(world, "once")
    assert assignment(world, "grown")[0][0] == start


# AddPartitionsTest.testManualAssignmentOfReplicas
def test_given_assignments_are_honoured(ruled):
    ruled.write_topic("t", {0: [1, 2]})

    (outcome,) = grow(ruled, MorePartitions("t", 3, ((3, 2), (2, 1))))

    assert outcome.error.name == "NONE"
    assert assignment(ruled, "t") == {0: (1, 2), 1: (3, 2), 2: (2, 1)}
    assert ruled.state("t", 1)[0] == 3


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        (MorePartitions("t", 2), "INVALID_PARTITIONS", "Topic 't' already has 2 partitions."),
        (
            MorePartitions("t", 1),
            "INVALID_PARTITIONS",
            "Topic 't' has 2 partitions, which is more than the requested 1. Partitions cannot be taken away.",
        ),
        (MorePartitions("t", -1), "INVALID_PARTITIONS", "more than the requested -1"),
        (MorePartitions("t", 25_001), "INVALID_PARTITIONS", "25000 are allowed"),
        (MorePartitions("u", 3), "UNKNOWN_TOPIC_OR_PARTITION", "There is no topic 'u'."),
        (
            MorePartitions("t", 4, ((1, 2),)),
            "INVALID_REPLICA_ASSIGNMENT",
            "2 partitions are added, but 1 assignments are given.",
        ),
        # AddPartitionsTest.testWrongReplicaCount
        (MorePartitions("t", 3, ((1,),)), "INVALID_REPLICA_ASSIGNMENT", "has 1 replicas, partition 0 has 2"),
        (MorePartitions("t", 3, ((1, 1),)), "INVALID_REPLICA_ASSIGNMENT", "Partition 2 names a broker twice: [1, 1]."),
        (MorePartitions("t", 3, ((),)), "INVALID_REPLICA_ASSIGNMENT", "Partition 2 has no replicas."),
        (MorePartitions("t", 3, ((1, 9),)), "INVALID_REPLICA_ASSIGNMENT", "not live: [9]; live are 1, 2, 3"),
    ],
)
def test_what_cannot_be_added_is_refused_and_the_rest_added(ruled, more, error, message):
    ruled.write_topic("t", {0: [1, 2], 1: [2, 3]})
    ruled.write_topic("good", {0: [1]})

    refused, good = grow(ruled, more, MorePartitions("good", 2))

    assert refused.error.name == error
    assert message in refused.message
    assert good.error.name == "NONE"
    assert set(assignment(ruled, "t")) == {0, 1}
    assert set(assignment(ruled, "good")) == {0, 1}


def test_a_request_adds_no_more_partitions_than_a_topic_may_have(ruled, monkeypatch):
    monkeypatch.setattr(partition_creation, "MAX_PARTITIONS", 3)
    for name in "abc":
        ruled.write_topic(name, {0: [1]})
    more = grow(ruled, MorePartitions("a", 3), MorePartitions("b", 3), MorePartitions("c", 2))
    assert [each.error.name for each in more] == ["NONE", "POLICY_VIOLATION", "NONE"]
    assert set(assignment(ruled, "b")) == {0}


# AddPartitionsTest.testMissingPartition0
def test_a_topic_without_partition_0_is_refused(ruled):
    ruled.write_topic("t", {1: [1, 2]})

    (refused,) = grow(ruled, MorePartitions("t", 2))

    assert refused.error.name == "UNKNOWN_SERVER_ERROR"
    assert "not numbered from 0 without gaps in its znode: [1]" in refused.message


def test_a_topic_named_twice_is_refused(ruled):
    ruled.write_topic("t", {0: [1]})

    outcomes = grow(ruled, MorePartitions("t", 2), MorePartitions("t", 3))

    assert [outcome.error.name for outcome in outcomes] == ["INVALID_REQUEST"] * 2
    assert set(assignment(ruled, "t")) == {0}


def test_more_replicas_than_live_brokers_are_refused(ruled):
    ruled.write_topic("t", {0: [1, 2, 3]})
    ruled.kill_broker(3)

    (refused,) = grow(ruled, MorePartitions("t", 2))

    assert refused.error.name == "INVALID_REPLICATION_FACTOR"
    assert "Replication factor 3 needs 3 live brokers, 2 are live (1, 2)." in refused.message


# DeleteTopicTest.testAddPartitionDuringDeleteTopic
def test_a_topic_queued_for_deletion_is_refused(ruled):
    ruled.write_topic("t", {0: [1]})
    ruled.candidates[0].term.context.topics_to_delete.add("t")

    (refused,) = grow(ruled, MorePartitions("t", 2))

    assert (refused.error.name, refused.message) == ("INVALID_TOPIC_EXCEPTION", "Topic 't' is queued for deletion.")


# ReassignPartitionsClusterTest.shouldCreatePartitionsForTopicNotInReassignment
def test_topics_of_brokers_get_no_more_partitions(ruled):
    ruled.write_topic("__consumer_offsets", {0: [1, 2]})

    (refused,) = grow(ruled, MorePartitions("__consumer_offsets", 3))

    assert refused.error.name == "INVALID_TOPIC_EXCEPTION"
    assert "every group" in refused.message
    assert len(assignment(ruled, "__consumer_offsets")) == 1


def test_only_the_topic_that_is_being_reassigned_is_refused(ruled):
    ruled.write_topic("still", {0: [1]})
    moving = TopicAssignment("t", {0: ReplicaAssignment((3, 1), adding=(3,), removing=(1,))})
    ruled.write_topic("t", {0: [1]})
    ruled.ensemble.put(paths.topic("t"), znodes.encode_topic(moving))

    refused, still = grow(ruled, MorePartitions("t", 2), MorePartitions("still", 2))

    assert refused.error.name == "REASSIGNMENT_IN_PROGRESS"
    assert "Partition 0 of topic 't' is being reassigned." in refused.message
    assert still.error.name == "NONE"


def test_validation_alone_writes_nothing(ruled):
    ruled.write_topic("t", {0: [1]})
    writes = len(ruled.ensemble.writes)

    good, bad = grow(ruled, MorePartitions("t", 2), MorePartitions("u", 2), validate_only=True)

    assert (good.error.name, bad.error.name) == ("NONE", "UNKNOWN_TOPIC_OR_PARTITION")
    assert len(ruled.ensemble.writes) == writes


# KAFKA-14190
def test_unknown_fields_and_the_id_of_the_topic_are_kept(ruled):
    ruled.write_topic("t", {0: [1]})
    path = paths.topic("t")
    before = msgspec.json.decode(ruled.ensemble.nodes[path].data)
    ruled.ensemble.put(path, msgspec.json.encode({**before, "owner": "somebody"}))
    ruled.settle()

    grow(ruled, MorePartitions("t", 2))

    after = msgspec.json.decode(ruled.ensemble.nodes[path].data)
    assert after["owner"] == "somebody"
    assert after["topic_id"] == before["topic_id"]
    assert after["partitions"] == {"0": [1], "1": [2]}


def test_a_topic_written_by_somebody_else_meanwhile_is_decided_again(ruled):
    ruled.write_topic("t", {0: [1]})
    other = TopicAssignment("t", {0: ReplicaAssignment((1,)), 1: ReplicaAssignment((3,))})
    path = paths.topic("t")
    ruled.candidates[0].session.before_write = lambda: ruled.ensemble.put(
        path, znodes.encode_topic(other, previous=ruled.ensemble.nodes[path].data)
    )

    (outcome,) = grow(ruled, MorePartitions("t", 3))

    assert outcome.error.name == "NONE"
    assert assignment(ruled, "t")[1] == (3,)
    assert set(assignment(ruled, "t")) == {0, 1, 2}
    assert ruled.state("t", 2)[0] == assignment(ruled, "t")[2][0]


def test_a_topic_deleted_meanwhile_is_said_to_be_unknown(ruled):
    ruled.write_topic("t", {0: [1]})
    ruled.candidates[0].session.before_write = lambda: ruled.ensemble.delete(paths.topic("t"))

    (outcome,) = grow(ruled, MorePartitions("t", 2))

    assert outcome.error.name == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_lost_reply_is_no_second_write(ruled):
    ruled.write_topic("t", {0: [1]})
    ruled.candidates[0].session.lose_replies = 1

    (outcome,) = grow(ruled, MorePartitions("t", 2))

    assert outcome.error.name == "NONE"
    assert ruled.state("t", 1)[2] == 0


def test_fewer_partitions_in_the_znode_than_known_are_told_and_have_no_effect(ruled, caplog):
    ruled.write_topic("t", {0: [1], 1: [2], 2: [3]})
    fewer = TopicAssignment("t", {0: ReplicaAssignment((1,))})
    path = paths.topic("t")
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            data = znodes.encode_topic(fewer, previous=ruled.ensemble.nodes[path].data)
            ruled.ensemble.put(path, data)
            ruled.settle()

    told = [record.getMessage() for record in caplog.records if "lacks partitions [1, 2]" in record.getMessage()]
    assert len(told) == 1
    assert [ruled.state("t", number)[0] for number in range(3)] == [1, 2, 3]
    assert ruled.candidates[0].term.context.partition_count == 3

    (refused,) = grow(ruled, MorePartitions("t", 4))
    assert refused.error.name == "INVALID_PARTITIONS"
    assert "lacks partitions [1, 2], which exist" in refused.message


def test_partitions_whose_replicas_are_dead_wait_for_a_leader(ruled):
    ruled.write_topic("t", {0: [1]})
    ruled.kill_broker(3)
    other = TopicAssignment("t", {0: ReplicaAssignment((1,)), 1: ReplicaAssignment((3,))})
    path = paths.topic("t")

    ruled.ensemble.put(path, znodes.encode_topic(other, previous=ruled.ensemble.nodes[path].data))
    ruled.settle()
    assert TopicPartition("t", 1) in ruled.candidates[0].term.context.leaderless
    ruled.start_broker(3)

    assert ruled.state("t", 1)[0] == 3
