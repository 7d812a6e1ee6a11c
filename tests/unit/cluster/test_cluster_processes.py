"""A cluster of stub agents: faults reach agent and child, and whatever ends the owner leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from regency.cluster import status
from regency.cluster.cluster import Cluster
from regency.cluster.errors import ClusterError, ClusterNotRunning, ClusterRunning, ClusterStartFailed, UnknownBroker
from regency.cluster.health import ClusterSnapshot
from regency.cluster.lab import Lab
from regency.cluster.process import processes
from regency.cluster.process.processes import ProcessRef, ProcessState, members
from regency.cluster.state import read_state, refuse_if_running
from regency.cluster.status import end_cluster
from regency.model.errors import RegencyError
from regency.model.ids import ControllerEpoch
from regency.model.settings import SettingsInvalid

Eventually = Callable[..., None]
Owner = Callable[[str], subprocess.Popen[str]]
NOWHERE = "127.0.0.1:1"
BOTH = 2  # agent and child


@pytest.fixture
def cluster(stub_command: tuple[str, ...]) -> Iterator[Cluster]:
    with Cluster(2, zookeeper_connect=NOWHERE, agent_command=stub_command) as started:
        yield started


def ref_of(cluster: Lab, broker: int) -> ProcessRef:
    return next(ref for ref in cluster.state.processes if ref.name == f"agent-{broker}")


def children() -> list[int]:
    return [row.pid for row in processes.all_processes() if row.parent == os.getpid()]


def test_started_cluster_stands_in_cluster_json(cluster: Cluster) -> None:
    remembered = read_state(cluster.directory)
    assert remembered == cluster.state
    assert [ref.name for ref in remembered.processes] == ["agent-1", "agent-2"]
    assert cluster.broker_ids == [1, 2]
    assert cluster.log(1).read_text() == "agent 1 is here\n"
    assert cluster.log_dirs(2) == [cluster.directory / "agent-2" / "data"]


def test_kill_ends_agent_and_child_and_start_brings_them_back_on_the_same_ports(cluster: Cluster) -> None:
    before = ref_of(cluster, 1)
    properties = (cluster.directory / "agent-1" / "server.properties").read_text()
    assert len(members(before)) == BOTH
    cluster.kill(1)
    assert members(before) == []
    assert (cluster.broker_state(1), cluster.broker_state(2)) == (ProcessState.DEAD, ProcessState.RUNNING)
    assert [ref.name for ref in cluster.state.processes] == ["agent-2"]
    cluster.start(1)
    assert len(members(ref_of(cluster, 1))) == BOTH
    assert (cluster.directory / "agent-1" / "server.properties").read_text() == properties


def test_stop_lets_the_agent_leave_in_order(cluster: Cluster) -> None:
    before = ref_of(cluster, 2)
    assert cluster.stop(2)
    assert members(before) == []


def test_stop_of_a_paused_broker_resumes_it_first(cluster: Cluster) -> None:
    cluster.pause(1)
    assert cluster.stop(1)


def test_pause_and_resume_reach_agent_and_child(cluster: Cluster, eventually: Eventually) -> None:
    ref = ref_of(cluster, 1)
    cluster.pause(1)
    eventually(lambda: {row.state for row in members(ref)} == {"T"}, what="both are stopped")
    assert cluster.broker_state(1) is ProcessState.PAUSED
    cluster.resume(1)
    eventually(lambda: "T" not in {row.state for row in members(ref)}, what="both run again")


def test_restart_gives_a_new_process(cluster: Cluster) -> None:
    before = cluster.pid(1)
    cluster.restart(1)
    assert cluster.pid(1) != before
    assert cluster.broker_state(1) is ProcessState.RUNNING


def test_controller_child_is_the_child_of_the_agent(cluster: Cluster) -> None:
    assert cluster.controller_process(2).parent == cluster.pid(2)


def test_questions_about_nobody_are_answered_with_what_to_do(cluster: Cluster) -> None:
    with pytest.raises(UnknownBroker, match=r"There is no broker 9\. There are 1, 2"):
        cluster.kill(9)
    cluster.kill(1)
    cluster.kill(1)
    with pytest.raises(ClusterNotRunning, match=r"Broker 1 is not running\. Start it with start\(1\)"):
        cluster.pause(1)
    with pytest.raises(ClusterError, match="is not this cluster's"):
        cluster.pause_zookeeper()


def test_a_cluster_that_is_not_started_leaves_no_directory_and_says_so(
    stub_command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cluster = Cluster(2, zookeeper_connect=NOWHERE, agent_command=stub_command)
    assert cluster.broker_ids == [1, 2]
    for early in (lambda: cluster.kill(1), lambda: cluster.start(1), lambda: cluster.bootstrap_servers):
        with pytest.raises(ClusterNotRunning, match=r"Call start\(\) first"):
            early()
    cluster.close()
    assert not list(tmp_path.glob("regency-????????*"))


def test_another_program_breaks_and_repairs_the_same_cluster(cluster: Cluster) -> None:
    with Cluster.attach(cluster.directory) as lab:
        lab.kill(1)
        assert cluster.broker_state(1) is ProcessState.DEAD
        with lab.paused(2):
            assert cluster.broker_state(2) is ProcessState.PAUSED
        assert cluster.broker_state(2) is ProcessState.RUNNING
        lab._parts.agents[1]._command = cluster._parts._agent_command
        lab.start()
        assert cluster.pid(1) == lab.pid(1)
        assert (cluster.directory / "agent-1" / "agent.log").read_text() == "agent 1 is here\n" * 2
        cluster.kill(1)
        assert lab.broker_state(1) is ProcessState.DEAD
        lab.start(1)
    assert cluster.broker_state(1) is ProcessState.RUNNING, "letting go of it ends nothing"
    ref = ref_of(cluster, 1)
    cluster.close()
    assert members(ref) == []


def test_a_pause_ends_with_its_block_also_where_the_broker_has_died(cluster: Cluster) -> None:
    with pytest.raises(KeyError), cluster.paused(1, 2):
        assert {cluster.broker_state(each) for each in (1, 2)} == {ProcessState.PAUSED}
        cluster.kill(1)
        raise KeyError
    assert (cluster.broker_state(1), cluster.broker_state(2)) == (ProcessState.DEAD, ProcessState.RUNNING)


def test_a_cluster_that_was_ended_cannot_be_attached_to(stub_command: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(ClusterNotRunning, match="There is no cluster in"):
        Cluster.attach(tmp_path)
    with Cluster(1, directory=tmp_path, zookeeper_connect=NOWHERE, agent_command=stub_command):
        pass
    with pytest.raises(ClusterNotRunning, match=r"was stopped at .* by the program that had started it\. Start it"):
        Cluster.attach(tmp_path)


def test_end_of_the_block_leaves_no_process_and_no_file(stub_command: tuple[str, ...]) -> None:
    before = children()
    with Cluster(1, zookeeper_connect=NOWHERE, agent_command=stub_command) as cluster:
        ref = ref_of(cluster, 1)
        cluster.pause(1)
    assert members(ref) == []
    assert not cluster.directory.exists()
    assert children() == before
    asked: tuple[Callable[[], object], ...] = (
        lambda: cluster.create_topic("t"),
        cluster.controller_id,
        cluster.snapshot,
        lambda: cluster.wait_leader("t", 0),
    )
    done = cluster.start, lambda: cluster.start(1), lambda: cluster.restart(1), lambda: cluster.kill(1)
    for late in (*done, *asked):
        with pytest.raises(ClusterNotRunning, match="The cluster was closed"):
            late()
    assert children() == before


def test_directory_that_was_given_is_kept_and_started_again(stub_command: tuple[str, ...], tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Cluster(
        2, {"num.partitions": "4"}, directory=home, zookeeper_connect=NOWHERE, agent_command=stub_command
    ) as first:
        servers = first.bootstrap_servers
    with Cluster(directory=home, agent_command=stub_command) as second:
        assert second.bootstrap_servers == servers
        assert "num.partitions=4" in (home / "agent-2" / "server.properties").read_text()
    assert read_state(home) is not None


def test_second_cluster_in_a_running_directory_is_refused(stub_command: tuple[str, ...], tmp_path: Path) -> None:
    options = {"directory": tmp_path / "home", "zookeeper_connect": NOWHERE, "agent_command": stub_command}
    with Cluster(1, **options) as first, pytest.raises(ClusterRunning, match="regency down"):
        Cluster(**options).start()
    assert first.broker_state(1) is ProcessState.DEAD


def test_agent_that_ends_at_start_shows_the_end_of_its_log(script: Callable[[str, str], Path]) -> None:
    broken = script("broken.py", "import sys; sys.exit('port 20001 is taken')")
    cluster = Cluster(1, zookeeper_connect=NOWHERE, agent_command=(sys.executable, "-I", str(broken)))
    with pytest.raises(ClusterStartFailed, match=r"Broker 1 ended with status 1 .*\n.*port 20001 is taken"):
        cluster.start()
    assert not cluster.directory.exists()


def test_agent_that_is_never_ready_ends_the_start(script: Callable[[str, str], Path]) -> None:
    silent = script("silent.py", "import signal; signal.pause()")
    cluster = Cluster(1, zookeeper_connect=NOWHERE, start_timeout_s=0.2, agent_command=(sys.executable, str(silent)))
    with pytest.raises(ClusterStartFailed, match=r"Broker 1 was not ready within 0\.2 s"):
        cluster.start()
    assert cluster.broker_state(1) is ProcessState.DEAD


def test_wrong_settings_are_told_before_anything_is_started(tmp_path: Path) -> None:
    cluster = Cluster(1, {"min.insinc.replicas": "2"}, directory=tmp_path, zookeeper_connect=NOWHERE)
    with pytest.raises(SettingsInvalid, match=r"min\.insync\.replicas"):
        cluster.start()
    assert not (tmp_path / "agent-1").exists()


@pytest.mark.parametrize(
    "wrong", [{"brokers": 0}, {"settings": {"min.insinc.replicas": "2"}}, {"agent_command": ("/no/such",)}]
)
def test_cluster_that_cannot_be_started_leaves_no_directory(
    wrong: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(RegencyError):
        Cluster(**{"brokers": 1, "zookeeper_connect": NOWHERE, **wrong}).start()
    assert not list(tmp_path.glob("regency-????????"))


OWNER = """
    import signal, sys
    from regency.cluster.cluster import Cluster
    with Cluster(1, zookeeper_connect="127.0.0.1:1", agent_command={command!r}) as cluster:
        if {paused}:
            cluster.pause(1)
        print(cluster.directory, flush=True)
        signal.pause()
"""


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_its_owner(
    owner: Owner, stub_command: tuple[str, ...], eventually: Eventually, end: signal.Signals, paused: bool
) -> None:
    parent = owner(OWNER.format(command=stub_command, paused=paused))
    assert parent.stdout is not None
    directory = Path(parent.stdout.readline().strip())
    state = read_state(directory)
    assert state is not None
    assert len(members(state.processes[0])) == BOTH
    parent.send_signal(end)
    eventually(lambda: not members(state.processes[0]), what="agent and child are gone")
    eventually(lambda: not directory.exists(), what="the temporary directory is gone")


def test_what_another_program_started_ends_with_the_owner_too(
    owner: Owner, stub_command: tuple[str, ...], eventually: Eventually, tmp_path: Path
) -> None:
    parent = owner(f"""
        import signal
        from regency.cluster.cluster import Cluster
        with Cluster(2, directory={str(tmp_path / "home")!r}, zookeeper_connect="127.0.0.1:1",
                     agent_command={stub_command!r}) as cluster:
            print("up", flush=True)
            signal.pause()
    """)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "up\n"
    with Cluster.attach(tmp_path / "home") as lab:
        lab.kill(1)
        lab._parts.agents[1]._command = stub_command
        lab.start(1)
        ref = ref_of(lab, 1)
    assert len(members(ref)) == BOTH
    parent.kill()
    eventually(lambda: not members(ref), what="the guard has ended it")
    eventually(lambda: read_state(tmp_path / "home").stopped is not None, what="the end is noted")
    assert read_state(tmp_path / "home").stopped.by == "guard"


def test_detached_cluster_lives_on_until_it_is_ended(
    owner: Owner, stub_command: tuple[str, ...], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    parent = owner(f"""
        from regency.cluster.cluster import Cluster
        with Cluster(2, directory={str(home)!r}, zookeeper_connect="127.0.0.1:1", detached=True,
                     agent_command={stub_command!r}):
            pass
    """)
    assert parent.wait() == 0
    state = read_state(home)
    assert state is not None
    assert [ref.name for ref in state.alive(home)] == ["agent-1", "agent-2"]
    processes.send(state.processes[0], signal.SIGSTOP)
    ended = end_cluster(home)
    assert [(process.name, process.killed) for process in ended] == [("agent-1", False), ("agent-2", False)]
    assert state.alive(home) == []
    assert end_cluster(home) == []
    assert end_cluster(tmp_path / "elsewhere") == []


def test_a_cluster_of_another_user_is_left_alone_and_not_forgotten(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbid(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(processes, "send_one", forbid)
        with pytest.raises(ClusterError, match=r"started by another user\. End it as that user"):
            end_cluster(cluster.directory)
    state = read_state(cluster.directory)
    assert state is not None
    assert len(state.alive(cluster.directory)) == 2


def test_an_agent_started_by_hand_is_part_of_the_cluster(
    cluster: Cluster, lock_holder: Callable[[Path], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.kill(1)
    pid = lock_holder(cluster.directory / "agent-1" / "data")

    assert (cluster.broker_state(1), cluster.pid(1)) == (ProcessState.RUNNING, pid)
    assert [(ref.name, ref.pid) for ref in cluster.state.alive(cluster.directory)] == [
        ("agent-2", cluster.pid(2)),
        ("agent-1", pid),
    ]
    with pytest.raises(ClusterRunning, match=rf"broker 1 \(pid {pid}\)"):
        refuse_if_running(cluster.directory, cluster.state)
    cluster.start(1)  # harmless while it runs
    assert cluster.pid(1) == pid

    monkeypatch.setattr(status, "_read", lambda state: ClusterSnapshot({}, None, ControllerEpoch(0), {}))
    looked = status.cluster_status(cluster.directory).brokers[0]
    assert (looked.state, looked.pid) == ("running", pid)

    cluster.pause(1)
    assert cluster.broker_state(1) is ProcessState.PAUSED
    cluster.kill(1)

    assert cluster.broker_state(1) is ProcessState.DEAD
    cluster.start(1)
    assert cluster.pid(1) != pid


def test_ending_a_cluster_ends_agents_that_were_started_by_hand(
    owner: Owner, stub_command: tuple[str, ...], tmp_path: Path, lock_holder: Callable[[Path], int]
) -> None:
    home = tmp_path / "home"
    parent = owner(f"""
        from regency.cluster.cluster import Cluster
        with Cluster(2, directory={str(home)!r}, zookeeper_connect="127.0.0.1:1", detached=True,
                     agent_command={stub_command!r}) as cluster:
            cluster.kill(2)
    """)
    assert parent.wait() == 0
    pid = lock_holder(home / "agent-2" / "data")

    ended = end_cluster(home)

    assert [process.name for process in ended] == ["agent-1", "agent-2"]
    assert ended[1].pid == pid
    assert processes.lock_holder(home / "agent-2" / "data" / ".lock") is None
