"""What a repeated task of the effectively-once sink finds in real logs: all that is there, or an error."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from regency.clients.cluster_client import CONSUMER, DEBUGGING, EARLIEST, ClusterClient
from regency.clients.settings import ClientSettings
from regency.cluster.cluster import Cluster
from regency.model.ids import TopicPartition
from regency.pipeline.errors import TailGone
from regency.pipeline.sink.floors import WritePlan
from regency.pipeline.sink.identity import WriteId
from regency.pipeline.sink.options import WriteOptions, write_options
from regency.pipeline.sink.producer import TopicProducer
from regency.pipeline.sink.rows import rows_of
from regency.pipeline.sink.tail import topic_ends
from regency.pipeline.sink.tasks import TaskPlace, TaskWrote, send_named, write_once

pytestmark = pytest.mark.integration

WRITE = WriteId(UUID(int=5), 3)
TOPIC = "t"
PARTITION = TopicPartition(TOPIC, 0)
ROWS = 300


def options(cluster: Cluster) -> WriteOptions:
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": TOPIC, "effectivelyOnce": "true"}
    return write_options({**given, "kafka.batch.size": "4000"}, stream=False)


def batch() -> pa.RecordBatch:
    return pa.record_batch([pa.array([b"%d".ljust(200, b".") % row for row in range(ROWS)])], names=["value"])


def planned(settings: ClientSettings, *, begun: bool = False) -> WritePlan:
    with ClusterClient(settings) as client:
        return WritePlan(topic_ends(client, (TOPIC,)), begun=begun, planned_ms=int(time.time() * 1000))


def attempt(given: WriteOptions, plan: WritePlan, number: int) -> TaskWrote:
    return write_once([batch()], given, plan, WRITE, TaskPlace(0, number))


def log_end(settings: ClientSettings) -> int:
    """What the leader's log ends with, committed or not."""
    with ClusterClient(settings) as client:
        return client._ends([PARTITION], DEBUGGING, client._connections.now_ms + 10_000)[PARTITION].offset


def log_start(settings: ClientSettings) -> int:
    with ClusterClient(settings) as client:
        return client.offsets({PARTITION: EARLIEST})[PARTITION] or 0


def test_what_a_killed_attempt_left_above_the_high_watermark_is_found(
    new_cluster: Callable[..., Cluster],
    create_topic,
    eventually,
    values: Callable[[Cluster, str], list[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While a follower in the ISR stands still nothing is committed, and consumers see nothing."""
    cluster = new_cluster(settings={"replica.lag.time.max.ms": "60000"}, session_timeout_ms=20_000)
    create_topic(cluster, TOPIC, partitions=1)
    given = options(cluster)
    settings = given.producer.client
    plan = planned(settings)
    leader = cluster.snapshot().partitions[PARTITION].leadership.leader
    follower = max(broker for broker in cluster.broker_ids if broker != leader)  # not whom clients ask first
    cluster.pause(follower)
    with pytest.raises(KeyboardInterrupt), TopicProducer(given.producer) as producer:
        send_named(producer, rows_of(batch(), TOPIC), WRITE.task_prefix(0), 0, None)
        eventually(lambda: log_end(settings) > 0, what="some of it is in the leader's log")
        raise KeyboardInterrupt
    left = log_end(settings)
    assert left < ROWS, "the rest waits until that is acknowledged"

    seen: list[int] = []

    def seen_by_consumers(client: ClusterClient, partitions: list[TopicPartition], replica: int, deadline: int) -> dict:
        found = asked(client, partitions, replica, deadline)
        if replica == CONSUMER:
            seen.append(found[PARTITION].offset)
            if len(seen) == 1:
                cluster.resume(follower)
        return found

    asked = ClusterClient._ends
    monkeypatch.setattr(ClusterClient, "_ends", seen_by_consumers)
    wrote = attempt(given, plan, 1)
    assert (seen[0], seen[-1]) == (0, left), "what consumers saw when it began to read back, and when it did"
    assert (wrote.rows, wrote.repeated) == (ROWS, left)
    assert Counter(values(cluster, TOPIC)) == Counter(batch().column("value").to_pylist())


def test_a_tail_that_is_gone_ends_the_write_and_says_what_is_gone(
    new_cluster: Callable[..., Cluster], create_topic, eventually
) -> None:
    cluster = new_cluster(
        brokers=1, settings={"default.replication.factor": "1", "log.retention.check.interval.ms": "200"}
    )
    create_topic(cluster, TOPIC, partitions=1, replication=1, segment_bytes="20000", retention_bytes="-1")
    given = options(cluster)
    settings = given.producer.client
    attempt(given, planned(settings), 0)
    plan = planned(settings)
    change_retention(cluster, "1")
    eventually(lambda: log_start(settings) > 0, what="retention removes what was written before the batch began")
    change_retention(cluster, "-1")
    attempt(given, plan, 0)
    assert attempt(given, plan, 1).repeated == ROWS, "what is gone lies below the floor: nothing is missing"

    change_retention(cluster, "1")
    eventually(lambda: log_start(settings) > ROWS, what="retention removes what the attempt wrote")
    with pytest.raises(
        TailGone, match=rf"t-0: offsets {ROWS} to .* cannot be read any more: the log begins at"
    ) as gone:
        attempt(given, plan, 1)
    assert "An earlier attempt of the batch may have written them" in gone.value.message
    assert "remove sinks/regency" in gone.value.hint
    assert log_end(settings) == 2 * ROWS, "nothing was written"


def change_retention(cluster: Cluster, size: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    entry = ConfigEntry("retention.bytes", size, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(timeout=30)
