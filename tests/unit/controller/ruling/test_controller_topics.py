"""Creating topics: what is accepted, what is refused and how it is said; and topics that other tools write or break."""

from __future__ import annotations

import logging

import pytest

from regency.controller.topics import creation
from regency.controller.topics.creation import CreateTopics, NewTopic
from regency.model import znodes
from regency.model.facts import LeaderAndIsr, ReplicaAssignment, TopicAssignment
from regency.model.ids import TopicPartition
from regency.model.topic_ids import derive_topic_id, encode_topic_id
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Create

T0 = TopicPartition("t", 0)


def create(world, *topics: NewTopic, validate_only: bool = False):
    return world.candidates[0].ask(CreateTopics(topics, validate_only=validate_only))


@pytest.mark.parametrize(
    ("topic", "error", "message"),
    [
        (
            NewTopic("t", 1, 5),
            "INVALID_REPLICATION_FACTOR",
            ("Replication factor 5 needs 5 live brokers, 3 are live (1, 2, 3). Use at most 3, or start more brokers."),
        ),
        (NewTopic("t", 1, 0), "INVALID_REPLICATION_FACTOR", "The replication factor must be 1 or more, not 0."),
        (NewTopic("t", 0, 1), "INVALID_PARTITIONS", "The number of partitions must be 1 or more, not 0."),
        (
            NewTopic("t", 25_001, 1),
            "INVALID_PARTITIONS",
            "25001 partitions are too many for one topic, 25000 are allowed. Spread them over several topics.",
        ),
        (NewTopic("a/b", 1, 1), "INVALID_TOPIC_EXCEPTION", "topic name 'a/b' is not allowed"),
        (NewTopic("", 1, 1), "INVALID_TOPIC_EXCEPTION", "it is empty"),
        (NewTopic("old", 1, 1), "TOPIC_ALREADY_EXISTS", "Topic 'old' already exists."),
        (
            NewTopic("a_b", 1, 1),
            "INVALID_TOPIC_EXCEPTION",
            "Topic 'a_b' collides with 'a.b': '.' and '_' are the same in metric names.",
        ),
        (NewTopic("t", 1, 1, configs={"retention.ms": "soon"}), "INVALID_CONFIG", "retention.ms"),
        (NewTopic("t", 1, 1, configs={"retention.mss": "1"}), "INVALID_CONFIG", "retention.ms"),
        (NewTopic("t", 1, -1, ((0, (1,)),)), "INVALID_REQUEST", "give either assignments"),
        (
            NewTopic("t", assignments=((0, (1,)), (2, (1,)))),
            "INVALID_REPLICA_ASSIGNMENT",
            "each once and without gaps, not [0, 2]",
        ),
        (NewTopic("t", assignments=((0, (1,)), (0, (2,)))), "INVALID_REPLICA_ASSIGNMENT", "not [0, 0]"),
        (NewTopic("t", assignments=((0, (1, 1)),)), "INVALID_REPLICA_ASSIGNMENT", "names a broker twice: [1, 1]"),
        (NewTopic("t", assignments=((0, (1, -2)),)), "INVALID_REPLICA_ASSIGNMENT", "names a broker below 0"),
        (NewTopic("t", assignments=((0, ()),)), "INVALID_REPLICA_ASSIGNMENT", "Partition 0 has no replicas"),
        (
            NewTopic("t", assignments=((0, (1, 2)), (1, (3,)))),
            "INVALID_REPLICA_ASSIGNMENT",
            "Partition 1 has 1 replicas, partition 0 has 2",
        ),
        (NewTopic("t", assignments=((0, (1, 8)),)), "INVALID_REPLICA_ASSIGNMENT", "not live: [8]; live are 1, 2, 3"),
    ],
)
def test_refused_topic_says_why_and_leaves_nothing(ruled, topic, error, message):
    ruled.write_topic("old", {0: [1]})
    ruled.write_topic("a.b", {0: [1]})
    writes = len(ruled.ensemble.writes)

    (refused,) = create(ruled, topic)

    assert refused.error.name == error
    assert message in refused.message
    assert len(ruled.ensemble.writes) == writes


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete, compact"])
def test_a_topic_may_be_created_to_be_compacted(ruled, policy):
    (created,) = create(ruled, NewTopic("t", 1, 1, configs={"cleanup.policy": policy}))

    assert created.error.name == "NONE", created.message
    path = paths.topic_config("t")
    assert znodes.decode_config(path, ruled.ensemble.nodes[path].data) == {"cleanup.policy": policy}


def test_topic_takes_the_brokers_defaults(ruled):
    (created,) = create(ruled, NewTopic("t"))

    assert (created.num_partitions, created.replication_factor) == (2, 1)


def test_topic_with_given_replicas_gets_exactly_these(ruled):
    create(ruled, NewTopic("t", assignments=((0, (3, 1)), (1, (2, 3)))))

    assert ruled.state("t", 0)[:2] == (3, (3, 1))
    assert ruled.state("t", 1)[:2] == (2, (2, 3))


def test_replicas_are_spread_over_racks(world):
    for broker, rack in ((1, "a"), (2, "a"), (3, "b"), (4, "b")):
        world.start_broker(broker, rack=rack)
    world.candidate(1)

    create(world, NewTopic("t", 8, 2))

    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    for partition in range(8):
        assert {racks[replica] for replica in world.state("t", partition)[1]} == {"a", "b"}


def test_brokers_shutting_down_get_no_new_replicas(ruled):
    ruled.candidates[0].term.context.begin_shutdown(3)

    (created,) = create(ruled, NewTopic("t", 1, 3))

    assert "2 are live (1, 2)" in created.message


def test_one_refused_topic_harms_no_other(ruled):
    good, bad, twice, again = create(
        ruled, NewTopic("good", 1, 1), NewTopic("bad", 1, 9), NewTopic("twice", 1, 1), NewTopic("twice", 1, 1)
    )

    assert (good.error.name, bad.error.name) == ("NONE", "INVALID_REPLICATION_FACTOR")
    assert (twice.error.name, again.error.name) == ("INVALID_REQUEST", "INVALID_REQUEST")
    assert paths.topic("good") in ruled.ensemble.nodes
    assert paths.topic("twice") not in ruled.ensemble.nodes


@pytest.mark.parametrize("given", [False, True])
def test_a_request_makes_no_more_partitions_than_a_topic_may_have(ruled, monkeypatch, given):
    monkeypatch.setattr(creation, "MAX_PARTITIONS", 3)

    def wanted(name: str, count: int) -> NewTopic:
        return NewTopic(name, assignments=tuple((n, (1,)) for n in range(count))) if given else NewTopic(name, count, 1)

    made = create(ruled, wanted("a", 2), wanted("b", 2), wanted("c", 1), wanted("d", 1))
    assert [each.error.name for each in made] == ["NONE", "POLICY_VIOLATION", "NONE", "POLICY_VIOLATION"]
    assert "Ask for them in another request." in made[1].message
    assert paths.topic("b") not in ruled.ensemble.nodes


def test_two_new_topics_of_one_request_may_not_collide(ruled):
    first, second = create(ruled, NewTopic("x.y", 1, 1), NewTopic("x_y", 1, 1))

    assert (first.error.name, second.error.name) == ("NONE", "INVALID_TOPIC_EXCEPTION")


def test_validation_writes_nothing(ruled):
    writes = len(ruled.ensemble.writes)

    (validated,) = create(ruled, NewTopic("t", 3, 2), validate_only=True)

    assert (validated.error.name, validated.num_partitions, validated.replication_factor) == ("NONE", 3, 2)
    assert len(ruled.ensemble.writes) == writes


def test_topic_that_somebody_else_creates_at_that_moment_exists_already(ruled):
    candidate = ruled.candidates[0]
    other = znodes.encode_topic(TopicAssignment("t", {0: ReplicaAssignment((2,))}))
    candidate.session.before_write = lambda: ruled.ensemble.multi(0, [Create(paths.topic("t"), other)])

    (refused,) = create(ruled, NewTopic("t", 1, 1))

    assert refused.error.name == "TOPIC_ALREADY_EXISTS"
    assert ruled.state("t")[0] == 2
    assert paths.topic_config("t") not in ruled.ensemble.nodes


def test_topic_that_was_written_unnoticed_is_created(ruled):
    ruled.candidates[0].session.lose_outcome_of = paths.topic("t")

    (created,) = create(ruled, NewTopic("t", 1, 1, configs={"retention.bytes": "5"}))

    assert created.error.name == "NONE"
    assert created.topic_id == ruled.candidates[0].term.context.topic_id("t")
    assert ruled.state("t")[2:] == (0, 1)


def test_settings_left_of_an_earlier_topic_are_replaced(ruled):
    ruled.ensemble.put(paths.topic_config("t"), znodes.encode_config({"retention.ms": "1"}))

    create(ruled, NewTopic("t", 1, 1, configs={"retention.bytes": "5"}))

    assert znodes.decode_config("", ruled.ensemble.nodes[paths.topic_config("t")].data) == {"retention.bytes": "5"}


def test_topic_and_settings_are_one_write_checked_against_the_epoch(ruled):
    create(ruled, NewTopic("t", 1, 1))

    (write,) = [ops for ops in ruled.ensemble.writes if any(op.path == paths.topic_config("t") for op in ops)]
    assert [op.path for op in write] == [paths.CONTROLLER_EPOCH, paths.topic_config("t"), paths.topic("t")]


def test_topic_id_is_derived_and_comes_back_when_an_old_tool_drops_it(ruled):
    ruled.write_topic("t", {0: [1]})
    czxid = ruled.ensemble.nodes[paths.topic("t")].czxid
    expected = encode_topic_id(derive_topic_id("cluster", "t", czxid)).encode()
    assert expected in ruled.ensemble.nodes[paths.topic("t")].data

    ruled.ensemble.put(paths.topic("t"), b'{"version":1,"partitions":{"0":[1]},"owner":"me"}')
    ruled.settle()

    assert expected in ruled.ensemble.nodes[paths.topic("t")].data
    assert b'"owner":"me"' in ruled.ensemble.nodes[paths.topic("t")].data


def test_foreign_topic_id_that_was_dropped_comes_back_too(ruled):
    topic_id = derive_topic_id("elsewhere", "t", 1)
    topic = TopicAssignment("t", {0: ReplicaAssignment((1,))}, topic_id)
    ruled.ensemble.put(paths.topic("t"), znodes.encode_topic(topic))
    ruled.settle()

    ruled.ensemble.put(paths.topic("t"), b'{"version":1,"partitions":{"0":[1]}}')
    ruled.settle()

    assert encode_topic_id(topic_id).encode() in ruled.ensemble.nodes[paths.topic("t")].data


def test_topic_created_again_outside_is_a_new_one(ruled):
    ruled.write_topic("t", {0: [1]})
    first = ruled.candidates[0].term.context.topic_id("t")
    ruled.ensemble.delete(paths.topic("t"))

    ruled.write_topic("t", {0: [2]})

    assert ruled.candidates[0].term.context.topic_id("t") not in (None, first)
    assert ruled.state("t")[0] == 2


def test_topic_whose_znode_is_gone_is_forgotten(ruled):
    ruled.write_topic("t", {0: [1]})

    ruled.ensemble.delete(paths.topic("t"))
    ruled.settle()

    candidate = ruled.candidates[0]
    assert candidate.term.context.topics == {}
    assert (candidate.controller.view.topics, candidate.controller.view.partitions) == (0, 0)
    assert paths.topic("t") not in candidate.session.watched
    assert candidate.rules


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"partitions":{"0":[]}}', b'{"partitions":{"100000":[1]}}', b"\xff"])
def test_malformed_topic_is_reported_once_and_harms_no_other(ruled, caplog, data):
    ruled.ensemble.put(paths.topic("bad"), data)
    ruled.write_topic("good", {0: [1]})
    ruled.write_topic("more", {0: [1]})

    assert ruled.state("good")[0] == ruled.state("more")[0] == 1
    reports = [record for record in caplog.records if "/brokers/topics/bad" in record.getMessage()]
    assert len(reports) == 1
    assert ruled.candidates[0].controller.view.epoch == 1


def test_malformed_topic_is_taken_in_once_it_is_corrected(ruled):
    ruled.ensemble.put(paths.topic("t"), b"{")
    ruled.settle()

    ruled.write_topic("t", {0: [1]})

    assert ruled.state("t")[0] == 1


def test_malformed_state_is_reported_once_and_its_partition_left_alone(world, caplog):
    world.start_brokers(1)
    world.write_topic("t", {0: [1], 1: [1]})
    world.ensemble.put(paths.partition_state(T0), b"{}")
    world.candidate(1)
    world.start_broker(2)
    world.start_broker(3)

    assert world.ensemble.nodes[paths.partition_state(T0)].data == b"{}"
    assert world.state("t", 1)[0] == 1
    assert len([each for each in caplog.records if "partitions/0/state" in each.getMessage()]) == 1

    world.write_state("t", 0, 1, [1], epoch=3)
    world.start_broker(4)

    known = world.candidates[0].term.context.leadership(T0).leader_and_isr
    assert known == LeaderAndIsr(1, 3, (1,), 1)


def test_malformed_broker_is_reported_once_and_left_out(ruled, caplog):
    ruled.ensemble.multi(9, [Create(paths.broker(9), b"{", ephemeral=True)])
    ruled.settle()
    ruled.start_broker(4)

    assert sorted(ruled.candidates[0].controller.view.brokers) == [1, 2, 3, 4]
    assert len([each for each in caplog.records if "/brokers/ids/9" in each.getMessage()]) == 1


def test_broker_whose_registration_becomes_unreadable_stays_alive(ruled):
    ruled.write_topic("t", {0: [3, 2]})

    ruled.ensemble.put(paths.broker(3), b"{")
    ruled.settle()

    assert ruled.state("t") == (3, (3, 2), 0, 1)


def test_malformed_isr_notification_is_deleted_with_the_others(ruled):
    ruled.write_topic("t", {0: [3, 2]})
    ruled.ensemble.put(paths.isr_change_prefix() + "0000000100", b"{")
    ruled.write_state("t", 0, 3, [3])

    ruled.notify_isr_change(T0, TopicPartition("gone", 5))

    assert ruled.ensemble.names(paths.ISR_CHANGE_NOTIFICATION) == ()
    assert ruled.candidates[0].term.context.leadership(T0).leader_and_isr.isr == (3,)


def test_many_decisions_of_one_event_are_one_line(ruled, caplog):
    caplog.set_level(logging.INFO)

    create(ruled, NewTopic("t", 150, 1))

    lines = [each.getMessage() for each in caplog.records if "created" in each.getMessage()]
    assert lines == ["create_topics decided for 150 partitions: 150 created"]
