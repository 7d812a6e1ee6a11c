"""DeleteTopics: forwarded to the controller; answered when nobody here knows the topics any more, or time is over.

As with Kafka the answer says that clients see the topics no more. Their replicas and znodes may still be on their way
out, so a topic of the same name may have to wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from regency.broker_agent.control.admin_forwarder import NotController, topic_id_from
from regency.broker_agent.control.metadata import MetadataSnapshot
from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Building, Exchange
from regency.kafka.codec import DeleteTopicsResponse, Message, Request
from regency.model.ids import ZERO_TOPIC_ID, TopicId
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2
from regency.runtime.grpc.channels import RpcFailed
from regency.runtime.grpc.clients import AdminClient

FIRST_WITH_DISABLED: Final = 3
FIRST_WITH_MESSAGES: Final = 5
FIRST_WITH_IDS: Final = 6

LATE: Final = "The topic is being deleted; it is still known here."
BOTH: Final = "Name a topic either by its name or by its id, not by both."


class _Result(msgspec.Struct, frozen=True):
    name: str | None
    topic_id: TopicId | None
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


def handle(services: Services, exchange: Exchange) -> None:
    """Forward to the controller, and wait until the topics are gone from the metadata here."""
    exchange.run(_delete(services, exchange.request))


def failure(request: Request) -> Message:
    """The answer when the handler failed."""
    return _answer(request, _for_all(_wanted(request), ErrorCode.UNKNOWN_SERVER_ERROR, ""))


async def _delete(services: Services, request: Request) -> Building:
    wanted = await services.build(request, partial(_wanted, request))
    if any(topic.name and topic.topic_id for topic in wanted):
        return partial(_answer, request, _for_all(wanted, ErrorCode.INVALID_REQUEST, BOTH))
    timeout_ms = request.message.timeout_ms
    deadline = services.clock.monotonic_ms() + timeout_ms
    named = await services.build(request, partial(_encode, wanted))
    try:
        reply = await services.admin.forward(
            lambda channel: AdminClient(channel).delete_topics, named, timeout_ms=timeout_ms
        )
    except NotController as error:
        return partial(_answer, request, _for_all(wanted, ErrorCode.NOT_CONTROLLER, str(error)))
    except RpcFailed as error:
        return partial(_answer, request, _for_all(wanted, ErrorCode.REQUEST_TIMED_OUT, str(error)))
    if reply.outcome.error_code != ErrorCode.NONE:
        return partial(_answer, request, _for_all(wanted, ErrorCode(reply.outcome.error_code), reply.outcome.message))
    results = await services.build(request, lambda: [_decode(topic) for topic in reply.topics])
    going = [result for result in results if result.error is ErrorCode.NONE]
    if going:
        left_ms = deadline - services.clock.monotonic_ms()
        await services.metadata.wait_for(lambda view: not any(_is_known(view, each) for each in going), left_ms)
        view = services.metadata.current
        results = [
            msgspec.structs.replace(each, error=ErrorCode.REQUEST_TIMED_OUT, message=LATE)
            if each.error is ErrorCode.NONE and _is_known(view, each)
            else each
            for each in results
        ]
    return partial(_answer, request, results)


def _wanted(request: Request) -> list[_Result]:
    """The topics of a request, each once."""
    message = request.message
    if request.version < FIRST_WITH_IDS:
        return [_Result(name, None) for name in dict.fromkeys(message.topic_names)]
    named = ((topic.name, None if topic.topic_id == ZERO_TOPIC_ID else topic.topic_id) for topic in message.topics)
    return [_Result(name, topic_id) for name, topic_id in dict.fromkeys(named)]


def _encode(wanted: Sequence[_Result]) -> admin_pb2.DeleteTopicsRequest:
    return admin_pb2.DeleteTopicsRequest(
        topics=[
            admin_pb2.TopicRef(name=topic.name, topic_id=b"" if topic.topic_id is None else topic.topic_id.bytes)
            for topic in wanted
        ]
    )


def _decode(topic: admin_pb2.DeletedTopic) -> _Result:
    return _Result(topic.name or None, topic_id_from(topic.topic_id), ErrorCode(topic.error_code), topic.message)


def _is_known(view: MetadataSnapshot, deleted: _Result) -> bool:
    topic = None if deleted.name is None else view.topics.get(deleted.name)
    return topic is not None and deleted.topic_id in (None, topic.topic_id)


def _for_all(wanted: Sequence[_Result], error: ErrorCode, message: str) -> list[_Result]:
    return [msgspec.structs.replace(topic, error=error, message=message) for topic in wanted]


def _answer(request: Request, results: Sequence[_Result]) -> Message:
    return DeleteTopicsResponse(
        version=request.version, responses=[_response(request.version, result) for result in results]
    )


def _response(version: int, result: _Result) -> Message:
    error = result.error
    if error is ErrorCode.TOPIC_DELETION_DISABLED and version < FIRST_WITH_DISABLED:
        error = ErrorCode.INVALID_REQUEST
    fields: dict[str, object] = {"name": result.name, "error_code": int(error)}
    if version >= FIRST_WITH_MESSAGES:
        fields["error_message"] = None if error is ErrorCode.NONE else result.message or error.name
    if version >= FIRST_WITH_IDS:
        fields["topic_id"] = result.topic_id
    return DeleteTopicsResponse.DeletableTopicResult(version=version, **fields)
