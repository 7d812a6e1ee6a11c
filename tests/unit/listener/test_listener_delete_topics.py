from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from regency.broker_agent.control.admin_forwarder import NotController
from regency.kafka.codec import DeleteTopicsRequest
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2
from regency.runtime.grpc.channels import RpcFailed

Serve = Callable[..., None]
TOPIC = DeleteTopicsRequest.DeleteTopicState


def id_of(name: str) -> UUID:
    """The id a topic has in the metadata of these tests."""
    return UUID(bytes=name.encode().ljust(16, b"-"))


def delete(version: int, *names: str, timeout_ms: int = 5000) -> Any:
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    return DeleteTopicsRequest(topics=[TOPIC(name=name) for name in names], timeout_ms=timeout_ms)


def reply(*outcomes: tuple[str, ErrorCode, str]) -> admin_pb2.DeleteTopicsResponse:
    return admin_pb2.DeleteTopicsResponse(
        topics=[
            admin_pb2.DeletedTopic(name=name, topic_id=id_of(name).bytes, error_code=error, message=message)
            for name, error, message in outcomes
        ]
    )


def told(h: Any, answer: admin_pb2.DeleteTopicsResponse) -> None:
    h.admin.replies[admin_pb2.DeleteTopicsRequest] = answer


@pytest.mark.parametrize("version", range(1, 7))
def test_every_version_waits_until_the_topic_is_gone_here(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        told(h, reply(("t", ErrorCode.NONE, "")))
        client = await h.connect()
        client.send(delete(version, "t", "t"), version)
        await h.eventually(lambda: bool(h.admin.forwarded), "the request is forwarded")
        answer = asyncio.ensure_future(client.receive())
        await asyncio.sleep(0)
        assert not answer.done()

        del h.topics["t"]
        h.publish()

        (topic,) = (await answer).responses
        assert (topic.name, topic.error_code) == ("t", 0)
        if version >= 5:
            assert topic.error_message is None
        if version >= 6:
            assert topic.topic_id == id_of("t")
        (request, timeout_ms) = h.admin.forwarded[0]
        assert ([each.name for each in request.topics], timeout_ms) == (["t"], 5000)

    serve(scenario)


def test_a_topic_made_anew_is_another_one(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        answered = admin_pb2.DeleteTopicsResponse(topics=[admin_pb2.DeletedTopic(name="t", topic_id=id_of("u").bytes)])
        told(h, answered)
        (topic,) = (await (await h.connect()).ask(delete(6, "t"), 6)).responses
        assert topic.error_code == ErrorCode.NONE

    serve(scenario)


def test_when_time_is_over_it_says_so(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        told(h, reply(("t", ErrorCode.NONE, ""), ("u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no u")))
        t, u = (await (await h.connect()).ask(delete(5, "t", "u", timeout_ms=0), 5)).responses
        assert (t.error_code, "still known" in t.error_message) == (ErrorCode.REQUEST_TIMED_OUT, True)
        assert (u.error_code, u.error_message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no u")

    serve(scenario)


def test_topics_are_named_by_id(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        unknown = admin_pb2.DeletedTopic(topic_id=id_of("t").bytes, error_code=ErrorCode.UNKNOWN_TOPIC_ID, message="no")
        told(h, admin_pb2.DeleteTopicsResponse(topics=[unknown]))
        request = DeleteTopicsRequest(topics=[TOPIC(name=None, topic_id=id_of("t"))], timeout_ms=1)

        (topic,) = (await (await h.connect()).ask(request, 6)).responses

        assert (topic.name, topic.topic_id, topic.error_code) == (None, id_of("t"), ErrorCode.UNKNOWN_TOPIC_ID)
        assert h.admin.forwarded[0][0].topics[0].topic_id == id_of("t").bytes

    serve(scenario)


def test_name_and_id_together_are_refused(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        request = DeleteTopicsRequest(topics=[TOPIC(name="t", topic_id=id_of("t"))], timeout_ms=1)
        (topic,) = (await (await h.connect()).ask(request, 6)).responses
        assert topic.error_code == ErrorCode.INVALID_REQUEST
        assert not h.admin.forwarded

    serve(scenario)


@pytest.mark.parametrize(("version", "error"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_forbidden_deletion_has_its_own_error_from_version_3_on(serve: Serve, version: int, error: ErrorCode) -> None:
    async def scenario(h: Any) -> None:
        told(h, reply(("t", ErrorCode.TOPIC_DELETION_DISABLED, "not here")))
        (topic,) = (await (await h.connect()).ask(delete(version, "t"), version)).responses
        assert topic.error_code == error

    serve(scenario)


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (NotController("Broker 2 rules."), ErrorCode.NOT_CONTROLLER),
        (RpcFailed("No answer."), ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_without_the_controller_nothing_is_done(serve: Serve, failure: Exception, error: ErrorCode) -> None:
    async def scenario(h: Any) -> None:
        h.admin.fail = failure
        (topic,) = (await (await h.connect()).ask(delete(6, "t"), 6)).responses
        assert (topic.name, topic.error_code) == ("t", error)

    serve(scenario)


def test_what_the_controller_refuses_as_a_whole_holds_for_all(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        busy = admin_pb2.Outcome(error_code=ErrorCode.REQUEST_TIMED_OUT, message="busy")
        told(h, admin_pb2.DeleteTopicsResponse(outcome=busy))
        answers = (await (await h.connect()).ask(delete(6, "t", "u"), 6)).responses
        assert [each.error_code for each in answers] == [ErrorCode.REQUEST_TIMED_OUT] * 2

    serve(scenario)
