"""Drills of replication: chains of events that a known hole of Kafka needs, done as the cluster's state allows.

Each is a script that waits for what it needs next. Where that does not come in time, the drill is over.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from regency.broker_agent.replication.partition import Partition
from regency.model import znode_paths, znodes
from regency.model.facts import LeaderAndIsr
from regency.model.ids import BrokerId, TopicPartition, ZkVersion
from simulation.cluster.addresses import KAFKA
from simulation.faults import zookeeper_faults
from simulation.faults.network_faults import Trouble, afflict
from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.faults.stage import Deed, Stage
from simulation.kernel.scheduler import Process
from simulation.world import Host

Step = float | Callable[[], bool]
"""What a script waits for: seconds, or until something is so."""

Script = Generator[Step, None, None]

LOOK_US = 5_000
PATIENCE_US = 5 * SECOND_US
"""How long a script waits for what it needs."""


class Led(NamedTuple):
    """A partition of three replicas that are all in sync."""

    partition: TopicPartition
    state: LeaderAndIsr

    @property
    def followers(self) -> list[BrokerId]:
        """All replicas but the leader."""
        return [each for each in self.state.isr if each != self.state.leader]


def deeds(stage: Stage) -> dict[Kind, Deed]:
    """The faults of this file."""
    drills = _Drills(stage)
    return {
        Kind.DRILL_ISR_WRITES: drills.of(drills.isr_writes),
        Kind.DRILL_LEAVING: drills.of(drills.leaving),
        Kind.DRILL_TRUNCATIONS: drills.of(drills.truncations),
    }


class _Drills:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._world = stage.world
        self._done = 0
        self._silenced: list[tuple[str, str]] = []
        """Who copies nothing from where."""

    # How scripts are played

    def of(self, script: Callable[[Fault, ExitStack], Script]) -> Deed:
        """A fault that plays a script."""

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
        """Whether it was elected, and knows."""
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
        """One direction between two hosts."""
        hosts = self._world.hosts
        stack = ExitStack()
        stack.callback(afflict(self._stage, [(hosts[source].name, hosts[target].name)], trouble))
        return stack

    def _apart(self, follower: BrokerId, leader: BrokerId) -> ExitStack:
        """Let one copy nothing from another; controllers are heard."""
        hosts = self._world.hosts
        silenced = (hosts[follower].name, f"{hosts[leader].name}:{KAFKA}")
        self._silenced.append(silenced)
        self._world.network.tap = self._is_silenced
        stack = ExitStack()
        stack.callback(self._silenced.remove, silenced)
        return stack

    def _is_silenced(self, caller: Process, source: str, address: str, request: object) -> bool:
        del caller, request
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

    # Scripts

    def isr_writes(self, fault: Fault, undone: ExitStack) -> Script:
        """A leader's ISR change is on its way to ZooKeeper, or the reply is, when another member of the ISR restarts.

        Either the controller knows at once, and tells the leader before ZooKeeper's reply does; or it knows too late.
        """
        chance = fault.chance()
        knows = self._done % 2 == 1
        yield lambda: bool(self._full())
        led = chance.choice(self._full())
        leader = led.state.leader
        joins, restarts = chance.sample(led.followers, 2)
        agent, controllers = f"agent-{leader}", [f"controller-{each}" for each in self._world.hosts]

        way: list[ExitStack] = []

        def strike() -> None:
            if not knows:
                undone.enter_context(self._trouble_zookeeper(controllers, there=True, back=True))
            way.append(undone.enter_context(self._trouble_zookeeper([agent], there=not knows, back=knows)))

        self._expire(joins)
        yield lambda: joins not in self._isr(led.partition)
        yield self._struck(leader, "agent.isr.after_guards_read", strike)
        before = self._registration(restarts)
        yield 0.005  # in which the change arrives, where it can
        self._expire(restarts)
        yield lambda: self._registration(restarts) not in (0, before)
        yield 0.1 + 0.4 * chance.random() if knows else 0.01
        way[0].close()
        yield 0.4

    def leaving(self, fault: Fault, undone: ExitStack) -> Script:
        """A follower that is about to join the ISR stops; its last fetch arrives when everybody knows that it does."""
        chance = fault.chance()
        yield lambda: bool(self._full())
        full = [led for led in self._full() if led.state.leader != self._ruler()]
        if not full:
            self._world.zookeeper.delete_as_admin(znode_paths.CONTROLLER)
            yield 0.5
            yield lambda: any(led.state.leader != self._ruler() for led in self._full())
            full = [led for led in self._full() if led.state.leader != self._ruler()]
        led, ruler = chance.choice(full), self._ruler()
        leader, leaves = led.state.leader, next(each for each in led.followers if each != ruler)
        host = self._world.hosts[leaves]
        before = self._registration(leaves)

        slow = Trouble(extra_us=int((0.1 + 0.4 * chance.random()) * SECOND_US))
        undone.enter_context(self._trouble(leaves, leader, slow))
        self._expire(leaves)
        yield lambda: self._registration(leaves) not in (0, before) and leaves not in self._isr(led.partition)
        yield self._struck(leaves, "fetcher.records.before_taken", lambda: None)
        yield 0.01
        if ruler is not None:
            undone.enter_context(self._trouble(ruler, leaves, Trouble(blocked=True)))
        self._world.stop_agent(leaves, lambda: self._stage.start_again(host, SECOND_US // 4))
        yield 1.5

    def truncations(self, fault: Fault, undone: ExitStack) -> Script:
        """A follower has the end of one epoch and a later one, and its leader neither, but an epoch in between.

        It has been flushed meanwhile; and it loses power when it has copied what its leader has instead.
        """
        chance = fault.chance()
        yield lambda: bool(self._full())
        partition = chance.choice(self._full()).partition
        first, second, third = self._replicas(partition)
        if not self._leads(third, partition):
            self._expire(first, second)
            yield lambda: self._leads(third, partition)
            yield lambda: len(self._isr(partition)) == 3

        # The third leads, and only the second copies.
        apart = undone.enter_context(self._apart(first, third))
        yield lambda: self._end(second, partition) > self._end(first, partition)
        deaf = undone.enter_context(self._apart(second, first))
        agreed = self._end(first, partition)
        self._expire(third)
        yield lambda: self._leads(first, partition)
        apart.close()
        # The first leads, and only the third copies.
        yield lambda: third in self._isr(partition) and self._end(third, partition) > agreed
        apart = undone.enter_context(self._apart(third, second))
        apart.enter_context(self._apart(first, second))
        self._expire(first)
        yield lambda: self._leads(second, partition)
        deaf.close()
        # The second leads, and nobody copies: it stops in order, and the third leads.
        begun = self._end(second, partition)
        yield lambda: self._end(second, partition) > begun
        host = self._world.hosts[second]
        start = ExitStack()
        start.callback(self._stage.keep_down(host))
        undone.enter_context(start)
        flushed = self._end(second, partition)
        gone: list[bool] = []
        self._world.stop_agent(second, lambda: gone.append(True))
        yield lambda: bool(gone)
        self._world.zk_links[f"controller-{second}"].expire()
        apart.close()
        yield lambda: self._leads(third, partition)
        yield lambda: self._high_watermark(third, partition) > agreed
        start.close()
        yield lambda: self._end(second, partition) >= max(flushed + 1, self._end(third, partition))
        yield 0.2 * chance.random()
        self._stage.die(host, lossy=True)
        self._stage.later(SECOND_US // 4, self._stage.keep_down(host))
