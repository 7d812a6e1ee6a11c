"""DescribeLogDirs and AlterReplicaLogDirs on the wire, in every version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regency.broker_agent.replication.api import LogDescription, LogDirDescription
from regency.kafka.codec import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode

Serve = Callable[..., None]
DIR = AlterReplicaLogDirsRequest.AlterReplicaLogDir
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
DIRS = [
    LogDirDescription(
        "/a",
        None,
        (LogDescription(T0, 100, 0, False), LogDescription(T1, 7, 5, True), LogDescription(U0, 1 << 40, 0, False)),
        1 << 41,
        1 << 33,
    ),
    LogDirDescription("/b", "offline since an I/O error: it broke"),
]


def told(answer: Any) -> list[tuple[Any, ...]]:
    return [
        (
            each.error_code,
            each.log_dir,
            {
                (topic.name, row.partition_index): (row.partition_size, row.offset_lag, row.is_future_key)
                for topic in each.topics
                for row in topic.partitions
            },
        )
        for each in answer.results
    ]


def alter(**paths: list[tuple[str, list[int]]]) -> Any:
    topic = DIR.AlterReplicaLogDirTopic
    return AlterReplicaLogDirsRequest(
        dirs=[
            DIR(path=f"/{path}", topics=[topic(name=name, partitions=numbers) for name, numbers in topics])
            for path, topics in paths.items()
        ]
    )


@pytest.mark.parametrize("version", range(5))
def test_every_directory_is_told_with_its_logs_and_its_failure(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.replicas.dirs = DIRS
        answer = await (await h.connect()).ask(DescribeLogDirsRequest(topics=None), version)
        logs = {("t", 0): (100, 0, False), ("t", 1): (7, 5, True), ("u", 0): (1 << 40, 0, False)}
        assert told(answer) == [(0, "/a", logs), (56, "/b", {})]
        if version >= 3:
            assert answer.error_code == 0
        if version >= 4:
            assert [(each.total_bytes, each.usable_bytes) for each in answer.results] == [(1 << 41, 1 << 33), (-1, -1)]

    serve(scenario)


def test_only_the_partitions_that_are_named_are_told(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.replicas.dirs = DIRS
        client = await h.connect()
        topic = DescribeLogDirsRequest.DescribableLogDirTopic
        named = [topic(topic="t", partitions=[1, 9]), topic(topic="none", partitions=[0])]
        answer = await client.ask(DescribeLogDirsRequest(topics=named), 4)
        assert told(answer)[0][2] == {("t", 1): (7, 5, True)}
        answer = await client.ask(DescribeLogDirsRequest(topics=[]), 4)
        assert [logs for _, _, logs in told(answer)] == [{}, {}]

    serve(scenario)


@pytest.mark.parametrize("version", range(3))
def test_moves_are_asked_for_and_answered_partition_by_partition(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.replicas.alter_errors = {T1: ErrorCode.LOG_DIR_NOT_FOUND, U0: ErrorCode.REPLICA_NOT_AVAILABLE}
        answer = await (await h.connect()).ask(alter(a=[("t", [0, 1])], b=[("u", [0])]), version)
        assert h.replicas.altered == [{T0: Path("/a"), T1: Path("/a"), U0: Path("/b")}]
        codes = {
            (topic.topic_name, each.partition_index): each.error_code
            for topic in answer.results
            for each in topic.partitions
        }
        assert codes == {("t", 0): 0, ("t", 1): 57, ("u", 0): 9}

    serve(scenario)


def test_a_handler_that_fails_is_answered(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.replicas.fail = RuntimeError("unforeseen")
        client = await h.connect()
        answer = await client.ask(DescribeLogDirsRequest(topics=None), 3)
        assert (answer.error_code, answer.results) == (-1, [])
        answer = await client.ask(alter(a=[("t", [0])]), 2)
        assert [each.error_code for each in answer.results[0].partitions] == [-1]

    serve(scenario)
