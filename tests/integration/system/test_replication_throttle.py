"""Throttled replication on real brokers: a moved replica catches up at the rate, who is in sync is served at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import TopicPartition as ClientPartition
from kafka.admin import KafkaAdminClient

from regency.cluster.cluster import Cluster

pytestmark = pytest.mark.integration
RECORD = b"x" * 1_000
RECORDS = 1_500
SLOW, CRAWLING = 400_000, 1_000
"""Bytes per second. What is older than the three windows is forgotten, so at least a fetch per three seconds passes."""


@pytest.fixture
def three(new_cluster: Callable[..., Cluster]) -> Cluster:
    settings = {"replica.fetch.max.bytes": "65536", "replication.quota.window.num": "3"}
    return new_cluster(brokers=3, settings=settings)


@pytest.fixture
def admin(three: Cluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=three.bootstrap_servers.split(","))
    yield client
    client.close()


def change(three: Cluster, kind: Any, name: str, key: str, value: str | None) -> None:
    operation = AlterConfigOpType.SET if value is not None else AlterConfigOpType.DELETE
    entry = ConfigEntry(key, value, incremental_operation=operation)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    client = AdminClient({"bootstrap.servers": three.bootstrap_servers})
    client.incremental_alter_configs([resource])[resource].result()


def write(three: Cluster, topic: str, count: int) -> None:
    """Have so many records acknowledged by all who are in sync."""
    producer = Producer({"bootstrap.servers": three.bootstrap_servers, "acks": "all", "batch.size": 16_000})
    outcomes: list[object] = []
    for _ in range(count):
        producer.produce(topic, RECORD, on_delivery=lambda error, _: outcomes.append(error))
        producer.poll(0)
    producer.flush(60)
    assert outcomes == [None] * count


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_moved_replica_catches_up_at_the_rate_and_one_in_sync_is_not_slowed(
    three: Cluster,
    admin: KafkaAdminClient,
    create_topic: Callable[..., None],
    look: Callable[[Cluster], Any],
    eventually: Any,
    side: str,
) -> None:
    for topic in ("t", "u"):
        create_topic(three, topic, partitions=1, replication=2)
        write(three, topic, RECORDS)
    here = {topic: look(three).isrs(topic)[0] for topic in ("t", "u")}
    leaders = {topic: look(three).leaders(topic)[0] for topic in ("t", "u")}
    target = {topic: next(each for each in three.broker_ids if each not in here[topic]) for topic in here}
    rate_of = {topic: str((leaders if side == "leader" else target)[topic]) for topic in here}

    def begin(topic: str, rate: int) -> None:
        listed = f"0:{rate_of[topic]}"
        change(three, ResourceType.TOPIC, topic, f"{side}.replication.throttled.replicas", listed)
        change(three, ResourceType.BROKER, rate_of[topic], f"{side}.replication.throttled.rate", str(rate))
        told = f"at most {rate} bytes/s {'sent' if side == 'leader' else 'fetched'}"
        log = three.log(int(rate_of[topic]))
        eventually(lambda: told in log.read_text(errors="replace"), what="the broker knows the rate")
        if side == "leader":
            known = f"settings of topic {topic} changed"
            eventually(lambda: known in log.read_text(errors="replace"), what="the leader knows the list")
        asked = {ClientPartition(topic, 0): [*here[topic], target[topic]]}
        assert admin.alter_partition_reassignments(asked) == dict.fromkeys(asked)

    def is_there(topic: str) -> bool:
        return target[topic] in look(three).isrs(topic)[0]

    def size(topic: str) -> int:
        data = three.log_dirs(target[topic])
        return sum(path.stat().st_size for each in data for path in each.glob(f"{topic}-0/*.log"))

    began = time.monotonic()
    begin("t", SLOW)
    eventually(lambda: is_there("t"), within=60, what="the replica has caught up")
    assert size("t") / (time.monotonic() - began) <= SLOW * 1.3

    change(three, ResourceType.BROKER, rate_of["t"], f"{side}.replication.throttled.rate", None)
    begin("u", CRAWLING)
    eventually(lambda: size("u") > 0, within=30, what="the replica has begun")
    write(three, "u", 100)
    held = size("u")
    assert held < RECORDS * len(RECORD) / 2, "it is held back while those in sync go on"
    assert not is_there("u")
    change(three, ResourceType.BROKER, rate_of["u"], f"{side}.replication.throttled.rate", None)
    eventually(lambda: is_there("u"), within=30, what="the replica has caught up without a rate")
    assert size("u") > (RECORDS + 100) * len(RECORD)
