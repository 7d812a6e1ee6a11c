"""Settings of topics and brokers are changed while they run, by each admin client that people already have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType, KafkaAdminClient

from regency.cluster.cluster import Cluster

pytestmark = pytest.mark.integration
SET, DELETE, APPEND = AlterConfigOpType.SET, AlterConfigOpType.DELETE, AlterConfigOpType.APPEND


class Confluent:
    """confluent-kafka's admin client, for one resource at a time."""

    def __init__(self, servers: str) -> None:
        self.client = AdminClient({"bootstrap.servers": servers})

    def change(self, kind: Any, name: str, *changes: tuple[str, Any, str | None]) -> None:
        entries = [ConfigEntry(key, value, incremental_operation=operation) for key, operation, value in changes]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        self.client.incremental_alter_configs([resource])[resource].result()

    def refused(self, kind: Any, name: str, *changes: tuple[str, Any, str | None]) -> str:
        with pytest.raises(KafkaException) as error:
            self.change(kind, name, *changes)
        return f"{error.value.args[0].name()}: {error.value.args[0].str()}"

    def described(self, kind: Any, name: str, key: str) -> tuple[str, int]:
        resource = ConfigResource(kind, name)
        found = self.client.describe_configs([resource])[resource].result()[key]
        return found.value, found.source


def acknowledged(servers: str) -> bool:
    """Whether a record that must be in sync with enough replicas is taken."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "retries": 0, "message.timeout.ms": 10_000})
    outcomes: list[object] = []
    producer.produce("t", "v", on_delivery=lambda error, _: outcomes.append(error is None))
    producer.flush(15)
    return outcomes == [True]


def test_settings_take_effect_at_once_and_return_to_what_lies_below(
    cluster: Cluster, create_topic: Callable[..., None], eventually: Any
) -> None:
    create_topic(cluster, partitions=1, replication=3)
    servers = cluster.bootstrap_servers
    confluent = Confluent(servers)
    assert acknowledged(servers)

    throttled = "leader.replication.throttled.replicas"
    confluent.change(ResourceType.TOPIC, "t", ("min.insync.replicas", SET, "4"), (throttled, APPEND, "0:1"))
    assert confluent.described(ResourceType.TOPIC, "t", "min.insync.replicas") == ("4", 1)
    assert confluent.described(ResourceType.TOPIC, "t", throttled) == ("0:1", 1)

    confluent.change(ResourceType.TOPIC, "t", ("min.insync.replicas", DELETE, None))
    for broker in ("1", "2", "3"):
        confluent.change(ResourceType.BROKER, broker, ("min.insync.replicas", SET, "2"))
    assert confluent.described(ResourceType.TOPIC, "t", "min.insync.replicas") == ("2", 2)
    assert confluent.described(ResourceType.BROKER, "2", "min.insync.replicas") == ("2", 2)

    ruler = cluster.controller_id()
    others = [broker for broker in (1, 2, 3) if broker != ruler]
    for broker in others:
        cluster.stop(broker)
    eventually(lambda: not acknowledged(servers), what="one replica is not enough any more")
    confluent.change(ResourceType.BROKER, str(ruler), ("min.insync.replicas", DELETE, None))
    eventually(lambda: acknowledged(servers), what="one replica is enough again")


def test_what_cannot_be_changed_is_refused_with_its_reason(cluster: Cluster, create_topic: Callable[..., None]) -> None:
    create_topic(cluster, partitions=1, replication=3)
    confluent = Confluent(cluster.bootstrap_servers)

    assert "INVALID_CONFIG: retention.mss: there is no such topic key; did you mean retention.ms?" in confluent.refused(
        ResourceType.TOPIC, "t", ("retention.mss", SET, "1")
    )
    assert "INVALID_REQUEST: num.partitions cannot be changed while a broker runs." in confluent.refused(
        ResourceType.BROKER, "1", ("num.partitions", SET, "3")
    )
    assert "UNKNOWN_TOPIC_OR_PART: There is no topic 'ghost'." in confluent.refused(
        ResourceType.TOPIC, "ghost", ("retention.ms", SET, "1")
    )


def test_kafka_python_changes_and_describes(cluster: Cluster, create_topic: Callable[..., None]) -> None:
    create_topic(cluster, partitions=1, replication=3, **{"retention.ms": "5000"})
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    topic = ConfigResourceType.TOPIC

    changed = client.alter_configs(
        [
            PythonResource(topic, "t", {"segment.bytes": "100000", "retention.ms": ("DELETE", None)}),
            PythonResource(ConfigResourceType.BROKER, "2", {"log.segment.bytes": "200000"}),
        ]
    )
    assert changed == {"topic": {"t": "OK"}, "broker": {"2": "OK"}}
    described = client.describe_configs(
        [PythonResource(topic, "t", {"segment.bytes": None, "retention.ms": None})],
        include_synonyms=True,
        config_filter="all",
    )["topic"]["t"]
    assert described["segment.bytes"]["synonyms"][0]["source"] == "DYNAMIC_TOPIC_CONFIG"
    assert described["retention.ms"]["value"] == "604800000"
    broker = client.describe_configs([PythonResource(ConfigResourceType.BROKER, "2")])["broker"]["2"]
    assert (broker["log.segment.bytes"]["value"], broker["log.segment.bytes"]["config_source"]) == (
        "200000",
        "DYNAMIC_BROKER_CONFIG",
    )

    whole = client.alter_configs([PythonResource(topic, "t", {"max.message.bytes": "9000"})], incremental=False)
    assert whole == {"topic": {"t": "OK"}}
    kept = client.describe_configs([PythonResource(topic, "t", {"max.message.bytes": None})])["topic"]["t"]
    assert kept["max.message.bytes"]["value"] == "9000"
    client.close()
