"""One broker agent of a cluster: its directory, its server.properties, its process, and the moment it is ready."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from regency.cluster.errors import ClusterError, ClusterNotRunning, ClusterStartFailed
from regency.cluster.process.endings import noted
from regency.cluster.process.processes import ProcessRow, ProcessState, members
from regency.cluster.process.spawner import ManagedProcess, Spawner
from regency.cluster.state import (
    AGENT_HTTP,
    CONTROL_LISTENER,
    CONTROLLER_HTTP,
    CONTROLLER_LISTENER,
    DATA,
    LISTENERS,
    BrokerPorts,
    agent_name,
    running,
)
from regency.model.ids import BrokerId
from regency.model.settings.properties import format_properties

HOST = "127.0.0.1"
AGENT_COMMAND = (sys.executable, "-P", "-m", "regency.broker_agent")
SHUTDOWN_RETRY_MS = 500
"""Kafka's 5 s make the last broker of a cluster, whose leadership none can take, wait for 10 s."""
OFFSETS_REPLICAS = 3
"""Replicas of __consumer_offsets where there are so many brokers: Kafka's default."""
OWN_KEYS = (
    "broker.id",
    "listeners",
    "advertised.listeners",
    "log.dirs",
    "log.dir",
    "zookeeper.connect",
    "regency.http.port",
    "regency.controller.http.port",
    "regency.http.host",
)
"""Keys of server.properties that the cluster decides and that may not be set."""


class _Ready(msgspec.Struct):
    ready: bool
    broker: int


_HEADING = """\
# Written at each start of this broker. Settings change with `regency up --set KEY=VALUE` after `regency down`,
# ports with `regency up --port 9092`.
"""


def agent_properties(
    broker: BrokerPorts,
    directory: Path,
    *,
    brokers: int,
    zookeeper_connect: str,
    session_timeout_ms: int,
    log_dirs: int,
    settings: Mapping[str, str],
) -> dict[str, str]:
    """server.properties of an agent with so many log directories: what the cluster decides, then `settings`.

    Of a cluster of so many brokers: groups work in one of less than three, too.

    Raises ClusterError when `settings` has a key of OWN_KEYS.
    """
    if taken := [key for key in OWN_KEYS if key in settings]:
        raise ClusterError(
            f"{', '.join(taken)} cannot be set: the cluster gives every broker its own.",
            hint="Remove it from the settings."
            + (" How many log directories each has is said by log_dirs, or --log-dirs." if "log.dirs" in taken else ""),
        )
    listeners = [f"{name}://{HOST}:{broker.ports[name]}" for name in LISTENERS]
    return {
        "broker.id": str(broker.id),
        "listeners": ",".join(listeners),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in LISTENERS),
        "control.plane.listener.name": CONTROL_LISTENER,
        "regency.controller.listener.name": CONTROLLER_LISTENER,
        "regency.http.port": str(broker.ports[AGENT_HTTP]),
        "regency.controller.http.port": str(broker.ports[CONTROLLER_HTTP]),
        "zookeeper.connect": zookeeper_connect,
        "zookeeper.session.timeout.ms": str(session_timeout_ms),
        "log.dirs": ",".join(str(each) for each in log_directories(directory, log_dirs)),
        "regency.history.dir": str(directory / "history"),
        "controlled.shutdown.retry.backoff.ms": str(SHUTDOWN_RETRY_MS),
        "offsets.topic.replication.factor": str(min(brokers, OFFSETS_REPLICAS)),
        **settings,
    }


def log_directories(directory: Path, count: int) -> list[Path]:
    """The log directories of an agent: `data`, `data-2`, and so on."""
    return [directory / (DATA if number == 1 else f"{DATA}-{number}") for number in range(1, count + 1)]


class Agent:
    """A broker agent as a process; its controller child is in its process group, so what is done is done to both.

    Where the process that was started here is gone and another runs from the same directory, started by another program
    or by hand, that one is it.
    """

    def __init__(
        self,
        broker: BrokerPorts,
        directory: Path,
        *,
        spawner: Spawner,
        log_dirs: int = 1,
        command: Sequence[str] = AGENT_COMMAND,
    ) -> None:
        self.broker = broker
        self.directory = directory
        self.log_dirs = log_directories(directory, log_dirs)
        """Where its partitions are."""
        self._spawner = spawner
        self._command = tuple(command)
        self._process: ManagedProcess | None = None
        self._ready = False

    @property
    def id(self) -> BrokerId:
        """Broker id."""
        return self.broker.id

    @property
    def name(self) -> str:
        """Name in cluster.json and of its directory."""
        return agent_name(self.id)

    @property
    def log(self) -> Path:
        """stderr of the agent and of its child, of all its lives."""
        return self.directory / "agent.log"

    @property
    def process(self) -> ManagedProcess:
        """Its process. Raises ClusterNotRunning when it was never started, or stopped or killed on purpose."""
        process = self.running
        if process is None:
            raise ClusterNotRunning(f"Broker {self.id} is not running.", hint=f"Start it with start({self.id}).")
        return process

    @property
    def running(self) -> ManagedProcess | None:
        """Its process where it has one."""
        if self._process is None or self._process.state is ProcessState.DEAD:
            found = running(self.name, self.directory)
            if found is not None:
                self._process = ManagedProcess(found, None, self.log, directory=self.directory)
                self._ready = noted(self.directory, self.name) != found  # by hand: what it says goes elsewhere
        return self._process

    @property
    def state(self) -> ProcessState:
        """Running, paused or dead."""
        process = self.running
        return ProcessState.DEAD if process is None else process.state

    def launch(self, properties: Mapping[str, str]) -> None:
        """Write server.properties and start the process, without waiting for it. Harmless while it runs."""
        if self.state is not ProcessState.DEAD:
            return
        self.directory.joinpath(DATA).mkdir(parents=True, exist_ok=True)  # the agent makes the others
        config = self.directory / "server.properties"
        config.write_text(_HEADING + format_properties(properties), encoding="utf-8")
        self._ready = False
        self._process = self._spawner.spawn(
            self.name,
            [*self._command, "--config", str(config)],
            directory=self.directory,
            log=self.log,
            output=self._output,
            environment=import_path(),
        )

    def is_ready(self) -> bool:
        """Whether it has said that it is registered. Raises ClusterStartFailed with the end of its log if it ended."""
        if not self._ready:
            process = self._process or self.process
            ended = process.how_it_ended() is not None
            self._ready = self._said_ready()
            if ended and not self._ready:
                process.wait_noted()
                raise ClusterStartFailed(
                    f"Broker {self.id} {process.how_it_ended()} before it was ready.",
                    hint=f"End of {self.log}:\n{process.last_lines()}",
                )
        return self._ready

    def children(self) -> list[ProcessRow]:
        """The processes that it started: its controller child."""
        pid = self.process.pid
        return [row for row in members(self.process.ref) if row.parent == pid]

    def kill(self) -> None:
        """SIGKILL to agent and child; returns when both are gone. Harmless when they are."""
        process = self.running
        if process is not None:
            process.kill()
            self._process = None

    def stop(self, grace_s: float) -> bool:
        """SIGTERM to the agent, SIGKILL to what is left after `grace_s` seconds; whether it went by itself."""
        process = self.running
        clean = process is None or process.stop(grace_s)
        self._process = None
        return clean

    @property
    def _output(self) -> Path:
        return self.directory / "agent.out"

    def _said_ready(self) -> bool:
        try:
            lines = self._output.read_bytes().splitlines()
        except FileNotFoundError:
            return False
        for line in lines:
            try:
                said = msgspec.json.decode(line, type=_Ready)
            except msgspec.DecodeError:
                continue  # half a line, or another program's words
            if said.ready and said.broker == self.id:
                return True
        return False


def import_path() -> dict[str, str]:
    """Environment with which a child finds this very package, also where it was started from a checkout."""
    root = str(Path(__file__).resolve().parents[2])
    if Path(root).name in ("site-packages", "dist-packages"):
        return {}
    before = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join([root, before]) if before else root}
