"""All judges of a run: what they look at, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from regency.broker_agent.process.watchdog import LOOK_MS
from regency.judge.operations import FinalRead, LogStartMoved
from regency.model.ids import BrokerId, TopicId, TopicPartition
from simulation.cluster.agent import SimAgent
from simulation.cluster.controller import SimController
from simulation.disk import SimDisk
from simulation.disk_files import File
from simulation.judging import retention_rules
from simulation.judging.controller_rules import Obedience, Rule, check_decided
from simulation.judging.convergence import not_converged
from simulation.judging.durability_rules import CheckpointRules
from simulation.judging.facts import Facts
from simulation.judging.hosted_rows import HostedRows
from simulation.judging.invariants import InvariantBroken, broken
from simulation.judging.picture import Committed
from simulation.judging.replica_rules import ReplicaRules
from simulation.judging.zookeeper_rules import Commit, ZookeeperRules
from simulation.kernel.scheduler import Process, Scheduler
from simulation.network import Network
from simulation.shape import Shape

__all__ = ["InvariantBroken", "Judges"]

SLOWEST_CLOCK: Final = 1.3
"""By a clock that drifts time may take so many times as long."""

REFRESH_STEPS: Final = 2_000
"""Every so many steps the lists of hosted partitions are made anew, whatever they look like."""


class CommitLog(Committed, Protocol):
    """ZooKeeper."""

    def on_commit(self, callback: Callable[[Commit], None], /) -> None: ...


class Machine(Protocol):
    """A broker's machine."""

    @property
    def disk(self) -> SimDisk: ...


class World(Protocol):
    """What is judged."""

    on_standing: list[Callable[[SimAgent], None]]
    """Told of every agent whose data loop stands still from now on."""
    errands: list[str]
    """What clients of the cluster have begun and will go on with."""

    @property
    def network(self) -> Network: ...

    @property
    def scheduler(self) -> Scheduler: ...

    @property
    def agents(self) -> Mapping[BrokerId, SimAgent]:
        """The newest agent process of every broker, alive or dead."""
        ...

    @property
    def controllers(self) -> Mapping[BrokerId, SimController]:
        """The newest controller process of every broker, alive or dead."""
        ...

    @property
    def zookeeper(self) -> CommitLog: ...

    @property
    def hosts(self) -> Mapping[BrokerId, Machine]: ...

    @property
    def shape(self) -> Shape: ...


class Judges:
    """Judges a world from its beginning on. InvariantBroken is raised out of the scheduler's `run_until`."""

    def __init__(self, world: World) -> None:
        self.facts = Facts()
        for topic in world.shape.topics:
            self.facts.min_insync[topic.name] = topic.min_insync
            if topic.unclean:
                self.facts.unclean_topics.add(topic.name)
        self._world = world
        self._scheduler = world.scheduler
        self._zookeeper = ZookeeperRules(self.facts, lambda: self._scheduler.now_us)
        self._replicas = ReplicaRules(world, self.facts, self._zookeeper, self._peek, self._log_start_moved)
        self._looks: dict[Process, Callable[[], None] | None] = {}
        self._hosted: list[HostedRows] = []
        self._refresh_in = REFRESH_STEPS
        world.zookeeper.on_commit(self._committed)
        world.on_standing.append(self._stands)
        world.network.on_silence = lambda broker: self.facts.left_unanswered(broker, self._scheduler.now_us)

    def begin(self) -> None:
        self._scheduler.after_step = self.after_step

    def after_step(self) -> None:
        process = self._scheduler.process
        if process is not None:
            try:
                look = self._looks[process]
            except KeyError:
                look = self._looks[process] = self._look_of(process)
            if look is not None:
                look()
        zookeeper, facts = self._zookeeper, self.facts
        if zookeeper.changed:
            changed, zookeeper.changed = zookeeper.changed, []
            self._replicas.look_at(changed)
        if facts.unlooked:
            unlooked, facts.unlooked = facts.unlooked, []
            self._replicas.check_promises(unlooked)
        self._refresh_in -= 1
        if not self._refresh_in:
            self._refresh()

    def not_converged(self) -> list[str]:
        """Why all is not well yet; empty where it is."""
        world = self._world
        removed = self.facts.removed
        found = not_converged(
            world.agents,
            world.controllers,
            world.zookeeper,
            self._peek,
            removed=removed,
            reconciles=world.shape.reconciles,
            compaction=self._replicas.compaction,
        )
        reasons = [*world.errands, *found]
        if not reasons:
            for hosted in self._hosted:
                if hosted.agent.process.alive:
                    reasons += self._overdue(hosted)
                    self._replicas.look_at_end(hosted)
        return reasons

    def check_reads(self, reads: Iterable[FinalRead]) -> None:
        """Everything was read, from where it begins: no later than a leader's log has begun. Raises InvariantBroken."""
        begun: dict[tuple[str, int, str], int] = {}
        for moved in self.facts.log_starts:
            key = moved.topic, moved.partition, moved.topic_id
            begun[key] = max(begun.get(key, 0), moved.log_start)
        for read in reads:
            topic = self._zookeeper.topics.get(read.topic)
            key = read.topic, read.partition, str(None if topic is None else topic.topic_id)
            if read.log_start > begun.get(key, 0):
                raise broken(
                    "retention-by-rule",
                    f"{read.topic}-{read.partition} is said to begin at {read.log_start}, a leader's log has begun at "
                    f"{begun.get(key, 0)}",
                )

    def _overdue(self, hosted: HostedRows) -> list[str]:
        agent, logs = hosted.agent, [row.log for row in hosted.rows]
        return retention_rules.reasons(self._replicas.retention, agent.broker_id, logs, agent.process.clock.wall_ms())

    def _stands(self, agent: SimAgent, after_ms: int | None = None) -> None:
        """The data loop of an agent stands still: in time it goes on, or the agent ends."""
        process = agent.process
        before = process.stands, process.pauses

        def due() -> None:
            if process.alive and process.loop_stands and process.stands == before[0]:
                if process.pauses == before[1] and not process.paused:
                    self._zookeeper.check_served(agent.broker_id)
                    self._stands(agent, LOOK_MS)
                else:  # nothing of it ran
                    self._stands(agent)

        limit_ms = (agent.settings.regency_loop_watchdog_ms + 3 * LOOK_MS) * SLOWEST_CLOCK
        self._scheduler.at(int(limit_ms if after_ms is None else after_ms) * 1_000, due)

    def _committed(self, txn: Commit) -> None:
        self._zookeeper.on_commit(txn)
        if self._zookeeper.decided:
            check_decided(self._zookeeper, self._world.controllers, self.facts)

    def _look_of(self, process: Process) -> Callable[[], None] | None:
        """What to look at after a step of a process; None where nothing is to be seen."""
        for agent in self._world.agents.values():
            if agent.process is process:
                hosted = HostedRows(agent)
                agent.on_delete = partial(self._replicas.deletion_asked, agent)
                agent.on_deleted = partial(self._replicas.deleted, agent)
                self._hosted = [each for each in self._hosted if each.agent.process.alive]
                self._hosted.append(hosted)
                return self._all(hosted, Obedience(agent, self._zookeeper), self._checkpoints(agent))
        for broker, controller in self._world.controllers.items():
            if controller.process is process:
                return Rule(broker, controller, self._zookeeper).look
        return None

    def _all(self, hosted: HostedRows, obedience: Obedience, checkpoints: CheckpointRules) -> Callable[[], None]:
        scheduler, replicas, process = self._scheduler, self._replicas, hosted.agent.process

        def look() -> None:
            if process.alive:
                if scheduler.of_loop:  # replicas are its own: what others do to them is seen at its next step
                    replicas.look(hosted)
                obedience.look()
                checkpoints.look()
            else:
                replicas.died(hosted)
                checkpoints.over()

        return look

    def _checkpoints(self, agent: SimAgent) -> CheckpointRules:
        return CheckpointRules(agent, self._world.hosts[agent.broker_id].disk.tree)

    def _refresh(self) -> None:
        self._refresh_in = REFRESH_STEPS
        for hosted in self._hosted:
            if hosted.agent.process.alive:
                self._replicas.refresh(hosted)
                self._replicas.look(hosted)

    def _log_start_moved(self, partition: TopicPartition, topic_id: TopicId, log_start: int) -> None:
        topic, number = partition
        at_ms = self._scheduler.now_us // 1_000
        self.facts.log_starts.append(LogStartMoved(topic, number, at_ms, log_start, str(topic_id)))

    def _peek(self, broker: BrokerId, path: Path) -> File | None:
        node = self._world.hosts[broker].disk.tree.look(str(path))
        return node if isinstance(node, File) else None
