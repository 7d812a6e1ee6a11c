"""Apache Kafka's brokers on the directories and the ZooKeeper tree of a cluster of ours, and ours on what they leave.

What docs/operate/migration.md promises: records of every compression, topics' settings, committed offsets of groups,
and idempotent producers, in both directions; and a topic that Kafka's brokers compact, which ours replicate and read.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from compat.suite import OUT, Case, Suite, Target, timed
from compat.suites import kafka_tools
from regency import Cluster
from regency.cluster.ports import reserve_ports

TOPIC: Final = "moved"
GROUP: Final = "mover"
PARTITIONS: Final = 6
ROUND: Final = 3_000
"""Records that are written before the first change of brokers, between the two, and after the second."""
READ_FIRST: Final = 1_000
"""Of them, how many a group has read and committed when the brokers change."""
COMPACTED: Final = "compacted"
COMPACTION: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "16384"}
KEYS: Final = 50
VALUES: Final = 5_000
"""Records of the compacted topic, of these keys by turns, that Kafka's brokers take."""
COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
WITHIN_S: Final = 90.0


class Changing:
    """One topic that is written, and read in a group, while the brokers below change. Collects what is wrong."""

    def __init__(self) -> None:
        self.sent = 0
        self.read: list[int] = []

    def write(self, servers: str) -> None:
        """A round of records, some by each compression, with idempotent producers."""
        refused: list[object] = []
        for compression in COMPRESSIONS:
            producer = Producer(
                {
                    "bootstrap.servers": servers,
                    "enable.idempotence": True,
                    "compression.type": compression,
                    "message.timeout.ms": 60_000,
                }
            )
            for _ in range(ROUND // len(COMPRESSIONS)):
                producer.produce(
                    TOPIC,
                    b"%d" % self.sent,
                    partition=self.sent % PARTITIONS,
                    on_delivery=lambda error, _: refused.extend([error] if error is not None else []),
                )
                self.sent += 1
            if producer.flush(60) or refused:
                raise KafkaException(f"{compression}: {refused[:1] or 'not acknowledged within 60 s'}")

    def go_on(self, servers: str, most: int) -> None:
        """Read on in the group, until so many are read in all, and commit that."""
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": GROUP,
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
            }
        )
        if not self.read:
            beginning = [TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
            consumer.commit(offsets=beginning, asynchronous=False)
        consumer.subscribe([TOPIC])
        deadline = time.monotonic() + WITHIN_S
        while len(self.read) < most and time.monotonic() < deadline:
            for message in consumer.consume(most - len(self.read), 0.5):
                if message.error() is not None:
                    raise KafkaException(message.error())
                self.read.append(int(message.value() or b""))
        consumer.commit(asynchronous=False)
        consumer.close()

    def wrong(self) -> str:
        """Nothing where each record was read once."""
        missing = set(range(self.sent)) - set(self.read)
        twice = len(self.read) - len(set(self.read))
        return f"{len(missing)} of {self.sent} were not read, {twice} were read twice" if missing or twice else ""


class Compacted:
    """A topic of one partition with few keys: Kafka's brokers compact it, and ours copy what is left of it."""

    def __init__(self) -> None:
        self.last: dict[bytes, bytes] = {}
        self.left: list[int] = []
        """Offsets of the records that Kafka's brokers have left."""

    def fill(self, servers: str) -> None:
        """Write, and wait until there are holes. Raises RuntimeError where there are none in time."""
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        for number in range(VALUES):
            key, value = b"key-%d" % (number % KEYS), b"%d" % number
            producer.produce(COMPACTED, value, key)
            self.last[key] = value
            if number % 500 == 0:
                producer.flush(60)
        if producer.flush(60):
            raise KafkaException("records of the compacted topic are not acknowledged within 60 s")
        deadline = time.monotonic() + WITHIN_S
        while len(self.left) not in range(1, VALUES // 2):
            if time.monotonic() > deadline:
                raise RuntimeError(f"Kafka's cleaner has left {len(self.left)} of {VALUES} after {WITHIN_S:.0f} s")
            time.sleep(1)
            self.left = [offset for offset, _, _ in _all_of(servers)]

    def wrong(self, servers: str) -> str:
        """Nothing where the last value of each key is there, and nothing that was not left before."""
        found = list(_all_of(servers))
        if {key: value for _, key, value in found} != self.last:
            return "the compacted topic has other last values"
        new = {offset for offset, _, _ in found} - set(self.left)
        return f"the compacted topic has records again at {sorted(new)[:3]}" if new else ""


def _all_of(servers: str) -> Iterator[tuple[int, bytes, bytes]]:
    """Offset, key and value of each record of the compacted topic."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "nobody", "enable.partition.eof": True})
    consumer.assign([TopicPartition(COMPACTED, 0, 0)])
    deadline = time.monotonic() + WITHIN_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                yield message.offset() or 0, message.key() or b"", message.value() or b""
            elif error.code() == KafkaError._PARTITION_EOF:
                return
            else:
                raise KafkaException(error)
        raise KafkaException(f"the end of {COMPACTED} is not reached within {WITHIN_S:.0f} s")
    finally:
        consumer.close()


@contextmanager
def brokers_of_kafka(classes: str, cluster: Cluster, directory: Path) -> Iterator[str]:
    """Start Kafka's brokers in place of the cluster's; gives their bootstrap servers. They leave in order."""
    ports = reserve_ports(len(cluster.broker_ids), owner=directory)
    processes = []
    try:
        for broker, port in zip(cluster.broker_ids, ports, strict=True):
            config = directory / f"kafka-{broker}.properties"
            config.write_text(
                f"broker.id={broker}\nlog.dirs={','.join(map(str, cluster.log_dirs(broker)))}\n"
                f"zookeeper.connect={cluster.zookeeper_connect}\nlisteners=PLAINTEXT://127.0.0.1:{port}\n"
                "log.cleaner.dedupe.buffer.size=16777216\nlog.cleaner.backoff.ms=1000\n"
            )
            command: list[str | Path] = ["java", "-Xmx384m", "-XX:+UseSerialGC", "-cp", classes, "kafka.Kafka", config]
            with (directory / f"kafka-{broker}.log").open("ab") as log:
                processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=directory))
        servers = ",".join(f"127.0.0.1:{port}" for port in ports)
        _wait_for(servers, len(ports), processes)
        yield servers
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(servers: str, count: int, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        if any(process.poll() is not None for process in processes):
            raise RuntimeError("a broker of Kafka ended as it started; see kafka-N.log")
        for address in servers.split(","):
            host, _, port = address.rpartition(":")
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) != 0:
                    break
        else:
            topics = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10)
            moved = topics.topics.get(TOPIC)
            if (
                len(topics.brokers) == count
                and moved is not None
                and all(
                    len(partition.isrs) == count and partition.leader >= 0 for partition in moved.partitions.values()
                )
            ):
                return
        time.sleep(0.5)
    raise RuntimeError(f"Kafka's brokers do not lead {TOPIC} with all in sync after {WITHIN_S:.0f} s; see kafka-N.log")


def there_and_back(suite: Suite) -> str:
    """Ours, Kafka's, ours again: one topic, one group, nothing lost, nothing twice.

    The broker that leads the compacted topic in the end has copied it from another one's files with holes.
    """
    classes = f"{kafka_tools.jars(suite)}/*"
    directory = OUT / "kafka-brokers-lab"
    shutil.rmtree(directory, ignore_errors=True)
    changing, compacted = Changing(), Compacted()
    with Cluster(brokers=3, directory=directory) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
        cluster.create_topic(COMPACTED, partitions=1, replication_factor=3, config=COMPACTION)
        changing.write(cluster.bootstrap_servers)
        changing.go_on(cluster.bootstrap_servers, READ_FIRST)
        cluster.stop(*cluster.broker_ids)
        with brokers_of_kafka(classes, cluster, directory) as servers:
            changing.write(servers)
            changing.go_on(servers, ROUND + READ_FIRST)
            compacted.fill(servers)
        cluster.start(*cluster.broker_ids)
        cluster.wait_healthy(60)
        changing.write(cluster.bootstrap_servers)
        changing.go_on(cluster.bootstrap_servers, 3 * ROUND)
        wrong = changing.wrong() or compacted.wrong(cluster.bootstrap_servers)
        _copy_alone(cluster)
        wrong = wrong or compacted.wrong(cluster.bootstrap_servers)
    if not wrong:
        shutil.rmtree(directory, ignore_errors=True)
    return wrong


def _copy_alone(cluster: Cluster) -> None:
    """Have a follower copy the compacted topic anew, and lead it as the only one left."""
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(COMPACTED, timeout=10)
    leader = topics.topics[COMPACTED].partitions[0].leader
    copier = next(broker for broker in cluster.broker_ids if broker != leader)
    cluster.stop(copier)
    for log_dir in cluster.log_dirs(copier):
        shutil.rmtree(Path(log_dir) / f"{COMPACTED}-0", ignore_errors=True)
    cluster.start(copier)
    cluster.wait_healthy(60)
    cluster.stop(*(broker for broker in cluster.broker_ids if broker != copier))


def run(suite: Suite, _: Target) -> list[Case]:
    """One case."""
    return [timed("ours, Kafka's on the same directories, ours again", lambda: there_and_back(suite))]


SUITE: Final = Suite(
    name="kafka-brokers",
    what=f"Apache Kafka {kafka_tools.VERSION}'s brokers on directories and ZooKeeper of a cluster, and back",
    programs=("java", "mvn"),
    run=run,
    brokers=0,
)
