"""Requests and results of the ReplicaManager: what the listener and the control service say to it. Values only.

Times are monotonic milliseconds of the agent's Clock unless said otherwise; record timestamps are wall milliseconds.
"""

from __future__ import annotations

import msgspec

from regency.model.hosting import HostedRole
from regency.model.ids import (
    NO_BROKER_EPOCH,
    NO_LEADER_EPOCH,
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

CONSUMER: BrokerId = BrokerId(-1)
"""`replica_id` of an ordinary consumer."""

DEBUGGING: BrokerId = BrokerId(-2)
"""`replica_id` of Kafka's debugging consumer: it may read any replica, and what it reads proves nothing to anybody."""


NO_RECORDS = -1
"""`max_bytes` of a fetch that is answered as if nothing had been written: not even a first batch."""


class ProduceResult(msgspec.Struct, frozen=True):
    """Outcome for one partition of a produce. Offsets are -1 where nothing was appended."""

    error: ErrorCode
    base_offset: Offset = UNKNOWN_OFFSET
    log_append_time_ms: int = -1
    log_start_offset: Offset = UNKNOWN_OFFSET
    message: str = ""


class FetchPartition(msgspec.Struct, frozen=True):
    """What is wanted of one partition."""

    topic_partition: TopicPartition
    topic_id: TopicId | None
    """None below Fetch v13, which names no ids."""
    fetch_offset: Offset
    max_bytes: int
    current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    last_fetched_epoch: LeaderEpoch = NO_LEADER_EPOCH
    log_start_offset: Offset = UNKNOWN_OFFSET
    """The follower's; -1 from consumers."""


class FetchParams(msgspec.Struct, frozen=True):
    """What holds for a whole fetch. `replica_id` -1 is a consumer, -2 a debugging consumer, 0 or more a follower.

    There is no isolation level: without transactions the last stable offset is the high watermark.
    """

    replica_id: BrokerId
    replica_epoch: BrokerEpoch
    max_wait_ms: int
    min_bytes: int
    max_bytes: int

    @property
    def from_follower(self) -> bool:
        """Whether a broker fetches, which may read up to the LEO and counts for ISR and high watermark."""
        return self.replica_id >= 0

    @property
    def from_debugger(self) -> bool:
        """Whether followers are to be read too, each up to its own high watermark: to compare replicas."""
        return self.replica_id == DEBUGGING


class EpochEndOffset(msgspec.Struct, frozen=True):
    """Largest epoch not above the one asked for, and where it ends; both -1 where not known."""

    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    end_offset: Offset = UNKNOWN_OFFSET


class FetchedPartition(msgspec.Struct, frozen=True):
    """What a fetch got of one partition. `records` are whole batches; the first may begin below the fetch offset."""

    error: ErrorCode
    high_watermark: Offset = UNKNOWN_OFFSET
    log_start_offset: Offset = UNKNOWN_OFFSET
    records: bytes | memoryview = b""
    diverging: EpochEndOffset | None = None
    """Set where the fetcher's log differs from the leader's below the fetch offset (KIP-595): only truncate."""
    leader: BrokerId = BrokerId(-1)
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """Current leader, on NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH; -1 where not known."""


class ListedOffset(msgspec.Struct, frozen=True):
    """Answer to ListOffsets for one partition; timestamp and offset are -1 where no record matches."""

    error: ErrorCode
    timestamp: int = -1
    offset: Offset = UNKNOWN_OFFSET
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    producers: bytes = b""
    """With the earliest offset, for replicas: a snapshot of the producers that have batches below it, see
    `ProducerStates.encode`. Nothing else tells a log that begins there who they are."""


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
