"""Drills of the controller and of its conversation with agents: chains of events that chance seldom arranges."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from regency.model import znodes
from regency.model.facts import LeaderAndIsr
from regency.model.ids import BrokerEpoch, BrokerId, TopicPartition, ZkVersion
from regency.model.znodes import paths
from regency.protos import control_pb2 as pb
from simulation.cluster.channels import CONTROL, CONTROLLER, ControlAsked
from simulation.cluster.controller import ShutdownAsked
from simulation.faults import admin_faults
from simulation.faults.network_faults import Trouble, afflict, lose_first
from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.faults.stage import Deed, Stage
from simulation.kernel.scheduler import Process
from simulation.world import Host

LOOK_US = 2_000
"""How often a drill looks for what it waits for."""

DEPOSED = 2
"""In so many plays who rules is deposed while copies of what it asked are under way. Not in later ones: the numbers of
its requests would be lower than those of the one before were, and what begins at 1 once more would soon be past them.
"""

UNREGISTERED_US = SECOND_US // 4
"""How long a new process takes to register in place of the one before, whose session lives on meanwhile."""

UNTOLD_US = 13 * SECOND_US // 2
"""How long after a broker asked to leave a partition is added that another is not told of."""

OTHER_CONTROL = 9095
"""Where an agent serves control requests that has changed its endpoints."""


def deeds(stage: Stage) -> dict[Kind, Deed]:
    """The drills of this file."""
    drills = _ControlDrills(stage)
    return {
        Kind.DRILL_COPIES: drills.copies,
        Kind.DRILL_LATE_LEAVE: drills.late_leave,
        Kind.DRILL_LEAVER: drills.leaver,
    }


class _ControlDrills:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._world = stage.world
        self._network = stage.world.network
        self._copied = 0

    # Requests that arrive again, or late

    def copies(self, fault: Fault, host: Host) -> None:
        """Copies of what a broker is asked arrive again later; in the end it changes where it is to be asked.

        At first another rules when some arrive.
        """
        stage, chance = self._stage, fault.chance()
        strangers = [each for each in self._world.hosts.values() if each not in (host, self._world.ruler())]
        other = chance.choice(strangers)

        def tap(caller: Process, source: str, address: str, request: Any) -> bool:
            if isinstance(request, ControlAsked) and address.startswith(f"{host.name}:") and chance.random() < 0.5:
                late_us = int(2 * chance.random() * SECOND_US)
                stage.later(late_us, partial(self._network.deliver, caller, source, address, request))
            return False

        self._network.tap = tap
        for at_s in range(0, 6, 2):
            stage.later(at_s * SECOND_US, partial(self._bounce, other, chance.random()))
        self._copied += 1
        if self._copied <= DEPOSED:
            stage.later(9 * SECOND_US // 2, partial(self._world.zookeeper.delete_as_admin, paths.CONTROLLER))
        stage.later(7 * SECOND_US, partial(self._move, host))

    def _move(self, host: Host) -> None:
        """The broker registers another endpoint for control requests; it serves both."""
        agent, path = host.agent, paths.broker(host.broker)
        znode = self._world.zookeeper.read(path)
        if agent is None or not agent.process.alive or agent.service is None or znode is None:
            return
        broker = znodes.decode_broker(path, znode.data, id=host.broker, epoch=BrokerEpoch(znode.stat.czxid))
        endpoints = tuple(
            msgspec.structs.replace(each, port=OTHER_CONTROL) if each.port == CONTROL else each
            for each in broker.endpoints
        )
        agent.serve_control_at(OTHER_CONTROL)
        self._stage.note(host.name, "registers other endpoints")
        moved = msgspec.structs.replace(broker, endpoints=endpoints)
        self._world.zookeeper.write_as_admin(path, znodes.encode_broker(moved, timestamp_ms=0))

    def late_leave(self, fault: Fault, host: Host) -> None:
        """A broker loses power while it asks to leave, which arrives when it has registered again.

        Before it has, nobody knows that it died, and the new process gets what the one before is asked to do. When all
        that is over, a partition is added that another broker is not told of at first, and nothing newer follows.
        """
        stage, chance = self._stage, fault.chance()
        other = chance.choice([each for each in self._world.hosts.values() if each is not host])
        asked: list[tuple[Process, str, ShutdownAsked]] = []

        def deliver() -> None:
            ruler = self._world.ruler()
            if asked and ruler is not None:
                caller, source, request = asked[0]
                self._network.deliver(caller, source, f"{ruler.name}:{CONTROLLER}", request)

        def is_back() -> bool:
            znode = self._world.zookeeper.read(paths.broker(host.broker))
            return znode is not None and znode.stat.czxid > asked[0][2].epoch

        def arrive() -> None:
            for after_s in (0.3, 1, 2, 3.5):
                stage.later(int(after_s * SECOND_US), deliver)

        def stand(process: Process) -> None:
            del process
            self._world.zk_links[f"agent-{other.broker}"].expire()  # of which all are told that are taken for live
            self._world.scheduler.sleep_us(UNREGISTERED_US)

        def tap(caller: Process, source: str, address: str, request: Any) -> bool:
            del address
            if not isinstance(request, ShutdownAsked) or request.broker != host.broker or source != host.name:
                return False
            if not asked:
                asked.append((caller, source, request))
                stage.later(SECOND_US // 10, partial(stage.die, host, lossy=True))
                stage.later(int((0.2 + 2 * chance.random()) * SECOND_US), stage.keep_down(host))
                stage.points.arm([f"agent-{host.broker}"], ["agent.registration.before_create"], stand)
                self._wait(is_back, arrive)
            return True

        self._network.tap = tap
        self._world.stop_agent(host.broker, lambda: stage.start_again(host, SECOND_US // 4))
        add = admin_faults.deeds(stage)[Kind.ADD_PARTITION]
        stage.later(UNTOLD_US, lambda: lose_first(self._network, other, pb.LeaderAndIsrRequest))
        stage.later(UNTOLD_US, partial(add, fault, other))

    # Somebody leaves

    def leaver(self, fault: Fault, host: Host) -> None:
        """A leader takes in who has just returned, and dies before it tells; who returned leaves at that moment.

        The controller hears of the ISR only when it elects for the dead leader, and then the one who leaves is in it.
        """
        stage, chance = self._stage, fault.chance()
        found = self._takes_in(host)
        if found is None:  # who rules leads everything: let another rule
            self._world.zookeeper.delete_as_admin(paths.CONTROLLER)
            if fault.detail < 1:
                stage.later(SECOND_US // 2, lambda: self.leaver(fault._replace(detail=fault.detail + 0.25), host))
            return
        partition, leader, leaver, ruler = found
        stage.note(leader.name, "leads %s, and dies when it has taken in %d, which leaves", partition, leaver.broker)

        def is_in() -> bool:
            state = self._state(partition)
            return state is not None and state.leader == leader.broker and leaver.broker in state.isr

        def strike() -> None:
            self._world.stop_agent(leaver.broker, lambda: stage.start_again(leaver, SECOND_US // 4))
            pairs = [(ruler.name, leaver.name)]
            stage.later(22 * SECOND_US // 5, afflict(stage, pairs, Trouble(blocked=True)))
            stage.die(leader, lossy=False)
            stage.later(int((3.5 + chance.random()) * SECOND_US), stage.keep_down(leader))

        stage.die(leaver, lossy=False)
        stage.later(SECOND_US // 10, stage.keep_down(leaver))
        self._wait(lambda: not is_in(), lambda: self._wait(is_in, strike))

    def _takes_in(self, host: Host) -> tuple[TopicPartition, Host, Host, Host] | None:
        """A partition, its leader, and who would be elected after it of those who do not rule; and who rules."""
        ruler = self._world.ruler() or host
        for topic in self._world.shape.topics:
            for number in range(topic.partitions):
                partition = TopicPartition(topic.name, number)
                state = self._state(partition)
                if state is None or state.leader not in self._world.hosts or state.leader == ruler.broker:
                    continue
                replicas = self._replicas(partition)
                others = [each for each in replicas if each != state.leader]
                if others and others[0] != ruler.broker:
                    return partition, self._world.hosts[state.leader], self._world.hosts[others[0]], ruler
        return None

    # How

    def _bounce(self, host: Host, for_s: float) -> None:
        self._stage.die(host, lossy=False)
        self._stage.later(int(for_s * SECOND_US), self._stage.keep_down(host))

    def _state(self, partition: TopicPartition) -> LeaderAndIsr | None:
        path = paths.partition_state(partition)
        znode = self._world.zookeeper.read(path)
        if znode is None:
            return None
        return znodes.decode_state(path, znode.data, zk_version=ZkVersion(znode.stat.version)).leader_and_isr

    def _replicas(self, partition: TopicPartition) -> tuple[BrokerId, ...]:
        path = paths.topic(partition.topic)
        znode = self._world.zookeeper.read(path)
        if znode is None:
            return ()
        version = ZkVersion(znode.stat.version)
        topic = znodes.decode_topic(path, znode.data, topic=partition.topic, zk_version=version, czxid=znode.stat.czxid)
        return topic.partitions[partition.partition].replicas

    def _wait(self, condition: Callable[[], bool], then: Callable[[], None]) -> None:
        """Do something as soon as a condition holds."""
        if condition():
            then()
        else:
            self._stage.later(LOOK_US, partial(self._wait, condition, then))
