"""What a Fetch and a ListOffsets ask and get, as facts: between the wire, the leader that answers, and who fetches.

Times are monotonic milliseconds of the process's Clock; record timestamps are wall milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from regency.model.ids import (
    NO_LEADER_EPOCH,
    UNKNOWN_OFFSET,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from regency.model.kafka_errors import ErrorCode

CONSUMER: BrokerId = BrokerId(-1)
"""`replica_id` of an ordinary consumer."""

DEBUGGING: BrokerId = BrokerId(-2)
"""`replica_id` of Kafka's debugging consumer: it may read any replica, and what it reads proves nothing to anybody."""


NO_RECORDS = -1
"""`max_bytes` of a fetch that is answered as if nothing had been written: not even a first batch."""


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


class FetcherLimits(msgspec.Struct, frozen=True):
    """Bounds of a fetcher's requests, from the broker's settings."""

    max_bytes: int
    """replica.fetch.response.max.bytes"""
    partition_max_bytes: int
    """replica.fetch.max.bytes"""
    min_bytes: int
    max_wait_ms: int
    backoff_ms: int


class FetchPlan(msgspec.Struct, frozen=True):
    """A Fetch request to send. In an incremental session it names only what changed."""

    replica_epoch: BrokerEpoch
    """Our own incarnation, so that the leader never takes us for an older one (KIP-903)."""
    session_id: int
    session_epoch: int
    partitions: Sequence[FetchPartition]
    forgotten: Sequence[tuple[TopicPartition, TopicId]]
    names: Mapping[tuple[TopicId, int], TopicPartition]
    """Every partition a reply may speak of."""
    limits: FetcherLimits


class OffsetsPlan(msgspec.Struct, frozen=True):
    """A ListOffsets request to send, as a replica: `timestamp` -1 the leader's LEO, -2 its log start."""

    timestamp: int
    partitions: Sequence[tuple[TopicPartition, LeaderEpoch]]


class Pause(msgspec.Struct, frozen=True):
    """Nothing to send for that long; None: until told otherwise."""

    milliseconds: int | None


class FetchReply(msgspec.Struct, frozen=True):
    """Answer to a FetchPlan."""

    error: ErrorCode
    session_id: int
    partitions: Sequence[tuple[TopicPartition, FetchedPartition]]


class OffsetsReply(msgspec.Struct, frozen=True):
    """Answer to an OffsetsPlan."""

    partitions: Sequence[tuple[TopicPartition, ListedOffset]]


Plan = FetchPlan | OffsetsPlan
Reply = FetchReply | OffsetsReply

SESSION_LOST = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Errors of a whole fetch after which a new session is begun at once."""

NOT_READY = frozenset(
    {
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors of a partition whose leader may not have the LeaderAndIsr yet that its follower has."""

NOT_LISTED = ListedOffset(ErrorCode.UNKNOWN_SERVER_ERROR)
"""Of a partition that an answer leaves out."""
