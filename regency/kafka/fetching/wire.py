"""A fetcher's plans as Kafka messages, and Kafka's answers as facts. Runs on the fetcher threads; holds no state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from regency.kafka.codec import FetchRequest, ListOffsetsRequest, Message
from regency.kafka.fetching.session import grouped
from regency.kafka.fetching.values import (
    EpochEndOffset,
    FetchedPartition,
    FetchPartition,
    FetchPlan,
    FetchReply,
    ListedOffset,
    OffsetsPlan,
    OffsetsReply,
)
from regency.model.ids import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode

FETCH_VERSION: Final = 17
"""Replica epoch (15), topic ids (13), diverging epoch (12), sessions (7)."""
LIST_OFFSETS_VERSION: Final = 7


def fetch_request(plan: FetchPlan, replica: BrokerId) -> Message:
    """The Fetch request for a plan of broker `replica`."""
    topic_class = FetchRequest.FetchTopic
    forgotten_class = FetchRequest.ForgottenTopic
    limits = plan.limits
    return FetchRequest(
        version=FETCH_VERSION,
        replica_state=FetchRequest.ReplicaState(replica_id=replica, replica_epoch=plan.replica_epoch),
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=0,
        session_id=plan.session_id,
        session_epoch=plan.session_epoch,
        topics=[
            topic_class(topic_id=topic_id, partitions=[_entry(entry) for entry in entries])
            for topic_id, entries in _by_topic(plan.partitions)
        ],
        forgotten_topics_data=[
            forgotten_class(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in grouped(plan.forgotten).items()
        ],
        rack_id="",
    )


def fetch_reply(plan: FetchPlan, answer: Message) -> FetchReply:
    """What a Fetch response says; partitions that the plan does not know are left out."""
    partitions: list[tuple[TopicPartition, FetchedPartition]] = []
    for topic in answer.responses:
        for partition in topic.partitions:
            name = plan.names.get((topic.topic_id, partition.partition_index))
            if name is not None:
                partitions.append((name, _fetched(partition)))
    return FetchReply(_error(answer.error_code), answer.session_id, partitions)


def offsets_request(plan: OffsetsPlan, replica: BrokerId) -> Message:
    """The ListOffsets request for a plan of broker `replica`."""
    topic_class = ListOffsetsRequest.ListOffsetsTopic
    partition_class = topic_class.ListOffsetsPartition
    by_topic: dict[str, list[Message]] = {}
    for name, epoch in plan.partitions:
        entry = partition_class(partition_index=name.partition, current_leader_epoch=epoch, timestamp=plan.timestamp)
        by_topic.setdefault(name.topic, []).append(entry)
    return ListOffsetsRequest(
        version=LIST_OFFSETS_VERSION,
        replica_id=replica,
        isolation_level=0,
        topics=[topic_class(name=topic, partitions=entries) for topic, entries in by_topic.items()],
    )


def offsets_reply(answer: Message) -> OffsetsReply:
    """What a ListOffsets response says."""
    return OffsetsReply(
        [
            (
                TopicPartition(topic.name, partition.partition_index),
                ListedOffset(
                    _error(partition.error_code),
                    partition.timestamp,
                    Offset(partition.offset),
                    LeaderEpoch(partition.leader_epoch),
                    partition.producers or b"",
                ),
            )
            for topic in answer.topics
            for partition in topic.partitions
        ]
    )


def _by_topic(entries: Sequence[FetchPartition]) -> Iterable[tuple[TopicId, list[FetchPartition]]]:
    by_topic: dict[TopicId, list[FetchPartition]] = {}
    for entry in entries:
        assert entry.topic_id is not None
        by_topic.setdefault(entry.topic_id, []).append(entry)
    return by_topic.items()


def _entry(entry: FetchPartition) -> Message:
    return FetchRequest.FetchTopic.FetchPartition(
        partition=entry.topic_partition.partition,
        current_leader_epoch=entry.current_leader_epoch,
        fetch_offset=entry.fetch_offset,
        last_fetched_epoch=entry.last_fetched_epoch,
        log_start_offset=entry.log_start_offset,
        partition_max_bytes=entry.max_bytes,
    )


def _fetched(partition: Message) -> FetchedPartition:
    diverging = partition.diverging_epoch
    diverges = diverging is not None and diverging.end_offset >= 0
    return FetchedPartition(
        _error(partition.error_code),
        Offset(partition.high_watermark),
        Offset(partition.log_start_offset),
        partition.records or b"",
        EpochEndOffset(LeaderEpoch(diverging.epoch), Offset(diverging.end_offset)) if diverges else None,
    )


def _error(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
