"""up, status and down on a cluster whose agents are stubs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import Result

from regency.cluster import status
from regency.cluster.agent import Agent
from regency.cluster.health import ClusterSnapshot
from regency.cluster.process.processes import ProcessState, end, send, state_of
from regency.cluster.state import BrokerPorts, in_words, read_state
from regency.cluster.status import end_cluster
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch
from regency.runtime.zookeeper.session import ZkError

Run = Callable[..., Result]
SNAPSHOT = ClusterSnapshot(
    brokers={BrokerId(1): BrokerEpoch(5), BrokerId(2): BrokerEpoch(6)},
    controller=BrokerId(2),
    controller_epoch=ControllerEpoch(4),
    partitions={},
)
STUB = """
    import signal, sys
    config = sys.argv[sys.argv.index("--config") + 1]
    broker = next(line.split("=")[1].strip() for line in open(config) if line.startswith("broker.id"))
    print('{"ready": true, "broker": %s, "ports": {}}' % broker, flush=True)
    signal.pause()
"""


@pytest.fixture
def up(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Result]]:
    """`regency up --detach` with stub agents and a ZooKeeper that is only imagined."""
    stub = tmp_path / "stub.py"
    stub.write_text(textwrap.dedent(STUB))
    command = (sys.executable, "-I", "-S", str(stub))
    real = Agent.__init__

    def with_stub(self: Agent, *words: object, **options: object) -> None:
        real(self, *words, **{**options, "command": command})

    monkeypatch.setattr(Agent, "__init__", with_stub)
    monkeypatch.setattr(status, "_read", lambda _: SNAPSHOT)
    yield lambda *words: run("up", "--detach", "--zookeeper-connect", "zk:2181/lab", *words)
    end_cluster(tmp_path / ".run", grace_s=0)


def test_up_prints_where_the_cluster_is(up: Callable[..., Result], tmp_path: Path) -> None:
    result = up("--brokers", "2", "-o", "json")
    state = read_state(tmp_path / ".run")
    assert state is not None
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "directory": str(tmp_path / ".run"),
        "bootstrap_servers": state.bootstrap_servers,
        "zookeeper_connect": "zk:2181/lab",
        "brokers": [1, 2],
        "detached": True,
        "started": ["agent-1", "agent-2"],
    }
    assert result.stderr == "2 brokers up; `regency down` ends it all.\n"


def test_up_elsewhere_says_how_to_end_what_is_there(up: Callable[..., Result], tmp_path: Path) -> None:
    elsewhere = tmp_path / "a lab"
    try:
        result = up("--brokers", "1", "--dir", str(elsewhere))
    finally:
        end_cluster(elsewhere, grace_s=0)
    assert result.stdout.splitlines()[-1] == f"1 broker up; `regency down --dir '{elsewhere}'` ends it all."


def test_second_up_is_refused_and_harms_nobody(up: Callable[..., Result], tmp_path: Path) -> None:
    up("--brokers", "1")
    state = read_state(tmp_path / ".run")
    second = up()
    assert second.exit_code == 6
    assert f"broker 1 (pid {state.processes[0].pid}). Stop it with `regency down`" in second.stderr
    assert read_state(tmp_path / ".run") == state
    assert len(state.alive(tmp_path / ".run")) == 1


def test_down_says_what_it_ended_and_up_starts_the_same_again(
    up: Callable[..., Result], run: Run, tmp_path: Path
) -> None:
    up("--brokers", "2", "--set", "num.partitions=7")
    before = read_state(tmp_path / ".run")
    down = run("down")
    assert (down.exit_code, down.stderr) == (0, "")
    assert down.stdout == "".join(f"Ended {in_words(ref.name)} (pid {ref.pid}).\n" for ref in before.processes)
    assert before.alive(tmp_path / ".run") == []
    assert run("down").stdout == "Nothing runs in .run.\n"
    assert up().exit_code == 0
    after = read_state(tmp_path / ".run")
    assert (after.brokers, after.settings) == (before.brokers, {"num.partitions": "7"})


def _reached(broker: BrokerPorts) -> tuple[str, str, str]:
    return broker.bootstrap_server, str(broker.ports["HTTP"]), str(broker.ports["CONTROLLER_HTTP"])


def test_status_of_a_healthy_cluster(up: Callable[..., Result], run: Run, tmp_path: Path) -> None:
    up("--brokers", "2")
    state = read_state(tmp_path / ".run")
    one, two = state.processes
    result = run("status")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["PROCESS", "PID", "STATE", "REGISTERED", "ADDRESS", "HTTP", "CONTROLLER"],
        ["zookeeper", "-", "external", "-", "zk:2181/lab", "-", "-"],
        ["broker", "1", str(one.pid), "running", "yes", *_reached(state.brokers[0])],
        ["broker", "2", str(two.pid), "running", "yes", *_reached(state.brokers[1])],
        ["controller:", "broker", "2,", "epoch", "4"],
        ["topics:", "0,", "partitions:", "0,", "under-replicated:", "0,", "without", "leader:", "0"],
    ]


def test_status_of_a_cluster_with_a_paused_and_a_dead_broker(
    up: Callable[..., Result], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    up("--brokers", "3")
    state = read_state(tmp_path / ".run")
    send(state.processes[0], signal.SIGSTOP)
    end([state.processes[1]], grace_s=0)
    monkeypatch.setattr(status, "_read", lambda _: msgspec.structs.replace(SNAPSHOT, controller=None))
    result = run("status", "-o", "json")
    found = json.loads(result.stdout)
    assert result.exit_code == 3
    assert [broker["registered"] for broker in found["brokers"]] == [True, True, False]
    assert (found["controller"], found["controller_epoch"]) == (None, 4)
    assert found["healthy"] is False
    assert found["problems"][-2:] == ["broker 3 is not registered", "there is no controller"]
    [dead] = [words for words in found["problems"] if words.startswith("broker 2 is dead: it was killed by SIGKILL")]
    assert found["brokers"][1]["ending"]["signal"] == "SIGKILL"
    told = run("status").stdout.splitlines()
    assert f"Problem: {dead}." in told
    assert told[-1] == "`regency up` starts what is dead, as does `regency lab start 2`."
    monkeypatch.setattr("regency.cli.lab.cluster._SHOWN", 1)
    rest = len(found["problems"]) - 1
    assert f"... and {rest} more; -o json names all." in run("status").stdout


def test_status_when_zookeeper_does_not_answer(
    up: Callable[..., Result], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise ZkError("no server of zk:2181 gave a session.")

    up("--brokers", "1")
    monkeypatch.setattr(status, "_read", refuse)
    result = run("status")
    assert result.exit_code == 3
    assert result.stdout.splitlines()[-1] == "Problem: ZooKeeper does not answer: no server of zk:2181 gave a session."


def test_status_of_a_cluster_that_was_stopped_in_order(up: Callable[..., Result], run: Run) -> None:
    up("--brokers", "2")
    run("down")
    result = run("status")
    assert (result.exit_code, result.stderr) == (3, "")
    *table, verdict = result.stdout.splitlines()
    assert [line.split()[3] for line in table[2:]] == ["stopped", "stopped"]
    assert re.fullmatch(r"The cluster was stopped by `regency down` at .*; `regency up` starts it again\.", verdict)
    found = json.loads(run("status", "-o", "json").stdout)
    assert (found["healthy"], found["stopped"]["by"], len(found["problems"])) == (False, "down", 1)
    refused = run("lab", "start", "1")
    assert refused.exit_code == 1
    assert "was stopped by `regency down`" in refused.stderr


def test_a_start_that_failed_before_anything_ran_leaves_nothing(up: Callable[..., Result], run: Run) -> None:
    failed = up("--set", "min.insinc.replicas=2")
    assert failed.exit_code == 1
    assert not Path(".run").exists()
    assert run("status").stderr == "Error: There is no cluster in .run. Start one with `regency up --detach`.\n"


def test_verbs_say_what_they_did_and_do_it_once(up: Callable[..., Result], run: Run, tmp_path: Path) -> None:
    up("--brokers", "2")
    one, two = read_state(tmp_path / ".run").processes
    assert run("lab", "pause", "1").stdout == f"Paused broker 1 (pid {one.pid}).\n"
    assert state_of(one) is ProcessState.PAUSED
    assert run("lab", "pause", "1").stdout == "Broker 1 is paused already.\n"
    assert run("lab", "start", "1").stderr == "Error: Broker 1 is paused. Resume it with `regency lab resume 1`.\n"
    assert run("lab", "resume", "all").stdout == f"Resumed broker 1 (pid {one.pid}).\nBroker 2 runs already.\n"
    assert run("lab", "kill", "2", "2").stdout == f"Killed broker 2 (pid {two.pid}).\n"
    assert run("lab", "kill", "2").stdout == "Broker 2 is dead already.\n"
    refused = run("lab", "pause", "1", "2")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == "Error: Broker 2 is not running. Start it with `regency lab start 2`.\n"
    assert state_of(one) is ProcessState.RUNNING, "nothing was done"
    [started] = json.loads(run("lab", "start", "2", "-o", "json").stdout)
    assert (started["broker"], started["state"], started["changed"]) == (2, "running", True)
    named = "Name brokers (1, 2), controller, zookeeper, all, or flights-0: who leads it."
    for words, told in (
        (("kill", "9"), "There is no broker 9. There are 1, 2."),
        (("kill", "agent"), f"'agent' is no part of a lab. {named}"),
        *(
            (
                ("kill", word),
                f"{word!r} is no part of a lab. Did you mean {near}? {named}",
            )
            for word, near in (("broker 2", "2"), ("agent2", "2"), ("Controller", "controller"), ("ALL", "all"))
        ),
        (("kill", "zookeeper"), "The cluster uses a ZooKeeper that is not its own. Start or stop it yourself."),
    ):
        refused = run("lab", *words)
        assert (refused.exit_code, refused.stderr) == (1, f"Error: {told}\n")
    assert run("lab", "kill").exit_code == 2


def test_up_makes_a_half_dead_cluster_whole_and_resumes_nothing(
    up: Callable[..., Result], run: Run, tmp_path: Path
) -> None:
    up("--brokers", "3")
    run("lab", "kill", "2")
    run("lab", "pause", "3")
    repaired = up("--brokers", "4")
    assert repaired.exit_code == 0
    state = read_state(tmp_path / ".run")
    assert [ref.name for ref in state.alive(tmp_path / ".run")] == ["agent-1", "agent-2", "agent-3", "agent-4"]
    pids = {ref.name: ref.pid for ref in state.processes}
    assert repaired.stderr.splitlines() == [
        "What is paused stays so: broker 3; `regency lab resume 3` resumes it.",
        f"Started broker 2 (pid {pids['agent-2']}).",
        f"Started broker 4 (pid {pids['agent-4']}).",
    ]
    assert state_of(state.processes[2]) is ProcessState.PAUSED
    run("lab", "resume", "3")
    assert up().exit_code == 6, "nothing is left to do"
    assert up("--brokers", "2").exit_code == 1
    other = up("--set", "num.partitions=3")
    assert (other.exit_code, "Stop it with `regency down` first" in other.stderr) == (6, True)
    assert len(read_state(tmp_path / ".run").brokers) == 4


def test_termination_of_a_foreground_cluster_ends_its_agents(tmp_path: Path) -> None:
    stub = tmp_path / "stub.py"
    stub.write_text(textwrap.dedent(STUB))
    program = f"""if True:
        import sys
        from regency.cluster import agent, cluster
        cluster.Cluster.__init__.__kwdefaults__["agent_command"] = ({sys.executable!r}, {str(stub)!r})
        from regency.cli.main import cli
        cli.main(["up", "--brokers", "1", "--zookeeper-connect", "zk:2181"])
    """
    root = Path(__file__).resolve().parents[3]
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert child.stdout is not None
    first, *_, last = [child.stdout.readline() for _ in range(4)]
    assert first.startswith("bootstrap servers")
    assert last == "1 broker up; Ctrl-C ends it all.\n"
    state = read_state(tmp_path / ".run")
    child.send_signal(signal.SIGTERM)
    _, err = child.communicate()
    assert (child.returncode, err) == (143, "Ending it all; the data stays in .run.\n")
    assert state.alive(tmp_path / ".run") == []
