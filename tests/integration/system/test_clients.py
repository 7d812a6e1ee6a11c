"""The clients people already have: each produces, and each reads what the others produced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from regency.cluster.cluster import Cluster

pytestmark = pytest.mark.integration
COUNT = 200


def by_confluent(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True})
    failures: list[object] = []
    for number in range(COUNT):
        producer.produce(
            "t", f"confluent-{number}", on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(20) == 0
    assert failures == []


def by_kafka_python(servers: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=servers, acks="all")
    futures = [producer.send("t", f"kafka-python-{number}".encode()) for number in range(COUNT)]
    for future in futures:
        future.get(timeout=20)
    producer.close(timeout=10)


def by_aiokafka(servers: str) -> None:
    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=True)
        await producer.start()
        try:
            for future in [await producer.send("t", f"aiokafka-{number}".encode()) for number in range(COUNT)]:
                await future
        finally:
            await producer.stop()

    asyncio.run(run())


def read_by_confluent(servers: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", partition, 0) for partition in range(3)])
    values: list[str] = []
    while len(values) < count:
        messages = consumer.consume(count - len(values), timeout=20)
        assert messages, f"{len(values)} of {count} came"
        assert [message.error() for message in messages if message.error()] == []
        values += [(message.value() or b"").decode() for message in messages]
    consumer.close()
    return values


def read_by_kafka_python(servers: str, count: int) -> list[str]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, group_id=None, auto_offset_reset="earliest")
    consumer.assign([kafka.TopicPartition("t", partition) for partition in range(3)])
    values: list[str] = []
    while len(values) < count:
        batches = consumer.poll(timeout_ms=20_000, max_records=count - len(values))
        assert batches, f"{len(values)} of {count} came"
        values += [record.value.decode() for batch in batches.values() for record in batch]
    consumer.close()
    return values


def read_by_aiokafka(servers: str, count: int) -> list[str]:
    async def run() -> list[str]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, group_id=None, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition("t", partition) for partition in range(3)])
            await consumer.seek_to_beginning()
            values: list[str] = []
            while len(values) < count:
                batches = await consumer.getmany(timeout_ms=20_000)
                assert batches, f"{len(values)} of {count} came"
                values += [record.value.decode() for batch in batches.values() for record in batch]
            return values
        finally:
            await consumer.stop()

    return asyncio.run(run())


def test_three_clients_produce_and_each_reads_all_of_it(cluster: Cluster, create_topic: Callable[..., None]) -> None:
    create_topic(cluster)
    servers = cluster.bootstrap_servers
    for write in (by_confluent, by_kafka_python, by_aiokafka):
        write(servers)
    expected = sorted(
        f"{name}-{number}" for name in ("confluent", "kafka-python", "aiokafka") for number in range(COUNT)
    )
    for read in (read_by_confluent, read_by_kafka_python, read_by_aiokafka):
        assert sorted(read(servers, len(expected))) == expected, read.__name__


def test_a_topic_is_created_on_first_use_where_that_is_configured(cluster: Cluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": 20_000})
    outcomes: list[object] = []
    producer.produce("made-on-use", "v", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(25) == 0
    assert outcomes == [None]
    assert "made-on-use" in cluster.snapshot().topics
