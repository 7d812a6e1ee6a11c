"""The tour, typed: up, a topic, records in, records out, a dead broker, down, and up again with the data."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from regency import Cluster, TopicRefused
from regency.cluster.process.processes import send
from regency.cluster.state import read_state
from regency.cluster.status import end_cluster

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[3]
LINES = [f"{number % 7}:{number}" for number in range(500)]


class Shell:
    """Runs `regency` in a directory, as a person does."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        environment = {name: value for name, value in os.environ.items() if not name.startswith("REGENCY_")}
        self._environment = {**environment, "PYTHONPATH": str(ROOT)}

    def __call__(self, *words: str, given: str = "", status: int = 0) -> str:
        """stdout of a command that ends with `status`."""
        command = [sys.executable, "-m", "regency", *words]
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, cwd=self.directory, env=self._environment, check=False
        )
        assert done.returncode == status, f"{' '.join(words)}: {done.stdout}{done.stderr}"
        self.words = done.stderr
        return done.stdout

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        """A command that goes on, as in another terminal."""
        command = [sys.executable, "-m", "regency", *words]
        nowhere = subprocess.DEVNULL
        return subprocess.Popen(command, cwd=self.directory, env=self._environment, stdout=nowhere, stderr=nowhere)


@pytest.fixture
def regency(tmp_path: Path) -> Iterator[Shell]:
    yield Shell(tmp_path)
    end_cluster(tmp_path / ".run", grace_s=0)


def consumed(output: str) -> list[tuple[str, str]]:
    records = [json.loads(line) for line in output.splitlines()]
    return [(record["key"], record["value"]) for record in sorted(records, key=lambda one: int(one["value"]))]


@pytest.mark.long
def test_tour(regency: Shell, tmp_path: Path, eventually: Callable[..., object]) -> None:
    started = json.loads(regency("up", "--detach", "-o", "json"))
    assert started["brokers"] == [1, 2, 3]
    regency("topics", "create", "flights", "--partitions", "4", "--replication-factor", "3")
    assert [row["topic"] for row in json.loads(regency("topics", "list", "-o", "json"))] == ["flights"]
    sent = json.loads(
        regency("produce", "flights", "--key-separator", ":", "-o", "json", given="\n".join(LINES) + "\n")
    )
    assert (sent["delivered"], sent["failed"]) == (len(LINES), 0)
    expected = [tuple(line.split(":")) for line in LINES]
    read = (
        "consume",
        "flights",
        "--from-beginning",
        "--max-messages",
        str(len(LINES)),
        "--timeout",
        "30",
        "-o",
        "json",
    )
    assert consumed(regency(*read)) == expected

    state = read_state(tmp_path / ".run")
    send(next(ref for ref in state.processes if ref.name == "agent-3"), signal.SIGKILL)
    status = json.loads(regency("status", "-o", "json", status=3))
    assert status["brokers"][2]["state"] == "dead"
    assert any(each.startswith("broker 3 is dead: it was killed by SIGKILL") for each in status["problems"])

    eventually(lambda: "broker 3 is not registered" in missing(regency), within=60, what="its session is over")
    returned = regency.begin("agent", "--config", ".run/agent-3/server.properties")
    eventually(lambda: healthy(regency), within=60, what="broker 3, started by hand, is back")
    assert json.loads(regency("status", "-o", "json"))["brokers"][2]["pid"] == returned.pid

    regency("down")
    assert returned.wait() == 0
    assert state.alive(tmp_path / ".run") == []
    assert json.loads(regency("up", "--detach", "-o", "json"))["bootstrap_servers"] == started["bootstrap_servers"]
    assert consumed(regency(*read)) == expected
    eventually(lambda: healthy(regency), within=60, what="the cluster is healthy again")
    regency("up", "--detach", status=6)


@pytest.mark.long
def test_a_lab_is_broken_and_repaired_by_its_verbs(
    regency: Shell, tmp_path: Path, eventually: Callable[..., object]
) -> None:
    regency("up", "--detach")
    home = tmp_path / ".run"
    assert regency("lab", "kill", "2").startswith("Killed broker 2 (pid ")
    assert regency("lab", "kill", "2") == "Broker 2 is dead already.\n"
    told = regency("status", status=3)
    assert "Problem: broker 2 is dead: it was killed on purpose at " in told
    assert told.splitlines()[-1] == "`regency up` starts what is dead, as does `regency lab start 2`."

    regency("up")
    assert "Started broker 2 (pid " in regency.words
    eventually(lambda: healthy(regency), within=60, what="the cluster is whole")
    assert (home / "agent-2" / "agent.log").read_text().count("listening for PLAINTEXT") == 2, "its own log goes on"

    with Cluster.attach(home) as lab:
        lab.create_topic("t", partitions=2, replication_factor=3, config={"min.insync.replicas": 2})
        with pytest.raises(TopicRefused, match="TOPIC_ALREADY_EXISTS"):
            lab.create_topic("t")
        ruler, leader = lab.controller_id(), lab.wait_leader("t", 1)
        assert {ruler, leader} <= set(lab.broker_ids)
        killed = json.loads(regency("lab", "kill", "controller", "-o", "json"))
        assert [each["broker"] for each in killed] == [ruler]
        assert lab.controller_id() in set(lab.broker_ids)
        assert lab.wait_leader("t", 1) != ruler, "the dead broker leads nothing"
        assert regency("lab", "start", str(ruler)).startswith(f"Started broker {ruler} (pid ")
        lab.wait_healthy(60)

    regency("lab", "pause", "zookeeper")
    assert "Problem: ZooKeeper is paused." in regency("status", status=3)
    regency("lab", "kill", "controller", status=1)
    assert "ZooKeeper is paused, so who rules cannot be told." in regency.words
    regency("lab", "restart", "zookeeper")
    regency("up", "--brokers", "4")
    eventually(lambda: healthy(regency), within=60, what="four brokers are well")

    entries = [json.loads(line) for line in regency("logs", "-o", "json").splitlines()]
    assert {each["process"] for each in entries} >= {"broker 1", "broker 2", "broker 3", "broker 4"}
    assert [each["time_ms"] for each in entries] == sorted(each["time_ms"] for each in entries)
    rules = [json.loads(line)["text"] for line in regency("logs", "controller", "-o", "json").splitlines()]
    assert any("rules" in text for text in rules)
    assert all(" controller-" in text for text in rules)
    assert len(regency("logs", "-n", "3", "2").splitlines()) >= 3
    following = regency.begin("logs", "-f")

    regency("down")
    assert following.poll() is None
    following.send_signal(signal.SIGINT)
    assert following.wait() == 130
    assert "The cluster was stopped by `regency down` at " in regency("status", status=3)
    regency("lab", "start", "1", status=1)
    assert "Start it with `regency up`." in regency.words


def healthy(regency: Shell) -> bool:
    try:
        regency("status")
    except AssertionError:
        return False
    return True


def missing(regency: Shell) -> list[str]:
    """What `status` says is missing of a cluster that is not healthy."""
    return list(json.loads(regency("status", "-o", "json", status=3))["problems"])


def test_refusals_of_the_cluster_are_told_in_its_words(regency: Shell) -> None:
    regency("up", "--detach", "--brokers", "1")
    regency("topics", "create", "flights", "--replication-factor", "3", status=1)
    assert "eplication factor 3 needs 3 live brokers" in regency.words
    regency("topics", "create", "bad name", status=1)
    assert regency.words.startswith("Error: ")
    regency("topics", "create", "flights", "--config", "min.insinc.replicas=2", status=1)
    assert "min.insync.replicas" in regency.words
    regency("topics", "describe", "ghost", status=1)
    assert "ghost" in regency.words
    regency("consume", "ghost", "--from-beginning", "--timeout", "1", status=1)
    assert "There is no topic ghost." in regency.words
