from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from regency.kafka.apis import ApiKey
from regency.kafka.codec import ApiVersionsRequest, ApiVersionsResponse, encode_response, parse_request
from regency.kafka.peer import PeerConnection, PeerUnavailable

Serve = Callable[[socket.socket], None]


def read_request(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    return connection.recv(size, socket.MSG_WAITALL)


def answer_to(request: bytes, *, correlation_id: int | None = None) -> bytes:
    parsed = parse_request(request)
    message = ApiVersionsResponse(version=3, error_code=0, api_keys=[], throttle_time_ms=17)
    if correlation_id is None:
        correlation_id = parsed.correlation_id
    return bytes(encode_response(ApiKey.API_VERSIONS, 3, correlation_id, message))


def answer_once(connection: socket.socket) -> None:
    connection.sendall(answer_to(read_request(connection)))


class Peer:
    """A broker on loopback: serves one connection after another, each with the next function."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0
        self._threads: list[threading.Thread] = []

    def serves(self, *serving: Serve) -> None:
        thread = threading.Thread(target=self._serve, args=(serving,))
        thread.start()
        self._threads.append(thread)

    def _serve(self, serving: tuple[Serve, ...]) -> None:
        for serve in serving:
            connection, _ = self._listener.accept()
            self.accepted += 1
            with connection:
                connection.settimeout(10)
                serve(connection)

    def close(self) -> None:
        for thread in self._threads:
            thread.join(10)
        self._listener.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.close()


def connect(peer: Peer, *, request_timeout_ms: int = 10_000) -> PeerConnection:
    return PeerConnection(
        "127.0.0.1", peer.port, client_id="broker-2", connect_timeout_ms=10_000, request_timeout_ms=request_timeout_ms
    )


def ask(connection: PeerConnection) -> int:
    message = ApiVersionsRequest(version=3, client_software_name="a", client_software_version="b")
    throttle: int = connection.exchange(message, 3).throttle_time_ms
    return throttle


def test_an_exchange_gives_the_answer(peer: Peer) -> None:
    peer.serves(answer_once)
    connection = connect(peer)

    assert ask(connection) == 17
    connection.close()


def test_exchanges_share_a_connection(peer: Peer) -> None:
    def twice(accepted: socket.socket) -> None:
        answer_once(accepted)
        answer_once(accepted)

    peer.serves(twice)
    connection = connect(peer)

    assert [ask(connection), ask(connection)] == [17, 17]
    assert peer.accepted == 1
    connection.close()


def test_the_client_id_is_sent(peer: Peer) -> None:
    seen: list[str | None] = []

    def look(accepted: socket.socket) -> None:
        request = read_request(accepted)
        seen.append(parse_request(request).client_id)
        accepted.sendall(answer_to(request))

    peer.serves(look)
    connection = connect(peer)
    ask(connection)
    connection.close()

    assert seen == ["broker-2"]


def test_it_connects_again_after_a_failure(peer: Peer) -> None:
    peer.serves(lambda accepted: None, answer_once)
    connection = connect(peer)

    with pytest.raises(PeerUnavailable, match=f"127.0.0.1:{peer.port}"):
        ask(connection)
    assert ask(connection) == 17
    connection.close()


def test_a_port_nobody_listens_on_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    connection = PeerConnection("127.0.0.1", port, client_id="x", connect_timeout_ms=1000, request_timeout_ms=1000)

    with pytest.raises(PeerUnavailable, match=f"127.0.0.1:{port} failed: connecting") as raised:
        ask(connection)

    assert raised.value.retriable


def test_an_answer_cut_short_is_a_failure(peer: Peer) -> None:
    peer.serves(lambda accepted: accepted.sendall(answer_to(read_request(accepted))[:9]))
    connection = connect(peer)

    with pytest.raises(PeerUnavailable, match="before the answer was complete"):
        ask(connection)


def test_an_exchange_may_have_a_timeout_of_its_own(peer: Peer) -> None:
    given_up = threading.Event()

    def silent(accepted: socket.socket) -> None:
        read_request(accepted)
        given_up.wait(10)

    peer.serves(silent, answer_once)
    connection = connect(peer)
    message = ApiVersionsRequest(version=3, client_software_name="a", client_software_version="b")

    with pytest.raises(PeerUnavailable, match=r"did not answer within 0\.05 s"):
        connection.exchange(message, 3, timeout_ms=50)
    given_up.set()
    assert ask(connection) == 17
    connection.close()


def test_the_deadline_holds_for_the_whole_exchange_however_the_bytes_trickle(peer: Peer) -> None:
    given_up = threading.Event()

    def trickle(accepted: socket.socket) -> None:
        read_request(accepted)
        accepted.sendall(struct.pack(">i", 1000))
        while not given_up.wait(0.01):
            try:
                accepted.sendall(b"\0")
            except OSError:
                return

    peer.serves(trickle)
    connection = connect(peer, request_timeout_ms=100)

    with pytest.raises(PeerUnavailable, match=r"did not answer within 0\.1 s"):
        ask(connection)
    given_up.set()


def test_an_answer_to_another_request_is_refused(peer: Peer) -> None:
    peer.serves(lambda accepted: accepted.sendall(answer_to(read_request(accepted), correlation_id=99)))
    connection = connect(peer)

    with pytest.raises(PeerUnavailable, match="correlation id 99, the request had 1"):
        ask(connection)


@pytest.mark.parametrize("size", [-1, 3, 0x7FFFFFFF])
def test_a_forged_size_is_refused_before_anything_is_allocated(peer: Peer, size: int) -> None:
    def forge(accepted: socket.socket) -> None:
        read_request(accepted)
        accepted.sendall(struct.pack(">i", size))

    peer.serves(forge)
    connection = connect(peer)

    with pytest.raises(PeerUnavailable, match=f"claims {size} bytes"):
        ask(connection)


def test_close_from_another_thread_ends_a_waiting_exchange(peer: Peer) -> None:
    waiting = threading.Event()

    def silent(accepted: socket.socket) -> None:
        read_request(accepted)
        waiting.set()
        assert accepted.recv(1) == b""

    peer.serves(silent)
    connection = connect(peer)

    def close() -> None:
        waiting.wait(10)
        connection.close()

    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises(PeerUnavailable, match="was closed"):
        ask(connection)
    closer.join()


def test_a_closed_connection_is_not_opened_again(peer: Peer) -> None:
    connection = connect(peer)
    connection.close()
    connection.close()

    with pytest.raises(PeerUnavailable, match="was closed"):
        ask(connection)
    assert peer.accepted == 0


def test_two_threads_cannot_use_one_connection_at_once(peer: Peer) -> None:
    waiting, refused = threading.Event(), threading.Event()

    def hold(accepted: socket.socket) -> None:
        request = read_request(accepted)
        waiting.set()
        refused.wait(10)
        accepted.sendall(answer_to(request))

    peer.serves(hold)
    connection = connect(peer)
    first = threading.Thread(target=ask, args=(connection,))
    first.start()
    waiting.wait(10)

    with pytest.raises(RuntimeError, match="two threads"):
        ask(connection)
    refused.set()
    first.join()
    connection.close()


def test_a_connection_that_was_let_go_of_is_made_again(peer: Peer) -> None:
    peer.serves(answer_once, answer_once)
    connection = connect(peer)
    connection.hang_up()
    assert ask(connection) == 17
    connection.hang_up()
    assert ask(connection) == 17
    assert peer.accepted == 2
    connection.close()
