"""Scripts of drills: what they wait for, what they look at, and what they do to the cluster.

A script waits for what it needs next. Where that does not come in time, the drill is over.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from regency.broker_agent.replication.partition import Partition
from regency.controller.controller import Controller
from regency.model import znodes
from regency.model.facts import LeaderAndIsr
from regency.model.ids import BrokerEpoch, BrokerId, TopicPartition, ZkVersion
from regency.model.znodes import paths as znode_paths
from simulation.cluster.channels import KAFKA
from simulation.faults import zookeeper_faults
from simulation.faults.network_faults import Trouble, afflict
from simulation.faults.plan import SECOND_US, Fault
from simulation.faults.stage import Deed, Stage
from simulation.kernel.scheduler import Process
from simulation.world import Host

Step = float | Callable[[], bool]
"""What a script waits for: seconds, or until something is so."""

Script = Generator[Step, None, None]

CLIENTS = "clients"
"""All callers that are no broker, where one is kept from being heard."""

LOOK_US = 5_000
PATIENCE_US = 5 * SECOND_US
"""How long a script waits for what it needs."""


class Led(NamedTuple):
    """A partition of three replicas that are all in sync."""

    partition: TopicPartition
    state: LeaderAndIsr

    @property
    def followers(self) -> list[BrokerId]:
        return [each for each in self.state.isr if each != self.state.leader]


class Stall:
    """A thread that stands still at a crash point, while the others of its process go on."""

    def __init__(self) -> None:
        self.reached = False
        self.over = False
        """Let it go on."""

    def end(self) -> None:
        """Let it go on, or not even stop."""
        self.over = True


class Scripts:
    """What the scripts of all drills share."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._world = stage.world
        self._done = 0
        self._silenced: list[tuple[str, str]] = []
        """Who copies nothing from where."""

    # How scripts are played

    def of(self, script: Callable[[Fault, ExitStack], Script]) -> Deed:
        def deed(fault: Fault, host: Host) -> None:
            del host
            self._done += 1
            self._go_on(self._within(script, fault))

        return deed

    def _within(self, script: Callable[[Fault, ExitStack], Script], fault: Fault) -> Script:
        with ExitStack() as undone_at_end:
            yield from script(fault, undone_at_end)

    def _go_on(self, script: Script) -> None:
        step = next(script, None)
        if isinstance(step, float):
            self._stage.later(int(step * SECOND_US), partial(self._go_on, script))
        elif step is not None:
            self._look(script, step, PATIENCE_US)

    def _look(self, script: Script, condition: Callable[[], bool], left_us: int) -> None:
        if condition():
            self._go_on(script)
        elif left_us > 0:
            self._stage.later(LOOK_US, partial(self._look, script, condition, left_us - LOOK_US))
        else:
            self._stage.note("drill", "is over early")
            script.close()

    # What scripts look at

    def _state(self, partition: TopicPartition) -> LeaderAndIsr | None:
        path = znode_paths.partition_state(partition)
        held = self._world.zookeeper.read(path)
        if held is None:
            return None
        return znodes.decode_state(path, held.data, zk_version=ZkVersion(held.stat.version)).leader_and_isr

    def _isr(self, partition: TopicPartition) -> tuple[BrokerId, ...]:
        state = self._state(partition)
        return () if state is None else state.isr

    def _registration(self, broker: BrokerId) -> int:
        held = self._world.zookeeper.read(znode_paths.broker(broker))
        return 0 if held is None else held.stat.czxid

    def _full(self) -> list[Led]:
        """Partitions that are led, and have three replicas in sync."""
        led = {
            name
            for agent in self._world.agents.values()
            if agent.process.alive and agent.replicas is not None
            for name, partition in agent.replicas.partitions.items()
            if partition.is_leader
        }
        states = ((name, self._state(name)) for name in sorted(led))
        return [Led(name, state) for name, state in states if state is not None and len(state.isr) == 3]

    def _ruler(self) -> BrokerId | None:
        ruler = self._world.ruler()
        return None if ruler is None else ruler.broker

    def _known(self) -> Mapping[BrokerId, BrokerEpoch]:
        controller = self._ruling()
        return {} if controller is None else controller.view.brokers

    def _ruling(self) -> Controller | None:
        """The controller that has /controller, if it rules."""
        ruler = self._ruler()
        sim = None if ruler is None else self._world.controllers.get(ruler)
        if sim is None or not sim.process.alive or sim.controller is None or not sim.controller.view.ruling:
            return None
        return sim.controller

    def _replicas(self, partition: TopicPartition) -> tuple[BrokerId, ...]:
        """As they are assigned: whoever comes first is elected."""
        held = self._world.zookeeper.read(znode_paths.topic(partition.topic))
        assert held is not None
        stat = held.stat
        topic = znodes.decode_topic(
            held.path, held.data, topic=partition.topic, zk_version=ZkVersion(stat.version), czxid=stat.czxid
        )
        return topic.partitions[partition.partition].replicas

    def _held(self, broker: BrokerId, partition: TopicPartition) -> Partition | None:
        agent = self._world.agents[broker]
        if not agent.process.alive or agent.replicas is None:
            return None
        return agent.replicas.partitions.get(partition)

    def _end(self, broker: BrokerId, partition: TopicPartition) -> int:
        held = self._held(broker, partition)
        return -1 if held is None else held.log.log_end_offset

    def _high_watermark(self, broker: BrokerId, partition: TopicPartition) -> int:
        held = self._held(broker, partition)
        return -1 if held is None else held.log.high_watermark

    def _leads(self, broker: BrokerId, partition: TopicPartition) -> bool:
        state, held = self._state(partition), self._held(broker, partition)
        return state is not None and state.leader == broker and held is not None and held.is_leader

    # What scripts do

    def _expire(self, *brokers: BrokerId) -> None:
        """Agents lose their sessions: they leave every ISR, and register again."""
        for broker in brokers:
            self._world.zk_links[f"agent-{broker}"].expire()

    def _trouble_zookeeper(self, names: list[str], *, there: bool = False, back: bool = False) -> ExitStack:
        stack = ExitStack()
        stack.callback(zookeeper_faults.afflict(self._stage, names, zookeeper_faults.Trouble(there=there, back=back)))
        return stack

    def _trouble(self, source: BrokerId, target: BrokerId, trouble: Trouble) -> ExitStack:
        hosts = self._world.hosts
        stack = ExitStack()
        stack.callback(afflict(self._stage, [(hosts[source].name, hosts[target].name)], trouble))
        return stack

    def _apart(self, follower: BrokerId, leader: BrokerId) -> ExitStack:
        """Let one copy nothing from another; controllers are heard."""
        return self._silence(self._world.hosts[follower].name, leader)

    def _without_clients(self, leader: BrokerId) -> ExitStack:
        """Let no client reach a broker; others copy from it."""
        return self._silence(CLIENTS, leader)

    def _silence(self, source: str, leader: BrokerId) -> ExitStack:
        silenced = (source, f"{self._world.hosts[leader].name}:{KAFKA}")
        self._silenced.append(silenced)
        self._world.network.tap = self._is_silenced
        stack = ExitStack()
        stack.callback(self._silenced.remove, silenced)
        return stack

    def _is_silenced(self, caller: Process, source: str, address: str, request: object) -> bool:
        del caller, request
        if source not in {host.name for host in self._world.hosts.values()}:
            source = CLIENTS
        return (source, address) in self._silenced

    def _struck(self, broker: BrokerId, point: str, strike: Callable[[], None]) -> Callable[[], bool]:
        """Strike an agent when it is at a point next; whether it was."""
        done: list[bool] = []

        def struck(process: Process) -> None:
            del process
            strike()
            done.append(True)

        self._stage.points.arm([f"agent-{broker}"], [point], struck)
        return lambda: bool(done)

    def _stalled(
        self, process: str, point: str, undone: ExitStack, *, when: Callable[[], bool] = lambda: True
    ) -> Stall:
        """Have a thread stand still at a point where it is next while `when`; at the end of the script it goes on."""
        stall, scheduler = Stall(), self._world.scheduler
        undone.callback(stall.end)

        def stand(process: Process) -> None:
            if not stall.over and not when():
                self._stage.points.arm([process.name], [point], stand)
                return
            stall.reached = True
            while not stall.over and not self._stage.closed and scheduler.current is not None:
                scheduler.sleep_us(LOOK_US)

        self._stage.points.arm([process], [point], stand)
        return stall

    def _end_agent(self, broker: BrokerId, *, lossy: bool = False) -> ExitStack:
        """Kill an agent, and keep it down until this is closed. ZooKeeper takes note at once.

        Lossy, its machine loses all that was not synced.
        """
        host = self._world.hosts[broker]
        self._stage.die(host, lossy=lossy, wholly=lossy)
        self._expire(broker)
        down = ExitStack()
        down.callback(self._stage.keep_down(host))
        return down
