"""What a fetcher sends and gets, as facts: between its logic on the data loop and its transport at the edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from regency.kafka.fetching.values import FetchedPartition, FetchPartition, ListedOffset
from regency.model.ids import BrokerEpoch, LeaderEpoch, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode


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
