"""DeleteRecords by real clients on real brokers, while a follower and the leader die."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition as Place

from regency.cli.asking.wire import cluster_wire
from regency.cli.exits import Exit
from regency.cli.main import cli
from regency.cluster.cluster import Cluster
from regency.model.ids import BrokerId

pytestmark = pytest.mark.integration

T0 = TopicPartition("t", 0)


def beginnings(cluster: Cluster) -> tuple[int, int]:
    """Where t-0 begins and ends, as a consumer is told."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none", "log_level": 0})
    try:
        return consumer.get_watermark_offsets(T0, timeout=30)
    finally:
        consumer.close()


def first_record(cluster: Cluster, offset: int) -> int:
    """The offset of the first record that a consumer from `offset` on gets; it begins anew where that is gone."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition("t", 0, offset)])
        (message,) = consumer.consume(1, timeout=30)
        return message.offset()
    finally:
        consumer.close()


def regency(cluster: Cluster, *words: str, status: int = Exit.DONE) -> list[dict[str, Any]]:
    arguments = [*words, "-o", "json", "--bootstrap-server", cluster.bootstrap_servers]
    done = CliRunner().invoke(cli, arguments, prog_name="regency")
    assert done.exit_code == status, (words, done.stdout, done.stderr)
    return json.loads(done.stdout)


def test_records_are_deleted_for_good_while_a_follower_and_the_leader_die(
    cluster: Cluster,
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    look: Callable[..., Any],
    eventually: Any,
) -> None:
    create_topic(cluster, partitions=1, min_insync_replicas="1")
    books(cluster, "t").write(1_000)
    java_like = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        assert java_like.delete_records({Place("t", 0): 100}, timeout_ms=30_000)
    finally:
        java_like.close()
    assert beginnings(cluster) == (100, 1_000)
    assert first_record(cluster, 5) == 100

    leader = look(cluster).leaders()[0]
    follower, other = (broker for broker in cluster.broker_ids if broker != leader)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})

    def delete(offset: int, timeout_s: float = 30) -> Any:
        return admin.delete_records([TopicPartition("t", 0, offset)], request_timeout=40, operation_timeout=timeout_s)[
            T0
        ]

    cluster.pause(follower)
    late = delete(200, timeout_s=1).exception(timeout=60)  # a second before its session can end
    assert late.args[0].code() == KafkaError.REQUEST_TIMED_OUT
    cluster.resume(follower)
    assert delete(200).result(timeout=60).low_watermark == 200

    cluster.kill(follower)
    waiting = delete(300)
    assert waiting.result(timeout=60).low_watermark == 300  # once the cluster knows that it is gone
    cluster.kill(leader)  # right after the answer
    eventually(lambda: look(cluster).leaders()[0] == other, within=40, what="the last one leads")
    cluster.start(leader)
    cluster.start(follower)
    cluster.wait_healthy(40)
    regency(cluster, "leaders", "elect", "--all")

    def named() -> set[int | None]:
        with cluster_wire(cluster.bootstrap_servers) as wire:
            return {wire.topics(["t"], broker=BrokerId(each))[0].partitions[0].leader for each in cluster.broker_ids}

    eventually(lambda: named() == {leader}, within=40, what="the first one leads again, and all say so")
    assert beginnings(cluster) == (300, 1_000)
    assert first_record(cluster, 0) == 300

    (row,) = regency(cluster, "topics", "truncate", "t", "--to-end", "--yes")
    assert row == {
        "topic": "t",
        "partition": 0,
        "below_offset": 1_000,
        "log_start": 1_000,
        "offsets_deleted": 700,
        "error": None,
    }
    assert beginnings(cluster) == (1_000, 1_000)
    (row,) = regency(cluster, "topics", "truncate", "t-0", "--before", "2000", "--yes", status=Exit.FAILED)
    assert "beyond its last committed record" in row["error"]
    books(cluster, "t").write(10)
    assert first_record(cluster, 1_000) == 1_000


def test_a_leader_that_is_killed_right_after_the_answer_begins_where_it_said(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None], books: Callable[..., Any]
) -> None:
    """Its checkpoint of log starts is due a minute later."""
    cluster = new_cluster(brokers=1)
    create_topic(cluster, partitions=1, replication=1)
    books(cluster, "t").write(100)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    assert admin.delete_records([TopicPartition("t", 0, 60)])[T0].result(timeout=60).low_watermark == 60
    (broker,) = cluster.broker_ids
    cluster.kill(broker)
    cluster.start(broker)
    cluster.wait_healthy(30)
    assert beginnings(cluster) == (60, 100)
    assert first_record(cluster, 0) == 60
