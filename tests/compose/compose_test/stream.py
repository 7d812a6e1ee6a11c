"""Numbered records from the host, to every partition, for as long as the cluster is broken; then all are read back."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, Message

from compose_test.waiting import eventually, expect
from regency.demo.ledger import Ledger, Verdict
from regency.demo.workload import NUMBER_HEADER, careful_producer, read_back

PARTITIONS = 6
RECORDS_PER_S = 300
TICK_S = 0.02
FLUSH_S = 60.0
LOOKS_EVERY_MS = 2_000
"""A frozen broker answers nothing and closes nothing. librdkafka's defaults wait a minute for it before they ask the
others who leads; so it asks in any case, more often than the five minutes of its default."""
TAKES_OVER_S = 30.0
"""How long a partition may take no records: a session of 6 s, an election, and what a client needs to find out."""


class Stream:
    """Produces from a thread of its own inside `with`; `acks=all`, idempotent, so nothing may be lost or doubled."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.ledger = Ledger()
        self._servers = bootstrap_servers
        self._topic = topic
        self._producer = careful_producer(bootstrap_servers, {"topic.metadata.refresh.interval.ms": LOOKS_EVERY_MS})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stream", daemon=True)
        self._newest_acked = [0.0] * PARTITIONS
        """By partition, when the newest acknowledged record was sent."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None:
            self._producer.purge()  # nobody waits for these any more
        self.stop()

    def stop(self) -> None:
        """Send no more, and wait for the acknowledgements of what was sent. Harmless twice."""
        self._stop.set()
        self._thread.join()

    def wait_for_progress(self, during: str) -> float:
        """Wait until every partition took a record that was sent after this call; seconds it took."""
        since = time.monotonic()

        def behind() -> list[int]:
            return [partition for partition, sent_s in enumerate(self._newest_acked) if sent_s < since]

        eventually(
            lambda: not behind(),
            within_s=TAKES_OVER_S,
            what=lambda: f"every partition takes records {during}; partitions that do not: {behind()}",
        )
        return time.monotonic() - since

    def check(self, on_read: Callable[[int], None] = lambda _: None) -> Verdict:
        """Read everything back. Raises CheckFailed for records lost, doubled, changed, out of order or given up."""
        expect(self._stop.is_set(), "the stream still runs")
        ledger = copy.deepcopy(self.ledger)  # so that it can be read back again
        expect(not ledger.failures, f"records were given up: {ledger.failures}")
        expect(ledger.acked_count == ledger.sent_count, f"{ledger.acked_count} of {ledger.sent_count} acknowledged")
        read_back(self._servers, self._topic, ledger, on_read=on_read)
        verdict = ledger.verdict()
        expect(verdict.clean, f"{verdict}; lost: {ledger.missing()}")
        expect(verdict.consumed == verdict.acked > 0, str(verdict))
        return verdict

    def _run(self) -> None:
        producer, started, count = self._producer, time.monotonic(), 0
        while not self._stop.wait(TICK_S):
            while count < (time.monotonic() - started) * RECORDS_PER_S and self._send(count):
                count += 1
            producer.poll(0)
        producer.flush(FLUSH_S)

    def _send(self, number: int) -> bool:
        """Send the record of that number; false where there is no room now."""
        if len(self._producer) >= 50_000:
            return False
        partition = number % PARTITIONS
        key, value = b"key-%d" % partition, b"value of record %d" % number
        assert self.ledger.sent(key, value) == number
        sent_s = time.monotonic()

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self.ledger.failed(error.str())
                return
            self.ledger.acked(number, partition, sent_s, time.monotonic())
            self._newest_acked[partition] = max(self._newest_acked[partition], sent_s)

        headers: list[tuple[str, str | bytes | None]] = [(NUMBER_HEADER, b"%d" % number)]
        self._producer.produce(self._topic, value, key, partition=partition, headers=headers, on_delivery=delivered)
        return True
