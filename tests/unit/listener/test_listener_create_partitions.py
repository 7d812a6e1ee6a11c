"""CreatePartitions over the wire: what is forwarded, what is waited for, and how failures are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from regency.broker_agent.control.admin_forwarder import NotController
from regency.kafka.codec import CreatePartitionsRequest
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2 as pb
from regency.runtime.grpc.channels import RpcFailed

Serve = Callable[..., None]
TOPIC = CreatePartitionsRequest.CreatePartitionsTopic


def grow(*topics: tuple[str, int, list[list[int]] | None], timeout_ms: int = 5000, validate_only: bool = False) -> Any:
    return CreatePartitionsRequest(
        topics=[
            TOPIC(
                name=name,
                count=count,
                assignments=None
                if assignments is None
                else [TOPIC.CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments],
            )
            for name, count, assignments in topics
        ],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


def accept(h: Any, *names: str) -> None:
    h.admin.replies[pb.CreatePartitionsRequest] = pb.TopicsResponse(
        topics=[pb.TopicOutcome(topic=name) for name in names]
    )


def results(answer: Any) -> dict[str, tuple[int, str | None]]:
    return {result.name: (result.error_code, result.error_message) for result in answer.results}


@pytest.mark.parametrize("version", range(4))
def test_every_version_adds_partitions(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t", 3)
        h.with_topic("u", 2)
        accept(h, "t", "u")

        request = grow(("t", 3, None), ("u", 2, [[1, 2], [2, 3]]))
        answer = await (await h.connect()).ask(request, version)

        assert results(answer) == {"t": (0, None), "u": (0, None)}
        ((forwarded, timeout_ms),) = h.admin.forwarded
        assert timeout_ms == 5000
        assert [(each.topic, each.count) for each in forwarded.topics] == [("t", 3), ("u", 2)]
        assert [list(each.replicas) for each in forwarded.topics[1].assignments] == [[1, 2], [2, 3]]

    serve(scenario)


def test_the_answer_comes_when_the_new_partitions_are_led(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t", 1)
        accept(h, "t")
        client = await h.connect()
        client.send(grow(("t", 3, None), timeout_ms=10_000), 3)
        await h.eventually(lambda: h.admin.forwarded, "it is forwarded")
        h.with_topic("t", 3)

        assert results(await client.receive()) == {"t": (0, None)}

    serve(scenario)


def test_partitions_that_nobody_leads_in_time_are_told(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t", 1)
        accept(h, "t")

        answer = await (await h.connect()).ask(grow(("t", 2, None), timeout_ms=1), 3)

        error, message = results(answer)["t"]
        assert error == ErrorCode.REQUEST_TIMED_OUT
        assert message is not None and "were added" in message

    serve(scenario)


def test_validation_alone_waits_for_nothing(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t", 1)
        accept(h, "t")

        answer = await (await h.connect()).ask(grow(("t", 2, None), validate_only=True), 3)

        assert results(answer) == {"t": (0, None)}
        assert h.admin.forwarded[0][0].validate_only

    serve(scenario)


def test_refusals_of_the_controller_are_told_in_its_words(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.admin.replies[pb.CreatePartitionsRequest] = pb.TopicsResponse(
            topics=[pb.TopicOutcome(topic="t", error_code=60, message="it moves")]
        )

        answer = await (await h.connect()).ask(grow(("t", 2, None)), 3)

        assert results(answer) == {"t": (60, "it moves")}

    serve(scenario)


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (NotController("another rules"), ErrorCode.NOT_CONTROLLER),
        (RpcFailed("too slow"), ErrorCode.REQUEST_TIMED_OUT),
        (ValueError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_controller_that_does_not_answer_is_told(serve: Serve, failure: Exception, error: ErrorCode) -> None:
    async def scenario(h: Any) -> None:
        h.admin.fail = failure
        answer = await (await h.connect()).ask(grow(("t", 2, None)), 3)
        assert results(answer)["t"][0] == error

    serve(scenario)
