"""Idempotent producers that are idle for producer.id.expiration.ms are forgotten, and go on without an error."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from regency.broker_agent.log.producer_state import decode_snapshot
from regency.cluster.cluster import Cluster

pytestmark = pytest.mark.integration
HOUR_S = 3_600
SETTINGS = {"producer.id.expiration.ms": "600000", "producer.id.expiration.check.interval.ms": "100"}


def known_producers(cluster: Cluster) -> int:
    """How many the newest snapshot holds, as a clean stop leaves it."""
    (data,) = cluster.log_dirs(1)
    newest = max(data.glob("t-0/*.snapshot"))
    return len(decode_snapshot(newest, newest.read_bytes()))


def idempotent(cluster: Cluster) -> Producer:
    return Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "acks": "all"})


def write(producer: Producer, value: str, *, age_s: int) -> int:
    """The offset of a record that says that it is so old."""
    outcomes: list[tuple[object, int]] = []
    producer.produce(
        "t",
        value,
        timestamp=int((time.time() - age_s) * 1_000),
        on_delivery=lambda error, message: outcomes.append((error, message.offset())),
    )
    producer.flush(30)
    ((error, offset),) = outcomes
    assert error is None
    return offset


def test_an_idle_producer_is_forgotten_and_goes_on(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None], eventually: Any
) -> None:
    """By their records' timestamps, one producer has been idle for an hour and the other has not."""
    cluster = new_cluster(brokers=1, settings=SETTINGS)
    create_topic(cluster, partitions=1, replication=1)
    idle, busy = idempotent(cluster), idempotent(cluster)
    assert [write(idle, value, age_s=HOUR_S) for value in "ab"] == [0, 1]
    assert write(busy, "c", age_s=0) == 2
    cluster.restart(1)
    cluster.wait_healthy(30)
    assert write(idle, "d", age_s=HOUR_S) == 3
    assert write(busy, "e", age_s=0) == 4

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, 0)])
    read = [message.value() for message in consumer.consume(5, timeout=30)]
    consumer.close()
    assert read == [b"a", b"b", b"c", b"d", b"e"]

    def is_forgotten() -> bool:
        """Whether only the busy one is known after the broker has run for a while."""
        cluster.restart(1)
        cluster.wait_healthy(30)
        cluster.stop(1)
        return known_producers(cluster) == 1

    eventually(is_forgotten, within=90, what="the idle producer is forgotten, and the busy one is not")
