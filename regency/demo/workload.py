"""Produces records through an ordinary Kafka client and reads all of them back, keeping books in a Ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from regency.clients.topic_ends import ends_of
from regency.demo.ledger import Ledger
from regency.model.errors import RegencyError

NUMBER_HEADER = "n"
"""Record header that carries a record's number in decimal."""

_READ_BATCH = 5_000
_ENDS_S = 30.0
_SILENT: Callable[[object], None] = lambda _: None  # noqa: E731 - librdkafka wants a callable; its errors come as results


class WorkloadStuck(RegencyError):
    """Reading back made no progress within its time."""

    code: ClassVar[str] = "workload_stuck"
    retriable: ClassVar[bool] = True


def careful_producer(bootstrap_servers: str, settings: Mapping[str, str | int] | None = None) -> Producer:
    """An ordinary producer that waits for every replica in sync and never writes twice; `settings` are more of its."""
    return Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "error_cb": _SILENT,
            "log_level": 0,
            **(settings or {}),
        }
    )


def produce(
    producer: Producer,
    topic: str,
    records: Iterable[tuple[bytes, bytes]],
    ledger: Ledger,
    *,
    on_sent: Callable[[int], None],
    flush_timeout_s: float = 60.0,
) -> None:
    """Produce (key, value) `records` through a `careful_producer`; `on_sent` is called with each number before it goes.

    Returns when every record was acknowledged or given up (see `Ledger.failures`), or `flush_timeout_s` after the last
    record was handed over.
    """
    for key, value in records:
        number = ledger.sent(key, value)
        on_sent(number)
        callback = _Delivery(ledger, number)
        while True:
            try:
                producer.produce(
                    topic, key=key, value=value, headers=[(NUMBER_HEADER, b"%d" % number)], on_delivery=callback
                )
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    deadline = time.monotonic() + flush_timeout_s
    while len(producer) and time.monotonic() < deadline:
        producer.poll(0.1)


def read_back(
    bootstrap_servers: str, topic: str, ledger: Ledger, *, on_read: Callable[[int], None], stall_timeout_s: float = 30.0
) -> None:
    """Read every partition of `topic` from start to end into the ledger; `on_read` gets how many records came.

    Raises WorkloadStuck when nothing arrives for `stall_timeout_s` before the end, EndsUnknown when that is not told.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"regency-read-back-{topic}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "error_cb": _SILENT,
            "log_level": 0,
        }
    )
    try:
        ends = _ends(consumer, topic)
        consumer.assign(
            [TopicPartition(topic, partition, low) for partition, (low, high) in ends.items() if low < high]
        )
        left = {partition: high for partition, (low, high) in ends.items() if low < high}
        last_progress = time.monotonic()
        while left:
            messages = consumer.consume(_READ_BATCH, timeout=0.5)
            for message in messages:
                _enter(message, ledger, left)
            if messages:
                last_progress = time.monotonic()
                on_read(len(messages))
            elif time.monotonic() - last_progress > stall_timeout_s:
                raise WorkloadStuck(
                    f"nothing came from {topic} for {stall_timeout_s:.0f} s; unread partitions: {sorted(left)}."
                )
    finally:
        consumer.close()


class _Delivery:
    """Enters one record's outcome into the books."""

    __slots__ = ("_ledger", "_number", "_sent_s")

    def __init__(self, ledger: Ledger, number: int) -> None:
        self._ledger = ledger
        self._number = number
        self._sent_s = time.monotonic()

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        if error is None and partition is not None:
            self._ledger.acked(self._number, partition, self._sent_s, time.monotonic())
        else:
            self._ledger.failed(str(error))


def _ends(consumer: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    partitions = consumer.list_topics(topic, timeout=_ENDS_S).topics[topic].partitions
    return {partition: ends_of(consumer, TopicPartition(topic, partition), _ENDS_S) for partition in sorted(partitions)}


def _enter(message: Message, ledger: Ledger, left: dict[int, int]) -> None:
    error = message.error()
    partition, offset = message.partition(), message.offset()
    if error is not None or partition is None or offset is None:
        if error is not None and not error.retriable():
            raise KafkaException(error)
        return
    if partition in left and offset >= left[partition] - 1:
        del left[partition]
    headers = message.headers() or []
    number = next((header[1] for header in headers if header[0] == NUMBER_HEADER), None)
    if isinstance(number, bytes) and number.isdigit():
        ledger.read(int(number), message.key() or b"", message.value() or b"")
    else:
        ledger.unreadable()
