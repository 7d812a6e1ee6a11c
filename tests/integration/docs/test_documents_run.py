"""Every command in the console blocks of docs/operate is run, and ends as it is said to.

On one cluster, which each scenario brings into its state before a block. `ssh kafka-N` reaches a stand-in for systemd
that stops and starts broker N.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import socketserver
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from regency.cli.main import cli
from regency.cluster.cluster import Cluster
from regency.cluster.process.processes import ProcessState

pytestmark = pytest.mark.integration

PAGES = sorted((Path(__file__).parents[3] / "docs" / "operate").glob("*.md"))
COMMAND_S = 60
SETTINGS = {
    "replica.lag.time.max.ms": "2000",
    "default.replication.factor": "3",
    "zookeeper.connection.timeout.ms": "6000",
    "auto.create.topics.enable": "false",
}
DEAD = 2
"""The broker that documents speak of as the one that is down; topic `hotels` has its only replica there."""

LOOKS = re.compile(
    r"regency (top|cluster health|doctor|history|explain|verify|"
    r"(brokers|partitions|groups) list|groups describe|controller status|topics describe|configs get|log dirs)\b"
)
"""Commands that change nothing: one that several sections have is run once in each state."""

SSH = """\
import shlex, socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv.pop(1)))) as link:
    link.sendall((shlex.join(sys.argv[1:]) + "\\n").encode())
    answer = link.makefile().read()
sys.stderr.write(answer)
sys.exit(0 if not answer else 1)
"""


@pytest.fixture(scope="module")
def blocks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("document_blocks", Path(__file__).with_name("blocks.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Systemd(socketserver.StreamRequestHandler):
    """What `ssh kafka-N sudo systemctl VERB regency-agent` does to broker N; the answer is what went wrong."""

    def handle(self) -> None:
        words = self.rfile.readline().decode()
        told = re.fullmatch(r"kafka-(\d) sudo systemctl (start|stop|restart) regency-agent\n", words)
        if told is None:
            self.wfile.write(f"nobody knows how to do this: {words}".encode())
            return
        cluster: Cluster = self.server.cluster  # type: ignore[attr-defined]
        broker, verb = int(told[1]), told[2]
        if verb != "start" and not cluster.stop(broker, timeout_s=60):
            self.wfile.write(f"broker {broker} had to be killed\n".encode())
        if verb != "stop":
            cluster.start(broker)


class Stage:
    """The cluster, and the states that documents speak of."""

    def __init__(self, cluster: Cluster, create_topic: Any, eventually: Any) -> None:
        self.cluster, self._eventually = cluster, eventually
        self._paused = False
        create_topic(cluster, "flights", partitions=6, replication=3)
        self.scenarios: Mapping[str, Callable[[], None]] = {
            "healthy": self.healthy,
            "rolling": self.healthy,
            "broker-down": self.broker_down,
            "zookeeper-away": self.zookeeper_away,
        }
        """In the order in which they are played."""

    def healthy(self) -> None:
        if self._paused:
            self.cluster.resume_zookeeper()
            self._paused = False
        for broker in self.cluster.broker_ids:
            if self.cluster.broker_state(broker) is ProcessState.DEAD:
                self.cluster.start(broker)
        self.cluster.wait_healthy(60)

    def broker_down(self) -> None:
        if self.cluster.broker_state(DEAD) is not ProcessState.DEAD:
            self.healthy()
            if "hotels" not in self.cluster.snapshot().topics:
                assert self._ask("topics", "create", "hotels", "--assignment", str(DEAD)) == 0
                self.cluster.wait_healthy(20)
            self.cluster.kill(DEAD)
        self._eventually(
            lambda: DEAD not in self.cluster.snapshot().brokers and self._is_led_elsewhere(),
            within=30,
            what="that the broker is taken for dead",
        )

    def _ask(self, *words: str) -> int:
        servers = ["--bootstrap-server", self.cluster.bootstrap_servers]
        return CliRunner().invoke(cli, [*words, *servers], prog_name="regency").exit_code

    def _is_led_elsewhere(self) -> bool:
        states = [(name, view.leadership) for name, view in self.cluster.snapshot().partitions.items()]
        return all(state is not None and (state.leader != DEAD) for _, state in states)

    def zookeeper_away(self) -> None:
        if not self._paused:
            self.healthy()
            self.cluster.pause_zookeeper()
            self._paused = True
            self._eventually(lambda: self._ask("controller", "status") == 3, within=30, what="that nobody rules")


class Shell:
    """Runs commands as somebody at a machine of the cluster would."""

    def __init__(self, cluster: Cluster, place: Path, port: int) -> None:
        self.place = place / "home"
        self.place.mkdir()
        programs = place / "bin"
        programs.mkdir()
        root = Path(__file__).parents[3]
        python = shlex.quote(sys.executable)  # also in a path with a space in it
        for name, arguments in (("regency", "-m regency"), ("ssh", f"-c {shlex.quote(SSH)} {port}")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec {python} {arguments} "$@"\n', "utf-8")
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self._env = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
            "REGENCY_BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
        }

    def run(self, words: str) -> tuple[int, str]:
        """Exit status, and all that was printed. What needs no shell is run in this process: that is faster."""
        if words.startswith("regency ") and not re.search(r"[|<>;&$]", words):
            ran_here = CliRunner().invoke(cli, shlex.split(words)[1:], prog_name="regency", env=self._env)
            return ran_here.exit_code, ran_here.output
        command = ["bash", "-o", "pipefail", "-c", words]
        ran = subprocess.run(
            command,
            cwd=self.place,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        return ran.returncode, ran.stdout


@pytest.fixture
def stage(new_cluster: Any, create_topic: Any, eventually: Any) -> Stage:
    cluster = new_cluster(brokers=3, own_zookeeper=True, settings=SETTINGS)
    return Stage(cluster, create_topic, eventually)


@pytest.fixture
def shell(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Systemd) as server:
        server.cluster = stage.cluster  # type: ignore[attr-defined]
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        serving.start()
        made = Shell(stage.cluster, tmp_path, server.server_address[1])
        monkeypatch.chdir(made.place)
        yield made
        server.shutdown()
        serving.join(5)


@pytest.mark.timeout(300)
def test_every_command_ends_as_its_document_says(stage, shell, blocks):
    pages = [block for page in PAGES if "run: " in page.read_text("utf-8") for block in blocks.commands_of(page)]
    unknown = {each.scenario for block in pages for each in block if each.scenario} - set(stage.scenarios)
    assert unknown == set()
    wrong: list[str] = []
    ran: set[tuple[str, str, int]] = set()
    for scenario, prepare in stage.scenarios.items():
        of_scenario = [block for block in pages if block[0].scenario == scenario]
        for block in sorted(of_scenario, key=lambda block: any(not LOOKS.match(each.text) for each in block)):
            todo = [each for each in block if (scenario, each.text, each.status) not in ran]
            if not any(LOOKS.match(each.text) is None for each in block):
                block = todo  # the same look for several alerts
            if not todo:
                continue
            prepare()
            for each in block:
                began = time.monotonic()
                status, told = shell.run(each.text)
                ran.add((scenario, each.text, each.status))
                print(f"{time.monotonic() - began:5.1f} s  {scenario}: {each.text}")
                if status != each.status:
                    wrong.append(f"{each.where}: {each.text}\n  ended with {status}, not {each.status}:\n{told}")
                if "Traceback" in told:
                    wrong.append(f"{each.where}: {each.text}\n{told}")
                if wrong and LOOKS.match(each.text) is None:  # what follows would wait for what was not done
                    pytest.fail("\n".join(wrong))
    stage.healthy()
    assert wrong == [], "\n".join(wrong)
    assert len(ran) > 50
