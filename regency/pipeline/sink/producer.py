"""A task's producer: idempotent, with bounded memory, and certain of every record before the task says it is done.

Only failures are reported record by record. Nothing is left to report when the queue is empty, so an empty queue and no
failure mean that every record was acknowledged. Memory is bounded by emptying the queue each time `buffer_bytes` went
into it: waiting for room otherwise needs a report of every single record.

Spark tells a Python worker nothing when it gives up a task, or dies: it closes the connection the rows come by, and
lets the worker go on. To who reads rows that looks like their end, if it happens between two batches; and who waits for
brokers to acknowledge what was queued would wait, and send, for long. So the task looks for that itself (`TaskLife`).
"""

from __future__ import annotations

import inspect
import select
import sys
import time
from types import TracebackType
from typing import Any, Final, Protocol, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from regency.clients.cluster_client import ClusterClient
from regency.clients.errors import ClusterUnavailable
from regency.pipeline.errors import DeliveryFailed, PipelineError, PipelineOptionInvalid
from regency.pipeline.sink.identity import Headers
from regency.pipeline.sink.settings import PREFIX, ProducerSettings, kafka_name

_CLOSED: Final = select.POLLHUP | select.POLLERR | select.POLLNVAL | getattr(select, "POLLRDHUP", 0)


class TaskGivenUp(PipelineError):
    """Spark has closed the connection to this task: another attempt of it may begin at any time, or its driver died."""

    code = "pipeline_task_given_up"


class TaskLife:
    """The connection a task's rows come by, as its own thread finds it."""

    def __init__(self, descriptor: int | None) -> None:
        self._poll = None
        if descriptor is not None:
            self._poll = select.poll()
            self._poll.register(descriptor, _CLOSED)

    @classmethod
    def of_this_task(cls) -> Self:
        """Call it inside of a task. Where no connection is found, as outside of Spark, a task lives for ever.

        PySpark (4.2, 4.3) hands out no connection; it is a local variable of the caller of the worker's main.
        """
        frame = inspect.currentframe()
        while frame is not None:
            descriptor = _descriptor(frame.f_locals.get("infile"))
            if descriptor is not None:
                return cls(descriptor)
            frame = frame.f_back
        return cls(None)

    def check(self) -> None:
        """Raise TaskGivenUp if the connection is closed. Does not wait."""
        if self._poll is not None and self._poll.poll(0):
            raise TaskGivenUp(
                "Spark has given up this task.", hint="Nothing is wrong with it; what it queued is dropped."
            )


def _descriptor(file: object) -> int | None:
    try:
        number: int = file.fileno()  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return None
    return number


ANY_PARTITION: Final = -1
RECORDS_AT_ONCE: Final = 250_000
"""In the queue, whatever their size."""
BYTES_PER_RECORD: Final = 128
"""Kept for a record beside its bytes."""
LOOK_S: Final = 0.2
"""How long a wait goes on before it is looked for failures, and whether Spark still wants the task."""
FIRST_PATIENCE_S: Final = 2.0
"""How long a broker may take when the cluster is looked for; twice as long each time."""
TOLD_AFTER_S: Final = 5.0
"""How long nothing may be learned of the cluster until a line says so."""

_FIXED: Final = {
    "partitioner": "murmur2_random",
    "delivery.report.only.error": True,
    "queue.buffering.max.messages": 4 * RECORDS_AT_ONCE,
    "queue.buffering.max.kbytes": 2_097_151,
    "log_level": 2,
}
"""Java's partitioner, limits that are never met since the queue is emptied before, and no line for every connection
that fails: what is wrong comes with the error that ends the task."""


class _Sent(Protocol):
    """What a report of delivery names."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...


class TopicProducer:
    """For one thread. Leave it without `finish`, as an error does, and what waits is dropped, not sent.

    So it is when Spark gives up the task (`life`), which is looked for wherever it waits.
    """

    def __init__(self, settings: ProducerSettings, life: TaskLife | None = None) -> None:
        self._life = life or TaskLife.of_this_task()
        self._failure: DeliveryFailed | None = None
        self._servers = settings.client.servers
        self._max_block_ms = settings.max_block_ms
        self._reached = False
        self._fitted: set[str] = set()
        self._cluster = ClusterClient(settings.client)
        self._trouble = ""
        self._buffer_bytes = settings.buffer_bytes
        self._bytes = 0
        self._records = 0
        callbacks = {"on_delivery": self._reported, "error_cb": self._told}
        self._conf = {**settings.librdkafka, **_FIXED, **callbacks}
        self._producer = Producer(self._conf)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if len(self._producer):
            self._producer.purge()
        self._producer.close()
        self._cluster.close()

    def send_all(self, topic: str, partition: int, records: list[dict[str, Any]], size: int) -> None:
        """Queue records {key, value} of `size` bytes in their order.

        Raises DeliveryFailed, also for earlier ones, and ClusterUnavailable.
        """
        self._prepare(topic)
        self._make_room(size, len(records))
        queued = self._producer.produce_batch(topic, records, partition=partition)
        if queued != len(records):
            refused = next(record["_error"] for record in records if "_error" in record)
            raise DeliveryFailed(topic, partition, refused, self._servers)
        self._look()

    def send(self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Queue one record. The caller has made room. Raises DeliveryFailed, ClusterUnavailable."""
        self._prepare(topic)
        try:
            self._producer.produce(topic, value, key, partition, headers=headers)  # type: ignore[arg-type]
        except KafkaException as error:
            raise DeliveryFailed(topic, partition, error.args[0], self._servers) from None

    def make_room(self, size: int, records: int) -> None:
        """Wait until `records` of `size` bytes fit; call before `send`. Raises DeliveryFailed."""
        self._make_room(size, records)
        self._look()

    def finish(self) -> None:
        """Return when every record was acknowledged. Raises DeliveryFailed, TaskGivenUp."""
        self._life.check()
        while self._producer.flush(LOOK_S):
            self._raise_failure()
            self._life.check()
        self._raise_failure()
        self._bytes = self._records = 0

    def _prepare(self, topic: str) -> None:
        """Before the first record of a topic. Raises ClusterUnavailable, DeliveryFailed for records of others."""
        if topic not in self._fitted:
            self._reach(topic)
            self._fit(topic)
            self._fitted.add(topic)

    def _fit(self, topic: str) -> None:
        """Make no batch that is larger than the topic takes.

        Kafka's producer cuts a batch that a broker finds too large; this one would fail.
        """
        largest = self._cluster.largest_batches((topic,)).get(topic)
        if largest is None or largest >= int(self._conf["batch.size"]):
            return
        room = self._bytes, self._records
        self.finish()
        self._bytes, self._records = room  # of the record that is about to be sent, too
        self._producer.close()
        self._conf["batch.size"] = str(max(1, largest))
        self._producer = Producer(self._conf)

    def _reach(self, topic: str) -> None:
        """Before the first record: wait until some broker answers, at most max.block.ms. Raises ClusterUnavailable.

        Records would wait for the cluster as long as for their delivery, and then be all that is reported.
        """
        if self._reached:
            return
        began = time.monotonic()
        deadline = began + self._max_block_ms / 1000
        patience = FIRST_PATIENCE_S
        told = False
        while (left := deadline - time.monotonic()) > 0:
            self._life.check()
            try:
                self._producer.list_topics(topic, timeout=max(0.001, min(patience, left)))
            except KafkaException as error:
                self._producer.poll(0)  # for the errors of connections, which say more
                self._trouble = self._trouble or error.args[0].str()
            else:
                self._reached = True
                return
            patience *= 2
            if not told and time.monotonic() - began >= TOLD_AFTER_S:
                told = True
                sys.stderr.write(f"regency sink: {self._silence(began)} Waiting for {self._max_block_ms} ms in all.\n")
        raise ClusterUnavailable(
            f"{self._silence(began)} That is as long as kafka.max.block.ms allows.",
            hint="Check kafka.bootstrap.servers, and with `regency status` whether the brokers are up.",
        )

    def _silence(self, began: float) -> str:
        waited_s = time.monotonic() - began
        return f"No broker of the cluster at {self._servers} has answered for {waited_s:.1f} s: {self._trouble}."

    def _make_room(self, size: int, records: int) -> None:
        size += records * BYTES_PER_RECORD
        if self._records and (self._bytes + size > self._buffer_bytes or self._records + records > RECORDS_AT_ONCE):
            self.finish()
        self._bytes += size
        self._records += records

    def _look(self) -> None:
        """Learn of failures so far, and whether the task is still wanted, without waiting."""
        self._life.check()
        self._producer.poll(0)
        self._raise_failure()

    def _reported(self, error: KafkaError | None, sent: _Sent) -> None:
        if error is not None and self._failure is None:
            partition = sent.partition()
            where = -1 if partition is None else partition
            self._failure = DeliveryFailed(sent.topic() or "?", where, error, self._servers)

    def _told(self, error: KafkaError) -> None:
        """The client cannot reach a broker, or all of them: the latter says no more than that."""
        if error.name() != "_ALL_BROKERS_DOWN" or not self._trouble:
            self._trouble = error.str()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def check_settings(settings: ProducerSettings) -> None:
    """Raise PipelineOptionInvalid, with the option, for what the client refuses. Opens no connection, logs nothing."""
    chosen = settings.librdkafka
    why = _refusal(chosen)
    if why is None:
        return
    # the client names what it refuses by names of its own, and not always: ask for one at a time
    for name, value in chosen.items():
        alone = _refusal({name: value})
        if alone is not None:
            _, contradicts, rule = alone.partition(_CONTRADICTION)
            raise _refused(
                PREFIX + kafka_name(name), f"{str(value)[:200]!r} is no value it can have{contradicts and ': '}{rule}"
            )
    for name, value in chosen.items():
        if _refusal({other: text for other, text in chosen.items() if other != name}) is None:
            rule = why.removeprefix(_CONTRADICTION)
            raise _refused(PREFIX + kafka_name(name), f"{str(value)[:200]!r} does not go with the others: {rule}")
    raise _refused(PREFIX + "*", f"the client refuses its settings: {why}")


_CONTRADICTION: Final = "Failed to create producer: "
"""Begins what the client says of values that are sound, each for itself; what follows tells the rule."""


def _refusal(conf: dict[str, Any]) -> str | None:
    """What the client has against settings, None for nothing."""
    try:
        Producer({"bootstrap.servers": "localhost:1", **conf, **_FIXED, "log_level": 0})
    except KafkaException as error:
        return str(error.args[0].str()).strip().rstrip(".")
    return None


def _refused(option: str, reason: str) -> PipelineOptionInvalid:
    return PipelineOptionInvalid(option, reason, hint="See docs/use/spark-write.md.")
