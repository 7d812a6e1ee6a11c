"""DeleteRecords (KIP-107): records below an offset of each partition are offered no more."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Final

from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import LONGEST_WAIT_MS, Exchange, guarded
from regency.broker_agent.replication.api import DeletedRecords
from regency.broker_agent.steps import Steps
from regency.kafka.codec import DeleteRecordsResponse, Message, Request
from regency.model.ids import Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

PARTITIONS_PER_STEP: Final = 100
"""Whose log start is raised before others have a turn: the epoch file of each is written."""

Results = Mapping[TopicPartition, DeletedRecords]


def handle(services: Services, exchange: Exchange) -> None:
    """Raise log starts; answer when the low watermarks have followed, or time is up.

    Of a partition that is named twice the last offset counts, as in Kafka.
    """
    exchange.change(_delete(services, exchange))


def _delete(services: Services, exchange: Exchange) -> Steps[None]:
    """In parts, each with a timeout of its own; answered with the last that is over."""
    request = exchange.request
    offsets = {
        TopicPartition(topic.name, each.partition_index): Offset(each.offset)
        for topic in request.message.topics
        for each in topic.partitions
    }
    results: dict[TopicPartition, DeletedRecords] = {}

    def respond(some: Results) -> None:
        results.update(some)
        if len(results) == len(offsets):
            for outcome in results.values():
                if outcome.error is not ErrorCode.NONE:
                    exchange.count_error(outcome.error)
            guarded(exchange, lambda: exchange.take(partial(_answer, request, results)))

    if not offsets:
        respond({})
    timeout_ms = max(0, min(request.message.timeout_ms, LONGEST_WAIT_MS))
    left = iter(offsets.items())
    while some := dict(islice(left, PARTITIONS_PER_STEP)):
        services.replicas.delete_records(timeout_ms, some, respond)
        yield


def failure(request: Request) -> Message:
    """The answer when the handler failed."""
    failed = DeletedRecords(ErrorCode.UNKNOWN_SERVER_ERROR)
    names = (
        TopicPartition(topic.name, each.partition_index)
        for topic in request.message.topics
        for each in topic.partitions
    )
    return _answer(request, dict.fromkeys(names, failed))


def _answer(request: Request, results: Results) -> Message:
    version, topic_class = request.version, DeleteRecordsResponse.DeleteRecordsTopicResult
    topics = []
    for topic in request.message.topics:
        partitions = []
        for each in topic.partitions:
            outcome = results[TopicPartition(topic.name, each.partition_index)]
            partitions.append(
                topic_class.DeleteRecordsPartitionResult(
                    version=version,
                    partition_index=each.partition_index,
                    low_watermark=outcome.low_watermark,
                    error_code=int(outcome.error),
                )
            )
        topics.append(topic_class(version=version, name=topic.name, partitions=partitions))
    return DeleteRecordsResponse(version=version, throttle_time_ms=0, topics=topics)
