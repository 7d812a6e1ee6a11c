"""What tests of a whole cluster do again and again: write numbered records, read all of them back, look around."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from regency.cluster.cluster import Cluster
from regency.cluster.health import PartitionView
from regency.demo.ledger import Ledger, Verdict
from regency.demo.workload import careful_producer, produce, read_back
from regency.model.ids import BrokerId, TopicPartition


class Books:
    """Numbered records written by one producer to one topic, over any number of calls, and their comparison."""

    def __init__(
        self, cluster: Cluster, topic: str, settings: Mapping[str, str | int] | None = None, *, keys: int = 16
    ) -> None:
        self._keys = keys
        self._cluster = cluster
        self._topic = topic
        self._producer = careful_producer(cluster.bootstrap_servers, settings)
        self.ledger = Ledger()

    def write(self, count: int, *, midway: Callable[[], object] | None = None) -> None:
        """Produce `count` records over all keys; `midway` is called once, when half of them were handed over."""
        first = self.ledger.sent_count

        def sent(number: int) -> None:
            if midway is not None and number == first + count // 2:
                midway()

        produce(self._producer, self._topic, self._records(first, count), self.ledger, on_sent=sent)

    def compare(self) -> Verdict:
        read_back(self._cluster.bootstrap_servers, self._topic, self.ledger, on_read=lambda _: None)
        return self.ledger.verdict()

    def assert_nothing_lost(self) -> None:
        """Every record was acknowledged and came back once, unchanged and in order."""
        assert self.ledger.failures == {}
        verdict = self.compare()
        assert verdict.acked == self.ledger.sent_count
        assert verdict.clean, (verdict, self.ledger.missing())

    def _records(self, first: int, count: int) -> Iterator[tuple[bytes, bytes]]:
        for number in range(first, first + count):
            yield b"key-%d" % (number % self._keys), b"value of record %d " % number + b"x" * 80


@pytest.fixture
def books() -> Callable[[Cluster, str], Books]:
    """Opens books about a topic: `books(cluster, "t", {"linger.ms": 0})`; the settings are the producer's."""
    return Books


class Look:
    """Short questions about a cluster's partitions, answered from ZooKeeper."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def views(self, topic: str = "t") -> dict[TopicPartition, PartitionView]:
        partitions = self._cluster.snapshot().partitions
        return {partition: view for partition, view in partitions.items() if partition.topic == topic}

    def leaders(self, topic: str = "t") -> dict[int, BrokerId]:
        views = self.views(topic).items()
        return {partition.partition: view.leadership.leader for partition, view in views if view.leadership}

    def isrs(self, topic: str = "t") -> dict[int, tuple[BrokerId, ...]]:
        views = self.views(topic).items()
        return {partition.partition: view.leadership.isr for partition, view in views if view.leadership}

    def in_no_isr(self, broker: int, topic: str = "t") -> bool:
        return all(broker not in isr for isr in self.isrs(topic).values())


@pytest.fixture
def look() -> Callable[[Cluster], Look]:
    return Look
