"""A cluster of real processes on this machine: an embedded ZooKeeper and broker agents, to use and to break.

with Cluster(brokers=3, settings={"min.insync.replicas": 2}) as cluster:
    ...  # cluster.bootstrap_servers
    cluster.kill(cluster.controller_id())
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from regency.cluster.agent import AGENT_COMMAND
from regency.cluster.errors import ClusterNotRunning
from regency.cluster.guard import Guard
from regency.cluster.java import find_jars, find_java
from regency.cluster.lab import START_TIMEOUT_S, Lab
from regency.cluster.plan import Settings, plan_cluster, refuse_taken_ports, with_ports
from regency.cluster.process import processes
from regency.cluster.record import START_WAIT_S
from regency.cluster.state import (
    DEFAULT_DIRECTORY,
    ZOOKEEPER,
    command_for,
    read_state,
    refuse_if_running,
    stopped_error,
    write_state,
)
from regency.cluster.status import ruler
from regency.cluster.verbs import Target

_CLOSE_GRACE_S = 15.0


class Cluster(Lab):
    """Starts on entering a `with` block (or `start`), ends on leaving it (or `close`); nothing survives this process.

    `settings` are keys of server.properties for every broker, `broker_settings` for one broker by id; values are text,
    numbers or bools. In `directory`, which is kept, a cluster is started again on its data and ports; without it
    everything is in a temporary directory, made at the start, that is removed at the end unless `keep`. `port` is that
    of broker 1 for Kafka clients: those of brokers 2, 3 ... are 100, 200 ... higher. `zookeeper_connect` uses a
    ZooKeeper that runs already, with a chroot for each cluster. `detached` processes live on after `close` and this
    process; `regency down` ends them.

    Verbs (Lab) raise ClusterNotRunning before the start. Raises ClusterError for what cannot be meant.
    """

    def __init__(
        self,
        brokers: int | None = None,
        settings: Settings | None = None,
        *,
        broker_settings: Mapping[int, Settings] | None = None,
        directory: Path | str | None = None,
        keep: bool = False,
        zookeeper_connect: str | None = None,
        session_timeout_ms: int | None = None,
        log_dirs: int | None = None,
        port: int | None = None,
        detached: bool = False,
        start_timeout_s: float = START_TIMEOUT_S,
        agent_command: Sequence[str] = AGENT_COMMAND,
    ) -> None:
        self._temporary = directory is None and not keep
        self._private = directory is None
        # Named before it is made: an exception while it is being made (Ctrl-C is one) must find it to remove it.
        path = Path(directory) if directory is not None else Path(tempfile.gettempdir(), f"regency-{uuid.uuid4().hex}")
        self._wishes: dict[str, Any] = {
            "brokers": brokers,
            "settings": settings,
            "broker_settings": broker_settings,
            "zookeeper_connect": zookeeper_connect,
            "session_timeout_ms": session_timeout_ms,
            "log_dirs": log_dirs,
            "port": port,
        }
        self._detached = detached
        self._guard: Guard | None = None
        self._started = self._closed = False
        super().__init__(
            path.resolve(),
            plan_cluster(path.resolve(), **self._wishes),
            detached=detached,
            start_timeout_s=start_timeout_s,
            agent_command=agent_command,
        )

    @classmethod
    def attach(cls, directory: Path | str = DEFAULT_DIRECTORY) -> Lab:
        """The cluster that `regency up`, or another program, has started in a directory: to break, and not to end.

        Raises ClusterNotRunning where there is none, or where it was ended as a whole.
        """
        path = Path(directory).resolve()
        state = read_state(path)
        if state is None:
            raise ClusterNotRunning(
                f"There is no cluster in {directory}.",
                hint=f"Start one with {command_for(Path(directory), 'up --detach')}.",
            )
        if state.stopped is not None:
            raise stopped_error(Path(directory), state.stopped)
        return Lab(path, state)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, *targets: Target, wait: bool = True) -> None:
        """Start ZooKeeper, then all agents at once, and wait until each is registered.

        With targets: start these, which were killed or stopped, on their data and ports.

        Raises ClusterRunning, SettingsInvalid, EmbeddedZooKeeperMissing, NoFreePorts for a port that another program
        has, and ClusterStartFailed with the end of a log. A cluster of which a part cannot be started is ended again;
        where nothing had been started, a directory that was made for it is removed. Raises ClusterNotRunning after
        `close` where the directory was temporary.
        """
        if targets:
            super().start(*targets, wait=wait)
            return
        self._refuse_if_removed()
        if self._started:
            return
        made = not self.directory.exists()
        self.directory.mkdir(mode=0o700 if self._private else 0o777, parents=True, exist_ok=True)
        begun = False
        try:
            with self._parts.record.locked(START_WAIT_S):
                try:
                    self._plan()
                    begun = self._started = True
                    self._start_all()
                except BaseException:  # also Ctrl-C: a half-started cluster must not stay
                    ran = begun and read_state(self.directory) is not None
                    if begun:
                        self._end("failure", grace_s=0)
                    if made and not ran:
                        shutil.rmtree(self.directory, ignore_errors=True)
                    raise
        except BaseException:
            self._release()
            raise

    def close(self, grace_s: float | None = None) -> None:
        """End every process and remove a temporary directory; a detached cluster is only let go of. Harmless twice.

        Brokers get SIGTERM and `grace_s` seconds: 15 by default; 0, the default in a temporary directory, kills.
        """
        if self._started and not self._detached:
            default = 0.0 if self._temporary else _CLOSE_GRACE_S
            self._end("owner", grace_s=default if grace_s is None else grace_s)
        self._release()

    # Inside

    def _plan(self) -> None:
        """Decide what the cluster is, now that no other program changes it, and check it as far as possible."""
        refuse_if_running(self.directory, read_state(self.directory))
        state = with_ports(self.directory, plan_cluster(self.directory, **self._wishes))
        self._parts.take(msgspec.structs.replace(state, stopped=None))
        self._forget_session()  # an earlier start may have had other ports
        for agent in self._parts.agents.values():
            self._parts.properties(agent)
        refuse_taken_ports(self.directory, state, {ZOOKEEPER, *(broker.name for broker in state.brokers)})
        if state.zookeeper_port:
            find_java()
            find_jars()

    def _start_all(self) -> None:
        write_state(self.directory, self._parts.known)
        if not self._detached:
            self._guard = Guard(self.directory, remove=self._temporary)
            atexit.register(self.close)
        own = [None] if self._parts.own_zookeeper() is not None else []
        self._parts.launch([*own, *self.broker_ids])
        self._parts.wait_ready(self.broker_ids)

    def _end(self, by: str, *, grace_s: float) -> None:
        """End all that runs from the directory, agents first."""
        self._forget_session()
        state = self.state
        alive = state.alive(self.directory)
        last = ruler(state) if grace_s > 0 else ""
        processes.end([ref for ref in alive if ref.name != ZOOKEEPER], grace_s=grace_s, last=last)
        for agent in self._parts.agents.values():
            agent.kill()
        server = self._parts.own_zookeeper()
        if server is not None:
            if grace_s > 0:
                server.stop()
            server.kill()
        if not self._temporary and self._parts.record.read() is not None and state.stopped is None:
            self._parts.record.stopped(by)

    def _release(self) -> None:
        super().close()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)
        if self._guard is not None:
            self._guard.dismiss()
            self._guard = None
        atexit.unregister(self.close)
        self._closed = self._closed or self._started
        self._started = False

    def _refuse_if_over(self) -> None:
        """Raises ClusterNotRunning before the start, and after the end."""
        self._refuse_if_removed()
        if not self._started:
            raise ClusterNotRunning(
                "The cluster is not started.", hint="Call start() first, or use it in a `with` block."
            )
        super()._refuse_if_over()

    def _refuse_if_removed(self) -> None:
        if self._temporary and self._closed:
            raise ClusterNotRunning(
                "The cluster was closed, and its temporary directory is removed.",
                hint="Make another Cluster, or name a directory, which is kept.",
            )
