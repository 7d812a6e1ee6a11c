"""One cluster of three agents and one Spark session for all tests with Spark: both take seconds to start.

Whoever kills a broker finds it started again afterwards, and every ISR full. Topics are the tests' own: choose a name
that nobody else has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest
from light_java import LIGHT_JAVA

from regency.cluster.cluster import Cluster
from regency.cluster.process.processes import ProcessState
from regency.cluster.zookeeper import EmbeddedZooKeeper
from regency.pipeline.session import spark_session

HERE = Path(__file__).parent
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": LIGHT_JAVA,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stopTimeout": "20s",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def shared_cluster(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(
        brokers=3,
        directory=tmp_path_factory.mktemp("spark") / "cluster",
        zookeeper_connect=zookeeper.connect_string + "/spark",
        settings={
            "replica.lag.time.max.ms": "2000",
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "log.retention.check.interval.ms": "500",
        },
    )
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def cluster(shared_cluster: Cluster, request: pytest.FixtureRequest, leave_evidence) -> Iterator[Cluster]:
    """The cluster all share, whole at the beginning and at the end of the test."""
    yield shared_cluster
    leave_evidence(request.node, shared_cluster)
    for broker in shared_cluster.broker_ids:
        if shared_cluster.broker_state(broker) is ProcessState.PAUSED:
            shared_cluster.resume(broker)
        elif shared_cluster.broker_state(broker) is not ProcessState.RUNNING:
            shared_cluster.restart(broker)
    shared_cluster.wait_healthy(30)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session on two cores of this machine that knows format("regency")."""
    with spark_session("tests", master="local[2]", settings=SETTINGS) as session:
        yield session


class Record(NamedTuple):
    """A record as a consumer has it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int = -1
    headers: tuple[tuple[str, bytes | None], ...] | None = None


Write = Callable[..., None]
Consume = Callable[[str], list[Record]]


@pytest.fixture
def write(cluster: Cluster) -> Write:
    """Writes (partition, key, value) to a topic: `write("t", [(0, b"k", b"v")], headers=…, timestamp=…)`."""

    def writing(topic: str, rows: Iterable[tuple[int, bytes | None, bytes | None]], **more: Any) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        failed: list[object] = []
        for partition, key, value in rows:
            while True:
                try:
                    producer.produce(
                        topic,
                        partition=partition,
                        key=key,
                        value=value,
                        on_delivery=lambda error, _: failed.append(error) if error else None,
                        **more,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0
        assert not failed

    return writing


@pytest.fixture
def consume(cluster: Cluster) -> Consume:
    """All records of a topic as a plain consumer reads them, by partition and offset."""

    def consuming(topic: str) -> list[Record]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        with closing(consumer):
            partitions = sorted(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
            found: list[Record] = []
            for number in partitions:
                low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, number), timeout=20)
                consumer.assign([confluent_kafka.TopicPartition(topic, number, low)])
                at = low
                while at < high:
                    for message in consumer.consume(min(high - at, 5000), timeout=20):
                        assert message.error() is None, message.error()
                        at = message.offset() + 1
                        headers = message.headers()
                        found.append(
                            Record(
                                number,
                                message.offset(),
                                message.key(),
                                message.value(),
                                message.timestamp()[1],
                                tuple(headers) if headers else None,
                            )
                        )
            return found

    return consuming


@pytest.fixture
def source(spark: Any, cluster: Cluster) -> Callable[..., Any]:
    """A batch read: `source("t", startingOffsets=...)` is a frame."""

    def reading(topic: str, **options: str) -> Any:
        return _with_options(spark.read, cluster, topic, options).load()

    return reading


@pytest.fixture
def stream(spark: Any, cluster: Cluster) -> Callable[..., Any]:
    """A stream: `stream("t", startingOffsets="earliest")` is a streaming frame."""

    def reading(topic: str, **options: str) -> Any:
        return _with_options(spark.readStream, cluster, topic, options).load()

    return reading


def _with_options(reader: Any, cluster: Cluster, topic: str, options: dict[str, str]) -> Any:
    reader = reader.format("regency").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    if "assign" not in options and "subscribePattern" not in options:
        reader = reader.option("subscribe", topic)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader
