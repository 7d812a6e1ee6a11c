"""A task's producer: idempotent, with bounded memory, and certain of every record before the task says it is done.

Only failures are reported record by record. Nothing is left to report when the queue is empty, so an empty queue and no
failure mean that every record was acknowledged. Memory is bounded by emptying the queue each time `buffer_bytes` went
into it: waiting for room otherwise needs a report of every single record.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Protocol, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from regency.pipeline.errors import PipelineOptionInvalid
from regency.pipeline.sink_errors import DeliveryFailed
from regency.pipeline.sink_identity import Headers
from regency.pipeline.sink_settings import PREFIX, ProducerSettings, kafka_name

ANY_PARTITION: Final = -1
RECORDS_AT_ONCE: Final = 250_000
"""In the queue, whatever their size."""
BYTES_PER_RECORD: Final = 128
"""Kept for a record beside its bytes."""
LOOK_S: Final = 1.0
"""How long a wait goes on before a failure is looked for."""

_FIXED: Final = {
    "partitioner": "murmur2_random",
    "delivery.report.only.error": True,
    "queue.buffering.max.messages": 4 * RECORDS_AT_ONCE,
    "queue.buffering.max.kbytes": 2_097_151,
    "log_level": 3,
}
"""Java's partitioner, and limits that are never met since the queue is emptied before."""


class _Sent(Protocol):
    """What a report of delivery names."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...


class TopicProducer:
    """For one thread. Leave it without `finish`, as an error does, and what waits is dropped, not sent."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._failure: DeliveryFailed | None = None
        self._buffer_bytes = settings.buffer_bytes
        self._bytes = 0
        self._records = 0
        self._producer = _producer({**settings.librdkafka, **_FIXED, "on_delivery": self._reported})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if len(self._producer):
            self._producer.purge()
        self._producer.close()

    def send_all(self, topic: str, partition: int, records: list[dict[str, Any]], size: int) -> None:
        """Queue records {key, value} of `size` bytes in their order. Raises DeliveryFailed, also for earlier ones."""
        self._make_room(size, len(records))
        queued = self._producer.produce_batch(topic, records, partition=partition)
        if queued != len(records):
            refused = next(record["_error"] for record in records if "_error" in record)
            raise DeliveryFailed(topic, partition, refused)
        self._look()

    def send(self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Queue one record. The caller has made room. Raises DeliveryFailed."""
        try:
            self._producer.produce(topic, value, key, partition, headers=headers)  # type: ignore[arg-type]
        except KafkaException as error:
            raise DeliveryFailed(topic, partition, error.args[0]) from None

    def make_room(self, size: int, records: int) -> None:
        """Wait until `records` of `size` bytes fit; call before `send`. Raises DeliveryFailed."""
        self._make_room(size, records)
        self._look()

    def finish(self) -> None:
        """Return when every record was acknowledged. Raises DeliveryFailed."""
        while self._producer.flush(LOOK_S):
            self._raise_failure()
        self._raise_failure()
        self._bytes = self._records = 0

    def _make_room(self, size: int, records: int) -> None:
        size += records * BYTES_PER_RECORD
        if self._records and (self._bytes + size > self._buffer_bytes or self._records + records > RECORDS_AT_ONCE):
            self.finish()
        self._bytes += size
        self._records += records

    def _look(self) -> None:
        """Learn of failures so far, without waiting."""
        self._producer.poll(0)
        self._raise_failure()

    def _reported(self, error: KafkaError | None, sent: _Sent) -> None:
        if error is not None and self._failure is None:
            partition = sent.partition()
            self._failure = DeliveryFailed(sent.topic() or "?", -1 if partition is None else partition, error)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def check_settings(settings: ProducerSettings) -> None:
    """Raise PipelineOptionInvalid for a value the client refuses. Connects to nobody."""
    try:
        _producer({**settings.librdkafka, **_FIXED})
    except PipelineOptionInvalid:
        for name, value in settings.librdkafka.items():
            _check_setting(name, value)
        raise


def _check_setting(name: str, value: Any) -> None:
    """The client names what it refuses by names of its own: ask for one at a time."""
    try:
        _producer({name: value})
    except PipelineOptionInvalid:
        raise PipelineOptionInvalid(
            PREFIX + kafka_name(name),
            f"{str(value)[:200]!r} is no value it can have",
            hint="See docs/pipeline-sink.md.",
        ) from None


def _producer(conf: dict[str, Any]) -> Producer:
    try:
        return Producer(conf)
    except KafkaException as error:
        raise PipelineOptionInvalid(
            PREFIX + "*", f"the client refuses its settings: {error.args[0].str()}", hint="See docs/pipeline-sink.md."
        ) from None
