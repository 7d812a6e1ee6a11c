"""Sessions with a real ZooKeeper: each test has its own chroot, and everything it opens is closed."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator

import pytest
from breaking.tcp_proxy import TcpProxy

from regency.cluster.process.processes import ProcessState
from regency.cluster.zookeeper import EmbeddedZooKeeper
from regency.runtime.zookeeper.client import ZkClient, connect
from regency.runtime.zookeeper.session import SessionEvent
from regency.runtime.zookeeper.wire import FrameReader, OpCode, decode_connect, encode_connect, request_frame

_chroots = itertools.count(1)


class Observed:
    """A session and the session events it has delivered since the beginning."""

    def __init__(self, session: ZkClient) -> None:
        self.session = session
        self.events: list[tuple[SessionEvent, int]] = []
        session.listen(lambda event, generation: self.events.append((event, generation)))

    def has(self, event: SessionEvent, generation: int) -> bool:
        return (event, generation) in self.events


@pytest.fixture
def chroot(request: pytest.FixtureRequest) -> str:
    return f"/{request.node.originalname}-{next(_chroots)}"


@pytest.fixture
def new_session(zookeeper: EmbeddedZooKeeper, chroot: str) -> Iterator[Callable[..., ZkClient]]:
    sessions: list[ZkClient] = []

    def start(
        *, port: int | None = None, path: str | None = None, session_timeout_ms: int = 6000, **options: object
    ) -> ZkClient:
        where = f"127.0.0.1:{port or zookeeper.port}{chroot if path is None else path}"
        session = connect(where, session_timeout_ms=session_timeout_ms, connect_timeout_ms=20_000, **options)
        assert isinstance(session, ZkClient)
        sessions.append(session)
        return session

    yield start
    for session in sessions:
        session.close()


@pytest.fixture
def observe() -> Callable[[ZkClient], Observed]:
    return Observed


@pytest.fixture
def proxy(zookeeper: EmbeddedZooKeeper) -> Iterator[TcpProxy]:
    with TcpProxy(("127.0.0.1", zookeeper.port)) as proxy:
        yield proxy


@pytest.fixture
def session(new_session: Callable[..., ZkClient], proxy: TcpProxy) -> ZkClient:
    return new_session(port=proxy.port)


@pytest.fixture(scope="session")
def _breakable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("breakable-zookeeper")) as server:
        yield server


@pytest.fixture
def breakable(_breakable: EmbeddedZooKeeper) -> Iterator[EmbeddedZooKeeper]:
    """A ZooKeeper that a test may pause, stop and restart; it runs again afterwards."""
    yield _breakable
    if _breakable.state is ProcessState.PAUSED:
        _breakable.resume()
    _breakable.start()


@pytest.fixture
def expire(zookeeper: EmbeddedZooKeeper, proxy: TcpProxy) -> Callable[[ZkClient], None]:
    """Ends a session opened through the proxy: takes it over on another connection and closes it there."""

    def end(session: ZkClient) -> None:
        proxy.refuse()
        with socket.create_connection(("127.0.0.1", zookeeper.port), 5) as connection:
            attempt = session._core.attempt()
            connection.sendall(encode_connect(attempt.session_id, attempt.password, 6000, 0))
            frames: list[bytes] = []
            reader = FrameReader()
            while not frames:
                frames += reader.feed(connection.recv(4096))
            assert decode_connect(frames[0]).session_id == attempt.session_id
            connection.sendall(request_frame(1, OpCode.CLOSE, b""))
            while connection.recv(4096):
                pass
        proxy.heal()

    return end
