"""Connections where descriptors are short: clients are turned away, followers are not, and the loop goes on."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from regency.broker_agent.listener import acceptor, server
from regency.broker_agent.listener.stats import Closing
from regency.kafka.codec import FetchRequest, ListOffsetsRequest, MetadataRequest
from regency.model.facts import Endpoint

Serve = Callable[..., None]


@pytest.fixture
def three_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "connection_share", lambda _: 4)  # one of them on trial


async def full(h: Any) -> list[Any]:
    """Connections of clients, as many as there are places."""
    clients = [await h.connect() for _ in range(3)]
    for client in clients:
        await client.ask(MetadataRequest(topics=[]), 9)
    return clients


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Take all descriptors this process may have."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        most = max(int(each.name) for each in Path("/proc/self/fd").iterdir()) + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        with suppress(OSError):
            while True:
                stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        yield


@pytest.mark.usefixtures("three_places")
def test_clients_beyond_what_descriptors_are_left_for_are_closed_when_they_ask(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        first, *_others = await full(h)
        fourth = await h.connect()
        fourth.send(MetadataRequest(topics=[]), 9)
        assert await fourth.closed_by_listener()
        assert h.listener.stats.closed_for[Closing.NO_DESCRIPTORS] == 1

        early = await h.connect()
        await h.eventually(lambda: h.listener.stats.open == 4, "the next came")
        await first.close()
        await h.eventually(lambda: h.listener.stats.open == 3, "there is room again")
        assert (await early.ask(MetadataRequest(topics=[]), 9)).controller_id == 1

    serve(scenario)


@pytest.mark.usefixtures("three_places")
@pytest.mark.parametrize(
    ("request_of_a_replica", "version"),
    [
        (FetchRequest(replica_id=2, topics=[]), 12),
        (FetchRequest(replica_state=FetchRequest.ReplicaState(version=15, replica_id=2), topics=[]), 15),
        (ListOffsetsRequest(replica_id=2, isolation_level=0, topics=[]), 5),
    ],
)
def test_followers_find_a_place_on_a_listener_that_clients_have_filled(
    serve: Serve, request_of_a_replica: Any, version: int
) -> None:
    async def scenario(h: Any) -> None:
        await full(h)
        follower = await h.connect()
        for _ in range(2):
            await follower.ask(request_of_a_replica, version)
        consumer = await h.connect()
        consumer.send(FetchRequest(replica_id=-1, topics=[]), 12)
        assert await consumer.closed_by_listener()
        await follower.ask(request_of_a_replica, version)

    serve(scenario)


@pytest.mark.usefixtures("three_places")
def test_who_asks_for_nothing_makes_way_for_others(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        await full(h)
        silent = await h.connect()
        await h.eventually(lambda: h.listener.stats.open == 4, "all came")
        follower = await h.connect()
        assert await silent.closed_by_listener()
        await follower.ask(ListOffsetsRequest(replica_id=2, isolation_level=0, topics=[]), 5)
        assert h.listener.stats.open == 4
        assert h.listener.stats.closed_for[Closing.NO_DESCRIPTORS] == 1

    serve(scenario)


@pytest.mark.usefixtures("three_places")
def test_a_listener_of_followers_is_exempt(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        inner = await h.listener.start(Endpoint("INNER", "127.0.0.1", 0))
        await full(h)
        follower = await h.connect(inner)
        assert (await follower.ask(MetadataRequest(topics=[]), 9)).controller_id == 1

    listeners = (Endpoint("PLAINTEXT", "127.0.0.1", 0), Endpoint("INNER", "127.0.0.1", 0))
    serve(scenario, listeners=listeners, inter_broker_listener_name="INNER")


def test_who_comes_when_the_process_has_no_descriptor_is_turned_away_at_once(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(h: Any) -> None:
        sockets = [socket.socket() for _ in range(20)]
        with no_descriptors():
            for each in sockets:
                each.setblocking(False)
                await asyncio.get_running_loop().sock_connect(each, ("127.0.0.1", h.port))
            for each in sockets:
                assert await asyncio.get_running_loop().sock_recv(each, 1) == b""
        for each in sockets:
            each.close()
        assert h.listener.stats.closed_for[Closing.NO_DESCRIPTORS] == 20
        assert (await (await h.connect()).ask(MetadataRequest(topics=[]), 9)).controller_id == 1

    with caplog.at_level(logging.INFO):
        serve(scenario)
    assert sum("so far" in record.getMessage() for record in caplog.records) == 2, "the first and the tenth"


def test_nothing_is_accepted_for_a_moment_where_there_is_not_even_a_spare_descriptor(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(h: Any) -> None:
        [accepting] = h.listener._acceptors
        waiting = socket.socket()
        waiting.setblocking(False)
        os.close(accepting._spare)
        accepting._spare = -1
        with no_descriptors():
            await asyncio.get_running_loop().sock_connect(waiting, ("127.0.0.1", h.port))
            await h.eventually(lambda: accepting._pause is not None, "it rests")
        await h.eventually(lambda: h.listener.stats.open == 1, "it was accepted after all")
        waiting.close()

    monkeypatch.setattr(acceptor, "PAUSE_S", 0.05)
    serve(scenario)
