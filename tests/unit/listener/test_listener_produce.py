from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from regency.broker_agent.listener.apis import produce as listener_produce
from regency.broker_agent.listener.apis.produce import ADMIN_CLIENT, PARTITIONS_PER_STEP
from regency.broker_agent.listener.stats import Closing
from regency.broker_agent.replication.api import ProduceResult
from regency.kafka.apis import ApiKey
from regency.kafka.codec import MetadataRequest, ProduceRequest, encode_request
from regency.model.ids import Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

Serve = Callable[..., None]
Batch = Callable[..., bytes]
TOPIC = ProduceRequest.TopicProduceData


def produce(*records: tuple[str, int, bytes | None], acks: int = -1, transactional_id: str | None = None) -> Any:
    topics: dict[str, list[Any]] = {}
    for topic, partition, batch in records:
        topics.setdefault(topic, []).append(TOPIC.PartitionProduceData(index=partition, records=batch))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1000,
        topic_data=[TOPIC(name=name, partition_data=partitions) for name, partitions in topics.items()],
    )


def outcomes(answer: Any) -> dict[tuple[str, int], tuple[int, int]]:
    return {
        (topic.name, partition.index): (partition.error_code, partition.base_offset)
        for topic in answer.responses
        for partition in topic.partition_responses
    }


@pytest.mark.parametrize("version", range(3, 10))
def test_every_version_appends(serve: Serve, batch: Batch, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t", 2)
        client = await h.connect()

        answer = await client.ask(produce(("t", 0, batch(3)), ("t", 1, batch())), version)
        again = await client.ask(produce(("t", 0, batch())), version)

        assert outcomes(answer) == {("t", 0): (0, 0), ("t", 1): (0, 0)}
        assert outcomes(again) == {("t", 0): (0, 3)}

    serve(scenario)


def test_each_partition_has_its_own_outcome(serve: Serve, batch: Batch) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t", 2)
        h.replicas.produce_errors[TopicPartition("t", 1)] = ProduceResult(
            ErrorCode.NOT_ENOUGH_REPLICAS, log_start_offset=Offset(4), message="1 in sync, 2 needed"
        )
        client = await h.connect()

        answer = await client.ask(produce(("t", 0, batch()), ("t", 1, batch()), ("t", 7, batch()), ("t", 8, None)), 9)

        assert outcomes(answer) == {
            ("t", 0): (0, 0),
            ("t", 1): (ErrorCode.NOT_ENOUGH_REPLICAS, -1),
            ("t", 7): (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
            ("t", 8): (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        }
        refused = answer.responses[0].partition_responses[1]
        assert (refused.error_message, refused.log_start_offset) == ("1 in sync, 2 needed", 4)

    serve(scenario)


@pytest.mark.parametrize(
    ("what", "change", "version", "error"),
    [
        ("zstd from an old client", {"attributes": 4}, 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ("zstd", {"attributes": 4}, 7, ErrorCode.NONE),
        ("gzip", {"attributes": 1}, 3, ErrorCode.NONE),
    ],
)
def test_the_version_of_the_request_allows_compressions(
    serve: Serve, batch: Batch, what: str, change: dict[str, int], version: int, error: ErrorCode
) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        answer = await (await h.connect()).ask(produce(("t", 0, batch(**change))), version)
        assert outcomes(answer)["t", 0][0] == error

    serve(scenario)


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_clients_do_not_write_to_internal_topics(serve: Serve, batch: Batch, topic: str) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic(topic)
        h.with_topic("t")
        client = await h.connect()
        answer = await client.ask(produce((topic, 0, batch()), ("t", 0, batch())), 9)
        assert outcomes(answer) == {(topic, 0): (ErrorCode.INVALID_TOPIC_EXCEPTION, -1), ("t", 0): (0, 0)}
        client.send(produce((topic, 0, batch())), 9, client_id=ADMIN_CLIENT)
        assert outcomes(await client.receive()) == {(topic, 0): (0, 0)}

    serve(scenario)


def test_a_partition_named_twice_is_refused(serve: Serve, batch: Batch) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        answer = await (await h.connect()).ask(produce(("t", 0, batch()), ("t", 0, batch())), 9)
        assert [partition.error_code for partition in answer.responses[0].partition_responses] == [42, 42]
        assert h.replicas.appended == []

    serve(scenario)


def test_transactional_producers_are_refused(serve: Serve, batch: Batch) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        answer = await (await h.connect()).ask(produce(("t", 0, batch()), transactional_id="tx"), 9)
        assert outcomes(answer) == {("t", 0): (ErrorCode.UNSUPPORTED_VERSION, -1)}

    serve(scenario)


@pytest.mark.parametrize(
    ("version", "told"), [(3, ErrorCode.NOT_LEADER_OR_FOLLOWER), (4, ErrorCode.KAFKA_STORAGE_ERROR)]
)
def test_old_clients_are_told_what_they_understand(serve: Serve, batch: Batch, version: int, told: ErrorCode) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.replicas.produce_errors[TopicPartition("t", 0)] = ProduceResult(ErrorCode.KAFKA_STORAGE_ERROR)
        answer = await (await h.connect()).ask(produce(("t", 0, batch())), version)
        assert outcomes(answer) == {("t", 0): (told, -1)}

    serve(scenario)


def test_acks_0_has_no_answer(serve: Serve, batch: Batch) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        client = await h.connect()
        for _ in range(3):
            client.writer.write(_unanswered(produce(("t", 0, batch()), acks=0)))

        assert (await client.ask(MetadataRequest(topics=[]), 9)).controller_id == 1
        assert len(h.replicas.appended) == 3

    serve(scenario)


def test_a_failed_produce_with_acks_0_closes_the_connection(serve: Serve, batch: Batch) -> None:
    async def scenario(h: Any) -> None:
        client = await h.connect()
        client.writer.write(_unanswered(produce(("elsewhere", 0, batch()), acks=0)))

        assert await client.closed_by_listener()
        assert h.listener.stats.closed_for[Closing.UNACKNOWLEDGED] == 1
        assert h.listener.stats.requests[ApiKey.PRODUCE] == 1

    serve(scenario)


def test_what_is_sent_before_the_end_of_a_connection_is_used_though_it_has_to_wait_for_its_turn(
    serve: Serve, batch: Batch
) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        client, rounds, ends = await h.connect(), iter(range(30)), []
        [connection] = h.listener._places
        met, connection.eof_received = connection.eof_received, lambda: ends.append(met()) or ends[-1]

        def busy() -> bool:
            time.sleep(0.015)  # more than an iteration of the loop gives to steps
            return next(rounds, None) is not None

        for _ in range(4):
            h.listener.turns.add(busy)
        client.writer.write(_unanswered(produce(("t", 0, batch()), acks=0)))
        client.writer.close()
        await client.writer.wait_closed()
        while h.listener._places:
            await asyncio.sleep(0.01)
        assert len(h.replicas.appended) == 1
        assert ends == [True, False]

    serve(scenario)


def test_a_produce_of_nothing_is_answered(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        assert (await (await h.connect()).ask(produce(), 9)).responses == []

    serve(scenario)


def _unanswered(message: Any) -> bytes:
    return bytes(encode_request(9, 0, "x", message))


def many(batch: Batch, count: int, *, acks: int) -> Any:
    return produce(*(("t", number, batch()) for number in range(count)), acks=acks)


def test_what_follows_a_large_produce_is_appended_after_it(serve: Serve, batch: Batch) -> None:
    last = 3 * PARTITIONS_PER_STEP

    async def scenario(h: Any) -> None:
        h.with_topic("t", last + 1)
        client = await h.connect()
        client.send(many(batch, last + 1, acks=-1), 9)
        client.send(produce(("t", last, batch(5))), 9)
        assert len(outcomes(await client.receive())) == last + 1
        assert outcomes(await client.receive()) == {("t", last): (0, 1)}

    serve(scenario)


def test_a_produce_of_many_bytes_leaves_the_loop_to_others(
    serve: Serve, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_produce, "BYTES_PER_STEP", 10_000)

    async def scenario(h: Any) -> None:
        h.with_topic("t", 4)
        parts: list[int] = []
        append = h.replicas.append

        def spy(acks: int, timeout_ms: int, batches: Any, respond: Any) -> None:
            parts.append(len(batches))
            append(acks, timeout_ms, batches, respond)

        h.replicas.append = spy
        client = await h.connect()
        large = [("t", number, batch(payload=bytes(6_000))) for number in range(4)]
        assert len(outcomes(await client.ask(produce(*large), 9))) == 4
        assert [size for size in parts if size] == [2, 2]

    serve(scenario)


def test_a_produce_without_acks_is_appended_whole_although_its_client_leaves(serve: Serve, batch: Batch) -> None:
    count = 3 * PARTITIONS_PER_STEP

    async def scenario(h: Any) -> None:
        h.with_topic("t", count)
        client = await h.connect()
        client.send(many(batch, count, acks=0), 9)
        await h.eventually(lambda: len(h.replicas.appended) > 0, "a part is appended")
        client.writer.transport.abort()
        await h.eventually(lambda: len(h.replicas.appended) == count, "all is appended")

    serve(scenario)


def test_the_answer_to_a_large_produce_waits_for_all_its_parts(serve: Serve, batch: Batch) -> None:
    count = 2 * PARTITIONS_PER_STEP + 1

    async def scenario(h: Any) -> None:
        h.with_topic("t", count)
        h.replicas.hold = True
        client = await h.connect()
        client.send(many(batch, count, acks=-1), 9)
        await h.eventually(lambda: len(h.replicas.held) == 3, "all parts wait")
        for release in reversed(h.replicas.held):
            assert h.listener.stats.requests[ApiKey.PRODUCE] == 1
            release()
        assert set(outcomes(await client.receive()).values()) == {(0, 0)}

    serve(scenario)
