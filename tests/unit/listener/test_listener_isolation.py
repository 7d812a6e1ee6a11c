"""Isolation levels: without transactions the last stable offset is the high watermark, whichever level is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from regency.kafka.codec import FetchRequest, ListOffsetsRequest
from regency.model.ids import TopicPartition

Serve = Callable[..., None]
UNCOMMITTED, COMMITTED = 0, 1
T0 = TopicPartition("t", 0)


def fetch(isolation_level: int) -> Any:
    entry = FetchRequest.FetchTopic.FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=7
    )
    topic = FetchRequest.FetchTopic(topic="t", topic_id=UUID(bytes=b"t".ljust(16, b"-")), partitions=[entry])
    return FetchRequest(topics=[topic], max_wait_ms=0, min_bytes=1, session_epoch=-1, isolation_level=isolation_level)


@pytest.mark.parametrize("version", range(4, 18))
@pytest.mark.parametrize(("level", "aborted"), [(UNCOMMITTED, None), (COMMITTED, [])])
def test_a_fetch_of_either_level_reads_to_the_high_watermark(
    serve: Serve, batch: Callable[..., bytes], version: int, level: int, aborted: list[Any] | None
) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.replicas.logs[T0] = [(2, batch(2))]
        told = (await (await h.connect()).ask(fetch(level), version)).responses[0].partitions[0]
        assert (told.high_watermark, told.last_stable_offset, bytes(told.records)) == (2, 2, batch(2))
        assert told.aborted_transactions == aborted

    serve(scenario)


@pytest.mark.parametrize("version", range(2, 8))
@pytest.mark.parametrize("level", [UNCOMMITTED, COMMITTED])
def test_the_latest_offset_of_either_level_is_the_high_watermark(serve: Serve, version: int, level: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.replicas.logs[T0] = [(5, b"")]
        listed = ListOffsetsRequest.ListOffsetsTopic
        partition = listed.ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=level, topics=[listed(name="t", partitions=[partition])]
        )
        answer = await (await h.connect()).ask(request, version)
        assert answer.topics[0].partitions[0].offset == 5

    serve(scenario)
