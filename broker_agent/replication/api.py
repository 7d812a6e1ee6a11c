"""Requests and results of the ReplicaManager: what the listener and the control service say to it. Values only.

Times are monotonic milliseconds of the agent's Clock unless said otherwise; record timestamps are wall milliseconds.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from regency.model.hosting import HostedRole
from regency.model.ids import (
    NO_BROKER_EPOCH,
    UNKNOWN_OFFSET,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
    ZkVersion,
)
from regency.model.kafka_errors import ErrorCode


class Role(Enum):
    """What this broker is to a partition it hosts."""

    NONE = "none"
    """Hosted, but neither led nor followed: stopped, or not told yet."""
    LEADER = "leader"
    FOLLOWER = "follower"
    OFFLINE = "offline"
    """Its log directory failed."""


class ProduceResult(msgspec.Struct, frozen=True):
    """Outcome for one partition of a produce. Offsets are -1 where nothing was appended."""

    error: ErrorCode
    base_offset: Offset = UNKNOWN_OFFSET
    log_append_time_ms: int = -1
    log_start_offset: Offset = UNKNOWN_OFFSET
    message: str = ""
    record_errors: tuple[tuple[int, str], ...] = ()
    """Numbers of records in the batch, and what is wrong with them (KIP-467)."""


class DeletedRecords(msgspec.Struct, frozen=True):
    """Outcome for one partition of a DeleteRecords."""

    error: ErrorCode
    low_watermark: Offset = UNKNOWN_OFFSET
    """The lowest log start of all live replicas; -1 where one has not told, or this broker does not lead."""


class PartitionState(msgspec.Struct, frozen=True):
    """One partition of a LeaderAndIsr request."""

    topic_partition: TopicPartition
    topic_id: TopicId
    controller_epoch: ControllerEpoch
    """Of the decision, as the state znode holds it."""
    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    zk_version: ZkVersion
    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    is_new: bool = False


class LeaderAddress(msgspec.Struct, frozen=True):
    """Where a leader named in a LeaderAndIsr is reached by followers, and which incarnation of it is meant."""

    broker: BrokerId
    broker_epoch: BrokerEpoch
    host: str
    port: int


class AppliedState(msgspec.Struct, frozen=True):
    """Outcome of a control request for one partition: the code, and the leader epoch held afterwards."""

    error: ErrorCode
    leader_epoch: LeaderEpoch


class StopPartition(msgspec.Struct, frozen=True):
    """One partition of a StopReplica request."""

    topic_partition: TopicPartition
    topic_id: TopicId
    leader_epoch: LeaderEpoch
    """-1 unknown, -2 topic being deleted: both skip the epoch check."""
    delete: bool


class ReplicaDescription(msgspec.Struct, frozen=True):
    """Everything a report, a description or a doctor wants to know of one hosted partition."""

    topic_partition: TopicPartition
    topic_id: TopicId
    leader: BrokerId
    leader_epoch: LeaderEpoch
    zk_version: ZkVersion
    isr: tuple[BrokerId, ...]
    """Committed ISR where this broker leads, else empty."""
    high_watermark: Offset
    log_end_offset: Offset
    log_start_offset: Offset
    last_batch_epoch: LeaderEpoch
    directory: str
    broker_epoch_of_leader: BrokerEpoch = NO_BROKER_EPOCH
    role: HostedRole = HostedRole.NONE
    damage: str = ""
    """Where reads found its files damaged, for people."""
    epochs: tuple[tuple[LeaderEpoch, Offset], ...] = ()
    """Where each leader epoch known of the log begins, ascending."""


class ActiveProducer(msgspec.Struct, frozen=True):
    """A producer that a log remembers; -1 where it has written nothing in its epoch."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    """Wall time."""


class LogDescription(msgspec.Struct, frozen=True):
    """One log in a log directory."""

    topic_partition: TopicPartition
    size_bytes: int
    """Of its batches."""
    offset_lag: int
    """A future log: offsets it is behind the one it will replace, -1 where that is out of reach. Else how far the log
    is behind its own high watermark: 0.
    """
    is_future: bool


class LogDirDescription(msgspec.Struct, frozen=True):
    """A log directory, and some of the logs in it."""

    path: str
    failure: str | None
    """Why it is offline; None while it works."""
    logs: tuple[LogDescription, ...] = ()
    total_bytes: int = -1
    """Of the volume it is on; -1 where that is not known."""
    usable_bytes: int = -1
