"""Producers: a given number of records as fast as possible, or as fast as possible beside something else."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

from confluent_kafka import KafkaError, Message, Producer

from data_plane.topics import until

FLUSH_S = 120
_ONE_IN = 100
"""Of so many records one has a callback: it says how long it took, and whether it failed."""


class Produced(NamedTuple):
    """How a run of records went."""

    seconds: float
    latencies_ms: list[float]
    """Of one record in 100, rising: from `produce` until its acknowledgement, with the time in the client's queue."""


class Sender:
    """A confluent-kafka producer that is as fast as it can be: large batches, no callback for most records."""

    def __init__(self, servers: str, topic: str, size: int, acks: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "acks": acks,
                "enable.idempotence": acks == "all",
                "linger.ms": 5,
                "batch.size": 1 << 20,
                "queue.buffering.max.messages": 500_000,
            }
        )
        self._topic = topic
        self._value = os.urandom(size)
        self.latencies_ms: list[float] = []
        self.failures: list[str] = []
        self.sent = 0

    @property
    def acknowledged(self) -> int:
        """Records that are no longer on their way."""
        return self.sent - len(self._producer)

    def send(self) -> None:
        """Hand one record to the client, as soon as it has room."""
        callback = None if self.sent % _ONE_IN else self._delivered
        while True:
            try:
                self._producer.produce(self._topic, self._value, on_delivery=callback)
                break
            except BufferError:
                self._producer.poll(0.01)
        self.sent += 1
        if self.sent % 1000 == 0:
            self._producer.poll(0)

    def finish(self) -> None:
        """Wait until all are acknowledged. Raises RuntimeError where some are not."""
        left = self._producer.flush(FLUSH_S)
        if left or self.failures:
            raise RuntimeError(
                f"{left} of {self.sent} records are left; of one in {_ONE_IN} failed: {self.failures[:3]}"
            )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
        self.latencies_ms.append((message.latency() or 0.0) * 1000)


def produce(
    servers: str, topic: str, *, count: int, size: int, acks: str, progress: Callable[[int], None] = lambda _: None
) -> Produced:
    """Produce `count` records of `size` bytes, until all are acknowledged. Raises RuntimeError."""
    sender = Sender(servers, topic, size, acks)
    started = time.perf_counter()
    for number in range(1, count + 1):
        sender.send()
        if number % 10_000 == 0:
            progress(sender.acknowledged)
    sender.finish()
    return Produced(time.perf_counter() - started, sorted(sender.latencies_ms))


class Load:
    """A process that produces as fast as it can until it is told to end."""

    def __init__(self, servers: str, topic: str, *, size: int, acks: str) -> None:
        context: Any = multiprocessing.get_context("spawn")
        self._acknowledged = context.Value("q", 0)
        self._ending = context.Event()
        arguments = (servers, topic, size, acks, self._acknowledged, self._ending)
        self._process = context.Process(target=_produce_on, args=arguments, daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        until(lambda: self.acknowledged > 0 or not self._process.is_alive(), "the first acknowledged record")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._process.join(FLUSH_S)
        failed = self._process.exitcode
        if failed is None:
            self._process.kill()
        if failed != 0 and kind is None:
            raise RuntimeError(f"the producer beside it ended with {failed}; what it said is above")

    @property
    def acknowledged(self) -> int:
        return int(self._acknowledged.value)

    def rate_over(self, seconds: float) -> float:
        """Records acknowledged per second, from now on for so long."""
        meter = self.meter()
        time.sleep(seconds)
        return meter()

    def meter(self) -> Callable[[], float]:
        """Begins to count; called, it gives the records acknowledged per second since."""
        began, before = time.monotonic(), self.acknowledged
        return lambda: (self.acknowledged - before) / (time.monotonic() - began)


def _produce_on(servers: str, topic: str, size: int, acks: str, acknowledged: Any, ending: Any) -> None:
    sender = Sender(servers, topic, size, acks)
    while not ending.is_set():
        for _ in range(500):
            sender.send()
        acknowledged.value = sender.acknowledged
        if sender.failures:
            raise RuntimeError(sender.failures[0])
    sender.finish()
