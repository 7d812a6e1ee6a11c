"""Ranges of partitions read from real agents as Arrow, compared with what a plain consumer gets."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from regency.clients.cluster_client import EARLIEST, LATEST, ClusterClient
from regency.clients.errors import CorruptRecords, DataLoss, ReadTimedOut
from regency.clients.partition_reader import Skipped
from regency.clients.settings import ClientSettings, client_settings
from regency.cluster.cluster import Cluster
from regency.kafka.record_batch import iter_batches
from regency.model.ids import Offset, TopicPartition
from regency.pipeline.records import partition_records
from regency.pipeline.records.partition_records import ReadTask, record_batches

pytestmark = pytest.mark.integration

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOW = int(time.time() * 1000) - 3_600_000
"""An hour ago: retention removes what is older than a week."""


class Row(NamedTuple):
    offset: int
    timestamp_type: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def settings(cluster: Cluster, **more: str) -> ClientSettings:
    given = {name.replace("_", "."): value for name, value in more.items()}
    return client_settings({"bootstrap.servers": cluster.bootstrap_servers, **given})


def create(cluster: Cluster, names: list[str], replicas: list[int], **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    given = {name.replace("_", "."): value for name, value in config.items()}
    topics = [NewTopic(name, 1, replica_assignment=[replicas], config=given) for name in names]
    for future in admin.create_topics(topics, operation_timeout=20, request_timeout=25).values():
        future.result(timeout=30)
    cluster.wait_healthy(20)


def leaders(cluster: Cluster, topics: list[str]) -> set[int]:
    partitions = cluster.snapshot().partitions
    found = [partitions[TopicPartition(topic, 0)].leadership for topic in topics]
    return {int(each.leader) for each in found if each is not None}


def write(cluster: Cluster, topic: str, count: int, codec: str = "none") -> None:
    """Records of all kinds in batches of about 10 kB: nulls, empty ones, headers that repeat, values that compress."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "acks": "all",
            "enable.idempotence": True,
            "compression.type": codec,
            "batch.size": 10_000,
            "linger.ms": 5,
        }
    )
    failures: list[object] = []
    for number in range(count):
        producer.produce(
            topic,
            key=None if number % 3 == 0 else b"key-%d" % number,
            value=(b"value %d " % number * (number % 40), None, b"", b"x" * (number % 300))[number % 4],
            headers=[("h", b"%d" % number), ("h", None), ("é", b"")][: number % 4],
            timestamp=NOW + number * 7,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        if number % 500 == 0:
            producer.poll(0)
    assert producer.flush(30) == 0
    assert failures == []


def by_consumer(cluster: Cluster, topic: str, count: int) -> list[Row]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "enable.auto.commit": False})
    rows: list[Row] = []
    try:
        consumer.assign([Assigned(topic, 0, OFFSET_BEGINNING)])
        while len(rows) < count:
            messages = consumer.consume(count - len(rows), timeout=20)
            assert messages, f"{len(rows)} of {count} came"
            for message in messages:
                assert message.error() is None
                kind, timestamp = message.timestamp()
                headers = [(name, content) for name, content in message.headers() or []]
                rows.append(Row(message.offset(), kind - 1, timestamp, message.key(), message.value(), headers))
    finally:
        consumer.close()
    return rows


def rows_of(batches: list[pa.RecordBatch]) -> list[Row]:
    rows: list[Row] = []
    for batch in batches:
        batch.validate(full=True)
        column = {name: batch.column(name) for name in batch.schema.names}
        milliseconds = [value // 1000 for value in column["timestamp"].view(pa.int64()).to_pylist()]
        headers = [[(each["key"], each["value"]) for each in some or ()] for some in column["headers"].to_pylist()]
        rows += [
            Row(*values)
            for values in zip(
                column["offset"].to_pylist(),
                column["timestampType"].to_pylist(),
                milliseconds,
                column["key"].to_pylist(),
                column["value"].to_pylist(),
                headers,
                strict=True,
            )
        ]
    return rows


def task(client: ClientSettings, topic: str, start: int, end: int, **changes: Any) -> ReadTask:
    return ReadTask(client, topic, None, 0, Offset(start), Offset(end), include_headers=True, **changes)


def test_all_codecs_while_the_leader_of_all_is_killed(
    new_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = new_cluster(settings={"replica.lag.time.max.ms": "2000"})
    count = 4_000
    topics = [f"t-{codec}" for codec in CODECS]
    create(cluster, topics, [1, 2, 3])
    create(cluster, ["t-log"], [1, 2, 3], message_timestamp_type="LogAppendTime")
    for topic, codec in zip([*topics, "t-log"], [*CODECS, "lz4"], strict=True):
        write(cluster, topic, count, codec)
    topics.append("t-log")
    expected = {topic: by_consumer(cluster, topic, count) for topic in topics}
    with ClusterClient(settings(cluster)) as client:
        ids = {name: facts.topic_id for name, facts in client.topics(topics).items()}
        ends = client.offsets({TopicPartition(topic, 0): LATEST for topic in topics})
        assert client.offsets({TopicPartition(topic, 0): EARLIEST for topic in topics}) == dict.fromkeys(ends, 0)
        assert client.offsets({TopicPartition(topics[0], 0): NOW + 701}) == {TopicPartition(topics[0], 0): 101}
        assert client.offsets({TopicPartition(topics[0], 0): NOW + 7 * count}) == {TopicPartition(topics[0], 0): None}
    assert set(ends.values()) == {count}

    monkeypatch.setattr(partition_records, "ENOUGH_BYTES", 50_000)
    servers = settings(cluster, max_partition_fetch_bytes="20000")
    reads = {
        topic: record_batches(
            ReadTask(servers, topic, ids[topic], 0, Offset(3), Offset(count - 2), include_headers=True)
        )
        for topic in topics
    }
    begun = {topic: [next(read)] for topic, read in reads.items()}
    assert leaders(cluster, topics) == {1}
    cluster.kill(1)
    for topic, read in reads.items():
        begun[topic] += read
        assert rows_of(begun[topic]) == expected[topic][3:-2], topic
        assert len(begun[topic]) > 3
    assert expected["t-log"][0].timestamp_type == 1
    assert 1 not in leaders(cluster, topics)


def test_ranges_that_cannot_be_read_say_why(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(brokers=1, settings={"default.replication.factor": "1", "log.segment.bytes": "50000"})
    create(cluster, ["t"], [1])
    write(cluster, "t", 1_000)
    client = settings(cluster)
    with ClusterClient(client) as asked:
        facts = asked.topics(["t", "nosuch"])
    assert list(facts) == ["t"]

    with pytest.raises(ReadTimedOut, match="t-0: offset 1000 did not come in 1500 milliseconds: its high watermark is"):
        list(record_batches(task(client, "t", 990, 1001, poll_timeout_ms=1500)))
    with pytest.raises(DataLoss, match="offsets 1100 to 1199 cannot be read any more: the log ends at 1000"):
        list(record_batches(task(client, "t", 1100, 1200, poll_timeout_ms=3000)))

    expected = by_consumer(cluster, "t", 1_000)
    damaged = _flip_a_bit(cluster.directory)
    skipped: list[Skipped] = []
    with pytest.raises(
        CorruptRecords, match=f"t-0: the record batch at offset {damaged.start} cannot be read: broker 1"
    ):
        list(record_batches(task(client, "t", 0, 1000)))
    rest = list(record_batches(task(client, "t", 0, 1000, fail_on_data_loss=False), on_skip=skipped.append))
    assert [(each.start, each.until) for each in skipped] == [(damaged.start, damaged.stop)]
    assert rows_of(rest) == [row for row in expected if row.offset not in damaged]

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.delete_topics(["t"], operation_timeout=20)["t"].result(timeout=30)
    with pytest.raises(DataLoss, match="t-0: offsets 5 to 9 cannot be read any more: the cluster has no such topic"):
        list(record_batches(task(client, "t", 5, 10, poll_timeout_ms=10_000)))
    create(cluster, ["t"], [1])
    write(cluster, "t", 100)
    old = ReadTask(client, "t", facts["t"].topic_id, 0, Offset(5), Offset(10))
    with pytest.raises(
        DataLoss, match="t-0: offsets 5 to 9 cannot be read any more: the topic was deleted, and another"
    ):
        list(record_batches(old))


def _flip_a_bit(directory: Path) -> range:
    """Damage a batch in the middle of the first segment; its offsets."""
    (segment,) = directory.glob("**/t-0/00000000000000000000.log")
    data = segment.read_bytes()
    batches = list(iter_batches(data))
    at, header = batches[len(batches) // 2]
    with segment.open("r+b") as file:
        file.seek(at + header.size - 2)
        file.write(bytes([data[at + header.size - 2] ^ 8]))
    return range(header.base_offset, header.next_offset)
