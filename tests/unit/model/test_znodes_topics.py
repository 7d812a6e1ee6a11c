"""Topic and state znodes: Kafka's bytes in every version, and what is said of bytes that are wrong."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from regency.model.errors import ZnodeMalformed
from regency.model.facts import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment, TopicAssignment
from regency.model.ids import BrokerId, ControllerEpoch, LeaderEpoch, TopicId, ZkVersion
from regency.model.znodes import decode_state, decode_topic, encode_state, encode_topic

TOPIC_ID = TopicId(UUID("99985381-8c0e-48a9-a167-597588d90e2d"))
STATE = LeaderIsrAndControllerEpoch(
    LeaderAndIsr(BrokerId(1), LeaderEpoch(7), (BrokerId(1), BrokerId(2), BrokerId(3)), ZkVersion(4)), ControllerEpoch(3)
)


def brokers(*ids: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in ids)


def topic(data: bytes) -> TopicAssignment:
    return decode_topic("/brokers/topics/t", data, topic="t", zk_version=ZkVersion(5), czxid=77)


def test_version_1_of_a_topic_has_replicas_only() -> None:
    assert topic(b'{"version":1,"partitions":{"0":[1,2],"1":[2,3]}}') == TopicAssignment(
        "t", {0: ReplicaAssignment(brokers(1, 2)), 1: ReplicaAssignment(brokers(2, 3))}, None, ZkVersion(5), 77
    )


def test_version_2_of_a_topic_has_a_reassignment_under_way() -> None:
    data = (
        b'{"version":2,"partitions":{"0":[4,5,1,2],"1":[1]},'
        b'"adding_replicas":{"0":[4,5]},"removing_replicas":{"0":[1,2]}}'
    )
    assert topic(data).partitions == {
        0: ReplicaAssignment(brokers(4, 5, 1, 2), brokers(4, 5), brokers(1, 2)),
        1: ReplicaAssignment(brokers(1)),
    }


def test_version_3_of_a_topic_has_an_id_and_is_written_back_as_it_was() -> None:
    data = (
        b'{"version":3,"topic_id":"mZhTgYwOSKmhZ1l1iNkOLQ","partitions":{"0":[1]},'
        b'"adding_replicas":{},"removing_replicas":{}}'
    )
    assert topic(data).topic_id == TOPIC_ID
    assert encode_topic(topic(data), previous=data) == data


def test_a_topic_without_data_has_no_partitions() -> None:
    assert topic(b"") == TopicAssignment("t", {}, None, ZkVersion(5), 77)


def test_writing_a_topic_keeps_fields_of_others_to_the_byte() -> None:
    previous = b'{"partitions":{"0":[9]},"version":4,"confluent_placement":{"x": 1.50, "n": 99999999999999999999}}'
    written = encode_topic(TopicAssignment("t", {0: ReplicaAssignment(brokers(1))}), previous=previous)
    assert written == (
        b'{"version":3,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{},'
        b'"confluent_placement":{"x": 1.50, "n": 99999999999999999999}}'
    )


def test_an_id_that_was_taken_from_a_topic_does_not_come_back_from_what_stood_there() -> None:
    previous = b'{"version":3,"topic_id":"mZhTgYwOSKmhZ1l1iNkOLQ","partitions":{"0":[1]}}'
    assert "topic_id" not in json.loads(encode_topic(TopicAssignment("t", {}), previous=previous))


def test_a_topic_cannot_be_written_over_something_that_is_no_object() -> None:
    with pytest.raises(ZnodeMalformed, match="/brokers/topics/t: "):
        encode_topic(TopicAssignment("t", {}), previous=b"[1]")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{}", "missing required field `partitions`"),
        (b'{"partitions":[1]}', "$.partitions"),
        (b'{"partitions":{"x":[1]}}', "`int`"),
        (b'{"partitions":{"-1":[1]}}', ">= 0"),
        (b'{"partitions":{"00":[1]}}', "`int`"),
        (b'{"partitions":{"0":[]}}', "partitions.0: no replicas"),
        (b'{"partitions":{"0":[1,2,1]}}', "partitions.0: broker 1 stands twice in [1, 2, 1]"),
        (b'{"partitions":{"0":[true]}}', "got `bool`"),
        (b'{"partitions":{"0":[1.0]}}', "got `float`"),
        (b'{"partitions":{"0":[NaN]}}', "malformed"),
        (b'{"partitions":{"0":[99999999999999999999999]}}', "<= 2147483647"),
        (b'{"partitions":{"0":[1]},"adding_replicas":{"0":[2]}}', "adding_replicas.0: [2] not among the replicas [1]"),
        (b'{"partitions":{"0":[1]},"removing_replicas":{"5":[1]}}', "removing_replicas.5: [1] not among"),
        (b'{"partitions":{"0":[1,2]},"removing_replicas":{"0":[2,2]}}', "removing_replicas.0: broker 2 stands twice"),
        (
            b'{"partitions":{"0":[1]},"adding_replicas":{"0":[1]},"removing_replicas":{"0":[1]}}',
            "under removing_replicas",
        ),
        (b'{"partitions":{"0":[1,2]},"removing_replicas":{"0":[1,2]}}', "leaves no replica"),
        (b'{"partitions":{},"topic_id":"short"}', "topic_id: 'short' is not the URL-safe base64"),
        (b'{"partitions":{},"topic_id":"AAAAAAAAAAAAAAAAAAAAAA"}', "topic_id: "),
        (b'{"partitions":{},"topic_id":7}', "$.topic_id"),
        (b'{"partitions":{},"other":"\xff"}', "not UTF-8 at byte 26"),
        (b'{"partitions":{},"other":' + b"[" * 100_000, "nested too deeply"),
        (b"null", "`object`"),
    ],
)
def test_a_malformed_topic_names_path_and_field(data: bytes, reason: str) -> None:
    with pytest.raises(ZnodeMalformed) as caught:
        topic(data)
    assert caught.value.path == "/brokers/topics/t"
    assert reason in caught.value.reason


def test_a_state_is_written_in_kafkas_bytes_and_read_back() -> None:
    data = encode_state(STATE)
    assert data == b'{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":7,"isr":[1,2,3]}'
    assert decode_state("/s", data, zk_version=ZkVersion(4)) == STATE


def test_a_state_may_have_no_leader_no_version_any_order_of_fields_and_a_recovery_state() -> None:
    data = b' {"isr":[],"leader_recovery_state":1,"leader":-1,"leader_epoch":0,"controller_epoch":0}\n'
    state = decode_state("/s", data, zk_version=ZkVersion(0))
    assert state == LeaderIsrAndControllerEpoch(LeaderAndIsr(BrokerId(-1), LeaderEpoch(0), ()), ControllerEpoch(0))
    assert not state.leader_and_isr.has_leader


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"leader": -2}, "`int` >= -1 - at `$.leader`"),
        ({"leader": None}, "$.leader"),
        ({"leader": True}, "got `bool` - at `$.leader`"),
        ({"leader_epoch": -1}, "$.leader_epoch"),
        ({"controller_epoch": 2**31}, "$.controller_epoch"),
        ({"isr": [1, 1]}, "isr: broker 1 stands twice in [1, 1]"),
        ({"isr": [-1]}, "$.isr[0]"),
        ({"isr": "1"}, "$.isr"),
    ],
)
def test_a_malformed_state_names_path_and_field(changed: dict[str, object], reason: str) -> None:
    content: dict[str, object] = {"controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 1, "isr": [1]}
    with pytest.raises(ZnodeMalformed) as caught:
        decode_state("/s", json.dumps({**content, **changed}).encode(), zk_version=ZkVersion(0))
    assert caught.value.path == "/s"
    assert reason in caught.value.reason


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"{", b'"text"', b"[" * 100_000, b"1e999", b'{"leader":1}'])
def test_bytes_that_are_no_state_are_malformed(data: bytes) -> None:
    with pytest.raises(ZnodeMalformed, match="/s: "):
        decode_state("/s", data, zk_version=ZkVersion(0))
