"""Compacted topics on real clusters: every replica keeps the last record of every key, whatever breaks meanwhile."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from regency.cli.asking.wire import cluster_wire
from regency.cluster.cluster import Cluster
from regency.model.ids import BrokerId
from regency.model.ids import TopicPartition as Partition

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "200000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
KEYS = 2_000


class Table:
    """What was written to a topic, by key, and what is read back from its beginning."""

    def __init__(self, cluster: Cluster, **settings: Any) -> None:
        self._servers = cluster.bootstrap_servers
        self._producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "linger.ms": 5,
                "batch.size": 50_000,
                "enable.idempotence": True,
                **settings,
            }
        )
        self.last: dict[bytes, bytes | None] = {}
        self.failed: list[str] = []
        self.written = 0

    def write(self, count: int) -> None:
        for _ in range(count):
            number = self.written
            self.written += 1
            key = b"key-%d" % (number * 7919 % KEYS)
            value = None if number % 11 == 0 else b"value %d " % number + b"x" * 60
            self._produce(key, value)
            self.last[key] = value
        self._producer.flush(60)
        assert self.failed == []

    def _produce(self, key: bytes, value: bytes | None) -> None:
        while True:
            try:
                self._producer.produce("t", key=key, value=value, partition=0, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self.failed.append(str(error))

    def read(self) -> tuple[dict[bytes, bytes | None], int]:
        """The table as a consumer makes it up, and how many records it read for that."""
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": "none", "enable.auto.commit": False})
        where = TopicPartition("t", 0, 0)
        _, end = consumer.get_watermark_offsets(where, timeout=20)
        consumer.assign([where])
        table: dict[bytes, bytes | None] = {}
        count, last = 0, -1
        try:
            while consumer.position([where])[0].offset < end:
                message = consumer.poll(20)
                assert message is not None, f"nothing comes after {last}, and the topic ends at {end}"
                if message.error():
                    continue
                assert message.offset() > last
                count, last = count + 1, message.offset()
                table[message.key()] = message.value()
                if last == end - 1:
                    break
        finally:
            consumer.close()
        return table, count

    def assert_is_read_back(self) -> int:
        table, count = self.read()
        present = {key: value for key, value in table.items() if value is not None}
        assert present == {key: value for key, value in self.last.items() if value is not None}
        assert {key for key, value in table.items() if value is None} <= {
            key for key, value in self.last.items() if value is None
        }
        return count


def directory(cluster: Cluster, broker: int) -> Path:
    return Path(cluster.directory) / f"agent-{broker}" / "data"


def cleaned_to(cluster: Cluster, broker: int) -> int:
    """Up to where a broker has compacted its replica, by its checkpoint."""
    path = directory(cluster, broker) / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return next((int(line.split()[2]) for line in lines if line.startswith("t 0 ")), 0)


def active_segment(cluster: Cluster, broker: int) -> int:
    return int(segments(cluster, broker)[-1].name[:20])


@pytest.fixture
def compacting(new_cluster: Callable[..., Cluster], create_topic: Callable[..., None]) -> Cluster:
    """Three brokers that look for something to compact five times a second, and a topic."""
    cluster = new_cluster(settings={"replica.lag.time.max.ms": "2000", "log.cleaner.backoff.ms": "200"})
    create_topic(cluster, "t", partitions=1, replication=3, **COMPACTED)
    return cluster


def test_every_replica_keeps_the_last_record_of_every_key(compacting: Cluster, eventually: Callable[..., Any]) -> None:
    table = Table(compacting)
    table.write(30_000)

    def all_is_compacted() -> bool:
        return all(cleaned_to(compacting, each) == active_segment(compacting, each) for each in (1, 2, 3))

    eventually(all_is_compacted, within=60, what="every replica is compacted up to its active segment")
    count = table.assert_is_read_back()
    assert count < 30_000 / 2
    for leader in (1, 2, 3):  # what each of them has is the same table
        kill(compacting, leader, eventually)
        table.assert_is_read_back()
        compacting.restart(leader)
        compacting.wait_healthy(60)


def test_replicas_that_were_compacted_at_other_times_differ_and_agree(
    compacting: Cluster, eventually: Callable[..., Any]
) -> None:
    table = Table(compacting)
    table.write(10_000)
    kill(compacting, 3, eventually)
    table.write(10_000)
    eventually(lambda: all(cleaned_to(compacting, each) > 10_000 for each in (1, 2)), within=60)
    compacting.restart(3)
    compacting.wait_healthy(60)

    held = [b"".join(path.read_bytes() for path in segments(compacting, each)) for each in (1, 3)]
    assert held[0] != held[1]
    verified = subprocess.run(
        [
            sys.executable,
            "-m",
            "regency",
            "verify",
            "--bootstrap-server",
            compacting.bootstrap_servers,
            "replicas",
            "t",
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (verified.returncode, verified.stdout.splitlines()[-1]) == (0, "1 partition, replicas: 3 agrees.")


def segments(cluster: Cluster, broker: int) -> list[Path]:
    return sorted((directory(cluster, broker) / "t-0").glob("*.log"))


def leader_of(cluster: Cluster) -> int:
    leadership = cluster.snapshot().partitions[Partition("t", 0)].leadership
    return -1 if leadership is None else leadership.leader


def kill(cluster: Cluster, broker: int, eventually: Callable[..., Any]) -> None:
    """And wait until another broker leads, and all say so: librdkafka fails a request to a broker that it drops."""
    cluster.kill(broker)
    others = [BrokerId(each) for each in (1, 2, 3) if each != broker]

    def told() -> set[int | None]:
        with cluster_wire(cluster.bootstrap_servers) as wire:
            return {wire.topics(["t"], broker=each)[0].partitions[0].leader for each in others}

    eventually(lambda: (leader := leader_of(cluster)) not in (broker, -1) and told() == {leader}, within=30)


@pytest.mark.long
def test_leaders_that_die_while_they_compact_lose_nothing(compacting: Cluster, eventually: Callable[..., Any]) -> None:
    table = Table(compacting)
    for _ in range(4):
        table.write(8_000)
        leader = leader_of(compacting)
        kill(compacting, leader, eventually)
        table.write(1_000)
        compacting.restart(leader)
        compacting.wait_healthy(60)

    table.assert_is_read_back()
    for each in (1, 2, 3):
        names = {path.name for path in (directory(compacting, each) / "t-0").iterdir()}
        assert not {name for name in names if name.endswith(".swap")}


def test_records_without_key_are_refused_one_by_one(compacting: Cluster) -> None:
    refused: list[str] = []

    def delivered(error: Any, _message: Any) -> None:
        refused.append(error.name() if error else "")

    producer = Producer({"bootstrap.servers": compacting.bootstrap_servers, "linger.ms": 200, "retries": 0})
    for key in (b"a", None, b"b"):
        producer.produce("t", key=key, value=b"v" * 10, on_delivery=delivered)
    producer.flush(30)

    assert refused == ["INVALID_RECORD"] * 3
    for codec in ("gzip", "lz4", "zstd", "snappy"):
        table = Table(compacting, **{"compression.type": codec})
        table.write(100)
        table.assert_is_read_back()
