"""Connecting to servers that refuse, lie or keep silent, played by a script on a socket."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
from prometheus_client.core import Metric

from regency.model.clock import SystemClock
from regency.runtime.zookeeper.client import connect
from regency.runtime.zookeeper.meter import ZkMeter
from regency.runtime.zookeeper.session import WatchMode, ZkAuthFailed, ZkError
from regency.runtime.zookeeper.wire import FrameReader, OpCode, Xid, frame

SESSION = frame(struct.pack("!iiq", 0, 600, 77) + struct.pack("!i", 16) + bytes(16) + b"\0")
Script = Callable[[int, bytes], bytes]


def reply(xid: int, error: int = 0) -> bytes:
    return frame(struct.pack("!iqi", xid, 1, error))


@pytest.fixture
def serve() -> Iterator[Callable[[Script], str]]:
    """Starts a server: `script(number, frame)` gives its answer to frame `number` of a connection; b"" is silence."""
    listeners: list[socket.socket] = []
    connections: list[socket.socket] = []

    def talk(connection: socket.socket, script: Script) -> None:
        reader = FrameReader()
        number = 0
        with contextlib.suppress(OSError), connection:
            while data := connection.recv(4096):
                for request in reader.feed(data):
                    connection.sendall(script(number, request))
                    number += 1

    def accept(listener: socket.socket, script: Script) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                threading.Thread(target=talk, args=(connection, script), daemon=True).start()

    def start(script: Script) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threading.Thread(target=accept, args=(listener, script), daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for connection in connections:
        connection.close()


def test_refused_credentials_are_told_at_once_without_showing_them(serve):
    def script(number: int, request: bytes) -> bytes:
        return SESSION if number == 0 else reply(Xid.AUTH, error=-115)

    where = serve(script)
    meter = ZkMeter(SystemClock())
    with pytest.raises(ZkAuthFailed, match=where) as caught:
        connect(where, session_timeout_ms=60_000, digest_auth="regency:hush", on_refusal=meter.count_refusal)
    told = {
        family.name: family.samples[0].value for family in meter.collect(lambda _: True) if isinstance(family, Metric)
    }
    assert told["kafka_server_sessionexpirelistener_zookeeperauthfailures"] >= 1
    assert "regency.zookeeper.digest.auth" in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_server_that_accepts_but_never_answers_is_named_in_time(serve):
    where = serve(lambda number, request: b"")
    with pytest.raises(ZkError, match=f"{where} gave no session within 400 ms"):
        connect(where, session_timeout_ms=300, connect_timeout_ms=400)


def test_a_server_that_speaks_something_else_is_named_with_what_is_wrong(serve):
    where = serve(lambda number, request: b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(ZkError, match="a frame of"):
        connect(where, session_timeout_ms=1000, connect_timeout_ms=300)


def test_a_host_that_does_not_exist_is_named(monkeypatch):
    def unknown(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ZkError, match=r"no-such-host\.invalid:2181 gave no session .*not known"):
        connect("no-such-host.invalid", session_timeout_ms=1000, connect_timeout_ms=200)


def test_garbage_on_a_session_costs_the_connection_only(serve):
    connections = 0

    def script(number: int, request: bytes) -> bytes:
        nonlocal connections
        if number == 0:
            connections += 1
            return SESSION
        xid, op_code = struct.unpack_from("!ii", request)
        if op_code == OpCode.CLOSE:
            return reply(xid)
        return b"\xff\xff\xff\xff" if connections == 1 else reply(xid)

    session = connect(serve(script), session_timeout_ms=1000)
    session.sync("/")
    assert (connections, session.generation, session.session_id) == (2, 1, 77)
    session.close()


def test_setting_watches_refused_by_an_old_server_is_said_clearly(serve, eventually):
    connections = 0

    def script(number: int, request: bytes) -> bytes:
        nonlocal connections
        if number == 0:
            connections += 1
            return SESSION
        xid, op_code = struct.unpack_from("!ii", request)
        return (
            b"\xff\xff\xff\xff" if op_code == OpCode.SYNC else reply(xid, -6 if op_code == OpCode.SET_WATCHES2 else 0)
        )

    session = connect(serve(script), session_timeout_ms=500)
    session.watch("/a", WatchMode.PERSISTENT, print)
    with pytest.raises(ZkError):
        session.sync("/")
    eventually(lambda: "3.6" in session._core.failure, within=1.5, what="the reason of the failed attempts")
    session.close()
