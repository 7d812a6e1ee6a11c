"""Znodes hold for all content: what is written is read back, and no bytes give any error but ZnodeMalformed."""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regency.model import znodes
from regency.model.errors import ZnodeMalformed
from regency.model.facts import (
    Broker,
    Endpoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicAssignment,
)
from regency.model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    ProducerId,
    TopicId,
    TopicPartition,
    ZkVersion,
)
from regency.model.topic_ids import decode_topic_id, encode_topic_id

NATURALS = st.integers(0, 2**31 - 1)
LONGS = st.integers(0, 2**63 - 1)
BROKER_IDS = NATURALS.map(BrokerId)
VERSIONS = NATURALS.map(ZkVersion)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
TOPIC_NAMES = st.from_regex(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,20}", fullmatch=True)
TOPIC_IDS = st.uuids().filter(lambda value: value.int != 0).map(TopicId)
PARTITIONS = st.builds(TopicPartition, TOPIC_NAMES, NATURALS)
REPLICAS = st.lists(BROKER_IDS, min_size=1, max_size=6, unique=True).map(tuple)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | BROKER_IDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)


@st.composite
def assignments(draw: st.DrawFn) -> ReplicaAssignment:
    replicas = draw(REPLICAS)
    adding_until = draw(st.integers(0, len(replicas)))
    removing_from = draw(st.integers(max(adding_until, 1), len(replicas)))
    return ReplicaAssignment(replicas, replicas[:adding_until], replicas[removing_from:])


TOPICS = st.builds(
    TopicAssignment,
    TOPIC_NAMES,
    st.dictionaries(NATURALS, assignments(), max_size=6),
    st.none() | TOPIC_IDS,
    VERSIONS,
    LONGS,
)
STATES = st.builds(
    LeaderIsrAndControllerEpoch,
    st.builds(
        LeaderAndIsr, BROKER_IDS | st.just(BrokerId(-1)), NATURALS.map(LeaderEpoch), REPLICAS | st.just(()), VERSIONS
    ),
    NATURALS.map(ControllerEpoch),
)
ENDPOINTS = st.builds(
    Endpoint,
    st.from_regex(r"[A-Z][A-Z0-9_]{0,10}", fullmatch=True),
    st.from_regex(r"[a-z0-9][a-z0-9.-]{0,20}", fullmatch=True) | st.ip_addresses().map(str),
    st.integers(1, 65535),
    st.sampled_from(["PLAINTEXT", "SSL"]),
)
BROKERS = st.builds(
    Broker,
    BROKER_IDS,
    LONGS.map(BrokerEpoch),
    st.lists(ENDPOINTS, min_size=1, max_size=4, unique_by=lambda endpoint: endpoint.listener).map(tuple),
    st.none() | TEXTS,
)


@given(TOPICS, st.dictionaries(TEXTS, JSON_VALUES, max_size=3))
@settings(deadline=None)
def test_topics_are_read_back_and_fields_of_others_stay(topic: TopicAssignment, others: dict[str, object]) -> None:
    known = ("version", "topic_id", "partitions", "adding_replicas", "removing_replicas", "deleting_replicas")
    others = {name: value for name, value in others.items() if name not in known}
    previous = json.dumps({"version": 1, "partitions": {}, **json.loads(_strict(others))}).encode()
    written = znodes.encode_topic(topic, previous=previous)
    read = znodes.decode_topic("/t", written, topic=topic.topic, zk_version=topic.zk_version, czxid=topic.czxid)
    assert read == topic
    content = json.loads(written)
    assert {name: content[name] for name in others} == json.loads(_strict(others))


def _strict(value: object) -> str:
    """JSON without the numbers that JSON has no word for."""
    return json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: 0))


@given(STATES)
@settings(deadline=None)
def test_states_are_read_back(state: LeaderIsrAndControllerEpoch) -> None:
    data = znodes.encode_state(state)
    assert znodes.decode_state("/s", data, zk_version=state.leader_and_isr.zk_version) == state
    assert list(json.loads(data)) == ["controller_epoch", "leader", "version", "leader_epoch", "isr"]


@given(BROKERS, NATURALS, st.integers(-1, 65535))
@settings(deadline=None)
def test_registrations_are_read_back(broker: Broker, timestamp_ms: int, jmx_port: int) -> None:
    data = znodes.encode_broker(broker, timestamp_ms=timestamp_ms, jmx_port=jmx_port)
    assert znodes.decode_broker("/b", data, id=broker.id, epoch=broker.epoch) == broker
    again = znodes.encode_broker(broker, timestamp_ms=timestamp_ms, jmx_port=jmx_port, previous=data)
    assert znodes.decode_broker("/b", again, id=broker.id, epoch=broker.epoch) == broker


@given(BROKER_IDS, NATURALS, TEXTS.filter(bool), LONGS, LONGS)
@settings(deadline=None)
def test_what_is_one_value_is_read_back(broker: BrokerId, number: int, text: str, one: int, other: int) -> None:
    assert znodes.decode_controller("/c", znodes.encode_controller(broker, timestamp_ms=number)) == broker
    epoch = ControllerEpoch(number)
    assert znodes.decode_controller_epoch("/e", znodes.encode_controller_epoch(epoch)) == epoch
    assert znodes.decode_log_dir_event("/l", znodes.encode_log_dir_event(broker)) == broker
    assert znodes.decode_cluster_id("/i", znodes.encode_cluster_id(text)) == text
    entity = f"topics/{text}"
    assert znodes.decode_config_change("/n", znodes.encode_config_change(entity)) == entity
    block = znodes.ProducerIdBlock(broker, ProducerId(min(one, other)), ProducerId(max(one, other)))
    assert znodes.decode_producer_id_block("/p", znodes.encode_producer_id_block(block)) == block


@given(st.lists(PARTITIONS, max_size=6), st.dictionaries(PARTITIONS, REPLICAS, max_size=6))
@settings(deadline=None)
def test_lists_of_partitions_are_read_back(
    partitions: list[TopicPartition], targets: dict[TopicPartition, tuple[BrokerId, ...]]
) -> None:
    assert znodes.decode_isr_change("/i", znodes.encode_isr_change(partitions)) == tuple(partitions)
    assert znodes.decode_preferred_election("/p", znodes.encode_preferred_election(partitions)) == tuple(partitions)
    assert dict(znodes.decode_asked_moves("/r", znodes.encode_asked_moves(targets.items()))) == targets


@given(st.dictionaries(TEXTS, TEXTS, max_size=6))
@settings(deadline=None)
def test_settings_are_read_back(config: dict[str, str]) -> None:
    assert znodes.decode_config("/c", znodes.encode_config(config)) == config


@given(st.uuids().filter(lambda value: value.int != 0))
@settings(deadline=None)
def test_topic_ids_are_read_back(value: UUID) -> None:
    assert decode_topic_id(encode_topic_id(TopicId(value))) == value


Decode = Callable[[bytes], object]

DECODERS: dict[str, tuple[Decode, dict[str, object]]] = {
    "topic": (
        lambda data: znodes.decode_topic("/p", data, topic="t", zk_version=ZkVersion(0), czxid=0),
        {
            "version": 3,
            "topic_id": "mZhTgYwOSKmhZ1l1iNkOLQ",
            "partitions": {"0": [1, 2, 3]},
            "adding_replicas": {"0": [3]},
            "removing_replicas": {"0": [1]},
        },
    ),
    "state": (
        lambda data: znodes.decode_state("/p", data, zk_version=ZkVersion(0)),
        {"controller_epoch": 3, "leader": 1, "version": 1, "leader_epoch": 7, "isr": [1, 2, 3]},
    ),
    "broker": (
        lambda data: znodes.decode_broker("/p", data, id=BrokerId(1), epoch=BrokerEpoch(1)),
        {
            "version": 5,
            "host": "h",
            "port": 1,
            "endpoints": ["PLAINTEXT://h:1"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "rack": "r",
        },
    ),
    "controller": (lambda data: znodes.decode_controller("/p", data), {"version": 1, "brokerid": 1, "timestamp": "1"}),
    "controller epoch": (lambda data: znodes.decode_controller_epoch("/p", data), {}),
    "cluster id": (lambda data: znodes.decode_cluster_id("/p", data), {"version": "1", "id": "x"}),
    "producer ids": (
        lambda data: znodes.decode_producer_id_block("/p", data),
        {"version": 1, "broker": 1, "block_start": "0", "block_end": "999"},
    ),
    "isr change": (
        lambda data: znodes.decode_isr_change("/p", data),
        {"version": 1, "partitions": [{"topic": "a", "partition": 0}]},
    ),
    "preferred election": (
        lambda data: znodes.decode_preferred_election("/p", data),
        {"version": 1, "partitions": [{"topic": "a", "partition": 0}]},
    ),
    "reassignment": (
        lambda data: znodes.decode_asked_moves("/p", data),
        {"version": 1, "partitions": [{"topic": "a", "partition": 0, "replicas": [1, 2]}]},
    ),
    "log dir event": (lambda data: znodes.decode_log_dir_event("/p", data), {"version": 1, "broker": 3, "event": 1}),
    "config": (lambda data: znodes.decode_config("/p", data), {"version": 1, "config": {"a": "b"}}),
    "config change": (
        lambda data: znodes.decode_config_change("/p", data),
        {"version": 2, "entity_path": "topics/t", "entity_type": "topics", "entity_name": "t"},
    ),
}


def _read_or_malformed(decode: Decode, data: bytes) -> None:
    try:
        decode(data)
    except ZnodeMalformed as error:
        assert error.path == "/p"
        assert error.reason


@pytest.mark.parametrize("kind", DECODERS)
@given(data=st.binary(max_size=200))
@settings(deadline=None, max_examples=50)
def test_any_bytes_are_read_or_malformed(kind: str, data: bytes) -> None:
    _read_or_malformed(DECODERS[kind][0], data)


@pytest.mark.parametrize("kind", DECODERS)
@given(st.data())
@settings(deadline=None, max_examples=100)
def test_any_json_in_any_place_is_read_or_malformed(kind: str, data: st.DataObject) -> None:
    decode, valid = DECODERS[kind]
    content = data.draw(_replaced(valid) if valid else JSON_VALUES)
    _read_or_malformed(decode, json.dumps(content).encode())


@pytest.mark.parametrize("kind", DECODERS)
@given(st.data())
@settings(deadline=None, max_examples=50)
def test_any_damage_to_valid_bytes_is_read_or_malformed(kind: str, data: st.DataObject) -> None:
    decode, valid = DECODERS[kind]
    whole = json.dumps(valid).encode() if valid else b"17"
    begin = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(begin, len(whole)))
    _read_or_malformed(decode, whole[:begin] + data.draw(st.binary(max_size=8)) + whole[end:])


def _replaced(valid: object) -> st.SearchStrategy[object]:
    """`valid` with some value in it, at any depth, replaced by any JSON, or left out."""
    if isinstance(valid, dict) and valid:
        inner = [_inside_dict(valid, key) for key in valid]
        left_out = st.sampled_from([{other: value for other, value in valid.items() if other != key} for key in valid])
        return st.one_of(JSON_VALUES, left_out, *inner)
    if isinstance(valid, list) and valid:
        return JSON_VALUES | _replaced(valid[0]).map(lambda value: [value, *valid[1:]])
    return JSON_VALUES


def _inside_dict(valid: dict[str, object], key: str) -> st.SearchStrategy[object]:
    return _replaced(valid[key]).map(lambda value: {**valid, key: value})
