"""InitProducerId: an id for an idempotent producer (KIP-98). DescribeProducers: who writes to a partition (KIP-664)."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Building, Exchange
from regency.broker_agent.replication.api import ActiveProducer
from regency.broker_agent.steps import Steps
from regency.kafka.codec import DescribeProducersResponse, InitProducerIdResponse, Message, Request
from regency.model.errors import RegencyError
from regency.model.ids import NO_PRODUCER_ID, ProducerId, TopicPartition
from regency.model.kafka_errors import ErrorCode

_Partition: TypeAlias = tuple[int, list[ActiveProducer] | ErrorCode]
_Topic: TypeAlias = tuple[str, list[_Partition]]


def handle(services: Services, exchange: Exchange) -> None:
    """A new id with epoch 0. Transactions are refused.

    UNSUPPORTED_VERSION, because clients take it for final and say so: the errors about coordinators make them look for
    one for ever. An id that a client still has is not continued: without transactions Kafka gives a new one too.
    """
    request = exchange.request
    if request.message.transactional_id is not None:
        exchange.answer(_answer(request.version, ErrorCode.UNSUPPORTED_VERSION))
    else:
        exchange.run(_allocate(services, request.version))


def failure(request: Request) -> Message:
    """The answer when the handler failed."""
    return _answer(request.version, ErrorCode.UNKNOWN_SERVER_ERROR)


async def _allocate(services: Services, version: int) -> Message:
    try:
        return _answer(version, ErrorCode.NONE, await services.producer_ids.allocate())
    except RegencyError as error:
        if not error.retriable:
            raise
        # The one error that idempotent producers of every client wait out without looking for a coordinator.
        return _answer(version, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _answer(version: int, error: ErrorCode, producer_id: ProducerId = NO_PRODUCER_ID) -> Message:
    return InitProducerIdResponse(
        version=version,
        error_code=int(error),
        producer_id=producer_id,
        producer_epoch=0 if error is ErrorCode.NONE else -1,
    )


def handle_describe(services: Services, exchange: Exchange) -> None:
    """The producers that a leader remembers, by partition. Transactions are not offered: none is in one."""
    exchange.work(_describe(services, exchange.request))


def failure_of_describe(request: Request) -> Message:
    """The answer when the handler of DescribeProducers failed."""
    topics: list[_Topic] = [
        (topic.name, [(number, ErrorCode.UNKNOWN_SERVER_ERROR) for number in topic.partition_indexes])
        for topic in request.message.topics
    ]
    return _described(request.version, topics)


def _describe(services: Services, request: Request) -> Steps[Building]:
    topics: list[_Topic] = []
    for topic in request.message.topics:
        partitions: list[_Partition] = []
        for number in topic.partition_indexes:
            partitions.append((number, services.replicas.active_producers(TopicPartition(topic.name, number))))
            yield
        topics.append((topic.name, partitions))
    return partial(_described, request.version, topics)


def _described(version: int, topics: list[_Topic]) -> Message:
    topic_class = DescribeProducersResponse.TopicResponse
    partition_class = topic_class.PartitionResponse
    return DescribeProducersResponse(
        version=version,
        topics=[
            topic_class(
                version=version,
                name=name,
                partitions=[
                    partition_class(
                        version=version,
                        partition_index=number,
                        error_code=int(found) if isinstance(found, ErrorCode) else 0,
                        active_producers=[
                            partition_class.ProducerState(
                                version=version,
                                producer_id=each.producer_id,
                                producer_epoch=each.epoch,
                                last_sequence=each.last_sequence,
                                last_timestamp=each.last_timestamp_ms,
                                coordinator_epoch=-1,
                                current_txn_start_offset=-1,
                            )
                            for each in ([] if isinstance(found, ErrorCode) else found)
                        ],
                    )
                    for number, found in partitions
                ],
            )
            for name, partitions in topics
        ],
    )
