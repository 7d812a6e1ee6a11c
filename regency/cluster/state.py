"""cluster.json: what a cluster's directory remembers, so that anyone can end it, look at it and start it again."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

import msgspec

from regency.cluster.errors import ClusterError, ClusterFileMalformed, ClusterNotRunning, ClusterRunning
from regency.cluster.process import endings, processes
from regency.cluster.process.endings import LastLife
from regency.cluster.process.processes import ProcessRef, ProcessState, started_by_hand
from regency.model.ids import BrokerId

DEFAULT_DIRECTORY = Path(".run")
"""Where the command line looks for a cluster unless told."""
FILE_NAME = "cluster.json"
_HOST = "127.0.0.1"
KAFKA_LISTENER = "PLAINTEXT"
CONTROL_LISTENER = "CONTROL"
CONTROLLER_LISTENER = "CONTROLLER"
DATA = "data"
"""First log directory of an agent, in its own; the process that has it locked is the agent."""
LISTENERS = (KAFKA_LISTENER, CONTROL_LISTENER, CONTROLLER_LISTENER)
AGENT_HTTP = "HTTP"
CONTROLLER_HTTP = "CONTROLLER_HTTP"
PORTS = (*LISTENERS, AGENT_HTTP, CONTROLLER_HTTP)
"""What a broker has a port for: its listeners, and where agent and controller serve metrics and probes."""
ZOOKEEPER = "zookeeper"
"""Name of the cluster's own ZooKeeper in cluster.json, and of its directory."""


def agent_name(broker: BrokerId) -> str:
    """Name of a broker's agent in cluster.json, and of its directory."""
    return f"agent-{broker}"


def in_words(name: str) -> str:
    """What people read for a name of cluster.json: ZooKeeper, or broker 1 for agent-1."""
    return "ZooKeeper" if name == ZOOKEEPER else f"broker {name.removeprefix('agent-')}"


class BrokerPorts(msgspec.Struct, frozen=True):
    """A broker and its ports on 127.0.0.1 by name, one for each of PORTS; kept over restarts."""

    id: BrokerId
    ports: dict[str, int]

    @property
    def name(self) -> str:
        """Name of its agent in cluster.json."""
        return agent_name(self.id)

    @property
    def bootstrap_server(self) -> str:
        """Where Kafka clients reach it."""
        return f"{_HOST}:{self.ports[KAFKA_LISTENER]}"

    @property
    def agent_http(self) -> str:
        """Where its agent serves metrics and probes, host:port; empty before it was started by a version that does."""
        return self._reached(AGENT_HTTP)

    @property
    def controller_http(self) -> str:
        """Where its controller does."""
        return self._reached(CONTROLLER_HTTP)

    def _reached(self, name: str) -> str:
        return f"{_HOST}:{self.ports[name]}" if name in self.ports else ""


class Stopped(msgspec.Struct, frozen=True):
    """The end of a whole cluster. `by` is `down` (the command), `owner` (the program that had started it ended it in
    order), `guard` (that program was gone) or `failure` (its start failed)."""

    by: str
    at_ms: int


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """Content of cluster.json. `zookeeper_port` is 0 where the ZooKeeper is not the cluster's own.

    Before its first start a cluster has no ports: those of its brokers, and `zookeeper_connect` of its own, are empty.
    """

    version: int = 1
    zookeeper_connect: str
    zookeeper_port: int
    session_timeout_ms: int
    brokers: tuple[BrokerPorts, ...]
    settings: dict[str, str] = {}
    broker_settings: dict[int, dict[str, str]] = {}
    log_dirs: int = 1
    """Log directories of every broker."""
    first_port: int = 0
    """Where the brokers' ports were chosen (`--port`): that of broker 1; else 0."""
    processes: tuple[ProcessRef, ...] = ()
    """What runs, as far as the last command knew."""
    ended: dict[str, LastLife] = {}
    """By name, the last life of what ran once and was found dead by a command."""
    stopped: Stopped | None = None
    """How the cluster as a whole ended, until it is started again."""

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers, for Kafka clients."""
        return ",".join(broker.bootstrap_server for broker in self.brokers)

    def alive(self, directory: Path) -> list[ProcessRef]:
        """The remembered processes of which anything still lives, and others that run from `directory`: agents that
        were started by hand, and what a command started that was killed before it could remember it.
        """
        remembered = [ref for ref in self.processes if processes.members(ref)]
        names = {ref.name for ref in remembered}
        others = [ZOOKEEPER, *(agent_name(broker.id) for broker in self.brokers)]
        found = (running(name, directory / name) for name in others if name not in names)
        return [*remembered, *(ref for ref in found if ref is not None)]


def running(name: str, directory: Path) -> ProcessRef | None:
    """The process that runs as `name` from its own directory, whether cluster.json knows it or not; None without one.

    An agent has locked its log directory there; what a command has started stands in life.json.
    """
    ref = endings.noted(directory, name)
    if ref is not None and processes.state_of(ref) is not ProcessState.DEAD:
        return ref
    return None if name == ZOOKEEPER else started_by_hand(name, directory / DATA)


def read_state(directory: Path) -> ClusterState | None:
    """What the directory remembers; None where there was no cluster. Raises ClusterFileMalformed."""
    path = directory / FILE_NAME
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        state = msgspec.json.decode(data, type=ClusterState)
    except msgspec.DecodeError as error:
        raise ClusterFileMalformed(f"{path}: {error}.", hint="Remove the directory to start again.") from error
    if state.version != 1:
        raise ClusterFileMalformed(f"{path}: version {state.version} is not known, 1 is.", hint="Use a newer regency.")
    return state


def write_state(directory: Path, state: ClusterState) -> None:
    """Replace cluster.json as a whole, so that a reader never sees half of it. Raises ClusterError, for a full disk."""
    path = directory / FILE_NAME
    draft = path.with_name(f"{FILE_NAME}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ClusterError(
            f"{path} cannot be written: {error.strerror}.", hint="Make room there, or correct its rights."
        ) from error


def command_for(directory: Path, words: str) -> str:
    """What to type for `regency WORDS` on the cluster of a directory, in backquotes: with --dir unless by default."""
    usual = directory.resolve() == DEFAULT_DIRECTORY.resolve()
    return f"`regency {words}`" if usual else f"`regency {words} --dir {shlex.quote(str(directory))}`"


_STOPPED = {
    "down": "stopped by `regency down` at {time}",
    "owner": "stopped at {time} by the program that had started it",
    "guard": "ended at {time}, when the program that had started it was gone",
    "failure": "not started: its start failed at {time}",
}


def stopped_words(stopped: Stopped) -> str:
    """Such as "stopped by `regency down` at 2026-05-04 14:30:12", in local time."""
    return _STOPPED.get(stopped.by, "stopped at {time}").format(time=local_time(stopped.at_ms))


def stopped_error(directory: Path, stopped: Stopped) -> ClusterNotRunning:
    """The error for what needs a cluster that was not ended."""
    return ClusterNotRunning(
        f"The cluster in {directory} was {stopped_words(stopped)}.",
        hint=f"Start it with {command_for(directory, 'up')}.",
    )


def local_time(at_ms: int) -> str:
    """Milliseconds since 1970 as date and time of this machine's zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))


def refuse_if_running(directory: Path, state: ClusterState | None) -> None:
    """Raises ClusterRunning when anything of the cluster still lives."""
    if state is not None and (alive := state.alive(directory)):
        names = ", ".join(f"{in_words(ref.name)} (pid {ref.pid})" for ref in alive)
        raise ClusterRunning(
            f"A cluster runs in {directory}: {names}.",
            hint=f"Stop it with {command_for(directory, 'down')}, or choose another directory.",
        )
