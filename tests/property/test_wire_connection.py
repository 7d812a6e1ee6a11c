"""A connection against any stream: it answers requests in order or ends, never raises, and never has more than its
bound begun."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from regency.broker_agent.listener.apis import api_versions
from regency.broker_agent.listener.buffers import IncomingRequests, UnsentAnswers
from regency.broker_agent.listener.connection import MAX_UNANSWERED, Connection
from regency.broker_agent.listener.exchange import Exchange
from regency.broker_agent.listener.stats import Closing, ListenerStats
from regency.broker_agent.listener.turns import Aside, Turns
from regency.kafka.apis import ApiKey
from regency.kafka.codec import ApiVersionsRequest, MetadataRequest, ProduceRequest, encode_request
from regency.kafka.decoder import UnsupportedApi
from regency.model.clock import ManualClock

LIMIT = 200


class Transport(asyncio.Transport):
    """Keeps what is written; checks that reading is paused and resumed in turns, as asyncio demands."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.reading = True
        self.closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 5) if name == "peername" else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.written += data

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    abort = close


class Host:
    """Answers every request with its own number, produce requests when the test says so."""

    def __init__(self) -> None:
        self.stats = ListenerStats()
        self.clock = ManualClock()
        self.turns = Turns()
        self.aside = Aside()
        self.unsent = UnsentAnswers(1 << 20, self.stats, self.clock)
        self.incoming = IncomingRequests(1 << 20, self.stats, self.clock)
        self.max_request_bytes = LIMIT
        self.max_idle_ms = -1
        self.waiting: list[Exchange] = []
        self.most_waiting = 0
        self.gone = False

    def opened(self, connection: Connection) -> Closing | None:
        return None

    def closed(self, connection: Connection) -> None:
        self.gone = True

    def handle(self, exchange: Exchange) -> None:
        if exchange.request.api_key is ApiKey.PRODUCE:
            self.waiting.append(exchange)
            self.most_waiting = max(self.most_waiting, len(self.waiting))
        else:
            assert not self.waiting
            exchange.answer_body(b"")

    def failed(self, exchange: Exchange, error: Exception) -> bool:
        raise error

    def reject_version(self, unsupported: UnsupportedApi) -> bytes | bytearray | None:
        if unsupported.api_key == ApiKey.API_VERSIONS:
            return api_versions.unsupported_version(unsupported.correlation_id)
        return None

    def answer_some(self, choose: random.Random) -> None:
        choose.shuffle(self.waiting)
        for exchange in self.waiting:
            exchange.answer_body(b"")
        self.waiting.clear()


async def run(stream: bytes, choose: random.Random, pieces: Callable[[], int]) -> tuple[Host, Transport]:
    host, transport = Host(), Transport()
    connection = Connection(host, "PLAINTEXT")
    connection.connection_made(transport)
    while stream and not transport.closed:
        if transport.reading:
            length = pieces()
            connection.data_received(stream[:length])
            stream = stream[length:]
        else:
            host.answer_some(choose)
        await asyncio.sleep(0)
    while host.waiting and not transport.closed:
        host.answer_some(choose)
        for _ in range(20):
            await asyncio.sleep(0)
    if not transport.closed:
        connection.eof_received()
    connection.connection_lost(None)
    host.aside.close()
    return host, transport


def answered(transport: Transport) -> list[int]:
    ids, position = [], 0
    while position < len(transport.written):
        size, correlation_id = struct.unpack_from(">ii", transport.written, position)
        ids.append(correlation_id)
        position += 4 + size
    return ids


def request(kind: int, correlation_id: int) -> bytes:
    message: Any
    if kind == 0:
        message, version = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[]), 8
    elif kind == 1:
        message, version = MetadataRequest(topics=[]), 4
    else:
        message, version = ApiVersionsRequest(), 2
    return bytes(encode_request(version, correlation_id, "x", message))


@given(st.lists(st.integers(0, 2), max_size=60), st.integers(0, 2**32))
def test_every_request_is_answered_once_and_in_order(kinds: list[int], seed: int) -> None:
    choose = random.Random(seed)
    stream = b"".join(request(kind, number) for number, kind in enumerate(kinds))

    host, transport = asyncio.run(run(stream, choose, lambda: choose.randint(1, 150)))

    assert answered(transport) == list(range(len(kinds)))
    assert host.most_waiting <= MAX_UNANSWERED
    assert host.gone
    assert not any(host.stats.closed_for.values())


@given(st.lists(st.one_of(st.binary(max_size=60), st.integers(0, 2).map(lambda kind: request(kind, 7)))), st.integers())
def test_no_stream_makes_it_raise(parts: list[bytes], seed: int) -> None:
    choose = random.Random(seed)

    host, transport = asyncio.run(run(b"".join(parts), choose, lambda: choose.randint(1, 100)))

    assert host.gone
    assert all(correlation_id is not None for correlation_id in answered(transport))


@given(st.binary(max_size=100), st.integers(1, 60))
def test_a_stream_that_is_no_protocol_ends_counted(noise: bytes, length: int) -> None:
    stream = struct.pack(">ihh", 4 + len(noise), cast(int, 700), 0) + noise

    host, transport = asyncio.run(run(stream, random.Random(0), lambda: length))

    assert transport.closed
    assert sum(host.stats.closed_for.values()) == 1
    assert not transport.written
