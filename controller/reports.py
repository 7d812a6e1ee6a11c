"""What agents last reported of the replicas they host. Written by gRPC threads, read by whoever describes them."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import msgspec

from regency.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicPartition, ZkVersion


class ReplicaReport(msgspec.Struct, frozen=True):
    """One replica as its broker reported it. `isr` is empty where the broker does not lead."""

    leader_epoch: LeaderEpoch
    zk_version: ZkVersion
    high_watermark: Offset
    log_end_offset: Offset
    log_start_offset: Offset
    isr: tuple[BrokerId, ...]
    directory: str


class _BrokerReports:
    def __init__(self, epoch: BrokerEpoch) -> None:
        self.epoch = epoch
        self.replicas: dict[TopicPartition, ReplicaReport] = {}


class ReplicaReports:
    """Newest report per broker and partition, of the brokers' present incarnations, in one controller epoch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._brokers: dict[BrokerId, _BrokerReports] = {}

    def take(
        self,
        broker: BrokerId,
        epoch: BrokerEpoch,
        changes: Iterable[tuple[TopicPartition, ReplicaReport]],
        *,
        full: bool,
    ) -> bool:
        """Take in a report. Returns whether the next one shall be full: nothing was known of this incarnation."""
        with self._lock:
            known = self._brokers.get(broker)
            first = known is None or known.epoch != epoch
            if known is None or first or full:
                known = self._brokers[broker] = _BrokerReports(epoch)
            known.replicas.update(changes)
            return first and not full

    def replica(self, broker: BrokerId, partition: TopicPartition) -> ReplicaReport | None:
        """What a broker last reported of a partition."""
        with self._lock:
            known = self._brokers.get(broker)
            return None if known is None else known.replicas.get(partition)

    def retain(self, live: Iterable[BrokerId]) -> None:
        """Forget the brokers that are not live."""
        kept = frozenset(live)
        with self._lock:
            for broker in [each for each in self._brokers if each not in kept]:
                del self._brokers[broker]

    def clear(self) -> None:
        """Forget everything: the term is over."""
        with self._lock:
            self._brokers.clear()
