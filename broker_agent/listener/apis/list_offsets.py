"""ListOffsets and OffsetForLeaderEpoch: where a log begins and ends, by timestamp or by leader epoch."""

from __future__ import annotations

from collections import Counter
from typing import Final

from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Exchange
from regency.broker_agent.steps import Steps
from regency.kafka.codec import ListOffsetsResponse, Message, OffsetForLeaderEpochResponse, Request
from regency.kafka.fetching.values import EpochEndOffset, ListedOffset
from regency.model.ids import BrokerId, LeaderEpoch, TopicPartition
from regency.model.kafka_errors import ErrorCode

FIRST_WITH_OFFSET_NOT_AVAILABLE: Final = 5
FIRST_WITH_MAX_TIMESTAMP: Final = 7
PARTITIONS_PER_STEP: Final = 200
"""Looked up before others have a turn; a search by timestamp has steps of its own."""
_MAX_TIMESTAMP: Final = -3


def handle(services: Services, exchange: Exchange) -> None:
    """One offset per partition; a partition named twice is INVALID_REQUEST, as in Kafka."""
    exchange.work(_list(services, exchange.request))


def _list(services: Services, request: Request) -> Steps[Message]:
    named = Counter(
        (topic.name, partition.partition_index) for topic in request.message.topics for partition in topic.partitions
    )
    topics, looked_up = [], 0
    for topic in request.message.topics:
        partitions = []
        for partition in topic.partitions:
            key = TopicPartition(topic.name, partition.partition_index)
            if named[key] > 1:
                found = ListedOffset(ErrorCode.INVALID_REQUEST)
            else:
                found = yield from _look_up(services, request, key, partition.timestamp, partition.current_leader_epoch)
            partitions.append(_listed(request.version, partition.partition_index, found))
            looked_up += 1
            if looked_up % PARTITIONS_PER_STEP == 0:
                yield
        topics.append(_listed_topic(request.version, topic.name, partitions))
    return ListOffsetsResponse(version=request.version, topics=topics)


def failure(request: Request) -> Message:
    """The answer when the handler failed."""
    failed = ListedOffset(ErrorCode.UNKNOWN_SERVER_ERROR)
    topics = [
        _listed_topic(
            request.version,
            topic.name,
            [_listed(request.version, partition.partition_index, failed) for partition in topic.partitions],
        )
        for topic in request.message.topics
    ]
    return ListOffsetsResponse(version=request.version, topics=topics)


def handle_epochs(services: Services, exchange: Exchange) -> None:
    """End offset of the largest epoch not above the one asked for, per partition (KIP-101, KIP-320)."""
    exchange.work(_ends(services, exchange.request))


def _ends(services: Services, request: Request) -> Steps[Message]:
    topics, looked_up = [], 0
    for topic in request.message.topics:
        partitions = []
        for partition in topic.partitions:
            key = TopicPartition(topic.topic, partition.partition)
            error, end = services.replicas.end_offset_for_epoch(
                key, LeaderEpoch(partition.current_leader_epoch), LeaderEpoch(partition.leader_epoch)
            )
            partitions.append(_ended(request.version, key.partition, error, end))
            looked_up += 1
            if looked_up % PARTITIONS_PER_STEP == 0:
                yield
        topics.append(_ended_topic(request.version, topic.topic, partitions))
    return OffsetForLeaderEpochResponse(version=request.version, topics=topics)


def failure_of_epochs(request: Request) -> Message:
    """The answer when the handler of OffsetForLeaderEpoch failed."""
    topics = [
        _ended_topic(
            request.version,
            topic.topic,
            [
                _ended(request.version, partition.partition, ErrorCode.UNKNOWN_SERVER_ERROR, EpochEndOffset())
                for partition in topic.partitions
            ],
        )
        for topic in request.message.topics
    ]
    return OffsetForLeaderEpochResponse(version=request.version, topics=topics)


def _look_up(
    services: Services, request: Request, key: TopicPartition, timestamp: int, current_leader_epoch: int
) -> Steps[ListedOffset]:
    lowest = _MAX_TIMESTAMP if request.version >= FIRST_WITH_MAX_TIMESTAMP else _MAX_TIMESTAMP + 1
    if timestamp < lowest:
        return ListedOffset(ErrorCode.UNSUPPORTED_VERSION)
    listed = yield from services.replicas.list_offset(
        key, timestamp, LeaderEpoch(current_leader_epoch), BrokerId(request.message.replica_id)
    )
    if listed.error is ErrorCode.OFFSET_NOT_AVAILABLE and request.version < FIRST_WITH_OFFSET_NOT_AVAILABLE:
        return ListedOffset(ErrorCode.LEADER_NOT_AVAILABLE)
    return listed


def _listed(version: int, partition: int, listed: ListedOffset) -> Message:
    return ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse(
        version=version,
        partition_index=partition,
        error_code=int(listed.error),
        timestamp=listed.timestamp,
        offset=listed.offset,
        leader_epoch=listed.leader_epoch,
        producers=listed.producers or None,
    )


def _listed_topic(version: int, name: str, partitions: list[Message]) -> Message:
    return ListOffsetsResponse.ListOffsetsTopicResponse(version=version, name=name, partitions=partitions)


def _ended(version: int, partition: int, error: ErrorCode, end: EpochEndOffset) -> Message:
    return OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult.EpochEndOffset(
        version=version,
        partition=partition,
        error_code=int(error),
        leader_epoch=end.leader_epoch,
        end_offset=end.end_offset,
    )


def _ended_topic(version: int, name: str, partitions: list[Message]) -> Message:
    return OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(version=version, topic=name, partitions=partitions)
