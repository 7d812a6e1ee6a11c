"""What strangers may send to an agent, or not read, or leave half done: nobody else notices (see `victim`)."""

from __future__ import annotations

import contextlib
import gzip
import os
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest
from breaking.tcp_proxy import TcpProxy

from regency.broker_agent.listener.apis.fetch import LARGEST_ANSWER_BYTES
from regency.broker_agent.listener.buffers import SMALL_BYTES
from regency.kafka import codec
from regency.kafka.apis import OFFERED

pytestmark = pytest.mark.integration
DAY_MS = 86_400_000
LARGEST_READ_BYTES = 256 << 10
"""Of asyncio from a socket: what each connection may be beyond the budget."""
ENDLESS = b"\xff" * (64 << 20)
"""A number without an end; gzip makes 64 KiB of it."""


def fetch(max_wait_ms: int = 0, min_bytes: int = 1) -> bytearray:
    """A request for all there is in partition 0 of topic t."""
    kind = codec.FetchRequest.FetchTopic
    wanted = kind.FetchPartition(version=12, partition=0, fetch_offset=0, partition_max_bytes=1 << 30)
    message = codec.FetchRequest(
        version=12,
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 30,
        session_epoch=-1,
        topics=[kind(version=12, topic="t", partitions=[wanted])],
        rack_id="",
    )
    return codec.encode_request(12, 1, "hostile", message)


def by_time(timestamp: int, partitions: int = 1) -> Any:
    kind = codec.ListOffsetsRequest.ListOffsetsTopic
    wanted = [
        kind.ListOffsetsPartition(version=7, partition_index=number, timestamp=timestamp)
        for number in range(partitions)
    ]
    topics = [kind(version=7, name="t", partitions=wanted)]
    return codec.ListOffsetsRequest(version=7, replica_id=-1, isolation_level=0, topics=topics)


def test_batches_whose_records_nobody_can_read(victim: Any, batch: Callable[..., bytes]) -> None:
    first = 0
    for body, options in (
        (ENDLESS[: 900 << 10], {}),
        (gzip.compress(ENDLESS, 9), {"codec_": 1}),
        (gzip.compress(b"\x0e\0\0\0\1\1\1\0" * (8 << 20), 9), {"codec_": 1, "count": 2_000_000}),
        (os.urandom(300_000), {"codec_": 3}),
        (b"", {"count": 2**31 - 1}),
    ):
        first += DAY_MS
        victim.produce("t", batch(body, first_ms=first, **options))
        for timestamp in (first + 500, -3):
            answer = victim.ask(by_time(timestamp), 7)
            assert answer.topics[0].partitions[0].error_code == 0


@pytest.mark.timeout(300)  # there are thirty-two APIs, and each takes seconds on a busy machine
@pytest.mark.parametrize("inner", [False, True], ids=["many", "many-within-one"])
def test_extreme_counts_in_every_api(victim: Any, filled: Callable[..., Any], inner: bool) -> None:
    for api in OFFERED:
        message, version = filled(api, 1, inner=20_000) if inner else filled(api, 20_000)
        victim.ask(message, version)


def test_counts_that_nothing_follows(victim: Any) -> None:
    for api, versions in OFFERED.items():
        for version in range(versions.lowest, versions.highest + 1):
            for body in (b"\x7f\xff\xff\xff" * 16, b"\xff\xff\xff\xff\x07" * 16, b"\0" * 64, b"\1" * 200_000):
                frame = struct.pack(">hhih", api, version, 1, -1) + body
                with contextlib.suppress(ConnectionError):
                    victim.connect().sendall(struct.pack(">i", len(frame)) + frame)


def test_the_largest_requests(victim: Any) -> None:
    names = [codec.MetadataRequest.MetadataRequestTopic(version=12, name=f"{number:07}") for number in range(240_000)]
    victim.ask(codec.MetadataRequest(version=12, topics=names), 12)
    victim.ask(by_time(DAY_MS, 240_000), 7)


@pytest.mark.parametrize("victim", [2], indirect=True)
def test_connections_that_read_nothing(victim: Any, batch: Callable[..., bytes], eventually: Any) -> None:
    """The budget of unsent answers is used up; the follower is not held back: acks=all goes on.

    A quarter of 256 descriptors is for connections: 64 of the 500 are served, the others refused as they come.
    """
    for _ in range(12):
        victim.produce("t", batch(os.urandom(1_000_000)))
    peers = []
    for _ in range(500):
        with contextlib.suppress(OSError):
            peer = victim.connect()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.sendall(fetch() * 3)
            peers.append(peer)
    assert len(peers) > 100
    eventually(lambda: victim.metric("regency_fetches_held_back_total") >= 40, what="the budget is used up")
    assert victim.metric("regency_unsent_answer_bytes") < victim.budget + LARGEST_ANSWER_BYTES
    time.sleep(3)


def test_half_sent_frames_and_slow_readers(victim: Any, batch: Callable[..., bytes]) -> None:
    for _ in range(4):
        victim.produce("t", batch(os.urandom(1_000_000)))
    senders, readers = [], []
    for number in range(120):
        with contextlib.suppress(OSError):
            peer = victim.connect()
            if number % 2:
                peer.setblocking(False)
                peer.sendall(struct.pack(">i", 90 << 20) + b"\0" * 40_000)
                senders.append(peer)
            else:
                peer.sendall(fetch())
                readers.append(peer)
    for _ in range(40):
        for peer in senders:
            with contextlib.suppress(OSError):
                peer.sendall(b"\0" * 50_000)
        for peer in readers:
            with contextlib.suppress(OSError):
                peer.recv(500)
        time.sleep(0.05)
    most = victim.incoming_budget + len(senders) * LARGEST_READ_BYTES
    assert SMALL_BYTES < victim.metric("regency_incoming_request_bytes") < most < 40 * 50_000 * len(senders)


def test_flows_that_vanish(victim: Any, eventually: Any) -> None:
    """A connection whose other end is gone is ended when it has been idle, a long poll when its end is heard of."""
    before = victim.connections()
    with TcpProxy(("127.0.0.1", victim.ports["PLAINTEXT"])) as proxy:
        peers = []
        for number in range(40):
            peer = socket.create_connection(("127.0.0.1", proxy.port))
            peer.sendall(fetch(max_wait_ms=2**31 - 1 if number % 2 else 100, min_bytes=1 << 30))
            peers.append(peer)
        eventually(lambda: victim.connections() >= before + 40 - 2, what="the agent has the connections")
        proxy.black_hole()
        eventually(lambda: victim.connections() <= before + 20, what="the idle ones are ended")
        assert victim.connections() >= 20, "a long poll is no idleness"
        proxy.heal()
        for peer in peers:
            peer.close()
        eventually(lambda: victim.connections() <= before, what="the long polls are ended")


def test_a_disk_that_hangs_for_seconds(victim: Any) -> None:
    victim.flag.touch()
    time.sleep(3)
    victim.flag.unlink()
    time.sleep(1)


def test_strangers_at_the_other_ports(victim: Any) -> None:
    for listener in ("CONTROL", "CONTROLLER", "HTTP", "CONTROLLER_HTTP"):
        for sent in (b"\xff" * 50_000, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 50_000, b"GET /metrics HT"):
            for _ in range(20):
                with contextlib.suppress(OSError):
                    victim.connect(listener).sendall(sent)
    time.sleep(2)
