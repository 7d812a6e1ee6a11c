"""DeleteRecords on the wire, in every version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from regency.broker_agent.listener.apis.delete_records import PARTITIONS_PER_STEP
from regency.broker_agent.replication.api import DeletedRecords
from regency.kafka.codec import DeleteRecordsRequest
from regency.model.ids import Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

Serve = Callable[..., None]
TOPIC = DeleteRecordsRequest.DeleteRecordsTopic


def request(timeout_ms: int = 1_000, **topics: list[tuple[int, int]]) -> Any:
    return DeleteRecordsRequest(
        timeout_ms=timeout_ms,
        topics=[
            TOPIC(
                name=name,
                partitions=[
                    TOPIC.DeleteRecordsPartition(partition_index=number, offset=offset) for number, offset in partitions
                ],
            )
            for name, partitions in topics.items()
        ],
    )


def told(answer: Any) -> dict[tuple[str, int], tuple[int, int]]:
    return {
        (topic.name, each.partition_index): (each.low_watermark, each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", range(3))
def test_every_partition_is_answered_with_its_low_watermark_or_its_error(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.replicas.deleted = {
            TopicPartition("t", 0): DeletedRecords(ErrorCode.NONE, Offset(5)),
            TopicPartition("u", 3): DeletedRecords(ErrorCode.POLICY_VIOLATION),
        }
        client = await h.connect()
        answer = await client.ask(request(t=[(0, 5), (1, 7)], u=[(3, -1)]), version)
        assert told(answer) == {
            ("t", 0): (5, ErrorCode.NONE),
            ("t", 1): (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            ("u", 3): (-1, ErrorCode.POLICY_VIOLATION),
        }
        assert h.replicas.deletions == [(1_000, {("t", 0): 5, ("t", 1): 7, ("u", 3): -1})]

    serve(scenario)


def test_it_is_answered_when_the_last_of_many_is_done(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        client, many = await h.connect(), 2 * PARTITIONS_PER_STEP + 1
        answer = await client.ask(request(t=[(number, 0) for number in range(many)]), 2)
        assert len(told(answer)) == many
        assert [len(offsets) for _, offsets in h.replicas.deletions] == [PARTITIONS_PER_STEP, PARTITIONS_PER_STEP, 1]

    serve(scenario)


def test_nothing_asked_is_nothing_answered_and_no_timeout_is_below_zero(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        client = await h.connect()
        assert told(await client.ask(request(), 2)) == {}
        await client.ask(request(timeout_ms=-1, t=[(0, 1)]), 2)
        assert h.replicas.deletions == [(0, {("t", 0): 1})]

    serve(scenario)


def test_of_a_partition_that_is_named_twice_the_last_offset_counts(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        client = await h.connect()
        await client.ask(request(t=[(0, 4), (0, 2)]), 2)
        assert h.replicas.deletions == [(1_000, {("t", 0): 2})]

    serve(scenario)


def test_what_nobody_foresaw_is_an_error_of_each(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.replicas.fail = RuntimeError("unforeseen")
        client = await h.connect()
        answer = await client.ask(request(t=[(0, 1), (1, 1)]), 2)
        failed = (-1, ErrorCode.UNKNOWN_SERVER_ERROR)
        assert told(answer) == {("t", 0): failed, ("t", 1): failed}

    serve(scenario)
