"""Requests of one connection: their order, what waits for what, and a handler or a listener that gives up on them."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from regency.broker_agent.listener import turns
from regency.broker_agent.listener.connection import MAX_UNANSWERED
from regency.broker_agent.listener.exchange import Exchange
from regency.broker_agent.listener.server import KafkaListener
from regency.broker_agent.listener.stats import Closing
from regency.kafka.apis import ApiKey
from regency.kafka.codec import FetchRequest, MetadataRequest, ProduceRequest, encode_request
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode

Serve = Callable[..., None]


def produce(batch: bytes, *, acks: int = -1, topic: str = "t") -> Any:
    topic_class = ProduceRequest.TopicProduceData
    partition = topic_class.PartitionProduceData(index=0, records=batch)
    data = topic_class(name=topic, partition_data=[partition])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])


def long_poll(max_wait_ms: int = 30_000) -> Any:
    partition = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic="t", partitions=[partition])
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[topic])


def test_answers_come_in_the_order_of_the_requests(serve: Serve, batch: Callable[..., bytes]) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.replicas.hold = True
        client = await h.connect()
        for records in (1, 2, 3):
            client.send(produce(batch(records)), 9)
        await h.eventually(lambda: len(h.replicas.held) == 3, "all three were appended")
        for respond in reversed(h.replicas.held):
            respond()

        answers = [await client.receive() for _ in range(3)]

        assert [answer.responses[0].partition_responses[0].base_offset for answer in answers] == [0, 1, 3]

    serve(scenario)


def test_produce_requests_are_appended_in_order_while_earlier_ones_wait(
    serve: Serve, batch: Callable[..., bytes]
) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.replicas.hold = True
        client = await h.connect()
        batches = [batch(payload=bytes([number])) for number in range(5)]
        for records in batches:
            client.send(produce(records), 9)

        await h.eventually(lambda: len(h.replicas.held) == 5, "five requests wait")

        assert [appended for _, appended in h.replicas.appended] == batches

    serve(scenario)


def test_records_are_let_go_of_while_their_acknowledgement_is_waited_for(
    serve: Serve, batch: Callable[..., bytes]
) -> None:
    """128 requests of a connection may wait, and each may have a hundred megabytes."""

    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.replicas.hold = True
        append, views = h.replicas.append, []

        def spy(acks: int, timeout_ms: int, batches: dict[TopicPartition, memoryview], respond: Any) -> None:
            views.extend(weakref.ref(view) for view in batches.values())
            append(acks, timeout_ms, batches, respond)

        h.replicas.append = spy
        client = await h.connect()
        client.send(produce(batch()), 9)
        await h.eventually(lambda: len(h.replicas.held) == 1, "the request waits")
        assert [view() for view in views] == [None]

    serve(scenario)


def test_other_requests_wait_for_the_produce_before_them(serve: Serve, batch: Callable[..., bytes]) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.replicas.hold = True
        client = await h.connect()
        client.send(produce(batch()), 9)
        client.send(MetadataRequest(topics=[]), 9)
        client.send(produce(batch()), 9)
        await h.eventually(lambda: len(h.replicas.held) == 1, "the first waits")
        assert h.listener.stats.requests[ApiKey.METADATA] == 0

        h.replicas.hold = False
        h.replicas.held[0]()

        assert (await client.receive()).responses[0].partition_responses[0].base_offset == 0
        assert (await client.receive()).controller_id == 1
        assert (await client.receive()).responses[0].partition_responses[0].base_offset == 1

    serve(scenario)


def test_no_request_begins_beside_a_long_poll_of_its_connection(serve: Serve, batch: Callable[..., bytes]) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        client, other = await h.connect(), await h.connect()
        client.send(long_poll(), 12)
        client.send(produce(batch()), 9)
        await h.eventually(lambda: len(h.replicas.fetches) == 1, "the fetch waits")
        assert h.replicas.appended == []

        await other.ask(produce(batch(records=4)), 9)

        assert (await client.receive()).responses[0].partitions[0].high_watermark == 4
        assert (await client.receive()).responses[0].partition_responses[0].base_offset == 4

    serve(scenario)


def test_the_number_of_unanswered_requests_is_bounded(serve: Serve, batch: Callable[..., bytes]) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.replicas.hold = True
        client = await h.connect()
        for _ in range(MAX_UNANSWERED + 10):
            client.send(produce(batch()), 9)
        await h.eventually(lambda: len(h.replicas.held) == MAX_UNANSWERED, "the bound is reached")
        await (await h.connect()).ask(MetadataRequest(topics=[]), 9)
        assert len(h.replicas.held) == MAX_UNANSWERED

        h.replicas.hold = False
        for respond in h.replicas.held:
            respond()

        for number in range(MAX_UNANSWERED + 10):
            assert (await client.receive()).responses[0].partition_responses[0].base_offset == number

    serve(scenario)


def test_a_client_that_does_not_read_is_not_answered_without_bound(serve: Serve, batch: Callable[..., bytes]) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        big = batch(payload=bytes(4 << 20))
        h.replicas.logs[TopicPartition("t", 0)] = [(1, big)]
        lazy, other = await h.connect(), await h.connect()
        for _ in range(50):
            lazy.send(long_poll(), 12)
        await h.eventually(lambda: len(h.replicas.fetches) >= 1, "it is being answered")
        for _ in range(20):
            await other.ask(MetadataRequest(topics=[]), 9)
        begun = len(h.replicas.fetches)

        for _ in range(50):
            await lazy.receive()

        assert begun < 10
        assert len(h.replicas.fetches) == 50

    serve(scenario)


def test_a_long_poll_is_cancelled_when_its_connection_ends(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        client = await h.connect()
        client.send(long_poll(), 12)
        await h.eventually(lambda: len(h.replicas.waiting) == 1, "the fetch waits")

        await client.close()

        await h.eventually(lambda: h.replicas.cancelled == 1, "the fetch is cancelled")

    serve(scenario)


def test_a_client_that_does_not_read_its_last_answer_is_given_up(serve: Serve, batch: Callable[..., bytes]) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.replicas.logs[TopicPartition("t", 0)] = [(1, batch(payload=bytes(30 << 20)))]
        client = await h.connect()
        client.send(long_poll(), 12)

        await h.eventually(lambda: h.listener.stats.closed_for[Closing.IDLE] == 1, "it is idle")
        await h.eventually(lambda: h.listener.stats.open == 0, "it is closed")

    serve(scenario, connections_max_idle_ms=50)


def test_a_failing_handler_costs_its_request_only(
    serve: Serve, batch: Callable[..., bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        client = await h.connect()
        h.replicas.fail = RuntimeError("a bug")
        for _ in range(3):
            answer = await client.ask(produce(batch()), 9)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        h.replicas.fail = None

        assert (await client.ask(produce(batch()), 9)).responses[0].partition_responses[0].error_code == 0
        assert h.listener.stats.handler_failures == 3

    serve(scenario)
    assert [record.exc_info is not None for record in caplog.records if record.levelname == "ERROR"] == [True]


def test_a_failing_handler_without_possible_answer_closes_the_connection(
    serve: Serve, batch: Callable[..., bytes]
) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        client = await h.connect()
        h.replicas.fail = RuntimeError("a bug")
        client.send(produce(batch(), acks=0), 9)

        assert await client.closed_by_listener()
        assert h.listener.stats.closed_for[Closing.FAILED] == 1

    serve(scenario)


def test_a_long_poll_is_no_idleness(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        client = await h.connect()

        answer = await client.ask(long_poll(max_wait_ms=200), 12)

        assert answer.responses[0].partitions[0].error_code == 0

    serve(scenario, connections_max_idle_ms=30)


def test_stopping_answers_what_has_begun_and_takes_nothing_new(serve: Serve, batch: Callable[..., bytes]) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.replicas.hold = True
        client, idle = await h.connect(), await h.connect()
        await idle.ask(MetadataRequest(topics=[]), 9)
        client.send(produce(batch()), 9)
        await h.eventually(lambda: len(h.replicas.held) == 1, "the produce waits")

        stopping = asyncio.get_running_loop().create_task(h.listener.stop())
        assert await idle.closed_by_listener()
        h.replicas.held[0]()

        assert (await client.receive()).responses[0].partition_responses[0].error_code == 0
        assert await client.closed_by_listener()
        await stopping
        with pytest.raises(ConnectionError):
            await h.connect()

    serve(scenario)


def test_stopping_drops_a_long_poll(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        client = await h.connect()
        client.send(long_poll(max_wait_ms=0x7FFFFFFF), 12)
        await h.eventually(lambda: len(h.replicas.waiting) == 1, "the fetch waits")

        await h.listener.stop(grace_ms=60_000)

        assert h.replicas.cancelled == 1
        assert h.listener.stats.open == 0

    serve(scenario)


def test_stopping_does_not_wait_for_an_acknowledgement_for_ever(serve: Serve, batch: Callable[..., bytes]) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.replicas.hold = True
        client = await h.connect()
        client.send(produce(batch()), 9)
        await h.eventually(lambda: len(h.replicas.held) == 1, "the produce waits")

        await h.listener.stop(grace_ms=20)
        h.replicas.held[0]()

        assert h.listener.stats.open == 0
        assert await client.closed_by_listener()

    serve(scenario)


def test_many_requests_of_one_client_leave_turns_to_others(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of requests that take 3 ms each, an iteration of the loop begins four, of two clients alternately."""
    clock_ns, begun = 1, []

    async def scenario(h: Any) -> None:
        def handle(exchange: Exchange) -> None:
            nonlocal clock_ns
            clock_ns += 3_000_000
            begun.append(exchange.request.client_id)
            KafkaListener.handle(h.listener, exchange)

        monkeypatch.setattr(turns, "perf_counter_ns", lambda: clock_ns)
        monkeypatch.setattr(h.listener, "handle", handle)
        greedy, modest = await h.connect(), await h.connect()
        for client, name, count in ((greedy, "greedy", 190), (modest, "modest", 10)):
            for _ in range(count):
                client.writer.write(encode_request(9, 1, name, MetadataRequest(topics=[])))
        iterations = 0
        while len(begun) < 200:
            before = len(begun)
            await asyncio.sleep(0)
            iterations += 1
            assert len(begun) - before <= 4
            assert iterations < 10_000

    serve(scenario)
    assert begun[:40].count("modest") == 10


def test_what_a_client_sent_before_it_went_is_handled_when_its_turn_comes(
    serve: Serve, batch: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        clients = [await h.connect() for _ in range(20)]
        for client in clients:
            for _ in range(5):
                client.send(produce(batch(), acks=0), 9)
            client.writer.close()
        await h.eventually(lambda: h.listener.stats.open == 0, "all are gone")
        assert len(h.replicas.appended) == 100

    monkeypatch.setattr(turns, "BUDGET_NS", 0)
    serve(scenario)
