"""The server is small and hard to annoy: slow, malformed, curious and many clients."""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from regency.runtime.grpc.servers import PortUnavailable
from regency.runtime.http.probes import Condition, probe, threads
from regency.runtime.http.server import (
    HEAD_BYTES,
    MOST_ASKING,
    MOST_AT_ONCE,
    PROBES_AT_ONCE,
    HttpServer,
    Request,
    qualities,
    text,
)

HOST = "127.0.0.1"
Serve = Callable[..., int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[HttpServer] = []
    deaths: list[BaseException] = []

    def start(routes: dict[str, object], **options: float) -> int:
        server = HttpServer(
            routes,  # type: ignore[arg-type]
            name="http",
            port_key="regency.http.port",
            probes=("/livez",),
            **options,
        )
        port = server.bind(HOST, 0)
        server.start(lambda name, error: deaths.append(error))
        servers.append(server)
        return port

    yield start
    for server in servers:
        server.stop()
    assert not deaths


def hello(_: Request) -> object:
    return text(200, "hello")


def ask(port: int, path: str, method: str = "GET") -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read(), {name.lower(): found for name, found in response.getheaders()}
    finally:
        connection.close()


def send(port: int, data: bytes, *, end: bool = False) -> bytes:
    """Everything that comes back until the server closes."""
    with socket.create_connection((HOST, port), timeout=10) as client:
        client.sendall(data)
        if end:
            client.shutdown(socket.SHUT_WR)
        parts = []
        while part := client.recv(65536):
            parts.append(part)
        return b"".join(parts)


def test_a_path_is_answered_and_head_leaves_the_body_out(serve: Serve) -> None:
    port = serve({"/hello": hello})
    status, body, headers = ask(port, "/hello?x=1")
    assert (status, body, headers["content-length"]) == (200, b"hello\n", "6")
    assert ask(port, "/hello", "HEAD")[:2] == (200, b"")


def test_what_is_not_there_is_404_and_names_what_is(serve: Serve) -> None:
    status, body, _ = ask(serve({"/b": hello, "/a": hello}), "/metric")
    assert (status, body) == (404, b"nothing here; there are /a, /b\n")


def test_a_handler_sees_path_query_and_headers_in_lower_case(serve: Serve) -> None:
    seen: list[Request] = []

    def look(request: Request) -> object:
        seen.append(request)
        return text(200, "")

    port = serve({"/me trics": look})
    send(port, b"GET /me%20trics?n[]=a%20b&n[]=c&x=1 HTTP/1.1\r\nHost: x\r\nACCEPT: a\r\nAccept: */*;q=0.1\r\n\r\n")
    assert seen == [
        Request("GET", "/me trics", {"n[]": ["a b", "c"], "x": ["1"]}, {"host": "x", "accept": "a, */*;q=0.1"})
    ]


def test_other_methods_are_refused(serve: Serve) -> None:
    assert ask(serve({"/hello": hello}), "/hello", "POST")[0] == 501


def test_a_handler_that_fails_is_500_and_the_next_is_served(serve: Serve) -> None:
    def fail(_: Request) -> object:
        raise ValueError("no such luck")

    port = serve({"/fail": fail, "/hello": hello})
    assert ask(port, "/fail")[:2] == (500, b"ValueError: no such luck\n")
    assert ask(port, "/hello")[0] == 200


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\x00" * 100 + b"\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"GET /hello?" + b"&".join(b"a=%d" % n for n in range(1001)) + b" HTTP/1.1\r\n\r\n", 400),
        ((b"GET /" + b"y" * HEAD_BYTES)[:HEAD_BYTES], 431),
        ((b"GET / HTTP/1.1\r\nx: " + b"y" * HEAD_BYTES)[:HEAD_BYTES], 431),
        (b"GET / HTTP/1.1" + b"\r\na: b" * 101 + b"\r\n\r\n", 431),
    ],
)
def test_malformed_requests_are_told_so(serve: Serve, data: bytes, status: int) -> None:
    assert f"{status}".encode() in send(serve({"/hello": hello}), data).split(b"\r\n")[0]


def test_a_client_that_leaves_in_the_middle_gets_nothing(serve: Serve) -> None:
    assert send(serve({"/hello": hello}), b"GET /hel", end=True) == b""


def test_a_client_that_never_ends_its_request_is_given_up(serve: Serve) -> None:
    assert send(serve({"/hello": hello}, ask_s=0.05), b"GET /hello HTTP/1.1\r\n") == b""


def test_a_client_that_sends_byte_after_byte_is_given_up_as_a_silent_one(serve: Serve) -> None:
    port = serve({"/hello": hello}, ask_s=0.2)
    with socket.create_connection((HOST, port), timeout=10) as client:
        client.sendall(b"GET /hello HTTP/1.1\r\nx: ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for _ in range(HEAD_BYTES // 2):
                client.sendall(b"y")
                select.select([client], [], [], 0.01)


def test_a_client_that_does_not_read_is_given_up_and_its_place_is_free_again(serve: Serve) -> None:
    port = serve({"/large": lambda _: text(200, "x" * (64 << 20)), "/hello": hello}, read_s=0.05)
    with socket.create_connection((HOST, port), timeout=10) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        poller = select.poll()
        poller.register(client, select.POLLERR)
        assert poller.poll(10_000), "it was not given up"
        with pytest.raises(ConnectionResetError):
            while client.recv(1 << 20):
                pass
    assert ask(port, "/hello")[0] == 200


def test_more_than_there_are_places_for_are_told_so(serve: Serve) -> None:
    go_on, inside = threading.Event(), threading.Semaphore(0)

    def wait(_: Request) -> object:
        inside.release()
        go_on.wait(10)
        return text(200, "done")

    port = serve({"/wait": wait})
    clients = [socket.create_connection((HOST, port), timeout=10) for _ in range(MOST_AT_ONCE)]
    try:
        for client in clients:
            client.sendall(b"GET /wait HTTP/1.1\r\n\r\n")
            assert inside.acquire(timeout=10)
        assert send(port, b"GET /wait HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 503")
        go_on.set()
        for client in clients:
            assert client.recv(65536).startswith(b"HTTP/1.0 200")
    finally:
        go_on.set()
        for client in clients:
            client.close()


@contextlib.contextmanager
def connected(port: int, count: int, data: bytes) -> Iterator[list[socket.socket]]:
    """So many clients, each of which has sent `data` and stays."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection((HOST, port), timeout=10)) for _ in range(count)]
        for client in clients:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # sent away for later ones
                client.sendall(data)
        yield clients


@pytest.mark.parametrize("data", [b"", b"GET /livez HTTP/1.1\r\n"])
@pytest.mark.parametrize("count", [MOST_AT_ONCE + PROBES_AT_ONCE, 3 * MOST_ASKING])
def test_clients_that_never_end_their_request_keep_nobody_waiting(serve: Serve, count: int, data: bytes) -> None:
    port = serve({"/livez": hello, "/metrics": hello}, ask_s=600)
    with connected(port, count, data):
        assert ask(port, "/livez")[:2] == (200, b"hello\n")
        assert ask(port, "/metrics")[:2] == (200, b"hello\n")


def test_the_connection_that_has_waited_longest_makes_room_for_one_more(serve: Serve) -> None:
    port = serve({"/livez": hello}, ask_s=600)
    with connected(port, MOST_ASKING, b"") as clients:
        assert ask(port, "/livez")[0] == 200
        assert clients[0].recv(65536) == b""
        clients[1].sendall(b"GET /livez HTTP/1.1\r\n\r\n")
        assert clients[1].recv(65536).startswith(b"HTTP/1.0 200")


def test_clients_that_do_not_read_a_large_answer_do_not_keep_a_probe_waiting(serve: Serve) -> None:
    inside = threading.Semaphore(0)

    def large(_: Request) -> object:
        inside.release()
        return text(200, "x" * (16 << 20))

    port = serve({"/livez": hello, "/metrics": large}, read_s=600)
    with connected(port, MOST_AT_ONCE, b"GET /metrics HTTP/1.1\r\n\r\n"):
        assert all(inside.acquire(timeout=10) for _ in range(MOST_AT_ONCE))
        assert send(port, b"GET /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 503")
        assert ask(port, "/livez")[0] == 200


def test_clients_that_do_not_close_after_their_answer_hold_no_place(serve: Serve) -> None:
    port = serve({"/livez": hello})
    with contextlib.ExitStack() as stack:
        for _ in range(2 * PROBES_AT_ONCE):
            client = stack.enter_context(socket.create_connection((HOST, port), timeout=10))
            client.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
            assert client.recv(65536).startswith(b"HTTP/1.0 200")


def test_a_server_that_stops_closes_what_waits(serve: Serve) -> None:
    server = HttpServer({"/hello": hello}, name="http", port_key="regency.http.port")  # type: ignore[dict-item]
    port = server.bind(HOST, 0)
    server.start(lambda name, error: None)
    with socket.create_connection((HOST, port), timeout=10) as client:
        assert ask(port, "/hello")[0] == 200  # so that one has been accepted, too
        server.stop()
        assert client.recv(1) == b""


def test_a_port_that_is_taken_is_an_error_that_names_the_setting(serve: Serve) -> None:
    port = serve({"/hello": hello})
    with pytest.raises(PortUnavailable) as caught:
        HttpServer({}, name="http", port_key="regency.http.port").bind(HOST, port)
    assert str(caught.value) == (
        f"Cannot serve HTTP on 127.0.0.1:{port}: Address already in use. "
        "Stop the process that has this port, set regency.http.port to another one, or to -1 for none."
    )


def test_a_server_that_is_stopped_before_its_thread_has_begun_just_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[Callable[[], None]] = []
    monkeypatch.setattr("regency.runtime.http.server.start_thread", lambda name, run, *_, **__: threads.append(run))
    server = HttpServer({"/": hello}, name="http", port_key="regency.http.port")  # type: ignore[dict-item]
    server.bind(HOST, 0)
    server.start(lambda name, error: None)
    server.stop()
    (run,) = threads
    run()


def test_a_stopped_server_gives_its_port_back() -> None:
    server = HttpServer({"/hello": hello}, name="http", port_key="regency.http.port")  # type: ignore[dict-item]
    port = server.bind(HOST, 0)
    server.start(lambda name, error: None)
    assert ask(port, "/hello")[0] == 200
    server.stop()
    server.stop()
    other = HttpServer({}, name="http", port_key="regency.http.port")
    assert other.bind(HOST, port) == port
    other.stop()


def test_choices_have_weights_and_the_malformed_have_none() -> None:
    assert qualities("a/b;version=1;q=0.5, C/d , e;q=x, f;q=0,, gzip") == {
        "a/b": 0.5,
        "c/d": 1.0,
        "e": 0.0,
        "f": 0.0,
        "gzip": 1.0,
    }


ASKED = Request("GET", "/readyz")


def test_a_probe_is_fine_when_every_condition_holds() -> None:
    answer = probe([Condition("a", lambda: ""), Condition("b", lambda: "")])(ASKED)
    assert answer.status == 200
    assert json.loads(answer.body)["ok"] is True


def test_a_probe_says_what_is_missing() -> None:
    answer = probe([Condition("a", lambda: ""), Condition("registered", lambda: "it is not")])(ASKED)
    assert answer.status == 503
    assert json.loads(answer.body) == {
        "ok": False,
        "conditions": [
            {"name": "a", "ok": True, "missing": ""},
            {"name": "registered", "ok": False, "missing": "it is not"},
        ],
    }


def test_stacks_of_all_threads_are_told_by_name() -> None:
    text = threads(ASKED).body.decode()
    assert "MainThread (" in text
    assert "test_stacks_of_all_threads_are_told_by_name" in text
