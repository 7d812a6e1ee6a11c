from __future__ import annotations

import asyncio
import struct
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from regency.broker_agent.listener.connection import MAX_UNANSWERED
from regency.broker_agent.listener.stats import Closing
from regency.broker_agent.wire.apis import OFFERED, ApiKey
from regency.broker_agent.wire.codec import (
    ApiVersionsRequest,
    FetchRequest,
    MetadataRequest,
    ProduceRequest,
    decode_response,
    encode_request,
)
from regency.model.facts import Endpoint
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


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (struct.pack(">i", 3) + b"abc", Closing.MALFORMED),
        (struct.pack(">i", 0), Closing.MALFORMED),
        (struct.pack(">ihhihi", 14, 3, 4, 1, -1, 0x7FFFFFFF), Closing.MALFORMED),
        (struct.pack(">i", 2000), Closing.OVERSIZED),
        (struct.pack(">i", -1), Closing.OVERSIZED),
        (b"GET / HTTP/1.1\r\n\r\n", Closing.OVERSIZED),
        (struct.pack(">ihhih", 10, 999, 0, 1, -1), Closing.UNSUPPORTED),
        (struct.pack(">ihhih", 10, 0, 2, 1, -1), Closing.UNSUPPORTED),
        (struct.pack(">ihhih", 10, 1, 18, 1, -1), Closing.UNSUPPORTED),
    ],
)
def test_what_is_no_request_closes_its_connection_and_harms_nobody_else(
    serve: Serve, sent: bytes, reason: Closing
) -> None:
    async def scenario(h: Any) -> None:
        bystander, hostile = await h.connect(), await h.connect()
        await bystander.ask(MetadataRequest(topics=[]), 9)

        hostile.writer.write(sent)

        assert await hostile.closed_by_listener()
        assert {why: count for why, count in h.listener.stats.closed_for.items() if count} == {reason: 1}
        assert (await bystander.ask(MetadataRequest(topics=[]), 9)).controller_id == 1

    serve(scenario, socket_request_max_bytes=1000)


def test_a_request_half_sent_is_counted(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        client = await h.connect()
        client.writer.write(bytes(encode_request(9, 1, "x", MetadataRequest(topics=[])))[:-1])
        await client.close()

        await h.eventually(lambda: h.listener.stats.closed_for[Closing.HALF_SENT] == 1, "it was counted")
        assert h.listener.stats.open == 0

    serve(scenario)


def test_trouble_is_logged_once_and_then_counted(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(h: Any) -> None:
        for _ in range(9):
            client = await h.connect()
            client.writer.write(struct.pack(">i", -1))
            assert await client.closed_by_listener()

    serve(scenario)

    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == 1
    assert "PLAINTEXT" in lines[0]
    assert "-1 bytes" in lines[0]


def test_requests_before_a_malformed_one_are_answered(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        client = await h.connect()
        for _ in range(3):
            client.send(MetadataRequest(topics=[]), 9)
        client.writer.write(struct.pack(">i", 0))

        assert [(await client.receive()).controller_id for _ in range(3)] == [1, 1, 1]
        assert await client.closed_by_listener()

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


def test_an_unknown_version_of_api_versions_is_answered_with_the_table(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        client = await h.connect()
        client.writer.write(struct.pack(">ihhih", 10, 18, 99, 42, -1))

        correlation_id, answer = decode_response(ApiKey.API_VERSIONS, 0, await client.receive_frame())

        assert (correlation_id, answer.error_code) == (42, ErrorCode.UNSUPPORTED_VERSION)
        offered = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        assert offered == {api.value: (versions.lowest, versions.highest) for api, versions in OFFERED.items()}
        message = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        assert (await client.ask(message, 4)).error_code == 0

    serve(scenario)


@pytest.mark.parametrize(("name", "error"), [("librdkafka", 0), ("bad name", 42), ("", 42)])
def test_client_software_names_are_checked(serve: Serve, name: str, error: int) -> None:
    async def scenario(h: Any) -> None:
        client = await h.connect()
        message = ApiVersionsRequest(client_software_name=name, client_software_version="2.1-rc")
        assert (await client.ask(message, 3)).error_code == error

    serve(scenario)


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


def test_an_idle_connection_is_closed(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        client = await h.connect()
        await client.ask(MetadataRequest(topics=[]), 9)

        assert await client.closed_by_listener()
        assert h.listener.stats.closed_for[Closing.IDLE] == 1

    serve(scenario, connections_max_idle_ms=30)


def test_a_long_poll_is_no_idleness(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        client = await h.connect()

        answer = await client.ask(long_poll(max_wait_ms=200), 12)

        assert answer.responses[0].partitions[0].error_code == 0

    serve(scenario, connections_max_idle_ms=30)


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_ip"])
def test_one_connection_too_many_is_closed(serve: Serve, limit: str) -> None:
    async def scenario(h: Any) -> None:
        first, second = await h.connect(), await h.connect()
        await first.ask(MetadataRequest(topics=[]), 9)
        await second.ask(MetadataRequest(topics=[]), 9)

        third = await h.connect()

        assert await third.closed_by_listener()
        assert h.listener.stats.closed_for[Closing.TOO_MANY] == 1
        await first.close()
        await h.eventually(lambda: h.listener.stats.open == 1, "there is room again")
        assert (await (await h.connect()).ask(MetadataRequest(topics=[]), 9)).controller_id == 1

    serve(scenario, **{limit: 2})


def test_followers_find_a_place_when_clients_have_taken_all(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        inner = await h.listener.start(Endpoint("INNER", "127.0.0.1", 0))
        client = await h.connect()
        await client.ask(MetadataRequest(topics=[]), 9)

        follower = await h.connect(inner)
        another = await h.connect()

        assert (await follower.ask(MetadataRequest(topics=[]), 9)).controller_id == 1
        assert await another.closed_by_listener()

    listeners = (Endpoint("PLAINTEXT", "127.0.0.1", 0), Endpoint("INNER", "127.0.0.1", 0))
    serve(scenario, max_connections=1, listeners=listeners, inter_broker_listener_name="INNER")


@pytest.mark.parametrize("host", ["", "localhost", "127.0.0.1"])
def test_a_host_name_or_none_is_listened_on(serve: Serve, host: str) -> None:
    async def scenario(h: Any) -> None:
        port = await h.listener.start(Endpoint("PLAINTEXT", host, 0))
        assert (await (await h.connect(port)).ask(MetadataRequest(topics=[]), 9)).controller_id == 1

    serve(scenario)


def test_a_port_that_is_taken_is_an_error(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        with pytest.raises(OSError, match="in use"):
            await h.listener.start(Endpoint("PLAINTEXT", "127.0.0.1", h.port))

    serve(scenario)


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


def test_many_small_requests_of_one_client_leave_turns_to_others(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        greedy, modest = await h.connect(), await h.connect()
        for _ in range(2000):
            greedy.send(MetadataRequest(topics=[]), 9)
        await greedy.receive()

        await modest.ask(MetadataRequest(topics=[]), 9)

        assert h.listener.stats.requests[ApiKey.METADATA] < 2000
        for _ in range(1999):
            await greedy.receive()

    serve(scenario)
