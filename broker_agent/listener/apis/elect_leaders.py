"""ElectLeaders (KIP-183, KIP-460): forwarded to the controller; answered when the new leaders are known here."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from regency.broker_agent.control.admin_forwarder import NotController
from regency.broker_agent.control.metadata import MetadataSnapshot
from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Building, Exchange
from regency.kafka.codec import ElectLeadersResponse, Message, Request
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2
from regency.runtime.grpc.channels import RpcFailed
from regency.runtime.grpc.clients import AdminClient

FIRST_WITH_TYPE: Final = 1
FIRST_WITH_ERROR: Final = 1
LATE: Final = "The leader was elected, and is not known here yet."


class _Result(NamedTuple):
    partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    leader: int = -1


def handle(services: Services, exchange: Exchange) -> None:
    """Forward to the controller, and wait until its leaders are known here."""
    exchange.run(_elect(services, exchange.request))


def failure(request: Request) -> Message:
    """The answer when the handler failed."""
    return _refused(request, ErrorCode.UNKNOWN_SERVER_ERROR, "")


async def _elect(services: Services, request: Request) -> Building:
    message = request.message
    everything = message.topic_partitions is None
    view = services.metadata.current if everything and request.version < FIRST_WITH_ERROR else None
    deadline = services.clock.monotonic_ms() + message.timeout_ms
    wanted = await services.build(request, partial(_encode, request))
    try:
        reply = await services.admin.forward(
            lambda channel: AdminClient(channel).elect_leaders, wanted, timeout_ms=message.timeout_ms
        )
    except NotController as error:
        return partial(_refused, request, ErrorCode.NOT_CONTROLLER, str(error), view)
    except RpcFailed as error:
        return partial(_refused, request, ErrorCode.REQUEST_TIMED_OUT, str(error), view)
    if reply.outcome.error_code != ErrorCode.NONE:
        return partial(_refused, request, ErrorCode(reply.outcome.error_code), reply.outcome.message, view)
    results = [
        _Result(TopicPartition(each.topic, each.partition), ErrorCode(each.error_code), each.message, each.leader)
        for each in reply.partitions
    ]
    elected = [each for each in results if each.error is ErrorCode.NONE]
    if elected:
        left_ms = deadline - services.clock.monotonic_ms()
        await services.metadata.wait_for(lambda view: all(_led(view, each) for each in elected), left_ms)
        view = services.metadata.current
        results = [
            each._replace(error=ErrorCode.REQUEST_TIMED_OUT, message=LATE)
            if each.error is ErrorCode.NONE and not _led(view, each)
            else each
            for each in results
        ]
    return partial(_answer, request, results)


def _encode(request: Request) -> admin_pb2.ElectLeadersRequest:
    message = request.message
    wanted = admin_pb2.ElectLeadersRequest(
        election_type=message.election_type if request.version >= FIRST_WITH_TYPE else 0,
        all=message.topic_partitions is None,
    )
    for topic in message.topic_partitions or ():
        wanted.topics.add(topic=topic.topic, partition=topic.partitions)
    return wanted


def _led(view: MetadataSnapshot, result: _Result) -> bool:
    topic = view.topics.get(result.partition.topic)
    partition = None if topic is None else topic.partitions.get(result.partition.partition)
    return partition is not None and partition.leader == result.leader


def _refused(request: Request, error: ErrorCode, message: str, view: MetadataSnapshot | None = None) -> Message:
    """One error for all; at the top, too, from the version on that has a place for it there.

    `view`: where everything was asked for and there is no such place, it says what everything is.
    """
    named = [
        TopicPartition(topic.topic, number)
        for topic in request.message.topic_partitions or ()
        for number in topic.partitions
    ]
    if view is not None:
        named = [TopicPartition(name, number) for name, topic in view.topics.items() for number in topic.partitions]
    return _answer(request, [_Result(each, error, message) for each in named], error)


def _answer(request: Request, results: Iterable[_Result], error: ErrorCode = ErrorCode.NONE) -> Message:
    topic_class = ElectLeadersResponse.ReplicaElectionResult
    partition_class = topic_class.PartitionResult
    by_topic: dict[str, list[Message]] = {}
    for result in results:
        failed = result.error is not ErrorCode.NONE
        by_topic.setdefault(result.partition.topic, []).append(
            partition_class(
                version=request.version,
                partition_id=result.partition.partition,
                error_code=int(result.error),
                error_message=(result.message or result.error.name) if failed else None,
            )
        )
    message = ElectLeadersResponse(
        version=request.version,
        throttle_time_ms=0,
        replica_election_results=[
            topic_class(version=request.version, topic=topic, partition_result=partitions)
            for topic, partitions in by_topic.items()
        ],
    )
    if request.version >= FIRST_WITH_ERROR:
        message.error_code = int(error)
    return message
