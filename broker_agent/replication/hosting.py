"""The partitions a broker hosts, and what all paths through the ReplicaManager share: lookups, waiting, time.

Data loop only; passive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.ports import Peers, Timer
from regency.broker_agent.replication.api import Role
from regency.broker_agent.replication.followers import ReplicationRules
from regency.broker_agent.replication.partition import Partition
from regency.broker_agent.replication.purgatory import Completions, DelayedOperation, Purgatory
from regency.model.clock import Clock
from regency.model.ids import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings
from regency.model.settings.log_config import LogConfig

Leading: TypeAlias = Callable[[TopicPartition, LeaderEpoch | None], None]
"""Told of a partition that this broker leads from now on in an epoch, or (None) does not lead any more."""


class HostedPartitions:
    """Partitions by name, topics by id, and the operations that wait for them."""

    def __init__(
        self,
        broker_id: BrokerId,
        settings: BrokerSettings,
        logs: LogManager,
        clock: Clock,
        timer: Timer,
        peers: Peers,
        topic_config: Callable[[str], LogConfig],
    ) -> None:
        self.broker_id = broker_id
        self.settings = settings
        self.logs = logs
        self.clock = clock
        self.topic_config = topic_config
        self.rules = ReplicationRules(broker_id, settings.replica_lag_time_max_ms, peers, self.min_insync)
        self.partitions: dict[TopicPartition, Partition] = {}
        self.completions = Completions()
        self.produces = Purgatory(self.completions)
        self.fetches = Purgatory(self.completions)
        self.deletes = Purgatory(self.completions)
        self._timer = timer
        self.homeless: set[TopicPartition] = set()
        """Partitions told to be here whose log could not be made or may be in a directory that is offline."""
        self.deleted: set[TopicPartition] = set()
        """Partitions whose logs were deleted although a directory is offline: they were not in that one."""
        self._names: dict[TopicId, tuple[str, int]] = {}
        self._watchers: dict[str, Leading] = {}
        self._wake_at: int | None = None

    @property
    def purgatories(self) -> tuple[Purgatory, ...]:
        """Everything that waits here."""
        return self.produces, self.fetches, self.deletes

    def min_insync(self, topic: str) -> int:
        """min.insync.replicas of a topic."""
        return self.topic_config(topic).min_insync_replicas

    # Partitions

    def host(self, partition: Partition) -> None:
        """Hold a partition from now on; harmless for one that is held."""
        if partition.topic_partition in self.partitions:
            return
        self.partitions[partition.topic_partition] = partition
        self.deleted.discard(partition.topic_partition)
        name, count = self._names.get(partition.topic_id, (partition.topic_partition.topic, 0))
        self._names[partition.topic_id] = (name, count + 1)

    def forget(self, partition: Partition) -> None:
        """Hold a partition no more."""
        del self.partitions[partition.topic_partition]
        name, count = self._names.pop(partition.topic_id)
        if count > 1:
            self._names[partition.topic_id] = (name, count - 1)

    def may_be_offline(self, name: TopicPartition) -> bool:
        """Whether a log that is not here may be in a directory that is offline."""
        return name in self.homeless or (bool(self.logs.offline_dirs) and name not in self.deleted)

    def topic_name(self, topic_id: TopicId) -> str | None:
        """Name of a topic by its id, if a partition of it is hosted here: known before any metadata says so."""
        held = self._names.get(topic_id)
        return held[0] if held else None

    def find(
        self, topic_partition: TopicPartition, current: LeaderEpoch = NO_LEADER_EPOCH, topic_id: TopicId | None = None
    ) -> Partition | ErrorCode:
        """The hosted partition, if a request with that leader epoch and topic id may speak to it, or what to answer.

        A partition that metadata has elsewhere is NOT_LEADER_OR_FOLLOWER: to clients UNKNOWN_TOPIC_OR_PARTITION says
        that there is no such partition at all.
        """
        partition = self.partitions.get(topic_partition)
        if partition is None:
            return self._not_hosted(topic_partition)
        if topic_id is not None and topic_id != partition.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if partition.role is Role.OFFLINE:
            return ErrorCode.KAFKA_STORAGE_ERROR
        error = partition.check_epoch(current)
        return partition if error is ErrorCode.NONE else error

    def find_led(
        self, topic_partition: TopicPartition, current: LeaderEpoch = NO_LEADER_EPOCH, topic_id: TopicId | None = None
    ) -> Partition | ErrorCode:
        """As `find`, and this broker leads it."""
        found = self.find(topic_partition, current, topic_id)
        if isinstance(found, Partition) and not found.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return found

    def find_replica(
        self, topic_partition: TopicPartition, current: LeaderEpoch = NO_LEADER_EPOCH, topic_id: TopicId | None = None
    ) -> Partition | ErrorCode:
        """As `find`, and this broker leads or follows it: for who compares replicas, and wants this very one."""
        found = self.find(topic_partition, current, topic_id)
        if isinstance(found, Partition) and found.role is Role.NONE:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return found

    def _not_hosted(self, topic_partition: TopicPartition) -> ErrorCode:
        if topic_partition in self.homeless:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.rules.peers.has_partition(topic_partition):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # Events of partitions

    def records_added(self, topic_partition: TopicPartition) -> None:
        """The log grew, the high watermark stayed: followers may have something to read."""
        self.fetches.check(topic_partition)

    def changed(self, topic_partition: TopicPartition) -> None:
        """The high watermark or the role changed: everybody who waits looks again."""
        for purgatory in self.purgatories:
            purgatory.check(topic_partition)

    def watch_leading(self, topic: str, watcher: Leading) -> None:
        """Have one watcher told of every change of role of a topic's partitions, in order, with nothing half changed.

        A later epoch without None between: nobody else has led meanwhile as far as this broker's log knows.
        """
        self._watchers[topic] = watcher

    def role_changed(self, topic_partition: TopicPartition) -> None:
        """The partition is led, followed, stopped, offline or not hosted from now on."""
        watcher = self._watchers.get(topic_partition.topic)
        if watcher is not None:
            partition = self.partitions.get(topic_partition)
            epoch = partition.leader_epoch if partition is not None and partition.is_leader else None
            self.completions.add(lambda: watcher(topic_partition, epoch))

    # Time

    def wait(self, purgatory: Purgatory, operation: DelayedOperation) -> None:
        """Let an operation wait, and be woken for its deadline."""
        purgatory.watch(operation)
        self.wake_by(operation.deadline_ms)

    def wake_by(self, monotonic_ms: int) -> None:
        """Ask for `run_due` no later than then."""
        if self._wake_at is None or monotonic_ms < self._wake_at:
            self._wake_at = monotonic_ms
            self._timer.wake_by(monotonic_ms)

    def woken(self) -> None:
        """`run_due` was called: what was asked of the timer is spent."""
        self._wake_at = None
