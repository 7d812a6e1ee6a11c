"""CreatePartitions: forwarded to the controller; answered when the new partitions are led, or time is over."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from regency.broker_agent.control.admin_forwarder import NotController
from regency.broker_agent.control.metadata import MetadataSnapshot
from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Building, Exchange
from regency.kafka.codec import CreatePartitionsResponse, Message, Request
from regency.model.ids import NO_LEADER
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2
from regency.runtime.grpc.channels import RpcFailed
from regency.runtime.grpc.clients import AdminClient

LATE = "The partitions were added; their leaders are not known here yet."


class _Result(NamedTuple):
    error: ErrorCode
    message: str = ""


def handle(services: Services, exchange: Exchange) -> None:
    """Forward to the controller, and wait for leaders."""
    exchange.run(_create(services, exchange.request))


def failure(request: Request) -> Message:
    """The answer when the handler failed."""
    return _answer(request, _for_all(request, ErrorCode.UNKNOWN_SERVER_ERROR, ""))


async def _create(services: Services, request: Request) -> Building:
    message = request.message
    deadline = services.clock.monotonic_ms() + message.timeout_ms
    before = {topic.name: _count(services.metadata.current, topic.name) for topic in message.topics}
    wanted = await services.build(request, partial(_encode, message))
    try:
        reply = await services.admin.forward(
            lambda channel: AdminClient(channel).create_partitions, wanted, timeout_ms=message.timeout_ms
        )
    except NotController as error:
        return partial(_answer, request, _for_all(request, ErrorCode.NOT_CONTROLLER, str(error)))
    except RpcFailed as error:
        return partial(_answer, request, _for_all(request, ErrorCode.REQUEST_TIMED_OUT, str(error)))
    if reply.outcome.error_code != ErrorCode.NONE:
        return partial(_answer, request, _for_all(request, ErrorCode(reply.outcome.error_code), reply.outcome.message))
    results = {each.topic: _Result(ErrorCode(each.error_code), each.message) for each in reply.topics}
    added = {
        topic.name: range(before[topic.name], topic.count)
        for topic in message.topics
        if results[topic.name].error is ErrorCode.NONE
    }
    if added and not message.validate_only:
        left_ms = deadline - services.clock.monotonic_ms()
        await services.metadata.wait_for(lambda view: all(_led(view, *each) for each in added.items()), left_ms)
        view = services.metadata.current
        for name, numbers in added.items():
            if not _led(view, name, numbers):
                results[name] = _Result(ErrorCode.REQUEST_TIMED_OUT, LATE)
    return partial(_answer, request, results)


def _encode(message: Message) -> admin_pb2.CreatePartitionsRequest:
    """No assignments and an empty list of them are the same here: some clients cannot tell them apart."""
    request = admin_pb2.CreatePartitionsRequest(validate_only=message.validate_only)
    for topic in message.topics:
        more = request.topics.add(topic=topic.name, count=topic.count)
        for assignment in topic.assignments or ():
            more.assignments.add(replicas=assignment.broker_ids)
    return request


def _count(view: MetadataSnapshot, name: str) -> int:
    topic = view.topics.get(name)
    return 0 if topic is None else len(topic.partitions)


def _led(view: MetadataSnapshot, name: str, numbers: range) -> bool:
    topic = view.topics.get(name)
    if topic is None:
        return False
    partitions = [topic.partitions.get(number) for number in numbers]
    return all(each is not None and each.leader != NO_LEADER for each in partitions)


def _for_all(request: Request, error: ErrorCode, message: str) -> dict[str, _Result]:
    return {topic.name: _Result(error, message) for topic in request.message.topics}


def _answer(request: Request, results: Mapping[str, _Result]) -> Message:
    result_class = CreatePartitionsResponse.CreatePartitionsTopicResult
    return CreatePartitionsResponse(
        version=request.version,
        results=[
            result_class(
                version=request.version,
                name=name,
                error_code=int(result.error),
                error_message=None if result.error is ErrorCode.NONE else result.message or result.error.name,
            )
            for name, result in results.items()
        ],
    )
