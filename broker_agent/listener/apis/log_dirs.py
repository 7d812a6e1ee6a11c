"""DescribeLogDirs and AlterReplicaLogDirs (KIP-113, KIP-827): the log directories of the broker that is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Building, Exchange, guarded
from regency.broker_agent.replication.api import LogDescription, LogDirDescription
from regency.broker_agent.steps import Steps
from regency.kafka.codec import AlterReplicaLogDirsResponse, DescribeLogDirsResponse, Message, Request
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode

MOVES_PER_STEP: Final = 200
"""Begun before others have a turn."""
FIRST_WITH_ERROR: Final = 3
"""Version of DescribeLogDirs whose answer has an error code of its own."""


class LogRow(msgspec.Struct, kw_only=True):
    """DescribeLogDirsPartition of a DescribeLogDirsResponse, as wire.rows has others."""

    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool


def handle_describe(services: Services, exchange: Exchange) -> None:
    """Tell what is in the directories: all logs, or those of the partitions that are named."""
    request = exchange.request

    def respond(found: list[LogDirDescription]) -> None:
        guarded(exchange, lambda: exchange.take(partial(_described, request, found)))

    services.replicas.describe_log_dirs(_wanted(request.message.topics), respond)


def failure_of_describe(request: Request) -> Message:
    """The answer when the handler failed; before version 3 it can only be without directories."""
    return _described(request, [], ErrorCode.UNKNOWN_SERVER_ERROR)


def handle_alter(services: Services, exchange: Exchange) -> None:
    """Begin moves; answered before anything is copied."""
    exchange.work(_alter(services, exchange.request))


def _alter(services: Services, request: Request) -> Steps[Building]:
    outcomes: dict[TopicPartition, ErrorCode] = {}
    targets = _targets(request.message)
    while some := dict(islice(targets, MOVES_PER_STEP)):
        outcomes.update(services.replicas.alter_log_dirs(some))
        yield
    return partial(_altered, request, outcomes, outcomes.__getitem__)


def _targets(message: Message) -> Iterator[tuple[TopicPartition, Path]]:
    for directory in message.dirs:
        path = Path(directory.path)
        for topic in directory.topics:
            for partition in topic.partitions:
                yield TopicPartition(topic.name, partition), path


def failure_of_alter(request: Request) -> Message:
    """The answer when the handler failed."""
    names = {
        TopicPartition(topic.name, partition)
        for directory in request.message.dirs
        for topic in directory.topics
        for partition in topic.partitions
    }
    return _altered(request, sorted(names), lambda _: ErrorCode.UNKNOWN_SERVER_ERROR)


def _wanted(topics: Iterable[Message] | None) -> Callable[[TopicPartition], bool]:
    """Whether a partition is asked for; no list asks for all."""
    if topics is None:
        return lambda _: True
    return {TopicPartition(topic.topic, partition) for topic in topics for partition in topic.partitions}.__contains__


def _described(request: Request, found: list[LogDirDescription], error: ErrorCode = ErrorCode.NONE) -> Message:
    version = request.version
    result_class = DescribeLogDirsResponse.DescribeLogDirsResult
    whole = {"error_code": int(error)} if version >= FIRST_WITH_ERROR else {}
    return DescribeLogDirsResponse(
        version=version,
        throttle_time_ms=0,
        results=[
            result_class(
                version=version,
                error_code=int(ErrorCode.NONE if each.failure is None else ErrorCode.KAFKA_STORAGE_ERROR),
                log_dir=each.path,
                topics=_topics(version, each.logs),
                total_bytes=each.total_bytes,
                usable_bytes=each.usable_bytes,
            )
            for each in found
        ],
        **whole,
    )


def _topics(version: int, logs: Iterable[LogDescription]) -> list[Message]:
    topic_class = DescribeLogDirsResponse.DescribeLogDirsResult.DescribeLogDirsTopic
    by_topic: dict[str, list[LogRow]] = {}
    for log in logs:
        row = LogRow(
            partition_index=log.topic_partition.partition,
            partition_size=log.size_bytes,
            offset_lag=log.offset_lag,
            is_future_key=log.is_future,
        )
        by_topic.setdefault(log.topic_partition.topic, []).append(row)
    return [topic_class(version=version, name=name, partitions=rows) for name, rows in by_topic.items()]


def _altered(
    request: Request, names: Iterable[TopicPartition], outcome: Callable[[TopicPartition], ErrorCode]
) -> Message:
    version = request.version
    topic_class = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
    by_topic: dict[str, list[Message]] = {}
    for name in names:
        row = topic_class.AlterReplicaLogDirPartitionResult(
            version=version, partition_index=name.partition, error_code=int(outcome(name))
        )
        by_topic.setdefault(name.topic, []).append(row)
    return AlterReplicaLogDirsResponse(
        version=version,
        throttle_time_ms=0,
        results=[topic_class(version=version, topic_name=name, partitions=rows) for name, rows in by_topic.items()],
    )
