"""Drills of reassignments: what has to be done by who is dead, and requests that must not be obeyed at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from regency.model import znodes
from regency.model.facts import LeaderAndIsr, ReplicaAssignment
from regency.model.ids import BrokerId, TopicPartition, ZkVersion
from regency.model.znodes import paths
from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.faults.stage import Deed, Stage
from simulation.world import Host

LOOK_US: Final = 10_000
"""How often a drill looks for what it waits for."""

PATIENCE_US: Final = 5 * SECOND_US
"""Longer than a session of a dead broker."""


def deeds(stage: Stage) -> dict[Kind, Deed]:
    """The drills of this file."""
    return {Kind.DRILL_REASSIGNMENTS: _ReassignmentDrills(stage).reassignments}


class _ReassignmentDrills:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._world = stage.world
        self._zookeeper = stage.world.zookeeper

    def reassignments(self, fault: Fault, host: Host) -> None:
        """The one or the other; the second needs a broker that holds no replica."""
        chance = fault.chance()
        partitions = [TopicPartition(topic.name, 0) for topic in self._world.shape.topics]
        found = {each: held for each in partitions if (held := self._assignment(each)) is not None}
        roomy = [each for each, held in found.items() if 1 < len(held.replicas) < len(self._world.hosts)]
        if roomy and chance.random() < 0.6:
            partition = chance.choice(roomy)
            spare = [each for each in self._world.hosts if each not in found[partition].replicas]
            self._only_one_in_sync(partition, found[partition], spare)
        elif found:
            partition = chance.choice(list(found))
            self._former_is_dead(partition, found[partition], host, chance)

    def _former_is_dead(
        self, partition: TopicPartition, assignment: ReplicaAssignment, host: Host, chance: random.Random
    ) -> None:
        """A partition moves off a dead broker, who rules changes, and the broker returns with its log."""
        ruler = self._world.ruler() or host
        able = [each for each in assignment.replicas if each != ruler.broker]
        if not able or len(self._world.hosts) < 3:
            return
        gone = self._world.hosts[chance.choice(able)]
        target = tuple(each for each in self._world.hosts if each != gone.broker)[
            : max(2, len(assignment.replicas) - 1)
        ]
        self._stage.note(gone.name, "is dead while %s moves to %s", partition, target)
        self._stage.die(gone, lossy=False)
        self._stage.later(6 * SECOND_US, self._stage.keep_down(gone))
        self._stage.later(SECOND_US // 2, lambda: self._ask(partition, target))
        self._stage.later(7 * SECOND_US // 2, lambda: self._zookeeper.delete_as_admin(paths.CONTROLLER))

    def _only_one_in_sync(
        self, partition: TopicPartition, assignment: ReplicaAssignment, spare: list[BrokerId]
    ) -> None:
        """A partition moves to two brokers, of which one is dead; when the other is in sync, all others die too.

        Then the partition shall go back to these.
        """
        second = spare[1] if len(spare) > 1 else assignment.replicas[-1]
        added, dead = self._world.hosts[spare[0]], self._world.hosts[second]
        before = [self._world.hosts[each] for each in assignment.replicas if each != second]
        self._stage.note(added.name, "is to be the only one in sync in %s", partition)
        self._stage.die(dead, lossy=False)
        self._stage.later(7 * SECOND_US, self._stage.keep_down(dead))
        self._ask(partition, (added.broker, dead.broker))

        def is_in() -> bool:
            state = self._state(partition)
            return state is not None and added.broker in state.isr

        def strike() -> None:
            for each in before:
                self._stage.die(each, lossy=False)
                self._stage.later(6 * SECOND_US, self._stage.keep_down(each))
            self._wait(leads, lambda: self._ask(partition, tuple(each.broker for each in before)), PATIENCE_US)

        def leads() -> bool:
            state = self._state(partition)
            return state is not None and state.isr == (added.broker,)

        self._wait(is_in, strike, PATIENCE_US)

    def _ask(self, partition: TopicPartition, target: tuple[BrokerId, ...]) -> None:
        data = znodes.encode_asked_moves([(partition, target)])
        self._zookeeper.write_as_admin(paths.REASSIGN_PARTITIONS, data)

    def _wait(self, until: Callable[[], bool], then: Callable[[], None], left_us: int) -> None:
        if until():
            then()
        elif left_us > 0:
            self._stage.later(LOOK_US, lambda: self._wait(until, then, left_us - LOOK_US))

    def _assignment(self, partition: TopicPartition) -> ReplicaAssignment | None:
        path = paths.topic(partition.topic)
        znode = self._zookeeper.read(path)
        if znode is None:
            return None
        version = ZkVersion(znode.stat.version)
        topic = znodes.decode_topic(path, znode.data, topic=partition.topic, zk_version=version, czxid=znode.stat.czxid)
        return topic.partitions.get(partition.partition)

    def _state(self, partition: TopicPartition) -> LeaderAndIsr | None:
        path = paths.partition_state(partition)
        znode = self._zookeeper.read(path)
        if znode is None:
            return None
        return znodes.decode_state(path, znode.data, zk_version=ZkVersion(znode.stat.version)).leader_and_isr
