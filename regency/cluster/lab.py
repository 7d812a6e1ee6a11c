"""The lab of a directory, to use and to break: its processes, started by this program or by another.

Verbs find a process where it is noted (cluster.json, life.json, the lock of a log directory), by pid and start time, so
they work on whatever runs in the directory now, and any number of programs may use them at once.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from regency.cluster import topics
from regency.cluster.agent import AGENT_COMMAND, Agent
from regency.cluster.errors import ClusterError, ClusterNotRunning
from regency.cluster.health import ClusterSnapshot, missing
from regency.cluster.observer import ClusterObserver
from regency.cluster.parts import Parts
from regency.cluster.plan import Setting, plan_cluster, refuse_taken_ports, text_of, with_ports
from regency.cluster.process import processes
from regency.cluster.process.endings import LastLife, noted
from regency.cluster.process.processes import ProcessRow, ProcessState
from regency.cluster.state import ZOOKEEPER, ClusterState, stopped_error
from regency.cluster.verbs import Done, Target, Verb, meant
from regency.cluster.zookeeper import EmbeddedZooKeeper
from regency.model.ids import BrokerId, ControllerEpoch, TopicPartition
from regency.model.words import listed
from regency.runtime.zookeeper.session import ZkSession

START_TIMEOUT_S = 60.0
CREATE_TIMEOUT_S = 30.0
STOP_GRACE_S = 30.0


class Lab:
    """A cluster on this machine that runs, or is dead in parts. Leaving a `with` block lets go of it, and ends nothing.

    Targets of verbs are broker ids, `"controller"` (the broker whose controller rules), a partition such as
    `"flights-3"` (the broker that leads it), `"zookeeper"` and `"all"`. All raise UnknownBroker, and ClusterError for
    other words. Processes that verbs start run in the background, and end with the rest of the lab. `Cluster.attach`
    makes one; one thread at a time may call what starts or ends processes.
    """

    def __init__(
        self,
        directory: Path,
        state: ClusterState,
        *,
        detached: bool = True,
        start_timeout_s: float = START_TIMEOUT_S,
        agent_command: Sequence[str] = AGENT_COMMAND,
    ) -> None:
        self.directory = directory
        self._killed_epoch: ControllerEpoch | None = None
        self._observing: ClusterObserver | None = None
        self._parts = Parts(
            directory,
            state,
            detached=detached,
            start_timeout_s=start_timeout_s,
            agent_command=agent_command,
            ruler=self._living_ruler,
            leader=self._living_leader,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of it; what runs goes on. Harmless twice."""
        self._forget_session()
        self._parts.spawner.close()

    # What it is

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers, for Kafka clients. Raises ClusterNotRunning before the first start."""
        return self._with_ports().bootstrap_servers

    @property
    def zookeeper_connect(self) -> str:
        """Connect string of the cluster, with its chroot where it has one. Raises ClusterNotRunning, as above."""
        return self._with_ports().zookeeper_connect

    @property
    def broker_ids(self) -> list[BrokerId]:
        """Ids of all brokers, also of stopped ones, ascending."""
        return list(self._parts.agents)

    @property
    def state(self) -> ClusterState:
        """What cluster.json holds now; before the first start, what is known already."""
        return self._parts.refresh()

    def log_dirs(self, broker: int) -> list[Path]:
        """Directories that hold the partitions of a broker."""
        return self._agent(broker).log_dirs

    @property
    def history_dirs(self) -> list[Path]:
        """Directories that hold the decision records of all brokers' controllers and agents."""
        return [agent.directory / "history" for agent in self._parts.agents.values()]

    def log(self, broker: int) -> Path:
        """Log of a broker's agent and its controller child, over all its lives."""
        return self._agent(broker).log

    def pid(self, broker: int) -> int:
        """Process id of a broker's agent. Raises ClusterNotRunning."""
        return self._agent(broker).process.pid

    def broker_state(self, broker: int) -> ProcessState:
        """Whether a broker's agent is running, paused or dead."""
        return self._agent(broker).state

    def last_life(self, name: str) -> LastLife | None:
        """What is known of the process that last ran as `agent-2` or `zookeeper`; None where none did."""
        last, ref = self.state.ended.get(name), noted(self.directory / name, name)
        return last if ref is None or (last is not None and last.ref == ref) else LastLife(ref)

    @property
    def zookeeper(self) -> EmbeddedZooKeeper:
        """The cluster's own ZooKeeper. Raises ClusterError where it uses another's."""
        server = self._parts.own_zookeeper()
        if server is None:
            raise ClusterError(
                f"The ZooKeeper at {self.zookeeper_connect} is not this cluster's.", hint="Start or stop it yourself."
            )
        return server

    # Verbs

    def kill(self, *targets: Target) -> None:
        """SIGKILL: of a broker, agent and controller process. Harmless to what is dead."""
        self.act(Verb.KILL, targets)

    def stop(self, *targets: Target, timeout_s: float = STOP_GRACE_S) -> bool:
        """SIGTERM, so that they leave in order; SIGKILL after `timeout_s` seconds. Whether all went by themselves."""
        return not any(each.killed for each in self.act(Verb.STOP, targets, grace_s=timeout_s))

    def pause(self, *targets: Target) -> None:
        """SIGSTOP: connections stay open, nothing is answered. Raises ClusterNotRunning for what is dead."""
        self.act(Verb.PAUSE, targets)

    def resume(self, *targets: Target) -> None:
        """SIGCONT. Raises ClusterNotRunning for what is dead."""
        self.act(Verb.RESUME, targets)

    @contextmanager
    def paused(self, *targets: Target) -> Iterator[None]:
        """Pause for the length of a `with` block. `"controller"` is the one that rules when the block begins."""
        self._refuse_if_over()
        chosen = self._parts.choose(targets)
        self._parts.act_on(Verb.PAUSE, chosen, grace_s=0)
        try:
            yield
        finally:
            self._parts.act_on(Verb.RESUME, chosen, grace_s=0, skip=True)

    def start(self, *targets: Target, wait: bool = True) -> None:
        """Start what is dead on its data and ports, and wait until ZooKeeper serves and brokers are registered.

        Without targets, everything that is dead. Raises ClusterStartFailed with the end of a log.
        """
        if targets:
            self.act(Verb.START, targets, wait=wait)
        else:
            self.make_whole()

    def restart(self, *targets: Target) -> None:
        """Stop in order what runs, and start it again."""
        self.act(Verb.RESTART, targets)

    def make_whole(self, brokers: int | None = None) -> list[Done]:
        """Start everything that is dead, and add brokers up to the number `brokers`; what was done, possibly nothing.

        Paused processes stay paused. Raises ClusterError for fewer brokers than there are.
        """
        self._refuse_if_over()
        with self._parts.record.locked():
            before = self.state
            planned = with_ports(self.directory, plan_cluster(self.directory, brokers=brokers))
            added = planned.brokers[len(before.brokers) :]
            refuse_taken_ports(self.directory, planned, {broker.name for broker in added})
            if planned != before:
                change = msgspec.structs.replace
                self._parts.take(self._parts.record.change(lambda now: change(now, brokers=planned.brokers)))
            everything = self._parts.choose(["all"])
            dead = [part for part in everything if self._parts.state_of(part) is ProcessState.DEAD]
            started = self._parts.act_on(Verb.START, dead, grace_s=0, wait=False)
        self._parts.wait_ready([each.broker for each in started if each.broker is not None])
        return started

    def act(
        self, verb: Verb, targets: Sequence[Target], *, grace_s: float = STOP_GRACE_S, wait: bool = True
    ) -> list[Done]:
        """A verb for every target, and what it did; where another verb has to come first for one, nothing is done.

        Raises ClusterNotRunning, ClusterStartFailed, NoFreePorts; ClusterTimeout where no controller rules.
        """
        self._refuse_if_over()
        return self._parts.act(verb, targets, grace_s=grace_s, wait=wait)

    def advise(self, spelling: Callable[[Verb, Target], str]) -> None:
        """Have errors spell calls that help in another way than Python's."""
        self._parts.advice = spelling

    # Faults of one process

    def controller_process(self, broker: int) -> ProcessRow:
        """The controller child of a broker's agent. Raises ClusterNotRunning when it has none now."""
        children = self._agent(broker).children()
        if not children:
            raise ClusterNotRunning(f"The agent of broker {broker} has no controller child now.", hint="Wait for it.")
        return children[0]

    def kill_controller(self) -> BrokerId:
        """SIGKILL the ruling controller alone, not its agent; the broker it ruled for. Raises ClusterTimeout."""
        self.controller_id()
        epoch = self.controller_epoch()
        broker = self.controller_id()
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
        self.restart(ZOOKEEPER)

    # What ZooKeeper says

    def session(self) -> ZkSession:
        """A ZooKeeper session of the cluster's keeper, opened on first use. Raises ZkError."""
        return self._observer.session()

    def controller_id(self, timeout: float = 30.0) -> BrokerId:
        """The broker whose controller rules, and that is registered; waited for. `snapshot().controller` does not wait.

        Raises ClusterTimeout after `timeout` seconds.
        """
        return self._observer.wait_controller(timeout)

    def controller_epoch(self) -> ControllerEpoch:
        """How many controllers have ruled; 0 before the first. Raises ZkError."""
        return self._observer.controller_epoch()

    def snapshot(self) -> ClusterSnapshot:
        """Brokers, controller and partitions as ZooKeeper holds them. Raises ZkError."""
        return self._observer.snapshot()

    def wait_healthy(self, timeout: float = 30.0) -> None:
        """Wait until every broker is registered, a controller rules, and every partition has a leader and its full ISR.

        Raises ClusterTimeout after `timeout` seconds, saying what is missing.
        """
        self._observer.wait_for(self._what_is_missing, timeout)

    def wait_leader(self, topic: str, partition: int, timeout: float = 30.0) -> BrokerId:
        """The leader of a partition, waited for: one that is registered and whose process is not known to be dead.

        Raises ClusterTimeout after `timeout` seconds, also where there is no such partition.
        """
        leaders: list[BrokerId] = []

        def look() -> list[str]:
            snapshot = self.snapshot()
            view = snapshot.partitions.get(TopicPartition(topic, partition))
            if view is None:
                near = _nearest(TopicPartition(topic, partition), snapshot.partitions)
                return [f"there is no partition {topic}-{partition}" + (f" (did you mean {near}?)" if near else "")]
            leader = None if view.leadership is None else view.leadership.leader
            if leader is None or leader not in snapshot.brokers or self._is_dead(leader):
                return [f"{topic}-{partition} has no leader that is registered and runs"]
            leaders.append(leader)
            return []

        self._observer.wait_for(look, timeout)
        return leaders[-1]

    def create_topic(
        self,
        name: str,
        partitions: int = topics.BROKERS_DEFAULT,
        replication_factor: int = topics.BROKERS_DEFAULT,
        config: Mapping[str, Setting] | None = None,
    ) -> None:
        """Create a topic and wait until each partition has a leader. What is left out is as the brokers' defaults say.

        Raises TopicRefused, for example where it is there already; ClusterTimeout.
        """
        ruler = self._agent(self._living_ruler())
        topics.create_topic(
            ruler.broker.bootstrap_server,
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            config=text_of(config or {}),
        )

        def leaderless() -> list[str]:
            snapshot = self.snapshot()
            without = [str(each) for each in snapshot.leaderless if each.topic == name]
            if name not in snapshot.topics:
                return [f"topic {name} is not in ZooKeeper yet"]
            return [f"{each} has no leader" for each in without]

        self._observer.wait_for(leaderless, CREATE_TIMEOUT_S)

    # Inside

    def _living_ruler(self) -> BrokerId:
        """The broker that rules and whose agent lives: the one that was just killed is registered until its session
        is over."""
        ruling: list[BrokerId] = []

        def look() -> list[str]:
            snapshot = self.snapshot()
            broker = snapshot.controller
            if broker is None or broker not in snapshot.brokers or self._is_dead(broker):
                return ["there is no controller whose broker is registered and runs"]
            ruling.append(broker)
            return []

        self._observer.wait_for(look, CREATE_TIMEOUT_S)
        return ruling[-1]

    def _living_leader(self, partition: TopicPartition) -> BrokerId:
        """Who leads the partition. Raises ClusterError where there is none, ClusterTimeout where it has no leader."""
        there = self.snapshot().partitions
        if partition not in there:
            near = meant(str(partition), self.broker_ids) or _nearest(partition, there)
            raise ClusterError(
                f"There is no partition {partition}.",
                hint=f"Did you mean {near}?"
                if near
                else f"There are {listed(sorted(map(str, there)))}."
                if there
                else "The cluster has no topics.",
            )
        return self.wait_leader(partition.topic, partition.partition, CREATE_TIMEOUT_S)

    def _is_dead(self, broker: BrokerId) -> bool:
        return broker in self._parts.agents and self._agent(broker).state is ProcessState.DEAD

    def _what_is_missing(self) -> list[str]:
        dead = [
            f"the agent of broker {broker} is {agent.state.value}"
            for broker, agent in self._parts.agents.items()
            if agent.state is not ProcessState.RUNNING
        ]
        return dead or missing(self.snapshot(), self.broker_ids, killed_epoch=self._killed_epoch)

    def _agent(self, broker: int) -> Agent:
        return self._parts.agent(broker)

    @property
    def _observer(self) -> ClusterObserver:
        if self._observing is None:
            state = self._with_ports()
            self._refuse_if_over()  # nobody answers any more, so it need not be waited for
            self._observing = ClusterObserver(
                state.zookeeper_connect,
                session_timeout_ms=state.session_timeout_ms,
                digest_auth=state.settings.get("regency.zookeeper.digest.auth", ""),
            )
        return self._observing

    def _forget_session(self) -> None:
        if self._observing is not None:
            self._observing.close()
            self._observing = None

    def _with_ports(self) -> ClusterState:
        state = self._parts.known
        if not state.zookeeper_connect or not all(broker.ports for broker in state.brokers):
            raise ClusterNotRunning(
                "The cluster has no addresses yet.", hint="Call start() first, or use it in a `with` block."
            )
        return state

    def _refuse_if_over(self) -> None:
        """Raises ClusterNotRunning for a cluster that was ended as a whole."""
        if (stopped := self.state.stopped) is not None:
            raise stopped_error(self.directory, stopped)


def _nearest(partition: TopicPartition, there: Iterable[TopicPartition]) -> str | None:
    return next(iter(get_close_matches(str(partition), map(str, there), 1)), None)
