"""Clients' admin requests in their envelopes: Kafka's bytes in, Kafka's bytes and what to wait for out."""

from __future__ import annotations

import logging

import pytest
from admin_requests import (
    VERSIONS,
    altering,
    any_request,
    creating,
    deleting,
    electing,
    enveloped,
    growing,
    listing,
    moving,
    new_topic,
    outcomes,
)

from regency.controller.admin.forwarded import APIS, forward
from regency.kafka.apis import FORWARDED, OFFERED, ApiKey
from regency.kafka.codec import decode_body
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths
from regency.protos.admin_pb2 import Awaited, Envelope

NONE = (ErrorCode.NONE, None)


def ask(served, message, version=None):
    """The response and what is awaited."""
    api = ApiKey(message.API_KEY)
    version = OFFERED[api].highest if version is None else version
    reply = forward(served.gate, enveloped(message, version))
    assert reply.outcome.error_code == ErrorCode.NONE, reply.outcome.message
    return decode_body(api, version, reply.response), list(reply.awaited)


@pytest.fixture
def with_t(served):
    """Topic `t` of one partition on 3 and 1."""
    ask(served, creating(new_topic("t", assignments=[(0, [3, 1])])))
    return served


def test_all_that_agents_forward_is_answered():
    assert APIS.keys() == FORWARDED


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_every_version_is_answered_in_itself(with_t, api, version, caplog):
    caplog.set_level(logging.INFO, logger="regency.controller.admin")
    answered, _ = ask(with_t, any_request(api, version), version)

    found = outcomes(answered)
    match api:
        case ApiKey.CREATE_TOPICS:
            assert found["t"][0] == ErrorCode.TOPIC_ALREADY_EXISTS
        case ApiKey.ELECT_LEADERS:
            assert found[("t", 0)][0] == ErrorCode.ELECTION_NOT_NEEDED
        case ApiKey.ALTER_PARTITION_REASSIGNMENTS:
            assert found == {("t", 0): NONE}
        case ApiKey.LIST_PARTITION_REASSIGNMENTS:
            assert answered.topics == []
        case _:
            assert found == {"t": NONE}
    told = f"did {api.name} for User:ANONYMOUS, client 'test' at 127.0.0.1 on PLAINTEXT" in caplog.text
    assert told == (api is not ApiKey.LIST_PARTITION_REASSIGNMENTS)


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_as_asked_for(served, version):
    topic = new_topic("u", 2, 3, configs={"retention.ms": "5"})
    answered, awaited = ask(served, creating(topic, new_topic("v", 1, 7)), version)

    made, refused = answered.topics
    assert (made.error_code, refused.error_code) == (0, ErrorCode.INVALID_REPLICATION_FACTOR)
    assert awaited == [Awaited(topic="u", partition=[0, 1])]
    if version >= 5:
        assert (made.num_partitions, made.replication_factor, refused.num_partitions) == (2, 3, -1)
        assert [(config.name, config.value) for config in made.configs] == [("retention.ms", "5")]
        assert refused.configs == []
    if version >= 7:
        assert made.topic_id == served.candidate.controller._term.context.topic_id("u")
    assert served.world.state("u")[0] in {1, 2, 3}


@pytest.mark.parametrize(
    ("topic", "error", "says"),
    [
        (new_topic("bad name", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION, "contains ' '"),
        (new_topic("u", 0, 1), ErrorCode.INVALID_PARTITIONS, "not 0"),
        (new_topic("u", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR, "not -2"),
        (new_topic("u", 1, 1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST, "either assignments"),
        (new_topic("u", assignments=[(0, [1]), (0, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "each once"),
        (new_topic("u", 1, 1, configs={"retention": "1"}), ErrorCode.INVALID_CONFIG, "retention"),
        (new_topic("u", 1, 1, configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG, "no value"),
    ],
)
def test_a_topic_that_cannot_be_created_is_refused_with_a_reason_and_the_rest_created(served, topic, error, says):
    answered, awaited = ask(served, creating(topic, new_topic("good", 1, 1)))

    found = outcomes(answered)
    assert found[topic.name][0] == error and says in found[topic.name][1]
    assert found["good"] == NONE
    assert awaited == [Awaited(topic="good", partition=[0])]


def test_a_topic_named_twice_is_refused_once(served):
    answered, awaited = ask(served, creating(new_topic("u", 1, 1), new_topic("u", 2, 1)))
    assert [(topic.name, topic.error_code) for topic in answered.topics] == [("u", ErrorCode.INVALID_REQUEST)]
    assert awaited == []


def test_validation_alone_awaits_nothing(with_t):
    assert ask(with_t, creating(new_topic("u", 1, 1), validate_only=True))[1] == []
    assert ask(with_t, growing(("t", 2, None), validate_only=True))[1] == []


def test_partitions_are_added_where_asked_for_and_only_the_new_ones_are_awaited(with_t):
    ask(with_t, creating(new_topic("u", 1, 1)))
    answered, awaited = ask(with_t, growing(("t", 3, [[1, 2], [2, 3]]), ("u", 2, []), ("none", 2, None)))

    found = outcomes(answered)
    assert (found["t"], found["u"], found["none"][0]) == (NONE, NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert awaited == [Awaited(topic="t", partition=[1, 2]), Awaited(topic="u", partition=[1])]
    assert with_t.world.state("t", 2)[0] == 2


@pytest.mark.parametrize("version", [5, 6])
def test_a_topic_named_twice_is_deleted_once_and_its_end_is_awaited(with_t, version):
    topic_id = with_t.candidate.controller._term.context.topic_id("t")
    answered, awaited = ask(with_t, deleting(version, "t", "t", "none"), version)

    assert [(each.name, each.error_code) for each in answered.responses] == [("t", 0), ("none", 3)]
    assert awaited == [Awaited(topic="t", topic_id=topic_id.bytes)]


def test_a_topic_is_deleted_by_its_id(with_t):
    topic_id = with_t.candidate.controller._term.context.topic_id("t")
    answered, awaited = ask(with_t, deleting(6, topic_id))

    (topic,) = answered.responses
    assert (topic.name, topic.topic_id, topic.error_code, awaited[0].topic) == ("t", topic_id, 0, "t")


@pytest.mark.parametrize(
    ("message", "says"), [(electing(2, [0], kind=7), "no election of type 7"), (deleting(6, "t"), "not by both")]
)
def test_a_request_that_makes_no_sense_is_refused_as_a_whole(with_t, message, says):
    if message.API_KEY == ApiKey.DELETE_TOPICS:
        message.topics[0].topic_id = with_t.candidate.controller._term.context.topic_id("t")
    reply = forward(with_t.gate, enveloped(message, OFFERED[message.API_KEY].highest))
    assert reply.outcome.error_code == ErrorCode.INVALID_REQUEST and says in reply.outcome.message
    assert reply.response == b""


@pytest.mark.parametrize(
    ("api", "version", "request_bytes", "error"),
    [
        (ApiKey.CREATE_TOPICS, 99, b"", ErrorCode.UNSUPPORTED_VERSION),
        (999, 0, b"", ErrorCode.UNSUPPORTED_VERSION),
        (ApiKey.PRODUCE, 9, b"", ErrorCode.UNSUPPORTED_VERSION),
        (ApiKey.CREATE_TOPICS, 7, b"\xff" * 9, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_this_version_cannot_read_is_refused(served, api, version, request_bytes, error):
    reply = forward(served.gate, Envelope(api_key=api, api_version=version, request=request_bytes))
    assert reply.outcome.error_code == error


def test_settings_are_changed_one_by_one_and_what_makes_no_sense_is_refused_alone(with_t):
    found = outcomes(
        ask(
            with_t,
            altering(
                (2, "t", [("retention.ms", 0, "5"), ("segment.ms", 1, None)]),
                (4, "1", [("a", 7, "x")]),
                (4, "2", [("a", 0, None)]),
            ),
        )[0]
    )
    assert (found["t"], found["1"][0], found["2"][0]) == (NONE, 42, 42)
    assert "no operation 7" in found["1"][1] and "no value" in found["2"][1]
    assert b'"retention.ms":"5"' in with_t.world.ensemble.nodes[paths.config_of("topics/t")].data

    replaced, _ = ask(with_t, altering((2, "t", [("segment.ms", 0, "9")]), incremental=False))
    assert outcomes(replaced) == {"t": NONE}
    assert b"retention.ms" not in with_t.world.ensemble.nodes[paths.config_of("topics/t")].data


def test_an_election_of_everything_answers_what_needed_it_and_awaits_its_leader(with_t):
    with_t.world.kill_broker(3)
    with_t.world.start_broker(3)
    with_t.world.rejoin("t", (3, 1))
    answered, awaited = ask(with_t, electing(2, None))
    assert outcomes(answered) == {("t", 0): NONE}
    assert awaited == [Awaited(topic="t", partition=[0], leader=[3])]


def test_moves_begin_are_listed_and_are_cancelled(with_t):
    begun, _ = ask(with_t, moving({0: [2, 3], 9: None}))
    assert outcomes(begun)["t", 0] == NONE and outcomes(begun)["t", 9][0] != 0

    for asked in (listing(None), listing([0])):
        (topic,) = ask(with_t, asked)[0].topics
        (partition,) = topic.partitions
        assert (topic.name, partition.partition_index, partition.adding_replicas) == ("t", 0, [2])

    assert outcomes(ask(with_t, moving({0: None}))[0]) == {("t", 0): NONE}
    assert ask(with_t, listing(None))[0].topics == []


def test_a_client_may_demand_that_the_replication_factor_stays(with_t):
    """KIP-860."""
    answered, _ = ask(with_t, moving({0: [2]}, allow_replication_factor_change=False))
    assert outcomes(answered)["t", 0][0] == ErrorCode.INVALID_REPLICATION_FACTOR
    assert not answered.allow_replication_factor_change
