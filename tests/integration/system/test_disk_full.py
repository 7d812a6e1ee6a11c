"""A small real filesystem fills up under a real broker: at an append, at a roll, at a checkpoint.

What was acknowledged stays, the client gets an error, the directory goes offline while the others go on; with space
again a restart heals it. Needs to mount, so it runs as root; tests/unit/log/test_log_disk_full.py runs everywhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from regency.cluster.cluster import Cluster

pytestmark = pytest.mark.integration

MANY = 20_000
VALUE = b"x" * 1_000
PLAIN = {"group.id": "none", "enable.partition.eof": True, "enable.auto.commit": False}
"""A consumer that reads by itself: one that commits waits for a coordinator when it is closed."""


class SmallDisk:
    """A filesystem in memory, of some size and with room for some files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mount(self, options: str) -> None:
        self.path.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", self.path], check=True, capture_output=True)

    def grow(self) -> None:
        subprocess.run(["mount", "-o", "remount,size=64m,nr_inodes=10k", self.path], check=True, capture_output=True)

    def fill(self) -> None:
        with (self.path / "ballast").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

    def allow_files(self, more: int) -> None:
        """Have room for only so many files more, and for any number of bytes."""
        now = os.statvfs(self.path)
        options = f"remount,size=64m,nr_inodes={now.f_files - now.f_ffree + more}"
        subprocess.run(["mount", "-o", options, self.path], check=True, capture_output=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Where the data of broker 1 of the test's first cluster will be."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small filesystem")
    disk = SmallDisk(tmp_path / "cluster-1" / "agent-1" / "data")
    try:
        disk.mount("size=4m")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"a small filesystem cannot be mounted here: {error.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", disk.path], check=False, capture_output=True)


@pytest.fixture
def start(small_disk: SmallDisk, new_cluster: Callable[..., Cluster]) -> Callable[..., Cluster]:
    """Starts brokers 1, on the small disk, and 2, with a topic `small` on 1 alone and `t` on 2 alone."""

    def begin(**settings: str) -> Cluster:
        cluster = new_cluster(brokers=2, settings={each.replace("_", "."): value for each, value in settings.items()})
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        topics = [NewTopic(name, 1, replica_assignment=[[broker]]) for name, broker in (("small", 1), ("t", 2))]
        for future in admin.create_topics(topics, operation_timeout=20, request_timeout=25).values():
            future.result(timeout=30)
        cluster.wait_healthy(20)
        return cluster

    return begin


def produce(cluster: Cluster, topic: str, count: int) -> tuple[list[int], set[str]]:
    """Numbers of records that were acknowledged, of so many or until one fails, and the errors of the others."""
    acknowledged: list[int] = []
    errors: set[str] = set()
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "acks": "all",
            "linger.ms": 0,
            "batch.size": 20_000,
            "retries": 0,
            "message.timeout.ms": 4_000,
            "log_level": 0,
        }
    )

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.append(int(message.key()))
        else:
            errors.add(error.name())

    for number in range(count):
        producer.produce(topic, VALUE, str(number), on_delivery=delivered)
        producer.poll(0)
        if errors:
            break
        if number % 100 == 99:
            producer.flush(20)
    producer.flush(20)
    return acknowledged, errors


def consume(cluster: Cluster, topic: str) -> list[int]:
    """Numbers of all records of a topic of one partition."""
    consumer = ConfluentConsumer({**PLAIN, "bootstrap.servers": cluster.bootstrap_servers})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[int] = []
        while True:
            message = consumer.poll(20)
            assert message is not None, f"nothing for 20 s after {len(found)} records"
            error = message.error()
            if error is None:
                found.append(int(message.key()))
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise KafkaException(error)
    finally:
        consumer.close()


def log_of_agent(cluster: Cluster) -> str:
    return (cluster.directory / "agent-1" / "agent.log").read_text()


def assert_heals(cluster: Cluster, small_disk: SmallDisk, acknowledged: list[int]) -> None:
    """The other broker goes on; with space again and a restart everything acknowledged is there, and more follows."""
    assert log_of_agent(cluster).count(f"log directory {small_disk.path} is offline") == 1
    assert produce(cluster, "t", 10) == (list(range(10)), set())
    small_disk.grow()
    cluster.kill(1)
    cluster.restart(1)
    cluster.wait_healthy(60)
    found = consume(cluster, "small")
    assert set(acknowledged) <= set(found)
    assert produce(cluster, "small", 10)[1] == set()
    assert len(consume(cluster, "small")) == len(found) + 10


def ends(cluster: Cluster) -> bool:
    """Whether broker 1 has ended because it has no directory left."""
    return "the last log directory has failed" in log_of_agent(cluster)


def test_a_disk_that_fills_up_at_an_append(start: Any, small_disk: SmallDisk, eventually: Any) -> None:
    cluster = start()
    acknowledged, errors = produce(cluster, "small", MANY)
    assert 100 < len(acknowledged) < MANY
    assert errors
    eventually(lambda: ends(cluster), what="broker 1 ends with its last directory")
    assert f"small-0/{0:020d}.log" in log_of_agent(cluster)
    assert_heals(cluster, small_disk, acknowledged)


def test_a_broker_with_another_directory_goes_on(
    start: Any, small_disk: SmallDisk, eventually: Any, tmp_path: Path
) -> None:
    cluster = start()
    cluster.stop(1)
    config = cluster.directory / "agent-1" / "server.properties"
    beside = tmp_path / "beside"
    lines = [
        f"log.dirs={small_disk.path},{beside}" if each.startswith("log.dirs") else each
        for each in config.read_text().splitlines()
    ]
    config.write_text("\n".join(lines) + "\n")
    with (tmp_path / "agent.out").open("wb") as out:
        agent = subprocess.Popen([sys.executable, "-m", "regency", "agent", "--config", config], stdout=out, stderr=out)
    try:
        cluster.wait_healthy(40)
        acknowledged, errors = produce(cluster, "small", MANY)
        assert 100 < len(acknowledged) < MANY
        assert "KAFKA_STORAGE_ERROR" in errors
        told = f"log directory {small_disk.path} is offline, with all its replicas"
        eventually(lambda: told in (tmp_path / "agent.out").read_text(), what="the directory goes offline")
        small_disk.grow()
        assert produce(cluster, "small", 1)[0] == [], "a directory that failed is not used again before a restart"
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        elsewhere = NewTopic("elsewhere", 1, replica_assignment=[[1]])
        admin.create_topics([elsewhere], operation_timeout=20, request_timeout=25)["elsewhere"].result(timeout=30)
        assert produce(cluster, "elsewhere", 10) == (list(range(10)), set())
        assert (beside / "elsewhere-0").is_dir()
        assert agent.poll() is None
    finally:
        agent.terminate()
        agent.wait(60)
    with (tmp_path / "agent-again.out").open("wb") as out:
        agent = subprocess.Popen([sys.executable, "-m", "regency", "agent", "--config", config], stdout=out, stderr=out)
    try:
        cluster.wait_healthy(60)
        assert set(acknowledged) <= set(consume(cluster, "small"))
    finally:
        agent.terminate()
        agent.wait(60)


def test_a_disk_that_has_no_room_for_another_segment(start: Any, small_disk: SmallDisk, eventually: Any) -> None:
    cluster = start(log_segment_bytes="100000")
    small_disk.allow_files(10)
    acknowledged, errors = produce(cluster, "small", MANY)
    assert 100 < len(acknowledged) < MANY
    assert errors
    eventually(lambda: ends(cluster), what="broker 1 ends with its last directory")
    assert "No space left on device" in log_of_agent(cluster)
    assert_heals(cluster, small_disk, acknowledged)


def test_a_disk_that_has_no_room_for_a_checkpoint(start: Any, small_disk: SmallDisk, eventually: Any) -> None:
    cluster = start(replica_high_watermark_checkpoint_interval_ms="1000")
    assert produce(cluster, "small", 1) == ([0], set())
    checkpoint = small_disk.path / "replication-offset-checkpoint"
    eventually(lambda: checkpoint.exists() and "small 0 1" in checkpoint.read_text(), what="the first checkpoint")
    small_disk.fill()
    acknowledged, _ = produce(cluster, "small", 1)
    assert acknowledged == [0], "the page that the segment has begun has room for another record"
    eventually(lambda: ends(cluster), what="broker 1 ends with its last directory")
    assert f"{checkpoint}." in log_of_agent(cluster)
    (small_disk.path / "ballast").unlink()
    assert_heals(cluster, small_disk, acknowledged)
