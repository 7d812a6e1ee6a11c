from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from regency.kafka.apis import OFFERED
from regency.kafka.codec import (
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
    encode_request,
)

Serve = Callable[..., None]


def sound_requests(batch: bytes) -> list[bytes]:
    """Frames of requests that are in order, before they are spoilt."""
    produced = ProduceRequest.TopicProduceData
    fetched = FetchRequest.FetchTopic
    listed = ListOffsetsRequest.ListOffsetsTopic
    produce = ProduceRequest(
        acks=1,
        timeout_ms=1,
        topic_data=[produced(name="t", partition_data=[produced.PartitionProduceData(index=0, records=batch)])],
    )
    fetch = FetchRequest(
        max_wait_ms=0,
        session_epoch=-1,
        topics=[fetched(topic="t", partitions=[fetched.FetchPartition(partition=0, fetch_offset=0)])],
    )
    offsets = ListOffsetsRequest(
        replica_id=-1, topics=[listed(name="t", partitions=[listed.ListOffsetsPartition(timestamp=-1)])]
    )
    metadata = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
    return [
        bytes(encode_request(version, 1, "x", message)[4:])
        for message, version in ((produce, 9), (produce, 3), (fetch, 12), (fetch, 4), (offsets, 7), (metadata, 12))
    ]


def spoil(frame: bytes, choose: random.Random) -> bytes:
    spoilt = bytearray(frame)
    for _ in range(choose.randint(1, 3)):
        spoilt[choose.randrange(4, len(spoilt))] = choose.choice([0, 1, 0x7F, 0x80, 0xFF])
    return bytes(spoilt[: choose.choice([len(spoilt), choose.randrange(len(spoilt))])])


@pytest.mark.parametrize("seed", range(4))
def test_spoilt_requests_end_their_connections_at_worst(serve: Serve, batch: Callable[..., bytes], seed: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        choose = random.Random(seed)
        sound = sound_requests(batch())
        bystander = await h.connect()
        for _ in range(60):
            hostile = await h.connect()
            frame = spoil(choose.choice(sound), choose)
            hostile.writer.write(struct.pack(">i", len(frame)) + frame)
            await hostile.close()
            assert (await bystander.ask(MetadataRequest(topics=[]), 9)).controller_id == 1

        await h.eventually(lambda: h.listener.stats.open == 1, "only the bystander is left")
        assert h.listener.stats.handler_failures == 0

    serve(scenario, auto_create_topics_enable=False)


@pytest.mark.parametrize("api", sorted(OFFERED))
def test_requests_of_zeros_and_of_ones_do_no_harm(serve: Serve, api: int) -> None:
    async def scenario(h: Any) -> None:
        bystander = await h.connect()
        offered = OFFERED[api]
        for version in range(offered.lowest, offered.highest + 1):
            for filler in (b"\0", b"\xff", b"\1"):
                hostile = await h.connect()
                frame = struct.pack(">hhih", api, version, 1, 0) + filler * 100
                hostile.writer.write(struct.pack(">i", len(frame)) + frame)
                await hostile.close()
        assert (await bystander.ask(MetadataRequest(topics=[]), 9)).controller_id == 1
        assert h.listener.stats.handler_failures == 0

    serve(scenario, auto_create_topics_enable=False)
