"""AlterPartitionReassignments and ListPartitionReassignments (KIP-455): forwarded to the controller, which decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from regency.broker_agent.control.admin_forwarder import NotController
from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Building, Exchange
from regency.kafka.codec import (
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsResponse,
    Message,
    Request,
)
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2
from regency.runtime.grpc.channels import RpcFailed
from regency.runtime.grpc.clients import AdminClient

FIRST_WITH_FACTOR: Final = 1
"""Version of AlterPartitionReassignments that may demand that no replication factor changes (KIP-860)."""


def handle_alter(services: Services, exchange: Exchange) -> None:
    """Begin, replace or cancel reassignments; answered when they stand in ZooKeeper."""
    exchange.run(_alter(services, exchange.request))


def failure_of_alter(request: Request) -> Message:
    """The answer when the handler failed."""
    return _altered(request, ErrorCode.UNKNOWN_SERVER_ERROR)


def handle_list(services: Services, exchange: Exchange) -> None:
    """Name what is being reassigned."""
    exchange.run(_list(services, exchange.request))


def failure_of_list(request: Request) -> Message:
    """The answer when the handler failed."""
    return _listed(request, ErrorCode.UNKNOWN_SERVER_ERROR)


async def _alter(services: Services, request: Request) -> Building:
    message = request.message
    wanted = await services.build(request, partial(_encode, request))
    try:
        reply = await services.admin.forward(
            lambda channel: AdminClient(channel).alter_reassignments, wanted, timeout_ms=message.timeout_ms
        )
    except NotController as error:
        return partial(_altered, request, ErrorCode.NOT_CONTROLLER, str(error))
    except RpcFailed as error:
        return partial(_altered, request, ErrorCode.REQUEST_TIMED_OUT, str(error))
    return partial(_altered, request, ErrorCode(reply.outcome.error_code), reply.outcome.message, reply.partitions)


def _encode(request: Request) -> admin_pb2.AlterReassignmentsRequest:
    message = request.message
    wanted = admin_pb2.AlterReassignmentsRequest(
        keep_replication_factor=request.version >= FIRST_WITH_FACTOR and not message.allow_replication_factor_change
    )
    for topic in message.topics:
        for partition in topic.partitions:
            wanted.reassignments.add(
                topic=topic.name,
                partition=partition.partition_index,
                replicas=partition.replicas or (),
                cancel=partition.replicas is None,
            )
    return wanted


async def _list(services: Services, request: Request) -> Building:
    message = request.message
    wanted = admin_pb2.ListReassignmentsRequest(all=message.topics is None)
    for topic in message.topics or ():
        wanted.topics.add(topic=topic.name, partition=topic.partition_indexes)
    try:
        reply = await services.admin.forward(
            lambda channel: AdminClient(channel).list_reassignments,
            wanted,
            timeout_ms=message.timeout_ms,
            repeatable=True,
        )
    except NotController as error:
        return partial(_listed, request, ErrorCode.NOT_CONTROLLER, str(error))
    except RpcFailed as error:
        return partial(_listed, request, ErrorCode.REQUEST_TIMED_OUT, str(error))
    return partial(_listed, request, ErrorCode(reply.outcome.error_code), reply.outcome.message, reply.reassignments)


def _altered(
    request: Request, error: ErrorCode, why: str = "", outcomes: Sequence[admin_pb2.PartitionOutcome] = ()
) -> Message:
    """As Kafka answers: where the request failed as a whole, every partition carries the error too."""
    topic_class = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
    by_topic: dict[str, list[Message]] = {}
    for outcome in outcomes if error is ErrorCode.NONE else _for_all(request, error, why):
        code = ErrorCode(outcome.error_code)
        by_topic.setdefault(outcome.topic, []).append(
            topic_class.ReassignablePartitionResponse(
                version=request.version,
                partition_index=outcome.partition,
                error_code=int(code),
                error_message=None if code is ErrorCode.NONE else outcome.message or code.name,
            )
        )
    flags: dict[str, bool] = {}
    if request.version >= FIRST_WITH_FACTOR:
        flags["allow_replication_factor_change"] = request.message.allow_replication_factor_change
    return AlterPartitionReassignmentsResponse(
        version=request.version,
        throttle_time_ms=0,
        error_code=int(error),
        error_message=None if error is ErrorCode.NONE else why or error.name,
        responses=_topics(topic_class, request.version, by_topic),
        **flags,
    )


def _for_all(request: Request, error: ErrorCode, why: str) -> list[admin_pb2.PartitionOutcome]:
    return [
        admin_pb2.PartitionOutcome(topic=topic.name, partition=partition.partition_index, error_code=error, message=why)
        for topic in request.message.topics
        for partition in topic.partitions
    ]


def _listed(
    request: Request, error: ErrorCode, why: str = "", under_way: Sequence[admin_pb2.OngoingReassignment] = ()
) -> Message:
    topic_class = ListPartitionReassignmentsResponse.OngoingTopicReassignment
    by_topic: dict[str, list[Message]] = {}
    for each in under_way:
        by_topic.setdefault(each.topic, []).append(
            topic_class.OngoingPartitionReassignment(
                version=request.version,
                partition_index=each.partition,
                replicas=list(each.replicas),
                adding_replicas=list(each.adding),
                removing_replicas=list(each.removing),
            )
        )
    return ListPartitionReassignmentsResponse(
        version=request.version,
        throttle_time_ms=0,
        error_code=int(error),
        error_message=None if error is ErrorCode.NONE else why or error.name,
        topics=_topics(topic_class, request.version, by_topic),
    )


def _topics(topic_class: Message, version: int, by_topic: Mapping[str, list[Message]]) -> list[Message]:
    return [topic_class(version=version, name=name, partitions=each) for name, each in by_topic.items()]
