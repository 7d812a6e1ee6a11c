"""What is in the topics that both connectors read, the same in every run but for its time."""

from __future__ import annotations

import time

from confluent_kafka import Producer

FLIGHTS, PLANES, NOTHING, LATER = "flights", "planes", "nothing", "later"
PARTITIONS = {FLIGHTS: 3, PLANES: 2, NOTHING: 1, LATER: 1}
"""Of the topics that are read. LATER gets more records when streams have read it to its end."""
ROWS = {FLIGHTS: 3000, PLANES: 500, LATER: 100}
"""Dealt to the partitions in turn."""
ROWS_LATER = 10
APART_MS = 1000
FLUSH_S = 60

FIRST_MS = int(time.time() * 1000) - 2 * ROWS[FLIGHTS] * APART_MS
"""Time of the first record, wall milliseconds: not long ago, or retention removes them while they are read."""


def fill(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
    for number in range(ROWS[FLIGHTS]):
        producer.produce(
            FLIGHTS,
            key=None if number % 7 == 0 else b"k%d" % (number % 50),
            value=None if number % 11 == 0 else b"v%d" % number,
            partition=number % PARTITIONS[FLIGHTS],
            timestamp=FIRST_MS + number * APART_MS,
            headers=None if number % 5 else [("h", b"x%d" % number), ("n", None), ("h", b"")],
        )
    for topic in (PLANES, LATER):
        _plain(producer, topic, ROWS[topic])
    _flush(producer)


def add_later(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    _plain(producer, LATER, ROWS_LATER)
    _flush(producer)


def _plain(producer: Producer, topic: str, rows: int) -> None:
    for number in range(rows):
        partition = number % PARTITIONS[topic]
        producer.produce(topic, key=b"b", value=b"w%d" % number, partition=partition, timestamp=FIRST_MS + number)


def _flush(producer: Producer) -> None:
    if left := producer.flush(FLUSH_S):
        raise RuntimeError(f"{left} records were not acknowledged within {FLUSH_S} s")
