"""Paths of znodes: spelled as Kafka spells them, and read back."""

from __future__ import annotations

import pytest

from regency.model.ids import BrokerId, TopicPartition
from regency.model.znodes import paths as znode_paths

FLIGHTS_3 = TopicPartition("flights", 3)


def test_paths_are_kafkas() -> None:
    assert [
        znode_paths.broker(BrokerId(7)),
        znode_paths.topic("flights"),
        znode_paths.topic_partitions("flights"),
        znode_paths.topic_partition(FLIGHTS_3),
        znode_paths.partition_state(FLIGHTS_3),
        znode_paths.topic_config("flights"),
        znode_paths.broker_config(BrokerId(7)),
        znode_paths.delete_topic("flights"),
        znode_paths.isr_change_prefix(),
        znode_paths.log_dir_event_prefix(),
        znode_paths.config_change_prefix(),
    ] == [
        "/brokers/ids/7",
        "/brokers/topics/flights",
        "/brokers/topics/flights/partitions",
        "/brokers/topics/flights/partitions/3",
        "/brokers/topics/flights/partitions/3/state",
        "/config/topics/flights",
        "/config/brokers/7",
        "/admin/delete_topics/flights",
        "/isr_change_notification/isr_change_",
        "/log_dir_event_notification/log_dir_event_",
        "/config/changes/config_change_",
    ]


def test_parents_are_created_before_their_children_and_cover_every_path_that_is_written() -> None:
    parents = znode_paths.PERSISTENT_PARENTS
    for position, path in enumerate(parents):
        parent = path.rpartition("/")[0]
        assert parent == "" or parent in parents[:position], path
    for path in (
        znode_paths.CONTROLLER,
        znode_paths.REASSIGN_PARTITIONS,
        znode_paths.PREFERRED_ELECTION,
        znode_paths.CLUSTER_ID,
        znode_paths.DEFAULT_BROKER_CONFIG,
        znode_paths.broker(BrokerId(1)),
        znode_paths.topic("t"),
        znode_paths.topic_config("t"),
        znode_paths.delete_topic("t"),
        znode_paths.isr_change_prefix(),
        znode_paths.log_dir_event_prefix(),
        znode_paths.config_change_prefix(),
    ):
        parent = path.rpartition("/")[0]
        assert parent == "" or parent in parents, path


def test_parsing_gives_back_what_a_path_was_made_of() -> None:
    assert znode_paths.parse_topic(znode_paths.topic("flights")) == "flights"
    assert znode_paths.parse_broker(znode_paths.broker(BrokerId(0))) == 0
    assert znode_paths.parse_partition_state(znode_paths.partition_state(FLIGHTS_3)) == FLIGHTS_3


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/brokers/topics",
        "/brokers/topics/",
        "/brokers/ids",
        "/brokers/ids/",
        "/brokers/ids/x",
        "/brokers/ids/-1",
        "/brokers/ids/01",
        "/brokers/ids/²",
        "/brokers/ids/2147483648",
        "/brokers/ids/1/2",
        "/brokers/topics/t/partitions",
        "/brokers/topics/t/partitions/1",
        "/brokers/topics/t/partitions/x/state",
        "/brokers/topics//partitions/1/state",
        "/brokers/topics/t/partitions/1/state/more",
        "/config/topics/t",
    ],
)
def test_a_path_of_another_kind_is_none(path: str) -> None:
    assert znode_paths.parse_topic(path) is None
    assert znode_paths.parse_broker(path) is None
    assert znode_paths.parse_partition_state(path) is None
