"""The proxy's faults, each on an echo server."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from breaking.tcp_proxy import TcpProxy


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that answers what it is told, and counts it."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []

    def answer(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while data := connection.recv(4096):
                connection.sendall(data)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for connection in connections:
        connection.close()
    thread.join()


@pytest.fixture
def proxy(echo: tuple[str, int]) -> Iterator[TcpProxy]:
    with TcpProxy(echo) as proxy:
        yield proxy


@pytest.fixture
def dial(proxy: TcpProxy) -> Iterator[object]:
    connections: list[socket.socket] = []

    def open_one() -> socket.socket:
        connections.append(socket.create_connection(("127.0.0.1", proxy.port), 1.5))
        return connections[-1]

    yield open_one
    for connection in connections:
        connection.close()


def ask(connection: socket.socket, words: bytes) -> bytes:
    connection.sendall(words)
    return connection.recv(4096)


def silent(connection: socket.socket, seconds: float = 0.1) -> bool:
    connection.settimeout(seconds)
    try:
        connection.recv(4096)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(1.5)
    return False


def test_it_forwards_both_ways(proxy, dial):
    first, second = dial(), dial()
    assert (ask(first, b"one"), ask(second, b"two")) == (b"one", b"two")
    assert proxy.connections == 2
    assert proxy.address == f"127.0.0.1:{proxy.port}"


def test_a_black_hole_holds_everything_until_healed(proxy, dial):
    connection = dial()
    assert ask(connection, b"a") == b"a"
    proxy.black_hole()
    connection.sendall(b"b")
    assert silent(connection)
    proxy.heal()
    assert connection.recv(4096) == b"b"


def test_a_hole_for_established_connections_lets_new_ones_pass(proxy, dial):
    old = dial()
    assert ask(old, b"a") == b"a"
    proxy.black_hole_established()
    old.sendall(b"b")
    assert ask(dial(), b"c") == b"c"
    assert silent(old)
    proxy.heal()
    assert old.recv(4096) == b"b"


def test_half_open_carries_requests_and_holds_replies(proxy, dial):
    connection = dial()
    proxy.half_open()
    connection.sendall(b"a")
    assert silent(connection)
    proxy.heal()
    assert connection.recv(4096) == b"a"


def test_a_reset_ends_connections_and_accepts_new_ones(proxy, dial, eventually):
    connection = dial()
    assert ask(connection, b"a") == b"a"
    proxy.reset_all()
    with pytest.raises(ConnectionResetError):
        connection.recv(4096)
    assert ask(dial(), b"b") == b"b"
    eventually(lambda: proxy.connections == 1, within=1.5, what="the reset connection to be forgotten")


def test_a_refusing_proxy_resets_old_and_new_connections_until_healed(proxy, dial):
    connection = dial()
    assert ask(connection, b"a") == b"a"
    proxy.refuse()
    with pytest.raises(ConnectionResetError):
        connection.recv(1)
    with pytest.raises(ConnectionError):
        ask(dial(), b"b")
    proxy.heal()
    assert ask(dial(), b"c") == b"c"


def test_exactly_one_reply_is_lost_and_its_connection_closed(proxy, dial):
    first = dial()
    assert ask(first, b"a") == b"a"
    proxy.lose_next_reply()
    assert ask(first, b"b") == b""
    assert proxy.lost_replies == 1
    assert ask(dial(), b"c") == b"c"


def test_the_lost_reply_can_be_chosen_by_its_request(proxy, dial):
    connection = dial()
    proxy.lose_next_reply(lambda data: data.startswith(b"write"))
    assert ask(connection, b"read") == b"read"
    assert ask(connection, b"write") == b""


def test_a_delay_is_felt_and_ends_with_heal(proxy, dial):
    connection = dial()
    proxy.delay(0.3)
    connection.sendall(b"a")
    assert silent(connection, 0.1)
    assert connection.recv(4096) == b"a"
    proxy.heal()
    assert ask(connection, b"b") == b"b"


def test_a_target_that_is_gone_resets_the_client(echo):
    gone = socket.create_server(("127.0.0.1", 0))
    target = gone.getsockname()
    gone.close()

    def hear(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), 1.5) as connection:
            return connection.recv(1)

    with TcpProxy(target) as proxy, pytest.raises(ConnectionResetError):
        hear(proxy.port)


def test_close_ends_every_thread_also_in_a_black_hole(echo):
    before = threading.active_count()
    proxy = TcpProxy(echo)
    with socket.create_connection(("127.0.0.1", proxy.port), 1.5) as connection:
        assert ask(connection, b"a") == b"a"
        proxy.black_hole()
        connection.sendall(b"b")
        proxy.close()
        proxy.close()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("tcp-proxy")]
    assert threading.active_count() <= before + 1
