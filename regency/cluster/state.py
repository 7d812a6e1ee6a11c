"""cluster.json: what a cluster's directory remembers, so that anyone can end it, look at it and start it again."""

from __future__ import annotations

import fcntl
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from regency.cluster import processes
from regency.cluster.errors import ClusterError, ClusterFileMalformed, ClusterRunning
from regency.cluster.processes import ProcessRef, started_by_hand
from regency.model.ids import BrokerId

DEFAULT_DIRECTORY = Path(".run")
"""Where the command line looks for a cluster unless told."""
FILE_NAME = "cluster.json"
_LOCK_NAME = "cluster.lock"
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


def agent_name(broker: BrokerId) -> str:
    """Name of a broker's agent in cluster.json, and of its directory."""
    return f"agent-{broker}"


class BrokerPorts(msgspec.Struct, frozen=True):
    """A broker and its ports on 127.0.0.1 by name, one for each of PORTS; kept over restarts."""

    id: BrokerId
    ports: dict[str, int]

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


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """Content of cluster.json. `zookeeper_port` is 0 where the ZooKeeper is not the cluster's own."""

    version: int = 1
    zookeeper_connect: str
    zookeeper_port: int
    session_timeout_ms: int
    brokers: tuple[BrokerPorts, ...]
    settings: dict[str, str] = {}
    broker_settings: dict[int, dict[str, str]] = {}
    log_dirs: int = 1
    """Log directories of every broker."""
    processes: tuple[ProcessRef, ...] = ()

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers, for Kafka clients."""
        return ",".join(broker.bootstrap_server for broker in self.brokers)

    def alive(self, directory: Path) -> list[ProcessRef]:
        """The remembered processes of which anything still lives, and agents in `directory` that were started by hand.

        An agent runs from agent-N there, whose log directory it has locked.
        """
        remembered = [ref for ref in self.processes if processes.members(ref)]
        names = {ref.name for ref in remembered}
        found = (
            started_by_hand(name, directory / name / DATA)
            for name in (agent_name(broker.id) for broker in self.brokers)
            if name not in names
        )
        return [*remembered, *(ref for ref in found if ref is not None)]


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


@contextmanager
def start_lock(directory: Path) -> Iterator[None]:
    """Held while a cluster is started, so that two commands do not start it twice. Raises ClusterRunning."""
    with directory.joinpath(_LOCK_NAME).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ClusterRunning(
                f"A cluster is being started in {directory} right now.",
                hint="Wait for it, or choose another directory.",
            ) from error
        yield


def refuse_if_running(directory: Path, state: ClusterState) -> None:
    """Raises ClusterRunning when anything of the cluster still lives."""
    if alive := state.alive(directory):
        names = ", ".join(f"{ref.name} (pid {ref.pid})" for ref in alive)
        raise ClusterRunning(
            f"A cluster runs in {directory}: {names}.",
            hint=f"Stop it with {command_for(directory, 'down')}, or choose another directory.",
        )
