"""What tests of the pipeline's clients read back with another client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from regency.cluster.cluster import Cluster


@pytest.fixture
def values() -> Callable[[Cluster, str], list[bytes]]:
    """Values of partition 0 of a topic, in order, up to its end."""

    def read(cluster: Cluster, topic: str) -> list[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "g",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )

        def consumed() -> Iterator[bytes]:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            while True:
                message = consumer.poll(20)
                assert message is not None, "nothing came"
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    return
                yield message.value() or b""

        with closing(consumer):
            return list(consumed())

    return read
