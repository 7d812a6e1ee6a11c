"""A consumer that reads a topic while the cluster is being broken: what it was given once must stay as it was."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from zlib import crc32

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

_SILENT: Callable[[object], None] = lambda _: None  # noqa: E731 - librdkafka wants a callable; its errors come as results
_JOIN_TIMEOUT_S = 30.0


class Tail:
    """Reads every partition of a topic from offset 0 on a thread of its own, and keeps a digest of each record.

    For topics without compaction, retention and transactions, whose offsets have no gaps. `seen` and `broken` may be
    read at any time.
    """

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self.seen: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
        """Digests by offset, by partition."""
        self.broken: list[str] = []
        """One sentence for each promise that did not hold."""
        self._closed = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": f"regency-tail-{topic}",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "error_cb": _SILENT,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        self._thread = threading.Thread(target=self._run, name="tail", daemon=True)
        self._thread.start()

    def wait_for(self, ends: Mapping[int, int], timeout_s: float) -> list[str]:
        """Wait until everything below the end offsets was read; what is missing after `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        while late := [
            f"partition {partition} was read to {len(self.seen[partition])} of {end}"
            for partition, end in ends.items()
            if len(self.seen[partition]) < end
        ]:
            if time.monotonic() >= deadline or not self._thread.is_alive():
                return late
            self._closed.wait(0.05)
        return []

    def close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            self._thread.join(_JOIN_TIMEOUT_S)
            self._consumer.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                messages = self._consumer.consume(1000, timeout=0.1)
            except KafkaException as error:
                self.broken.append(f"the consumer failed: {error}")
                return
            for message in messages:
                self._enter(message)

    def _enter(self, message: Message) -> None:
        error, partition, offset = message.error(), message.partition(), message.offset()
        if error is not None:
            if error.code() == KafkaError._AUTO_OFFSET_RESET or not (error.retriable() or error.code() < 0):
                self.broken.append(f"partition {partition} at {offset}: {error}")
            return
        if partition is None or offset is None:
            return
        digests = self.seen[partition]
        if offset != len(digests):
            self.broken.append(f"partition {partition}: offset {offset} came after {len(digests) - 1}")
            return
        digests.append(crc32(message.value() or b"", crc32(message.key() or b"")))


def first_difference(tailed: Mapping[int, list[int]], replayed: Mapping[int, list[int]]) -> list[str]:
    """Where records that were consumed once are not there, or others, when everything is read again."""
    found = []
    for partition, digests in sorted(tailed.items()):
        again = replayed[partition][: len(digests)]
        if again != digests:
            pairs = zip(digests, again, strict=False)
            offset = next((at for at, (once, now) in enumerate(pairs) if once != now), len(again))
            found.append(f"partition {partition}: what was consumed at offset {offset} was changed or taken back")
    return found
