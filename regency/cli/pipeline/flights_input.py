"""Writes the flights to the topic that the job flights reads: the demo's records, in the order of their hours."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from regency.cli.asking.kafka_clients import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_MS, client_config
from regency.cli.context import say
from regency.cli.exits import CommandFailed, Exit
from regency.cli.topics.making import WantedTopic, ensure_topic
from regency.clients.replicas.assignments import assignments
from regency.clients.topic_ends import ends_of
from regency.demo.flights import flights_by_hour
from regency.demo.ledger import Ledger
from regency.demo.workload import careful_producer, produce
from regency.model.words import counted

PARTITIONS = 6
REPLICATION_FACTOR = 3


def produce_flights(servers: str, topic: str, count: int | None) -> None:
    """Write the first `count` flights (None: all) to a topic, which is created where it is not there.

    Raises CommandFailed for a topic that has records, and where not all were acknowledged; FlightsMissing.
    """
    records = flights_by_hour(count)
    live = len(assignments(servers, (), timeout_ms=REQUEST_TIMEOUT_MS).nodes)
    replicas = min(REPLICATION_FACTOR, live)
    configs = {"min.insync.replicas": str(max(1, replicas - 1))}
    ensure_topic(servers, topic, WantedTopic(configs=configs, num_partitions=PARTITIONS, replication_factor=replicas))
    _refuse_held(servers, topic)
    ledger = Ledger()
    produce(careful_producer(servers), topic, records, ledger, on_sent=lambda _: None)
    if ledger.acked_count < len(records):
        reasons = "; ".join(f"{times} times {reason}" for reason, times in sorted(ledger.failures.items()))
        raise CommandFailed(
            f"{ledger.acked_count} of {len(records)} flights were acknowledged{reasons and f': {reasons}'}.",
            hint=f"`regency topics describe {topic}` shows how it is; begin again with another --topic.",
        )
    say(f"Wrote {counted(ledger.acked_count, 'flight')} to {topic}.")


def refuse_records(servers: str, topic: str) -> None:
    """Raises CommandFailed for a topic that has records; one that is not there has none. Makes nothing."""
    if topic in assignments(servers, (topic,), timeout_ms=REQUEST_TIMEOUT_MS).topics:
        _refuse_held(servers, topic)


def _refuse_held(servers: str, topic: str) -> None:
    held = _records_in(servers, topic)
    if held:
        raise CommandFailed(
            f"Topic {topic} has {counted(held, 'record')} already; --produce would write the flights a second time.",
            hint="Leave it out, or name another --topic.",
            status=Exit.REFUSED,
        )


def _records_in(servers: str, topic: str) -> int:
    consumer = Consumer({**client_config(servers), "group.id": "regency-flights"})
    try:
        partitions = consumer.list_topics(topic, timeout=CONNECT_TIMEOUT_S).topics[topic].partitions
        ends = [ends_of(consumer, TopicPartition(topic, number), CONNECT_TIMEOUT_S) for number in partitions]
    finally:
        consumer.close()
    return sum(high - low for low, high in ends)
