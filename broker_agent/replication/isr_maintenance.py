"""ISR changes of led partitions: when they are looked for, how they reach the ISR writer, what an outcome does.

Whether a partition's ISR has to change is the partition's decision. One change per partition is under way at a time.
One that certainly was not written is given up, and may be proposed again a little later. One whose outcome stays
unknown is left pending until a LeaderAndIsr says what holds; the controller is asked for it, again at every sweep.
"""

from __future__ import annotations

from regency.broker_agent.ports import IsrChange, IsrNotWritten, IsrOutcome, IsrStore, IsrUnknown, Peers
from regency.broker_agent.replication.followers import Pending, PendingShrink
from regency.broker_agent.replication.hosting import HostedPartitions
from regency.broker_agent.replication.partition import Partition
from regency.model.crash_points import crash_point
from regency.model.ids import BrokerEpoch, BrokerId, TopicPartition

_SLICE = 2000
"""Partitions looked at in one go; the next go comes a millisecond later, so that clients are served in between."""


class IsrMaintenance:
    """Shrinks and expands. Callers hold `hosting.completions`."""

    def __init__(self, hosting: HostedPartitions, store: IsrStore, peers: Peers) -> None:
        self._hosting = hosting
        self._store = store
        self._peers = peers
        self._sweep: list[TopicPartition] = []
        self._unknown: dict[TopicPartition, Pending] = {}
        """Changes that may have been written or not; some are superseded since the last sweep began."""
        self._seen_peers: dict[BrokerId, tuple[BrokerEpoch | None, bool]] = {}
        self.shrinks = 0
        """ISR shrinks that are in ZooKeeper, since the start."""
        self.expands = 0
        """ISR expansions that are in ZooKeeper, since the start."""
        self.failures = 0
        """Changes that were not written or whose outcome is not known, since the start."""

    def expand(self, partition: Partition, now_ms: int) -> None:
        """Add who is in sync again, if anybody is."""
        change = partition.propose_expand(now_ms)
        if change is not None:
            self._submit(partition, change)

    def withdraw(self, topic_partition: TopicPartition) -> bool:
        """Give up the change of a partition that is deleted. Returns whether none can be written any more."""
        return self._store.withdraw(topic_partition)

    def start_sweep(self) -> None:
        """Look at every led partition, in slices; due twice per replica.lag.time.max.ms. A running sweep goes on."""
        hosted = self._hosting.partitions
        self._unknown = {name: change for name, change in self._unknown.items() if _awaits(hosted.get(name), change)}
        if not self._sweep:
            self._sweep = [name for name, partition in hosted.items() if partition.remotes]

    def continue_sweep(self, now_ms: int) -> None:
        """The next slice of a sweep, and a wake for the one after it."""
        for topic_partition in self._sweep[-_SLICE:]:
            partition = self._hosting.partitions.get(topic_partition)
            if partition is not None and partition.is_leader:
                self._look(partition, now_ms)
        del self._sweep[-_SLICE:]
        if self._sweep:
            self._hosting.wake_by(now_ms + 1)

    def peers_changed(self, now_ms: int) -> None:
        """Metadata changed: who comes, goes or is leaving changes who may join and whom a high watermark awaits."""
        seen = {
            broker: (self._peers.broker_epoch(broker), self._peers.is_shutting_down(broker))
            for broker in sorted(self._hosting.rules.followers)
        }
        if seen == self._seen_peers:
            return
        self._seen_peers = seen
        for partition in [partition for partition in self._hosting.partitions.values() if partition.remotes]:
            self._advance(partition, now_ms)
            self.expand(partition, now_ms)
            self._hosting.deletes.check(partition.topic_partition)  # who is away keeps no low watermark down

    def _look(self, partition: Partition, now_ms: int) -> None:
        if self._unknown.get(partition.topic_partition) is partition.isr:
            self._store.ask(partition.topic_partition)
        change = partition.propose_shrink(now_ms)
        if change is not None:
            self._submit(partition, change)
        self._advance(partition, now_ms)

    def _advance(self, partition: Partition, now_ms: int) -> None:
        if partition.maybe_advance_high_watermark(now_ms):
            self._hosting.changed(partition.topic_partition)

    def _submit(self, partition: Partition, change: IsrChange) -> None:
        pending = partition.isr
        assert isinstance(pending, Pending)
        crash_point("replication.isr.after_pending")

        def done(outcome: IsrOutcome) -> None:
            with self._hosting.completions:
                self._finish(partition, pending, outcome)

        self._hosting.completions.add(lambda: self._store.submit(change, done))

    def _finish(self, partition: Partition, pending: Pending, outcome: IsrOutcome) -> None:
        crash_point("replication.isr.before_outcome")
        now_ms = self._hosting.clock.monotonic_ms()
        if isinstance(outcome, IsrUnknown):
            self.failures += 1
            if partition.isr is pending:
                self._unknown[partition.topic_partition] = pending
                self._store.ask(partition.topic_partition)
            return
        if isinstance(outcome, IsrNotWritten):
            self.failures += 1
            if partition.isr_not_written(pending, now_ms):
                self._advance(partition, now_ms)
            return
        if isinstance(pending, PendingShrink):
            self.shrinks += 1
        else:
            self.expands += 1
        if not partition.isr_written(pending, outcome.zk_version):
            return  # the controller was faster to tell, of this change or a later one
        crash_point("replication.isr.before_high_watermark")
        self._advance(partition, now_ms)
        self.expand(partition, now_ms)


def _awaits(partition: Partition | None, change: Pending) -> bool:
    return partition is not None and partition.isr is change
