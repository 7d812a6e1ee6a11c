from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from regency.broker_agent.control.admin_forwarder import NotController
from regency.kafka.codec import ElectLeadersRequest
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2
from regency.runtime.grpc.channels import RpcFailed

Serve = Callable[..., None]
TOPIC = ElectLeadersRequest.TopicPartitions
ASKED, ANSWERED = admin_pb2.ElectLeadersRequest, admin_pb2.PartitionsResponse


def elect(version: int, partitions: list[int] | None, *, kind: int = 0, timeout_ms: int = 50) -> Any:
    named = None if partitions is None else [TOPIC(version=version, topic="t", partitions=partitions)]
    message = ElectLeadersRequest(version=version, topic_partitions=named, timeout_ms=timeout_ms)
    if version >= 1:
        message.election_type = kind
    return message


def outcome(partition: int, code: int = 0, message: str = "", leader: int = -1) -> admin_pb2.PartitionOutcome:
    return admin_pb2.PartitionOutcome(topic="t", partition=partition, error_code=code, message=message, leader=leader)


def results(answer: Any) -> dict[tuple[str, int], tuple[int, str | None]]:
    return {
        (topic.topic, each.partition_id): (each.error_code, each.error_message)
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_is_forwarded_and_answered_partition_by_partition(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.admin.replies[ASKED] = ANSWERED(partitions=[outcome(0, 80, "it is not live"), outcome(1, 84)])
        answer = await (await h.connect()).ask(elect(version, [0, 1], kind=1), version)

        ((request, timeout_ms),) = h.admin.forwarded
        assert request == ASKED(
            election_type=0 if version == 0 else 1, topics=[admin_pb2.PartitionRefs(topic="t", partition=[0, 1])]
        )
        assert timeout_ms == 50
        assert results(answer) == {("t", 0): (80, "it is not live"), ("t", 1): (84, "ELECTION_NOT_NEEDED")}
        assert version == 0 or answer.error_code == 0

    serve(scenario)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_null_asks_for_all_and_only_what_needs_it_is_answered(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.admin.replies[ASKED] = ANSWERED()
        answer = await (await h.connect()).ask(elect(version, None), version)

        assert h.admin.forwarded[0][0] == ASKED(all=True)
        assert results(answer) == {}

    serve(scenario)


def test_leader_that_is_not_known_here_in_time_is_told_as_late(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.admin.replies[ASKED] = ANSWERED(partitions=[outcome(0, leader=2), outcome(1, 80, "no")])
        answer = await (await h.connect()).ask(elect(2, [0, 1]), 2)

        assert {each: code for each, (code, _) in results(answer).items()} == {("t", 0): 7, ("t", 1): 80}

    serve(scenario)


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (NotController("Broker 9 rules."), ErrorCode.NOT_CONTROLLER),
        (RpcFailed("nobody answers"), ErrorCode.REQUEST_TIMED_OUT),
    ],
)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_without_a_controller_every_partition_says_so(
    serve: Serve, version: int, failure: Exception, error: ErrorCode
) -> None:
    async def scenario(h: Any) -> None:
        h.admin.fail = failure
        answer = await (await h.connect()).ask(elect(version, [4]), version)
        assert results(answer) == {("t", 4): (error, str(failure))}
        assert version == 0 or answer.error_code == error

    serve(scenario)


def test_refusal_of_the_whole_request_is_passed_on(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        refused = admin_pb2.Outcome(error_code=42, message="There is no election of type 7.")
        h.admin.replies[ASKED] = ANSWERED(outcome=refused)
        answer = await (await h.connect()).ask(elect(2, [0], kind=7), 2)
        assert answer.error_code == 42
        assert results(answer) == {("t", 0): (42, "There is no election of type 7.")}

    serve(scenario)
