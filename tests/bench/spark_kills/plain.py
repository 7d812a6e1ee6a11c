"""What a plain confluent-kafka consumer has of a topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from zlib import crc32

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from regency.pipeline.sink.identity import HEADER
from spark_kills.verdict import Found, signature

PATIENCE_S = 30.0


def messages(servers: str, topic: str) -> Iterator[Message]:
    """Every message of a topic up to its ends. Raises RuntimeError where nothing comes."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    with closing(consumer):
        reading = set(consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in reading])
        while reading:
            some = consumer.consume(10_000, timeout=PATIENCE_S)
            if not some:
                raise RuntimeError(f"a plain consumer gets nothing of {topic}-{min(reading)}")
            for message in some:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    reading.discard(message.partition() or 0)
                else:
                    raise RuntimeError(f"a plain consumer of {topic}: {error.str()}")


def written(servers: str, topic: str) -> list[Found]:
    """The records of a topic that watched jobs wrote, and the brokers' time of appending."""
    found = []
    for message in messages(servers, topic):
        headers = dict(message.headers() or [])
        own = signature(headers[HEADER])  # type: ignore[arg-type]
        partition, offset = message.partition() or 0, message.offset() or 0
        found.append(Found(partition, offset, message.value() or b"", message.timestamp()[1], own))
    return found


def read(servers: str, topic: str) -> list[tuple[int, int, int, str | None]]:
    """Partition, offset, CRC-32 of the value and key of every record, in order."""
    found = []
    for message in messages(servers, topic):
        key = message.key()
        text = None if key is None else bytes(key).decode()
        found.append((message.partition() or 0, message.offset() or 0, crc32(message.value() or b""), text))
    return sorted(found)
