"""A log that was compacted elsewhere is put on a leader of real brokers: followers, crashes, moves and readers.

Its files are made byte by byte with what Kafka's cleaner leaves: offsets missing between batches and at their ends, the
last batch of a producer without its records, a segment that ends below the next, a tombstone with a delete horizon.
"""

from __future__ import annotations

import json
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition
from kafka.admin import KafkaAdminClient

from regency.cli.main import cli
from regency.cluster.cluster import Cluster
from regency.kafka.record_batch import compute_crc, iter_batches, read_header
from regency.model.ids import BrokerId

pytestmark = pytest.mark.integration

DELETE_HORIZON = 0x40
ACTIVE = 40
"""Base offset of the second segment."""


def varint(value: int) -> bytes:
    number, octets = (value << 1) ^ (value >> 63), bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*octets, number))


def record(delta: int, key: bytes, value: bytes | None, *, time_delta: int = 0) -> bytes:
    body = b"\0" + varint(time_delta) + varint(delta) + varint(len(key)) + key
    body += (varint(-1) if value is None else varint(len(value)) + value) + varint(0)
    return varint(len(body)) + body


def batch(
    base: int,
    last_delta: int,
    records: list[bytes],
    *,
    now_ms: int,
    epoch: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
    first_ms: int | None = None,
) -> bytes:
    """A batch of format 2 with whatever records are left of it."""
    body = b"".join(records)
    content = bytearray(
        struct.pack(
            ">qiibIhiqqqhii",
            *(base, 49 + len(body), epoch, 2, 0, attributes, last_delta),
            *(now_ms if first_ms is None else first_ms, now_ms, *producer, len(records)),
        )
        + body
    )
    struct.pack_into(">I", content, 17, compute_crc(content, read_header(content)))
    return bytes(content)


def compacted(now_ms: int) -> tuple[list[bytes], list[bytes]]:
    """Batches of the cleaned segment and of the active one: offsets 0 to 49, leader epochs 0 and 2."""
    horizon = now_ms + 86_400_000
    cleaned = [
        batch(3, 4, [record(0, b"a", b"1"), record(3, b"b", b"2")], now_ms=now_ms, producer=(7, 0, 0)),
        batch(12, 9, [record(5, b"c", b"3")], now_ms=now_ms),
        batch(22, 2, [], now_ms=now_ms, producer=(7, 0, 5)),
        batch(
            28, 3, [record(1, b"d", None, time_delta=-86_400_000)],
            now_ms=now_ms, epoch=2, attributes=DELETE_HORIZON, first_ms=horizon,
        ),
    ]  # fmt: skip
    active = [
        batch(40, 1, [record(0, b"e", b"4"), record(1, b"a", b"5")], now_ms=now_ms, epoch=2),
        batch(46, 3, [record(3, b"f", b"6")], now_ms=now_ms, epoch=2, producer=(9, 1, 0)),
    ]
    return cleaned, active


LEFT = [(3, b"a", b"1"), (6, b"b", b"2"), (17, b"c", b"3"), (29, b"d", None),
        (40, b"e", b"4"), (41, b"a", b"5"), (49, b"f", b"6")]  # fmt: skip
"""Offset, key and value of every record."""


def log_dir(cluster: Cluster, broker: int) -> Path:
    return next(path for path in cluster.log_dirs(broker) if (path / "t-0").is_dir()) / "t-0"


def put(directory: Path, cleaned: list[bytes], active: list[bytes]) -> None:
    """Have these files be the log; indexes and all else are to be found out from them."""
    for path in directory.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    (directory / f"{0:020d}.log").write_bytes(b"".join(cleaned))
    (directory / f"{ACTIVE:020d}.log").write_bytes(b"".join(active))
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n2 26\n")
    for name, offset in (("recovery-point-offset-checkpoint", ACTIVE), ("replication-offset-checkpoint", 50)):
        (directory.parent / name).write_text(f"0\n1\nt 0 {offset}\n")


def batches(directory: Path) -> list[tuple[int, int, int, int]]:
    """Offsets, epoch and checksum of every batch in the files."""
    return [
        (header.base_offset, header.last_offset, header.leader_epoch, header.crc)
        for path in sorted(directory.glob("*.log"))
        for _, header in iter_batches(path.read_bytes())
    ]


def consume(cluster: Cluster, count: int) -> list[tuple[int, bytes, bytes | None]]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        found = consumer.consume(count, timeout=40)
        assert not any(message.error() for message in found)
        return [(message.offset(), message.key(), message.value()) for message in found]
    finally:
        consumer.close()


def regency(*words: str) -> str:
    done = CliRunner().invoke(cli, list(words), prog_name="regency")
    assert done.exit_code == 0, (words, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture
def compacted_cluster(
    new_cluster: Callable[..., Cluster],
    create_topic: Callable[..., None],
    look: Callable[..., Any],
    eventually: Any,
) -> tuple[Cluster, BrokerId, list[BrokerId]]:
    """A leader with the compacted log and two followers that have nothing yet: the cluster, and who is what."""
    cluster = new_cluster(log_dirs=2, settings={"replica.lag.time.max.ms": "2000"})
    create_topic(cluster, partitions=1, min_insync_replicas="1")
    leader = look(cluster).leaders()[0]
    followers = [broker for broker in cluster.broker_ids if broker != leader]
    cluster.stop(*followers)
    eventually(lambda: look(cluster).isrs()[0] == (leader,), within=40, what="the leader alone is in sync")
    cluster.stop(leader)
    put(log_dir(cluster, leader), *compacted(int(time.time() * 1000)))
    for broker in followers:
        shutil.rmtree(log_dir(cluster, broker))
    cluster.start(leader)
    eventually(lambda: look(cluster).leaders()[0] == leader, within=40, what="it leads again")
    cluster.start(*followers)
    cluster.wait_healthy(60)
    return cluster, leader, followers


@pytest.mark.timeout(300)
def test_followers_take_a_compacted_log_and_keep_it_when_they_are_killed(
    compacted_cluster: tuple[Cluster, BrokerId, list[BrokerId]], look: Callable[..., Any], eventually: Any
) -> None:
    cluster, leader, followers = compacted_cluster
    assert consume(cluster, len(LEFT)) == LEFT
    kept = batches(log_dir(cluster, leader))
    assert [(first, last) for first, last, *_ in kept] == [(3, 7), (12, 21), (22, 24), (28, 31), (40, 41), (46, 49)]
    for broker in followers:
        eventually(lambda broker=broker: batches(log_dir(cluster, broker)) == kept, within=40, what=f"{broker} has all")

    cluster.kill(*cluster.broker_ids)  # no recovery point of a follower covers what it has fetched
    cluster.start(*cluster.broker_ids)
    cluster.wait_healthy(60)
    assert [batches(log_dir(cluster, broker)) for broker in cluster.broker_ids] == [kept] * 3
    cluster.kill(leader)
    eventually(lambda: look(cluster).leaders()[0] in followers, within=40, what="a follower leads")
    assert consume(cluster, len(LEFT)) == LEFT
    cluster.start(leader)
    cluster.wait_healthy(60)
    assert batches(log_dir(cluster, leader)) == kept


@pytest.mark.timeout(300)
def test_a_compacted_log_is_moved_looked_at_and_written_to(
    compacted_cluster: tuple[Cluster, BrokerId, list[BrokerId]], books: Callable[..., Any], eventually: Any
) -> None:
    cluster, leader, _ = compacted_cluster
    source = log_dir(cluster, leader).parent
    kept = batches(source / "t-0")
    target = next(path for path in cluster.log_dirs(leader) if path != source).absolute()
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        client.alter_replica_log_dirs({("t", 0, leader): str(target)})
    finally:
        client.close()
    eventually(
        lambda: (target / "t-0").is_dir() and not (source / "t-0").exists(), within=60, what="the replica is moved"
    )
    assert batches(target / "t-0") == kept

    facts = [json.loads(line) for line in regency("log", "dump", str(target / "t-0"), "-o", "json").splitlines()]
    gaps = {(each["last_offset"], each["next_offset"]) for each in facts if each["type"] == "gap"}
    assert gaps >= {(7, 12), (24, 28), (41, 46)}
    assert not [each for each in facts if each["type"] == "damage"]
    verified = json.loads(
        regency("verify", "replicas", "t", "-o", "json", "--bootstrap-server", cluster.bootstrap_servers)
    )
    assert (verified["agrees"], verified["complete"]) == (True, True)

    books(cluster, "t").write(100)
    assert consume(cluster, len(LEFT) + 100)[: len(LEFT)] == LEFT
    eventually(
        lambda: len({batches(log_dir(cluster, broker))[-1] for broker in cluster.broker_ids}) == 1,
        what="all have what was written since",
    )
