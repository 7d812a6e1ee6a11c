"""Admin requests over the wire: what travels to the controller, what is waited for, and how failures are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from admin_requests import VERSIONS, any_request, creating, electing, enveloped, moving, new_topic, outcomes
from google.protobuf.message import Message as Protobuf

from regency.broker_agent.control.admin_forwarder import NotController
from regency.kafka.admin_answers import Row, answer
from regency.kafka.apis import ApiKey
from regency.kafka.codec import Message, encode_body, parse_forwarded
from regency.model.kafka_errors import ErrorCode
from regency.protos.admin_pb2 import Awaited, EnvelopeReply, Outcome
from regency.runtime.grpc.channels import RpcFailed

Serve = Callable[..., None]

PARTITIONS = (ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS)
RESOURCES = (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
WITHOUT_WHY = {ApiKey.DELETE_TOPICS: range(5)}
"""Versions without a message."""

WAITING = [each for each in VERSIONS if each[0] in {19, 20, 37, 43}]


def row_of(api: ApiKey) -> Row:
    return Row("t", 0 if api in PARTITIONS else 2 if api in RESOURCES else None, num_partitions=1)


def replied(message: Message, version: int, rows: Sequence[Row], *awaited: Protobuf) -> EnvelopeReply:
    sent = enveloped(message, version)
    request = parse_forwarded(sent.api_key, version, "test", sent.request)
    return EnvelopeReply(response=bytes(encode_body(version, answer(request, rows))), awaited=awaited)


def subject(api: ApiKey) -> Any:
    return ("t", 0) if api in PARTITIONS else "t"


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_a_request_travels_as_it_came_and_its_answer_as_the_controller_gave_it(
    serve: Serve, api: ApiKey, version: int
) -> None:
    message = any_request(api, version)

    async def scenario(h: Any) -> None:
        h.admin.reply = replied(message, version, [row_of(api)])
        client = await h.connect()
        client.send(message, version)
        frame = await client.receive_frame()

        assert frame.endswith(h.admin.reply.response)
        ((envelope, options),) = h.admin.forwarded
        assert envelope == enveloped(message, version)
        assert options == {
            "timeout_ms": 20_000 if api in RESOURCES else 5000,
            "require_local": api not in RESOURCES,
            "repeatable": api is ApiKey.LIST_PARTITION_REASSIGNMENTS,
        }

    serve(scenario)


@pytest.mark.parametrize("failure", ["not ruling", "silent", "a bug", "refused"])
@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_what_was_refused_as_a_whole_is_told_for_everything(
    serve: Serve, api: ApiKey, version: int, failure: str
) -> None:
    async def scenario(h: Any) -> None:
        error, why = ErrorCode.UNKNOWN_SERVER_ERROR, "UNKNOWN_SERVER_ERROR"
        if failure == "not ruling":
            error, why = ErrorCode.NOT_CONTROLLER, "Broker 9 rules."
            h.admin.fail = NotController(why)
        elif failure == "silent":
            error, why = ErrorCode.REQUEST_TIMED_OUT, "No answer."
            h.admin.fail = RpcFailed(why)
        elif failure == "refused":
            error, why = ErrorCode.UNSUPPORTED_VERSION, "another version"
            h.admin.reply = EnvelopeReply(outcome=Outcome(error_code=error, message=why))
        else:
            h.admin.fail = ValueError("a bug")

        answered = await (await h.connect()).ask(any_request(api, version), version)

        told = None if version in WITHOUT_WHY.get(api, ()) else why
        if api is not ApiKey.LIST_PARTITION_REASSIGNMENTS:
            assert outcomes(answered) == {subject(api): (error, told)}
        if api in {43, 45, 46} and (api, version) != (43, 0):
            assert answered.error_code == error

    serve(scenario)


def test_without_a_controller_an_old_election_of_everything_names_everything(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t", 2)
        h.admin.fail = NotController("Broker 9 rules.")
        answered = await (await h.connect()).ask(electing(0, None), 0)
        assert outcomes(answered) == dict.fromkeys([("t", 0), ("t", 1)], (41, "Broker 9 rules."))

    serve(scenario)


def test_a_refused_reassignment_repeats_whether_the_factor_may_change(serve: Serve) -> None:
    """KIP-860."""

    async def scenario(h: Any) -> None:
        h.admin.fail = NotController("Broker 9 rules.")
        answered = await (await h.connect()).ask(moving({0: [2]}, allow_replication_factor_change=False), 1)
        assert not answered.allow_replication_factor_change

    serve(scenario)


@pytest.mark.parametrize(("api", "version"), WAITING)
def test_the_client_has_its_answer_when_it_can_see_here_what_was_done(serve: Serve, api: ApiKey, version: int) -> None:
    message = any_request(api, version)
    gone = api is ApiKey.DELETE_TOPICS

    async def scenario(h: Any) -> None:
        h.with_topic("t", leader=1 if gone or api is ApiKey.ELECT_LEADERS else -1)
        awaited = Awaited(topic="t") if gone else Awaited(topic="t", partition=[0], leader=[2] if api == 43 else [])
        h.admin.reply = replied(message, version, [row_of(api)], awaited)
        client = await h.connect()
        client.send(message, version)
        await h.eventually(lambda: bool(h.admin.forwarded), "the request is forwarded")
        asked = asyncio.ensure_future(client.receive())
        await asyncio.sleep(0.01)
        assert not asked.done()

        if gone:
            del h.topics["t"]
            h.publish()
        else:
            h.with_topic("t", leader=2)

        assert outcomes(await asked) == {subject(api): (0, None)}

    serve(scenario)


@pytest.mark.parametrize(("api", "version"), WAITING)
def test_what_cannot_be_seen_here_in_time_is_told_and_nothing_else_is_touched(
    serve: Serve, api: ApiKey, version: int
) -> None:
    message = any_request(api, version)
    message.timeout_ms = 1
    other = row_of(api)._replace(name="u", error=ErrorCode.POLICY_VIOLATION, message="no")

    async def scenario(h: Any) -> None:
        h.with_topic("t", leader=1 if api is ApiKey.DELETE_TOPICS else -1)
        awaited = [Awaited(topic="t", partition=[] if api is ApiKey.DELETE_TOPICS else [0])]
        if api is ApiKey.CREATE_TOPICS:
            message.topics.append(new_topic("u", 1, 1))
        h.admin.reply = replied(message, version, [row_of(api), other], *awaited)

        found = outcomes(await (await h.connect()).ask(message, version))

        (late, why), (refused, _) = found.values()
        assert (late, refused) == (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.POLICY_VIOLATION)
        assert version in WITHOUT_WHY.get(api, ()) or "known here" in why

    serve(scenario)


def test_a_topic_made_anew_is_another_one_than_the_deleted(serve: Serve) -> None:
    message = any_request(ApiKey.DELETE_TOPICS, 6)

    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.admin.reply = replied(message, 6, [Row("t")], Awaited(topic="t", topic_id=bytes(15) + b"x"))
        assert outcomes(await (await h.connect()).ask(message, 6)) == {"t": (0, None)}

    serve(scenario)


def test_a_topic_of_which_one_partition_has_no_leader_yet_is_late(serve: Serve) -> None:
    message = creating(new_topic("t", 2, 1), timeout_ms=1)

    async def scenario(h: Any) -> None:
        h.with_topic("t", 1)
        h.admin.reply = replied(message, 7, [Row("t", num_partitions=2)], Awaited(topic="t", partition=[0, 1]))
        (topic,) = (await (await h.connect()).ask(message, 7)).topics
        assert (topic.error_code, topic.num_partitions) == (ErrorCode.REQUEST_TIMED_OUT, -1)

    serve(scenario)
