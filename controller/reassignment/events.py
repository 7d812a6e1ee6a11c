"""Events about reassignments for the controller's thread."""

from __future__ import annotations

import msgspec

from regency.controller.events import ControllerState, Notification, Request
from regency.model.facts import ReplicaAssignment
from regency.model.ids import BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode


class ReassignmentsAsked(Notification):
    """/admin/reassign_partitions changed."""

    state = ControllerState.ALTER_PARTITION_REASSIGNMENT
    cause = "partition_reassignment"


class ReassignmentsWait(Notification):
    """A step could not be written some time ago: everything is looked at again."""

    state = ControllerState.ALTER_PARTITION_REASSIGNMENT
    cause = "partition_reassignment"


class PartitionOutcome(msgspec.Struct, frozen=True):
    """What became of what was asked for one partition."""

    partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


class AlterReassignments(Request[tuple[PartitionOutcome, ...]]):
    """Give partitions other replicas, or (None) cancel what goes on. The answer comes when it has begun."""

    state = ControllerState.ALTER_PARTITION_REASSIGNMENT
    cause = "alter_reassignments"

    def __init__(
        self, moves: tuple[tuple[TopicPartition, tuple[BrokerId, ...] | None], ...], *, keep_factor: bool = False
    ) -> None:
        super().__init__()
        self.moves = moves
        self.keep_factor = keep_factor
        """Whether none may get more or fewer replicas than it has (KIP-860)."""


class ListReassignments(Request[tuple[tuple[TopicPartition, ReplicaAssignment], ...]]):
    """Which of these partitions, or (None) of all, are being reassigned. Others are left out."""

    state = ControllerState.LIST_PARTITION_REASSIGNMENT
    cause = "list_reassignments"

    def __init__(self, partitions: tuple[TopicPartition, ...] | None) -> None:
        super().__init__()
        self.partitions = partitions
