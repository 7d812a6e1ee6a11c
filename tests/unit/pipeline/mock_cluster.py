"""Librdkafka's own small cluster inside of this process, rows for it, and what a plain consumer finds there."""

from __future__ import annotations

from contextlib import closing
from itertools import count
from typing import NamedTuple

import confluent_kafka
import pyarrow as pa

from regency.pipeline.sink.options import WriteOptions, write_options

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
PARTITIONS = 4
"""Of each topic: the cluster makes any that is asked for."""
_names = count()


class MockCluster:
    """One broker, at `servers`, until it is told to die."""

    def __init__(self) -> None:
        self._keeper: confluent_kafka.Producer | None = confluent_kafka.Producer(
            {"test.mock.num.brokers": 1, "bootstrap.servers": "", "log_level": 0}
        )
        [broker] = self._keeper.list_topics(timeout=5).brokers.values()
        self.servers = f"{broker.host}:{broker.port}"

    def die(self) -> None:
        self._keeper = None


class Record(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


def new_topic() -> str:
    """The name of a topic that no test has used."""
    return f"t{next(_names)}"


def create(servers: str, topic: str) -> None:
    """Make a topic, as asking for it does."""
    confluent_kafka.Producer({"bootstrap.servers": servers}).list_topics(topic, timeout=5)


def options(servers: str, topic: str | None, **given: str) -> WriteOptions:
    """The sink's, with `topic` unless rows name theirs."""
    named = {} if topic is None else {"topic": topic}
    return write_options({"kafka.bootstrap.servers": servers, "kafka.linger.ms": "1", **named, **given}, stream=False)


def frame(**columns: pa.Array) -> pa.RecordBatch:
    """Rows of these columns."""
    return pa.record_batch(list(columns.values()), names=list(columns))


def consumed(servers: str, topic: str, expected: int) -> list[Record]:
    """All records of a topic, partition by partition in their order; they are as many as expected."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "g",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    found: list[Record] = []
    at_end = 0
    with closing(consumer):
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        while at_end < PARTITIONS:
            message = consumer.poll(10)
            assert message is not None, f"{len(found)} of {expected} records of {topic} came"
            if message.error() is None:
                found.append(Record(message.partition(), message.key(), message.value(), message.headers()))
            else:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                at_end += 1
    assert len(found) == expected
    return found
