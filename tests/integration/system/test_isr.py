"""Who is in sync: a follower that stops fetching leaves, one that catches up returns, and too few refuse acks=all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from regency.cluster.cluster import Cluster

pytestmark = pytest.mark.integration


def a_pure_follower(cluster: Cluster, leader: int) -> int:
    return next(broker for broker in cluster.broker_ids if broker not in (leader, cluster.controller_id()))


def outcome_of_one(cluster: Cluster, topic: str = "t") -> KafkaError | None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "retries": 0, "message.timeout.ms": 15_000}
    )
    outcomes: list[KafkaError | None] = []
    producer.produce(topic, "v", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(20) == 0
    return outcomes[0]


def known_isr(cluster: Cluster, broker: int) -> list[int]:
    """The ISR of t-0 as a broker tells its clients: it is told so after the broker applied it as a leader."""
    servers = cluster.bootstrap_servers.split(",")[cluster.broker_ids.index(broker)]
    metadata = AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics("t", timeout=10)
    return metadata.topics["t"].partitions[0].isrs


def test_isr_shrinks_when_a_follower_stops_fetching_and_refills_when_it_returns(
    new_cluster: Callable[..., Cluster],
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    look: Callable[..., Any],
    eventually: Any,
) -> None:
    cluster = new_cluster(settings={"replica.lag.time.max.ms": "1500"}, session_timeout_ms=20_000)
    create_topic(cluster, partitions=1)
    leader = look(cluster).leaders()[0]
    follower = a_pure_follower(cluster, leader)
    epoch = look(cluster).views()[("t", 0)].leadership.leader_epoch
    kept = books(cluster, "t")
    kept.write(2_000)
    cluster.pause(follower)
    kept.write(2_000)
    eventually(lambda: look(cluster).in_no_isr(follower), what="the leader drops the paused follower")
    leadership = look(cluster).views()[("t", 0)].leadership
    assert (leadership.leader, leadership.leader_epoch) == (leader, epoch), (
        "the leader shrank its ISR, not the controller"
    )
    cluster.resume(follower)
    eventually(lambda: len(look(cluster).isrs()[0]) == 3, what="the follower is in sync again")
    kept.assert_nothing_lost()


def test_acks_all_is_refused_while_too_few_replicas_are_in_sync(
    cluster: Cluster, create_topic: Callable[..., None], look: Callable[..., Any], eventually: Any
) -> None:
    create_topic(cluster, partitions=1, min_insync_replicas="2")
    leader = look(cluster).leaders()[0]
    others = [broker for broker in cluster.broker_ids if broker != leader]
    assert outcome_of_one(cluster) is None
    for broker in others:
        cluster.kill(broker)
    eventually(lambda: known_isr(cluster, leader) == [leader], what="the leader knows that only it is in sync")
    refused = outcome_of_one(cluster)
    assert refused is not None
    assert refused.code() == KafkaError.NOT_ENOUGH_REPLICAS
    for broker in others:
        cluster.restart(broker)
    cluster.wait_healthy(30)
    assert outcome_of_one(cluster) is None
