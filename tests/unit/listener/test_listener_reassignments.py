from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from regency.broker_agent.control.admin_forwarder import NotController
from regency.kafka.codec import AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2
from regency.runtime.grpc.channels import RpcFailed

Serve = Callable[..., None]
TOPIC = AlterPartitionReassignmentsRequest.ReassignableTopic
LISTED = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics


def alter(partitions: dict[int, list[int] | None], **options: Any) -> Any:
    moves = [TOPIC.ReassignablePartition(partition_index=each, replicas=to) for each, to in partitions.items()]
    return AlterPartitionReassignmentsRequest(topics=[TOPIC(name="t", partitions=moves)], timeout_ms=5000, **options)


@pytest.mark.parametrize("version", [0, 1])
def test_moves_and_cancellations_are_forwarded_and_answered_partition_by_partition(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        refused = admin_pb2.PartitionOutcome(topic="t", partition=1, error_code=85, message="nothing to cancel")
        h.admin.replies[admin_pb2.AlterReassignmentsRequest] = admin_pb2.PartitionsResponse(
            partitions=[admin_pb2.PartitionOutcome(topic="t", partition=0), refused]
        )
        answer = await (await h.connect()).ask(alter({0: [2, 3], 1: None}), version)

        ((request, timeout_ms),) = h.admin.forwarded
        assert timeout_ms == 5000
        assert request == admin_pb2.AlterReassignmentsRequest(
            reassignments=[
                admin_pb2.Reassignment(topic="t", partition=0, replicas=[2, 3]),
                admin_pb2.Reassignment(topic="t", partition=1, cancel=True),
            ]
        )
        assert (answer.error_code, answer.error_message) == (0, None)
        (topic,) = answer.responses
        told = [(each.partition_index, each.error_code, each.error_message) for each in topic.partitions]
        assert (topic.name, told) == ("t", [(0, 0, None), (1, 85, "nothing to cancel")])

    serve(scenario)


def test_a_client_may_demand_that_the_replication_factor_stays(serve: Serve) -> None:
    """KIP-860."""

    async def scenario(h: Any) -> None:
        h.admin.replies[admin_pb2.AlterReassignmentsRequest] = admin_pb2.PartitionsResponse()
        answer = await (await h.connect()).ask(alter({0: [2]}, allow_replication_factor_change=False), 1)
        assert h.admin.forwarded[0][0].keep_replication_factor
        assert not answer.allow_replication_factor_change

    serve(scenario)


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (NotController("Broker 9 rules."), ErrorCode.NOT_CONTROLLER),
        (RpcFailed("nobody answers"), ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_without_a_controller_both_say_so(serve: Serve, failure: Exception, error: ErrorCode) -> None:
    async def scenario(h: Any) -> None:
        h.admin.fail = failure
        client = await h.connect()
        altered = await client.ask(alter({0: [2]}), 0)
        assert (altered.error_code, altered.responses[0].partitions[0].error_code) == (error, error)
        listed = await client.ask(ListPartitionReassignmentsRequest(topics=None, timeout_ms=5000), 0)
        assert (listed.error_code, listed.topics) == (error, [])

    serve(scenario)


@pytest.mark.parametrize(
    ("topics", "wanted"),
    [
        (None, admin_pb2.ListReassignmentsRequest(all=True)),
        (
            [LISTED(name="t", partition_indexes=[0, 1])],
            admin_pb2.ListReassignmentsRequest(topics=[admin_pb2.PartitionRefs(topic="t", partition=[0, 1])]),
        ),
    ],
)
def test_what_goes_on_is_listed(serve: Serve, topics: Any, wanted: admin_pb2.ListReassignmentsRequest) -> None:
    async def scenario(h: Any) -> None:
        going = admin_pb2.OngoingReassignment(topic="t", partition=1, replicas=[2, 1], adding=[2], removing=[1])
        h.admin.replies[admin_pb2.ListReassignmentsRequest] = admin_pb2.ListReassignmentsResponse(reassignments=[going])
        answer = await (await h.connect()).ask(ListPartitionReassignmentsRequest(topics=topics, timeout_ms=5000), 0)

        assert h.admin.forwarded == [(wanted, 5000)]
        (topic,) = answer.topics
        (partition,) = topic.partitions
        assert (topic.name, partition.partition_index, partition.replicas) == ("t", 1, [2, 1])
        assert (partition.adding_replicas, partition.removing_replicas) == ([2], [1])

    serve(scenario)
