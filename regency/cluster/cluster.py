"""A cluster of real processes on this machine: an embedded ZooKeeper and broker agents, to use and to break.

with Cluster(brokers=3, settings={"min.insync.replicas": "2"}) as cluster:
    ...  # cluster.bootstrap_servers
    cluster.kill(cluster.controller_id())
"""

from __future__ import annotations

import atexit
import shutil
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from regency.cluster import agent as agents
from regency.cluster import processes
from regency.cluster.agent import Agent, agent_properties
from regency.cluster.errors import ClusterError, ClusterNotRunning, ClusterStartFailed, UnknownBroker
from regency.cluster.guard import Guard
from regency.cluster.health import ClusterSnapshot, missing
from regency.cluster.observer import ClusterObserver
from regency.cluster.plan import plan_cluster
from regency.cluster.processes import ProcessRow, ProcessState
from regency.cluster.spawner import ManagedProcess, Spawner
from regency.cluster.state import ClusterState, refuse_if_running, start_lock, write_state
from regency.cluster.zookeeper import EmbeddedZooKeeper
from regency.model.ids import BrokerId, ControllerEpoch
from regency.model.settings import parse_settings
from regency.runtime.zookeeper.session import ZkSession

SESSION_TIMEOUT_MS = 3000
START_TIMEOUT_S = 60.0
_STOP_GRACE_S = 30.0
_CLOSE_GRACE_S = 15.0
_POLL_S = 0.02


class Cluster:
    """Starts on entering a `with` block (or `start`), ends on leaving it (or `close`); nothing survives this process.

    `settings` are keys of server.properties for every broker, `broker_settings` for one broker by id. In `directory`,
    which is kept, a cluster is started again on its data and ports; without it everything is in a temporary directory
    that is removed at the end unless `keep`. `zookeeper_connect` uses a ZooKeeper that runs already, with a chroot for
    each cluster. `detached` processes live on after `close` and this process; `regency down` ends them.

    Methods that take a broker id raise UnknownBroker. One thread at a time may call what starts or ends processes.
    """

    def __init__(
        self,
        brokers: int | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        broker_settings: Mapping[int, Mapping[str, str]] | None = None,
        directory: Path | str | None = None,
        keep: bool = False,
        zookeeper_connect: str | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        log_dirs: int | None = None,
        detached: bool = False,
        start_timeout_s: float = START_TIMEOUT_S,
        agent_command: Sequence[str] = agents.AGENT_COMMAND,
    ) -> None:
        self._temporary = directory is None and not keep
        # Named before it is made: an exception while it is being made (Ctrl-C is one) must find it to remove it.
        path = Path(directory) if directory is not None else Path(tempfile.gettempdir(), f"regency-{uuid.uuid4().hex}")
        self.directory = path.resolve()
        self._detached = detached
        self._start_timeout_s = start_timeout_s
        self._spawner = Spawner(detached=detached)
        self._guard: Guard | None = None
        self._started = False
        self._recording = threading.Lock()
        self._killed_epoch: ControllerEpoch | None = None
        try:
            self.directory.mkdir(mode=0o777 if directory is not None else 0o700, parents=True, exist_ok=True)
            self._state = plan_cluster(
                self.directory,
                brokers=brokers,
                settings=settings,
                broker_settings=broker_settings,
                zookeeper_connect=zookeeper_connect,
                session_timeout_ms=session_timeout_ms,
                log_dirs=log_dirs,
            )
            self._observer = ClusterObserver(
                self._state.zookeeper_connect,
                session_timeout_ms=session_timeout_ms,
                digest_auth=self._state.settings.get("regency.zookeeper.digest.auth", ""),
            )
            port = self._state.zookeeper_port
            own = EmbeddedZooKeeper(self.directory / "zookeeper", port=port, spawner=self._spawner) if port else None
            self._zookeeper = own
            self._agents = {
                broker.id: Agent(
                    broker,
                    self.directory / f"agent-{broker.id}",
                    spawner=self._spawner,
                    log_dirs=self._state.log_dirs,
                    command=agent_command,
                )
                for broker in self._state.brokers
            }
        except BaseException:
            self._remove()
            raise

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What it is

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers, for Kafka clients."""
        return self._state.bootstrap_servers

    @property
    def zookeeper_connect(self) -> str:
        """Connect string of the cluster, with its chroot where it has one."""
        return self._state.zookeeper_connect

    @property
    def broker_ids(self) -> list[BrokerId]:
        """Ids of all brokers, also of stopped ones, ascending."""
        return list(self._agents)

    @property
    def state(self) -> ClusterState:
        """What cluster.json holds."""
        return self._state

    def log_dirs(self, broker: int) -> list[Path]:
        """Directories that hold the partitions of a broker."""
        return self._agent(broker).log_dirs

    @property
    def history_dirs(self) -> list[Path]:
        """Directories that hold the decision records of all brokers' controllers and agents."""
        return [agent.directory / "history" for agent in self._agents.values()]

    def log(self, broker: int) -> Path:
        """Log of a broker's agent and its controller child, over all its lives."""
        return self._agent(broker).log

    def pid(self, broker: int) -> int:
        """Process id of a broker's agent. Raises ClusterNotRunning."""
        return self._agent(broker).process.pid

    def broker_state(self, broker: int) -> ProcessState:
        """Whether a broker's agent is running, paused or dead."""
        return self._agent(broker).state

    @property
    def zookeeper(self) -> EmbeddedZooKeeper:
        """The cluster's own ZooKeeper. Raises ClusterError where it uses another's."""
        if self._zookeeper is None:
            raise ClusterError(
                f"The ZooKeeper at {self.zookeeper_connect} is not this cluster's.", hint="Start or stop it yourself."
            )
        return self._zookeeper

    # Start and end

    def start(self, broker: int | None = None) -> None:
        """Start ZooKeeper, then all agents at once, and wait until each is registered.

        With `broker`: start that one, which was killed or stopped, on its data and ports.

        Raises ClusterRunning, SettingsInvalid, EmbeddedZooKeeperMissing, and ClusterStartFailed with the end of a log.
        A cluster of which a part cannot be started is ended again. Raises ClusterNotRunning after `close` where the
        directory was temporary.
        """
        self._refuse_if_removed()
        if broker is not None:
            self._start_agents([self._agent(broker)])
            return
        if self._started:
            return
        try:
            with start_lock(self.directory):
                refuse_if_running(self.directory, self._state)
                for agent in self._agents.values():
                    self._properties(agent)
                self._started = True
                self._start_all()
        except BaseException:  # also Ctrl-C: a half-started cluster must not stay
            if self._started:
                self._end(grace_s=0)
            self._release()
            raise

    def close(self, grace_s: float | None = None) -> None:
        """End every process and remove a temporary directory; a detached cluster is only let go of. Harmless twice.

        Brokers get SIGTERM and `grace_s` seconds: 15 by default; 0, the default in a temporary directory, kills.
        """
        if self._started and not self._detached:
            default = 0.0 if self._temporary else _CLOSE_GRACE_S
            self._end(grace_s=default if grace_s is None else grace_s)
        self._release()

    # Faults and their repair

    def kill(self, broker: int) -> None:
        """SIGKILL a broker: agent and controller child."""
        self._agent(broker).kill()
        self._record()

    def stop(self, broker: int, timeout_s: float = _STOP_GRACE_S) -> bool:
        """SIGTERM a broker, which leaves in order; SIGKILL after `timeout_s` seconds. Whether it went by itself."""
        clean = self._agent(broker).stop(timeout_s)
        self._record()
        return clean

    def restart(self, broker: int) -> None:
        """Stop a broker in order if it runs, and start it again."""
        self.stop(broker)
        self.start(broker)

    def pause(self, broker: int) -> None:
        """SIGSTOP a broker: agent and controller child. Raises ClusterNotRunning."""
        self._agent(broker).process.pause()

    def resume(self, broker: int) -> None:
        """SIGCONT a broker: agent and controller child. Raises ClusterNotRunning."""
        self._agent(broker).process.resume()

    def controller_process(self, broker: int) -> ProcessRow:
        """The controller child of a broker's agent. Raises ClusterNotRunning when it has none now."""
        children = self._agent(broker).children()
        if not children:
            raise ClusterNotRunning(f"The agent of broker {broker} has no controller child now.", hint="Wait for it.")
        return children[0]

    def kill_controller(self) -> BrokerId:
        """SIGKILL the ruling controller alone, not its agent; the broker it ruled for. Raises ClusterNotRunning."""
        epoch = self.controller_epoch()
        broker = self.controller_id()
        if broker is None:
            raise ClusterNotRunning("No controller rules now.", hint="Wait for a controller with wait_healthy().")
        processes.send_one(self.controller_process(broker), signal.SIGKILL)
        self._killed_epoch = epoch
        return broker

    def pause_zookeeper(self) -> None:
        """SIGSTOP ZooKeeper: connections stay open and nothing is answered."""
        self.zookeeper.pause()

    def resume_zookeeper(self) -> None:
        """SIGCONT ZooKeeper."""
        self.zookeeper.resume()

    def restart_zookeeper(self) -> None:
        """Stop ZooKeeper and start it again on its data and port."""
        self.zookeeper.restart(self._start_timeout_s)
        self._record()

    # What ZooKeeper says

    def session(self) -> ZkSession:
        """A ZooKeeper session of the cluster's keeper, opened on first use. Raises ZkError."""
        return self._observer.session()

    def controller_id(self) -> BrokerId | None:
        """The broker whose controller rules, by /controller; None while none does. Raises ZkError."""
        return self._observer.controller_id()

    def controller_epoch(self) -> ControllerEpoch:
        """How many controllers have ruled; 0 before the first. Raises ZkError."""
        return self._observer.controller_epoch()

    def snapshot(self) -> ClusterSnapshot:
        """Brokers, controller and partitions as ZooKeeper holds them. Raises ZkError."""
        return self._observer.snapshot()

    def wait_controller(self, timeout: float = 30.0) -> BrokerId:
        """Wait until a controller rules whose broker is registered. Raises ClusterTimeout after `timeout` seconds."""
        return self._observer.wait_controller(timeout)

    def wait_healthy(self, timeout: float = 30.0) -> None:
        """Wait until every broker is registered, a controller rules, and every partition has a leader and its full ISR.

        Raises ClusterTimeout after `timeout` seconds, saying what is missing.
        """
        self._observer.wait_for(self._what_is_missing, timeout)

    def _what_is_missing(self) -> list[str]:
        dead = [
            f"the agent of broker {broker} is {agent.state.value}"
            for broker, agent in self._agents.items()
            if agent.state is not ProcessState.RUNNING
        ]
        return dead or missing(self.snapshot(), self.broker_ids, killed_epoch=self._killed_epoch)

    # Inside

    def _agent(self, broker: int) -> Agent:
        agent = self._agents.get(BrokerId(broker))
        if agent is None:
            raise UnknownBroker(f"There is no broker {broker!r}.", hint=f"There are {self.broker_ids}.")
        return agent

    def _properties(self, agent: Agent) -> dict[str, str]:
        """server.properties of an agent, checked here so that a mistake is reported before anything is started."""
        properties = agent_properties(
            agent.broker,
            agent.directory,
            zookeeper_connect=self.zookeeper_connect,
            session_timeout_ms=self._state.session_timeout_ms,
            log_dirs=self._state.log_dirs,
            settings={**self._state.settings, **self._state.broker_settings.get(agent.id, {})},
        )
        parse_settings(properties, source=f"settings of broker {agent.id}")
        return properties

    def _start_all(self) -> None:
        if not self._detached:
            self._guard = Guard(self.directory, remove=self._temporary)
            atexit.register(self.close)
        if self._zookeeper is not None:
            self._zookeeper.launch()
            self._record()
            self._zookeeper.wait_ready(self._start_timeout_s)
        self._start_agents(list(self._agents.values()))

    def _start_agents(self, starting: Sequence[Agent]) -> None:
        for agent in starting:
            agent.launch(self._properties(agent))
            self._record()
        deadline = time.monotonic() + self._start_timeout_s
        while waiting := [agent for agent in starting if not agent.is_ready()]:
            if time.monotonic() >= deadline:
                late = waiting[0]
                raise ClusterStartFailed(
                    f"Broker {late.id} was not ready within {self._start_timeout_s:g} s.",
                    hint=f"End of {late.log}:\n{late.process.last_lines()}",
                )
            time.sleep(_POLL_S)

    def _running(self) -> list[ManagedProcess]:
        return [agent.running for agent in self._agents.values() if agent.running is not None]

    def _refuse_if_removed(self) -> None:
        if self._temporary and not self.directory.exists():
            raise ClusterNotRunning(
                "The cluster was closed, and its temporary directory is removed.",
                hint="Make another Cluster, or name a directory, which is kept.",
            )

    def _record(self) -> None:
        self._refuse_if_removed()
        with self._recording:
            refs = [process.ref for process in self._running()]
            if self._zookeeper is not None and self._zookeeper.state is not ProcessState.DEAD:
                refs.insert(0, self._zookeeper.process.ref)
            self._state = msgspec.structs.replace(self._state, processes=tuple(refs))
            write_state(self.directory, self._state)

    def _end(self, *, grace_s: float) -> None:
        self._observer.close()
        processes.end([process.ref for process in self._running()], grace_s=grace_s)
        for agent in self._agents.values():
            agent.kill()
        if self._zookeeper is not None:
            if grace_s > 0:
                self._zookeeper.stop()
            self._zookeeper.kill()
        if not self._temporary:
            self._record()

    def _release(self) -> None:
        self._observer.close()
        self._spawner.close()
        self._remove()
        if self._guard is not None:
            self._guard.dismiss()
            self._guard = None
        atexit.unregister(self.close)
        self._started = False

    def _remove(self) -> None:
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)
