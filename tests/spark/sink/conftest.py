"""What a plain consumer reads back, as soon as it is there: tests of the sink read small topics many times."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

import confluent_kafka
import pytest

from regency.cluster.cluster import Cluster


class Found(NamedTuple):
    """A record as a consumer has it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@pytest.fixture
def consume(cluster: Cluster) -> Callable[[str], list[Found]]:
    """All records of a topic up to its ends, by partition and offset."""
    return lambda topic: _read_all(cluster.bootstrap_servers, topic)


def _read_all(servers: str, topic: str) -> list[Found]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
    )
    found: list[Found] = []
    with closing(consumer):
        reading = set(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in reading])
        while reading:
            message = consumer.poll(30)
            assert message is not None, f"nothing came of {topic}-{min(reading)}"
            error = message.error()
            if error is None:
                headers = tuple(message.headers() or ())
                found.append(Found(message.partition(), message.offset(), message.key(), message.value(), headers))
            else:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                reading.discard(message.partition())
    return sorted(found, key=lambda record: record[:2])
