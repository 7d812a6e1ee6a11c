from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from regency.broker_agent.registry.producer_ids import ProducerIdsUnavailable
from regency.broker_agent.steps import Steps
from regency.kafka.codec import InitProducerIdRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from regency.kafka.fetching.values import ListedOffset
from regency.model.ids import LeaderEpoch, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

Serve = Callable[..., None]
LISTED = ListOffsetsRequest.ListOffsetsTopic
ENDED = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


def list_offsets(*asked: tuple[str, int, int]) -> Any:
    topics = [
        LISTED(name=topic, partitions=[LISTED.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)])
        for topic, partition, timestamp in asked
    ]
    return ListOffsetsRequest(replica_id=-1, topics=topics)


def listed(answer: Any) -> list[tuple[str, int, int, int, int]]:
    return [
        (topic.name, partition.partition_index, partition.error_code, partition.offset, partition.leader_epoch)
        for topic in answer.topics
        for partition in topic.partitions
    ]


@pytest.mark.parametrize("version", range(1, 8))
def test_every_version_lists_beginning_and_end(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t", 2)
        h.replicas.logs[TopicPartition("t", 1)] = [(5, b"")]

        answer = await (await h.connect()).ask(
            list_offsets(("t", 0, EARLIEST), ("t", 1, LATEST), ("elsewhere", 0, LATEST)), version
        )

        epoch = 7 if version >= 4 else -1
        assert listed(answer) == [
            ("t", 0, 0, 0, epoch),
            ("t", 1, 0, 5, epoch),
            ("elsewhere", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1),
        ]

    serve(scenario)


@pytest.mark.parametrize(("version", "told"), [(5, None), (7, b"who was before")])
def test_producers_are_told_where_a_version_has_room_for_fields_of_our_own(
    serve: Serve, version: int, told: bytes | None
) -> None:
    async def scenario(h: Any) -> None:
        def list_offset(*_: object) -> Steps[ListedOffset]:
            yield
            return ListedOffset(ErrorCode.NONE, -1, Offset(6), LeaderEpoch(7), b"who was before")

        h.with_topic("t")
        h.replicas.list_offset = list_offset
        answer = await (await h.connect()).ask(list_offsets(("t", 0, EARLIEST)), version)
        assert answer.topics[0].partitions[0].producers == told

    serve(scenario)


@pytest.mark.parametrize(
    ("version", "timestamp", "error"),
    [
        (6, MAX_TIMESTAMP, ErrorCode.UNSUPPORTED_VERSION),
        (7, MAX_TIMESTAMP, ErrorCode.NONE),
        (7, -4, ErrorCode.UNSUPPORTED_VERSION),
        (4, 1000, ErrorCode.LEADER_NOT_AVAILABLE),
        (5, 1000, ErrorCode.OFFSET_NOT_AVAILABLE),
    ],
)
def test_what_a_version_can_ask_and_understand(serve: Serve, version: int, timestamp: int, error: ErrorCode) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        answer = await (await h.connect()).ask(list_offsets(("t", 0, timestamp)), version)
        assert listed(answer)[0][2] == error

    serve(scenario)


def test_a_partition_asked_for_twice_is_refused_and_the_others_are_answered(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t", 2)
        answer = await (await h.connect()).ask(
            list_offsets(("t", 0, EARLIEST), ("t", 1, EARLIEST), ("t", 0, LATEST)), 7
        )
        assert [entry[2] for entry in listed(answer)] == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]

    serve(scenario)


@pytest.mark.parametrize("version", range(2, 5))
def test_every_version_finds_the_end_of_an_epoch(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.replicas.logs[TopicPartition("t", 0)] = [(5, b"")]
        asked = [
            ENDED(topic=topic, partitions=[ENDED.OffsetForLeaderPartition(partition=0, leader_epoch=3)])
            for topic in ("t", "elsewhere")
        ]

        answer = await (await h.connect()).ask(OffsetForLeaderEpochRequest(replica_id=2, topics=asked), version)

        told = [(t.topic, p.error_code, p.leader_epoch, p.end_offset) for t in answer.topics for p in t.partitions]
        assert told == [("t", 0, 3, 5), ("elsewhere", ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)]

    serve(scenario)


@pytest.mark.parametrize("version", range(5))
def test_every_producer_gets_its_own_id(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        client = await h.connect()
        request = InitProducerIdRequest(transactional_id=None, producer_id=17, producer_epoch=3)
        answers = [await client.ask(request, version) for _ in range(2)]

        told = [(answer.error_code, answer.producer_id, answer.producer_epoch) for answer in answers]
        assert told == [(0, 4001, 0), (0, 4002, 0)]

    serve(scenario)


@pytest.mark.parametrize("name", ["tx", ""])
def test_transactional_producers_are_told_that_there_are_no_transactions(serve: Serve, name: str) -> None:
    async def scenario(h: Any) -> None:
        answer = await (await h.connect()).ask(InitProducerIdRequest(transactional_id=name), 4)
        assert (answer.error_code, answer.producer_id) == (ErrorCode.UNSUPPORTED_VERSION, -1)

    serve(scenario)


def test_a_producer_waits_while_no_id_can_be_taken(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.producer_ids.fail = ProducerIdsUnavailable("ZooKeeper is away")
        answer = await (await h.connect()).ask(InitProducerIdRequest(transactional_id=None), 4)
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    serve(scenario)


def test_an_unforeseen_failure_to_take_an_id_is_told(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.producer_ids.fail = RuntimeError("a bug")
        answer = await (await h.connect()).ask(InitProducerIdRequest(transactional_id=None), 4)
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    serve(scenario)


def test_failing_queries_are_answered_for_every_partition(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        def fail(*arguments: object) -> None:
            raise RuntimeError("a bug")

        h.replicas.list_offset = h.replicas.end_offset_for_epoch = fail
        client = await h.connect()
        first = await client.ask(list_offsets(("t", 0, LATEST), ("u", 3, LATEST)), 7)
        asked = ENDED(topic="t", partitions=[ENDED.OffsetForLeaderPartition(partition=0, leader_epoch=3)])
        second = await client.ask(OffsetForLeaderEpochRequest(topics=[asked]), 4)

        assert [entry[:3] for entry in listed(first)] == [("t", 0, -1), ("u", 3, -1)]
        assert second.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    serve(scenario)
