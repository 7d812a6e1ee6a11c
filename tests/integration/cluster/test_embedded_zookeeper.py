"""A real ZooKeeper: starts, keeps its data and port over restarts and kills, can be paused, and leaves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from regency.cluster.errors import ClusterNotRunning, ClusterStartFailed
from regency.cluster.process import processes
from regency.cluster.process.processes import ProcessState
from regency.cluster.zookeeper import EmbeddedZooKeeper, is_serving
from regency.runtime.zookeeper import client as zk_client
from regency.runtime.zookeeper.session import Create

pytestmark = pytest.mark.integration
Eventually = Callable[..., object]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as started:
        yield started


def write(server: EmbeddedZooKeeper, path: str, data: bytes) -> int:
    """Create a znode; the session timeout that was granted."""
    session = zk_client.connect(server.connect_string, session_timeout_ms=3000, connect_timeout_ms=20_000)
    assert session.multi([Create(path, data)]).ok
    session.close()
    return session.session_timeout_ms


def read(server: EmbeddedZooKeeper, path: str) -> bytes | None:
    session = zk_client.connect(server.connect_string, session_timeout_ms=3000, connect_timeout_ms=20_000)
    znode = session.read(path)
    session.close()
    return znode.data if znode else None


def test_sessions_of_three_seconds_are_granted(server: EmbeddedZooKeeper) -> None:
    assert write(server, "/a", b"1") == 3000


def test_data_and_port_survive_a_restart_and_a_kill(server: EmbeddedZooKeeper) -> None:
    address = server.connect_string
    write(server, "/a", b"1")
    server.restart()
    assert read(server, "/a") == b"1"
    write(server, "/b", b"2")
    server.kill()
    assert server.state is ProcessState.DEAD
    server.start()
    assert (read(server, "/a"), read(server, "/b"), server.connect_string) == (b"1", b"2", address)


def test_paused_server_does_not_answer_until_it_is_resumed(server: EmbeddedZooKeeper, eventually: Eventually) -> None:
    server.pause()
    eventually(lambda: server.state is ProcessState.PAUSED, what="it is paused")
    assert not is_serving("127.0.0.1", server.port, timeout_s=0.2)
    server.resume()
    eventually(lambda: is_serving("127.0.0.1", server.port), what="it answers again")


@pytest.mark.parametrize("name", ["Zoë's 目录", "back\\slash", "${HOME} 50%"])
def test_data_stays_in_a_directory_of_any_name_in_any_locale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    with EmbeddedZooKeeper(tmp_path / name) as server:
        write(server, "/a", b"1")
        made = sorted(path.name for path in server.directory.iterdir())
        assert made == ["data", "life.json", "log4j2.properties", "zoo.cfg", "zookeeper.log", "zookeeper.out"]
        assert list(server.directory.glob("data/version-2/log.*"))
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_log_holds_warnings_only(server: EmbeddedZooKeeper) -> None:
    write(server, "/a", b"1")
    lines = server.log.read_text().splitlines()
    assert not [line for line in lines if " INFO " in line or " DEBUG " in line]


def test_stopped_server_leaves_no_process_and_can_be_closed_twice(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path)
    server.start()
    ref = server.process.ref
    server.close()
    server.close()
    assert processes.members(ref) == []
    with pytest.raises(ClusterNotRunning, match="not started"):
        server.pause()


def test_server_whose_port_is_taken_says_so(server: EmbeddedZooKeeper, tmp_path: Path) -> None:
    second = EmbeddedZooKeeper(tmp_path / "second", port=server.port)
    with pytest.raises(ClusterStartFailed, match=rf"Port {server.port} of ZooKeeper is taken"):
        second.start()
    second.close()
