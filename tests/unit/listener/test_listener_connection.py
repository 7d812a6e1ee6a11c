"""Connections: what closes them, how many there may be, and where they are taken."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest

from regency.broker_agent.listener import connection
from regency.broker_agent.listener.stats import Closing
from regency.kafka.apis import OFFERED, ApiKey
from regency.kafka.codec import (
    ApiVersionsRequest,
    FetchRequest,
    MetadataRequest,
    decode_response,
    encode_request,
)
from regency.model.facts import Endpoint
from regency.model.kafka_errors import ErrorCode

Serve = Callable[..., None]


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


def test_answers_do_not_wait_for_the_client_to_acknowledge_the_ones_before(serve: Serve) -> None:
    """Nagle's algorithm would hold a second answer back until the client's delayed acknowledgement, some 40 ms."""

    async def scenario(h: Any) -> None:
        await (await h.connect()).ask(MetadataRequest(topics=[]), 9)

        [connection] = h.listener._places
        accepted = connection._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0

    serve(scenario)


def test_the_operating_system_looks_for_peers_that_have_vanished(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        await (await h.connect()).ask(MetadataRequest(topics=[]), 9)

        [accepting] = h.listener._places
        accepted = accepting._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0

    serve(scenario)


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


def test_an_unknown_version_of_api_versions_is_answered_with_those_that_are_known(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        client = await h.connect()
        client.writer.write(struct.pack(">ihhih", 10, 18, 99, 42, -1))

        correlation_id, answer = decode_response(ApiKey.API_VERSIONS, 0, await client.receive_frame())

        assert (correlation_id, answer.error_code) == (42, ErrorCode.UNSUPPORTED_VERSION)
        offered = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        known = OFFERED[ApiKey.API_VERSIONS]
        assert offered == {ApiKey.API_VERSIONS: (known.lowest, known.highest)}
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


def test_an_idle_connection_is_closed(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        client = await h.connect()
        await client.ask(MetadataRequest(topics=[]), 9)

        assert await client.closed_by_listener()
        assert h.listener.stats.closed_for[Closing.IDLE] == 1

    serve(scenario, connections_max_idle_ms=30)


@pytest.mark.parametrize(("waited_ms", "closed"), [(100, True), (60_000, False)])
def test_a_request_keeps_its_connection_for_so_long(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, waited_ms: int, closed: bool
) -> None:
    """A long poll is no idleness, but a dead client's must end: what is asked may be answered in 24 days."""

    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.replicas.fetch = lambda *_: lambda: None
        client = await h.connect()
        client.send(FetchRequest(max_wait_ms=0x7FFFFFFF, topics=[]), 12)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(client.reader.read(1), 0.3)
        assert h.listener.stats.closed_for[Closing.IDLE] == closed

    monkeypatch.setattr(connection, "LONGEST_WAIT_MS", waited_ms)
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
