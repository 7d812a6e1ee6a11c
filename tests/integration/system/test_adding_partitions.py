"""Partitions are added while a topic is written and read, by each admin client that people already have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions
from kafka.admin import KafkaAdminClient
from kafka.errors import InvalidPartitionsError

from regency.cluster.cluster import Cluster
from regency.model.facts import LeaderAndIsr, ReplicaAssignment
from regency.model.ids import BrokerId, TopicPartition

pytestmark = pytest.mark.integration


def error_of(future: Any) -> str:
    with pytest.raises(KafkaException) as refused:
        future.result()
    error = refused.value.args[0]
    return f"{error.name()}: {error.str()}"


def test_partitions_added_by_either_client_are_led_at_once_and_nothing_is_lost(
    cluster: Cluster, create_topic: Callable[..., None], books: Callable[..., Any], look: Callable[..., Any]
) -> None:
    create_topic(cluster, partitions=2, replication=3)
    servers = cluster.bootstrap_servers
    confluent = AdminClient({"bootstrap.servers": servers, "client.id": "growing"})
    kafka_python = KafkaAdminClient(bootstrap_servers=servers)
    kept = books(cluster, "t")

    def grow() -> None:
        confluent.create_partitions([NewPartitions("t", 4)], operation_timeout=20)["t"].result()
        assert set(look(cluster).leaders()) == {0, 1, 2, 3}
        kafka_python.create_partitions({"t": {"count": 6, "assignments": [[3, 1, 2], [2, 3, 1]]}}, timeout_ms=20_000)

    kept.write(2_000, midway=grow)

    views = look(cluster).views()
    assert views[TopicPartition("t", 4)].assignment == ReplicaAssignment((BrokerId(3), BrokerId(1), BrokerId(2)))
    leadership = views[TopicPartition("t", 5)].leadership
    assert isinstance(leadership, LeaderAndIsr)
    assert (leadership.leader, leadership.leader_epoch) == (2, 0)
    kept.assert_nothing_lost()
    asked = "did CREATE_PARTITIONS for User:ANONYMOUS, client 'growing' at 127.0.0.1 on PLAINTEXT"
    assert asked in cluster.log(cluster.controller_id()).read_text()

    assert "INVALID_PARTITIONS: Topic 't' already has 6" in error_of(
        confluent.create_partitions([NewPartitions("t", 6)])["t"]
    )
    assert "INVALID_REPLICA_ASSIGNMENT: Partition 6 names brokers that are not live: [8]" in error_of(
        confluent.create_partitions([NewPartitions("t", 7, [[8, 1, 2]])])["t"]
    )
    confluent.create_partitions([NewPartitions("t", 9)], validate_only=True)["t"].result()
    with pytest.raises(InvalidPartitionsError):
        kafka_python.create_partitions({"t": 3})
    kafka_python.close()
    assert len(look(cluster).views()) == 6
    cluster.wait_healthy(20)
