"""Notifications, admin requests and settings in ZooKeeper."""

from __future__ import annotations

import pytest

from regency.model.errors import ZnodeMalformed
from regency.model.ids import BrokerId, TopicPartition
from regency.model.znodes import (
    decode_config,
    decode_config_change,
    decode_isr_change,
    decode_log_dir_event,
    decode_preferred_election,
    encode_config,
    encode_config_change,
    encode_isr_change,
    encode_log_dir_event,
    encode_preferred_election,
)

A0, B1 = TopicPartition("a", 0), TopicPartition("b", 1)


def test_isr_changes_and_preferred_elections_list_partitions() -> None:
    data = b'{"version":1,"partitions":[{"topic":"a","partition":0},{"topic":"b","partition":1}]}'
    assert encode_isr_change([A0, B1]) == encode_preferred_election([A0, B1]) == data
    assert decode_isr_change("/i", data) == decode_preferred_election("/p", data) == (A0, B1)


def test_an_isr_change_of_any_version_is_read() -> None:
    assert decode_isr_change("/i", b'{"version":7,"partitions":[]}') == ()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"partitions":[{"topic":"../a","partition":0}]}', "partitions[0].topic: '../a' is no topic name"),
        (b'{"partitions":[{"topic":"a","partition":-1}]}', "$.partitions[0].partition"),
        (b'{"partitions":[{"topic":"a"}]}', "$.partitions[0]"),
        (b'{"version":1}', "partitions"),
    ],
)
def test_a_malformed_list_of_partitions_names_path_and_field(data: bytes, reason: str) -> None:
    with pytest.raises(ZnodeMalformed) as caught:
        decode_isr_change("/isr_change_notification/isr_change_0000000001", data)
    assert caught.value.path == "/isr_change_notification/isr_change_0000000001"
    assert reason in caught.value.reason


def test_a_log_dir_event_names_the_broker() -> None:
    assert encode_log_dir_event(BrokerId(3)) == b'{"version":1,"broker":3,"event":1}'
    assert decode_log_dir_event("/l", b'{"version":1,"broker":3,"event":1}') == 3
    with pytest.raises(ZnodeMalformed, match="event"):
        decode_log_dir_event("/l", b'{"version":1,"broker":3,"event":2}')


def test_settings_are_texts_in_order_and_fields_of_others_are_kept() -> None:
    previous = b'{"version":1,"config":{"old":"1"},"note":"x"}'
    data = encode_config({"retention.ms": "1000", "cleanup.policy": "delete"}, previous=previous)
    assert data == b'{"version":1,"config":{"cleanup.policy":"delete","retention.ms":"1000"},"note":"x"}'
    assert decode_config("/c", data) == {"cleanup.policy": "delete", "retention.ms": "1000"}


def test_settings_without_data_are_none() -> None:
    assert decode_config("/c", b"") == {}


@pytest.mark.parametrize("data", [b"{}", b'{"config":{"a":1}}', b'{"config":[]}', b'{"config":{"\xff":"1"}}'])
def test_malformed_settings_name_the_path(data: bytes) -> None:
    with pytest.raises(ZnodeMalformed, match="/config/topics/t: "):
        decode_config("/config/topics/t", data)


def test_a_config_change_names_the_path_in_both_versions() -> None:
    assert encode_config_change("topics/foo") == b'{"version":2,"entity_path":"topics/foo"}'
    assert decode_config_change("/n", b'{"version":2,"entity_path":"users/u/clients/c"}') == "users/u/clients/c"
    assert decode_config_change("/n", b'{"version":1,"entity_type":"topics","entity_name":"foo"}') == "topics/foo"


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":3,"entity_path":"topics/foo"}',
        b'{"version":2}',
        b'{"version":2,"entity_path":""}',
        b'{"version":2,"entity_path":"topics"}',
        b'{"version":2,"entity_path":"/foo"}',
        b'{"version":1,"entity_type":"topics"}',
        b'{"version":1,"entity_type":"users","entity_name":"u"}',
    ],
)
def test_a_malformed_config_change_names_the_path(data: bytes) -> None:
    with pytest.raises(ZnodeMalformed, match="/config/changes/config_change_0: "):
        decode_config_change("/config/changes/config_change_0", data)
