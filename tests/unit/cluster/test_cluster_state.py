"""cluster.json is replaced whole, read strictly, and guards a running cluster against a second start."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from regency.cluster.errors import ClusterError, ClusterFileMalformed, ClusterRunning
from regency.cluster.process.processes import ProcessRef, reference
from regency.cluster.state import BrokerPorts, ClusterState, read_state, refuse_if_running, write_state
from regency.cluster.status import end_cluster
from regency.model.ids import BrokerId


def a_state(*processes: ProcessRef) -> ClusterState:
    brokers = tuple(
        BrokerPorts(BrokerId(n), {"PLAINTEXT": 20_000 + n, "CONTROL": 21_000 + n, "CONTROLLER": 22_000 + n})
        for n in (1, 2)
    )
    return ClusterState(
        zookeeper_connect="127.0.0.1:20000",
        zookeeper_port=20_000,
        session_timeout_ms=3000,
        brokers=brokers,
        settings={"min.insync.replicas": "2"},
        broker_settings={2: {"broker.rack": "b"}},
        processes=processes,
    )


def test_state_comes_back_as_it_was_written_and_leaves_no_draft(tmp_path: Path) -> None:
    state = a_state(ProcessRef("agent-1", 12, "boot/34"))
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]


def test_full_disk_keeps_what_was_written_and_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = a_state()
    write_state(tmp_path, before)
    monkeypatch.setattr(Path, "replace", _no_room)
    with pytest.raises(ClusterError, match=r"cluster\.json cannot be written: No space left on device\. Make room"):
        write_state(tmp_path, a_state(ProcessRef("agent-1", 2, "x/1")))
    assert read_state(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]


def test_cluster_on_a_full_disk_can_be_ended(
    tmp_path: Path, sleeper: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = sleeper()
    ref = reference("agent-1", process.pid)
    assert ref is not None
    write_state(tmp_path, a_state(ref))
    monkeypatch.setattr(Path, "replace", _no_room)
    assert [ended.name for ended in end_cluster(tmp_path, grace_s=0)] == ["agent-1"]
    assert process.wait() != 0


def _no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_bootstrap_servers_are_all_kafka_listeners() -> None:
    assert a_state().bootstrap_servers == "127.0.0.1:20001,127.0.0.1:20002"


def test_directory_without_a_cluster_remembers_nothing(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    assert read_state(tmp_path / "absent") is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 1}', '{"zookeeper_connect": 3}'])
def test_malformed_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(ClusterFileMalformed, match=r"cluster\.json: .* Remove the directory to start again"):
        read_state(tmp_path)


def test_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    write_state(tmp_path, a_state())
    path = tmp_path / "cluster.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(ClusterFileMalformed, match="version 2 is not known"):
        read_state(tmp_path)


def test_second_start_is_refused_while_a_process_lives(
    tmp_path: Path, sleeper: Callable[..., subprocess.Popen[bytes]]
) -> None:
    ref = reference("agent-1", sleeper().pid)
    assert ref is not None
    with pytest.raises(ClusterRunning, match=rf"broker 1 \(pid {ref.pid}\).*regency down"):
        refuse_if_running(tmp_path, a_state(ref))


def test_stale_processes_do_not_keep_a_cluster_from_starting(
    tmp_path: Path, sleeper: Callable[..., subprocess.Popen[bytes]]
) -> None:
    state = a_state(ProcessRef("agent-1", sleeper().pid, "another boot/1"))
    assert state.alive(tmp_path) == []
    refuse_if_running(tmp_path, state)
