"""Requests that come in by halves: the memory they take has a bound, and everybody's request comes in in the end."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest

from regency.broker_agent.listener import buffers
from regency.broker_agent.listener.stats import Closing
from regency.kafka.codec import MetadataRequest, ProduceRequest, encode_request

Serve = Callable[..., None]
MIB = 1 << 20
PIECE = 256 << 10
"""What one read of a socket brings at most."""


def large(batch: Callable[..., bytes], size: int) -> bytes:
    topic = ProduceRequest.TopicProduceData
    records = topic.PartitionProduceData(index=0, records=batch(payload=bytes(size)))
    data = topic(name="t", partition_data=[records])
    return bytes(encode_request(9, 1, "x", ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data])))


async def send_half(h: Any, size: int) -> Any:
    client = await h.connect()
    client.writer.write(struct.pack(">i", 2 * size) + bytes(size))
    return client


def test_half_sent_requests_are_held_within_the_budget_and_others_are_served(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        stats = h.listener.stats
        senders = [await send_half(h, 3 * MIB) for _ in range(8)]
        await h.eventually(lambda: stats.incoming_bytes > 4 * MIB, "the budget is used up")
        await asyncio.sleep(0.2)
        assert stats.incoming_bytes <= (4 + 3) * MIB + 8 * PIECE, "the oldest goes on"
        other = await h.connect()
        assert (await other.ask(MetadataRequest(topics=[]), 9)).topics == []
        for sender in senders:
            sender.writer.transport.abort()
        await h.eventually(lambda: stats.incoming_bytes == 0, "what they kept is free")

    serve(scenario, queued_max_request_bytes=4 * MIB)


def test_large_requests_above_the_budget_come_in_one_after_another(serve: Serve, batch: Callable[..., bytes]) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        clients = [await h.connect() for _ in range(6)]
        for client in clients:
            client.writer.write(large(batch, 2 * MIB))
        for client in clients:
            await client.receive_frame()
        assert len(h.replicas.appended) == 6
        assert (h.listener.stats.incoming_bytes, h.listener.stats.closed_for[Closing.SLOW]) == (0, 0)

    serve(scenario, queued_max_request_bytes=MIB)


def test_who_sends_slowly_is_cut_off_when_others_need_the_room(
    serve: Serve, batch: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffers, "SLOW_MS", 300)
    monkeypatch.setattr(buffers, "LOOK_S", 0.05)

    async def scenario(h: Any) -> None:
        h.with_topic("t")
        stats = h.listener.stats
        slow = [await send_half(h, 2 * MIB) for _ in range(2)]
        await h.eventually(lambda: stats.incoming_bytes > MIB, "the budget is used up")
        client = await h.connect()
        client.writer.write(large(batch, 2 * MIB))
        await client.receive_frame()
        assert stats.closed_for[Closing.SLOW] >= 1
        assert await slow[0].closed_by_listener()

    serve(scenario, queued_max_request_bytes=MIB)


def test_who_sends_slowly_is_left_alone_while_there_is_room(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "SLOW_MS", 0)
    monkeypatch.setattr(buffers, "LOOK_S", 0.01)

    async def scenario(h: Any) -> None:
        await send_half(h, MIB)
        await h.eventually(lambda: h.listener.stats.incoming_bytes == MIB, "it has come in")
        await asyncio.sleep(0.1)
        assert h.listener.stats.closed_for[Closing.SLOW] == 0

    serve(scenario, queued_max_request_bytes=2 * MIB)


def test_a_request_that_waits_for_the_one_before_it_counts(serve: Serve, batch: Callable[..., bytes]) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.replicas.hold = True
        client = await h.connect()
        topic = ProduceRequest.TopicProduceData
        records = topic.PartitionProduceData(index=0, records=batch())
        data = topic(name="t", partition_data=[records])
        client.send(ProduceRequest(acks=-1, timeout_ms=9000, topic_data=[data]), 9)
        client.send(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="x" * 30_000)] * 4), 9)
        await h.eventually(lambda: h.listener.stats.incoming_bytes > 120_000, "it is held")
        h.replicas.held[0]()
        await client.receive()
        await client.receive()
        assert h.listener.stats.incoming_bytes == 0

    serve(scenario, auto_create_topics_enable=False)
