"""States of partitions and replicas, with those each may be entered from: Kafka's tables; and the log of changes."""

from __future__ import annotations

from enum import Enum

from regency.model.facts import LeaderIsrAndControllerEpoch
from regency.model.ids import BrokerId, ControllerEpoch, TopicPartition
from regency.model.state_changes import STATE_CHANGES


class PartitionState(Enum):
    """Where a partition is in its life."""

    NON_EXISTENT = "NonExistentPartition"
    """Never created, or deleted."""
    NEW = "NewPartition"
    """Has replicas, but neither leader nor ISR yet."""
    ONLINE = "OnlinePartition"
    """Has a leader."""
    OFFLINE = "OfflinePartition"
    """Its leader died."""

    @property
    def valid_previous(self) -> frozenset[PartitionState]:
        """States from which this one may be entered."""
        return _VALID_PREVIOUS_PARTITION_STATES[self]


class ReplicaState(Enum):
    """Where one replica of a partition is in its life."""

    NON_EXISTENT = "NonExistentReplica"
    """Never created, or deleted."""
    NEW = "NewReplica"
    """Created with its topic or by a reassignment; can only follow."""
    ONLINE = "OnlineReplica"
    """On a live broker: leads or follows."""
    OFFLINE = "OfflineReplica"
    """Its broker died, its directory failed, or it is being stopped."""
    DELETION_STARTED = "ReplicaDeletionStarted"
    """Its broker was told to delete it."""
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    """Its broker deleted it."""
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    """It cannot be deleted now: its broker is dead or refused."""

    @property
    def valid_previous(self) -> frozenset[ReplicaState]:
        """States from which this one may be entered."""
        return _VALID_PREVIOUS_REPLICA_STATES[self]


_VALID_PREVIOUS_PARTITION_STATES = {
    PartitionState.NEW: frozenset({PartitionState.NON_EXISTENT}),
    PartitionState.ONLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.OFFLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.NON_EXISTENT: frozenset({PartitionState.OFFLINE}),
}

_VALID_PREVIOUS_REPLICA_STATES = {
    ReplicaState.NEW: frozenset({ReplicaState.NON_EXISTENT}),
    ReplicaState.ONLINE: frozenset(
        {ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.DELETION_INELIGIBLE}
    ),
    ReplicaState.OFFLINE: frozenset(
        {ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.DELETION_INELIGIBLE}
    ),
    ReplicaState.DELETION_STARTED: frozenset({ReplicaState.OFFLINE}),
    ReplicaState.DELETION_SUCCESSFUL: frozenset({ReplicaState.DELETION_STARTED}),
    ReplicaState.DELETION_INELIGIBLE: frozenset({ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED}),
    ReplicaState.NON_EXISTENT: frozenset({ReplicaState.DELETION_SUCCESSFUL}),
}


class StateTrace:
    """Writes the lines of one controller epoch."""

    def __init__(self, controller: BrokerId, epoch: ControllerEpoch) -> None:
        self._who = f"[Controller id={controller} epoch={epoch}]"

    def partition(
        self,
        partition: TopicPartition,
        before: PartitionState,
        after: PartitionState,
        leadership: LeaderIsrAndControllerEpoch | None,
    ) -> None:
        """A partition has entered a state; `leadership` is that of now."""
        now = "none"
        if leadership is not None:
            held = leadership.leader_and_isr
            now = f"leader {held.leader}, leader epoch {held.leader_epoch}, isr {list(held.isr)}"
        STATE_CHANGES.debug(
            "%s Changed partition %s from %s to %s with state %s", self._who, partition, before.value, after.value, now
        )

    def replica(self, partition: TopicPartition, broker: BrokerId, before: ReplicaState, after: ReplicaState) -> None:
        """A replica has entered a state."""
        words = "%s Changed state of replica %d for partition %s from %s to %s"
        STATE_CHANGES.debug(words, self._who, broker, partition, before.value, after.value)
