from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from regency.kafka.codec import FetchRequest
from regency.kafka.fetching.values import EpochEndOffset, FetchedPartition, FetchParams
from regency.model.facts import Endpoint
from regency.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

Serve = Callable[..., None]
Batch = Callable[..., bytes]
TOPIC = FetchRequest.FetchTopic
T0 = TopicPartition("t", 0)


def topic_id(name: str) -> UUID:
    """What the harness gives a topic as its id."""
    return UUID(bytes=name.encode().ljust(16, b"-")[:16])


def fetch(*wanted: tuple[str, int, int], **options: Any) -> Any:
    topics: dict[str, list[Any]] = {}
    for topic, partition, offset in wanted:
        entry = TOPIC.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=7
        )
        topics.setdefault(topic, []).append(entry)
    named = [TOPIC(topic=name, topic_id=topic_id(name), partitions=entries) for name, entries in topics.items()]
    values = {"max_wait_ms": 0, "min_bytes": 1, "session_epoch": -1, **options}
    return FetchRequest(topics=named, **values)


def read(answer: Any) -> dict[tuple[Any, int], tuple[int, bytes]]:
    return {
        (topic.topic_id or topic.topic, partition.partition_index): (partition.error_code, bytes(partition.records))
        for topic in answer.responses
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", range(4, 18))
def test_every_version_reads(serve: Serve, batch: Batch, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t", 2)
        h.replicas.logs[T0] = [(2, batch(2)), (1, batch(payload=b"later"))]

        answer = await (await h.connect()).ask(fetch(("t", 0, 2), ("t", 1, 0)), version)

        name = topic_id("t") if version >= 13 else "t"
        assert read(answer) == {(name, 0): (0, batch(payload=b"later")), (name, 1): (0, b"")}
        first = answer.responses[0].partitions[0]
        assert (first.high_watermark, first.last_stable_offset) == (3, 3)
        assert first.aborted_transactions is None

    serve(scenario)


def test_what_is_asked_reaches_the_replica_manager(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        request = fetch(("t", 0, 5), max_wait_ms=3, min_bytes=4, max_bytes=1000, isolation_level=1)
        await (await h.connect()).ask(request, 12)

        params, (wanted,) = h.replicas.fetches[0]
        assert params == FetchParams(BrokerId(-1), BrokerEpoch(-1), 3, 4, 1000)
        assert (wanted.topic_partition, wanted.topic_id, wanted.fetch_offset) == (T0, None, 5)
        assert (wanted.max_bytes, wanted.current_leader_epoch, wanted.last_fetched_epoch) == (1 << 20, 7, -1)

    serve(scenario)


@pytest.mark.parametrize("version", [6, 12, 17])
@pytest.mark.parametrize("brokers_listener", ["PLAINTEXT", "INNER"])
def test_followers_come_in_where_brokers_do_and_nowhere_else(
    serve: Serve, batch: Batch, version: int, brokers_listener: str
) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.replicas.logs[T0] = [(1, batch())]
        state = FetchRequest.ReplicaState(version=15, replica_id=2, replica_epoch=77)
        client = await h.connect()
        answer = await client.ask(fetch(("t", 0, 0), replica_id=2, replica_state=state), version)

        if brokers_listener == "PLAINTEXT":
            assert len(h.replicas.fetches) == 1
            return
        told = answer.error_code if version >= 7 else answer.responses[0].partitions[0].error_code
        assert (told, h.replicas.fetches) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
        answer = await client.ask(fetch(("t", 0, 0)), version)
        assert [error for error, _ in read(answer).values()] == [0]

    inner = Endpoint("INNER", "127.0.0.1", 0)
    listeners = (Endpoint("PLAINTEXT", "127.0.0.1", 0), inner)
    serve(scenario, listeners=listeners, inter_broker_listener_name=brokers_listener)


@pytest.mark.parametrize("version", [4, 12, 15, 17])
def test_a_debugging_consumer_is_known_by_its_replica_id_in_every_version(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        state = FetchRequest.ReplicaState(replica_id=-2, replica_epoch=-1)
        request = fetch(("t", 0, 0), replica_id=-2, replica_state=state)
        await (await h.connect()).ask(request, version)

        params, _ = h.replicas.fetches[0]
        assert (params.from_debugger, params.from_follower, params.replica_epoch) == (True, False, -1)

    serve(scenario)


def test_a_consumer_gets_at_most_fetch_max_bytes_and_a_follower_what_it_asks(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        client = await h.connect()
        await client.ask(fetch(("t", 0, 0), min_bytes=5000, max_bytes=9000), 12)
        await client.ask(fetch(("t", 0, 0), min_bytes=5000, max_bytes=9000, replica_id=2), 12)

        asked = [(params.min_bytes, params.max_bytes) for params, _ in h.replicas.fetches]
        assert asked == [(1000, 1000), (5000, 9000)]

    serve(scenario, fetch_max_bytes=1000)


@pytest.mark.parametrize("replica", [-1, 2])
def test_neither_waits_for_ever_nor_gets_more_than_one_step_of_the_loop_may_read(serve: Serve, replica: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.replicas.errors[T0] = FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE)
        everything = {"max_wait_ms": 0x7FFFFFFF, "max_bytes": 0x7FFFFFFF, "min_bytes": 0x7FFFFFFF}
        await (await h.connect()).ask(fetch(("t", 0, 0), replica_id=replica, **everything), 12)
        [(params, _)] = h.replicas.fetches
        assert (params.max_wait_ms, params.max_bytes, params.min_bytes) == (300_000, 7 << 20, 7 << 20)

    serve(scenario)


@pytest.mark.parametrize(("version", "epoch"), [(12, -1), (14, -1), (15, 77), (17, 77)])
def test_a_follower_names_itself_in_the_place_of_its_version(serve: Serve, version: int, epoch: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        state = FetchRequest.ReplicaState(version=15, replica_id=2, replica_epoch=77)
        await (await h.connect()).ask(fetch(("t", 0, 0), replica_id=2, replica_state=state), version)

        params, _ = h.replicas.fetches[0]
        assert (params.replica_id, params.replica_epoch, params.from_follower) == (2, epoch, True)
        assert [privileged for *_, privileged in h.sessions.asked] == [True]

    serve(scenario)


def test_a_consumer_of_a_new_version_without_replica_state_is_no_follower(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        await (await h.connect()).ask(fetch(("t", 0, 0), replica_state=None), 17)

        assert not h.replicas.fetches[0][0].from_follower

    serve(scenario)


def test_a_diverging_epoch_is_told(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t", 2)
        h.replicas.errors[T0] = FetchedPartition(
            ErrorCode.NONE, Offset(9), Offset(0), diverging=EpochEndOffset(LeaderEpoch(3), Offset(6))
        )

        answer = await (await h.connect()).ask(fetch(("t", 0, 8), ("t", 1, 0)), 17)

        diverging = [partition.diverging_epoch for partition in answer.responses[0].partitions]
        assert (diverging[0].epoch, diverging[0].end_offset) == (3, 6)
        assert diverging[1] is None

    serve(scenario)


@pytest.mark.parametrize(("version", "endpoints"), [(12, []), (15, []), (16, [(2, "127.0.0.1", 9092, "rack2")])])
@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH])
def test_the_current_leader_is_told_to_who_asks_the_wrong_broker(
    serve: Serve, version: int, endpoints: list[Any], error: ErrorCode
) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t", leader=2)
        h.replicas.errors[T0] = FetchedPartition(error, leader=BrokerId(3), leader_epoch=LeaderEpoch(6))

        answer = await (await h.connect()).ask(fetch(("t", 0, 0)), version)

        partition = answer.responses[0].partitions[0]
        assert partition.error_code == error
        assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (2, 7)
        told = [(node.node_id, node.host, node.port, node.rack) for node in answer.node_endpoints]
        assert told == endpoints

    serve(scenario)


def test_the_leader_the_replica_manager_knows_wins_where_it_is_newer(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t", leader=2)
        h.replicas.errors[T0] = FetchedPartition(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=BrokerId(3), leader_epoch=LeaderEpoch(8)
        )

        answer = await (await h.connect()).ask(fetch(("t", 0, 0)), 17)

        leader = answer.responses[0].partitions[0].current_leader
        assert (leader.leader_id, leader.leader_epoch) == (3, 8)
        assert [node.node_id for node in answer.node_endpoints] == [3]

    serve(scenario)


@pytest.mark.parametrize(
    ("version", "told"), [(5, ErrorCode.NOT_LEADER_OR_FOLLOWER), (6, ErrorCode.KAFKA_STORAGE_ERROR)]
)
def test_old_consumers_are_told_what_they_understand(serve: Serve, version: int, told: ErrorCode) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.replicas.errors[T0] = FetchedPartition(ErrorCode.KAFKA_STORAGE_ERROR)
        assert read(await (await h.connect()).ask(fetch(("t", 0, 0)), version)) == {("t", 0): (told, b"")}

    serve(scenario)


def test_read_committed_gets_an_empty_list_of_aborted_transactions(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        answer = await (await h.connect()).ask(fetch(("t", 0, 0), isolation_level=1), 11)
        assert answer.responses[0].partitions[0].aborted_transactions == []

    serve(scenario)


def test_sessions_are_asked_with_what_the_request_says(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.with_topic("u")
        h.sessions.session_id = 55
        forgotten = FetchRequest.ForgottenTopic(topic="u", topic_id=topic_id("u"), partitions=[0, 4])
        for version in (12, 13):
            answer = await (await h.connect()).ask(
                fetch(("t", 0, 0), session_id=9, session_epoch=3, forgotten_topics_data=[forgotten]), version
            )
            assert answer.session_id == 55

        expected = (9, 3, [T0], [TopicPartition("u", 0), TopicPartition("u", 4)], False)
        told = [
            (session, epoch, [entry.topic_partition for entry in wanted], gone, privileged)
            for session, epoch, wanted, gone, privileged in h.sessions.asked
        ]
        assert told == [expected, expected]

    serve(scenario)


def test_a_topic_created_again_is_added_and_not_forgotten(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.replicas.names[topic_id("old t")] = "t"
        old = FetchRequest.ForgottenTopic(topic_id=topic_id("old t"), partitions=[0, 1])
        request = fetch(("t", 0, 0), session_id=9, session_epoch=3, forgotten_topics_data=[old])

        await (await h.connect()).ask(request, 13)

        (_, _, wanted, forgotten, _) = h.sessions.asked[0]
        assert [entry.topic_partition for entry in wanted] == [T0]
        assert forgotten == [TopicPartition("t", 1)]

    serve(scenario)


def test_versions_without_sessions_ask_for_none(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        await (await h.connect()).ask(fetch(("t", 0, 0)), 6)
        assert h.sessions.asked[0][:2] == (0, -1)

    serve(scenario)


@pytest.mark.parametrize("error", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
def test_a_session_error_is_the_whole_answer(serve: Serve, error: ErrorCode) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.sessions.error = error

        answer = await (await h.connect()).ask(fetch(("t", 0, 0), session_id=9, session_epoch=3), 12)

        assert (answer.error_code, answer.session_id, answer.responses) == (error, 0, [])
        assert h.replicas.fetches == []

    serve(scenario)


def test_an_unknown_topic_id_is_answered_beside_known_ones_and_without_a_session(serve: Serve, batch: Batch) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.replicas.logs[T0] = [(1, batch())]

        answer = await (await h.connect()).ask(fetch(("t", 0, 0), ("gone", 3, 0), session_epoch=0), 13)

        assert read(answer) == {
            (topic_id("t"), 0): (0, batch()),
            (topic_id("gone"), 3): (ErrorCode.UNKNOWN_TOPIC_ID, b""),
        }
        assert h.sessions.asked[0][1] == -1

    serve(scenario)


def test_an_unknown_topic_id_in_an_incremental_fetch_ends_the_session(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        client = await h.connect()
        added = fetch(("gone", 0, 0), session_id=9, session_epoch=3)
        gone = FetchRequest.ForgottenTopic(topic_id=topic_id("gone"), partitions=[0])
        removed = fetch(("t", 0, 0), session_id=9, session_epoch=3, forgotten_topics_data=[gone])

        answers = [await client.ask(request, 13) for request in (added, removed)]

        assert [answer.error_code for answer in answers] == [ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR] * 2
        assert h.sessions.asked == []

    serve(scenario)


def test_a_follower_may_name_a_topic_that_only_the_replica_manager_knows(serve: Serve, batch: Batch) -> None:
    async def scenario(h: Any) -> None:
        h.replicas.names[topic_id("t")] = "t"
        h.replicas.logs[T0] = [(1, batch())]
        state = FetchRequest.ReplicaState(version=15, replica_id=2, replica_epoch=77)

        answer = await (await h.connect()).ask(fetch(("t", 0, 0), replica_state=state), 17)

        assert read(answer) == {(topic_id("t"), 0): (0, batch())}

    serve(scenario)


@pytest.mark.parametrize("version", [4, 6, 7, 17])
def test_a_failing_fetch_is_answered_as_its_version_can(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.replicas.fail = RuntimeError("a bug")

        answer = await (await h.connect()).ask(fetch(("t", 0, 0)), version)

        if version >= 7:
            assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            assert read(answer) == {("t", 0): (ErrorCode.UNKNOWN_SERVER_ERROR, b"")}

    serve(scenario)
