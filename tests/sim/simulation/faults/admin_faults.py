"""What administrators and other tools do in ZooKeeper, at bad moments."""

from __future__ import annotations

import random
from functools import partial
from typing import Final

from regency.controller.reassignment.requests import AlterReassignments
from regency.kafka.groups.placement import OFFSETS_TOPIC
from regency.model import znodes
from regency.model.facts import ReplicaAssignment, TopicAssignment
from regency.model.ids import BrokerId, TopicId, TopicPartition, ZkVersion
from regency.model.znodes import paths
from simulation.admin import Admin, Client
from simulation.cluster.controller import Asked
from simulation.deletions import Deletion
from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.faults.stage import Deed, Stage
from simulation.shape import OFFSETS_MIN_INSYNC, TopicShape
from simulation.world import Host

Settings = tuple[tuple[str, tuple[str, ...]], ...]
"""Keys, and values to choose from."""

RESTART_US: Final = SECOND_US // 5
LOOK_US: Final = SECOND_US // 2
LATEST_LOOKS: Final = 20
"""Longer than a request is under way."""

TOPIC_SETTINGS: Final[Settings] = (
    ("segment.bytes", ("300", "1000", "100000")),
    ("retention.bytes", ("900", "3000", "-1")),
    ("flush.messages", ("1", "7", "100000")),
    ("flush.ms", ("500", "5000")),
)
UNCLEAN: Final = ("unclean.leader.election.enable", ("true", "false", "false"))
"""Of topics that allow it from the start."""
BROKER_SETTINGS: Final[Settings] = (
    ("log.segment.bytes", ("400", "50000")),
    ("log.retention.bytes", ("1500", "-1")),
    ("log.flush.interval.messages", ("1", "50")),
)


def deeds(stage: Stage) -> dict[Kind, Deed]:
    faults = _AdminFaults(stage)
    return {
        Kind.DELETE_CONTROLLER: faults.delete_controller,
        Kind.RESIGNATIONS: faults.resignations,
        Kind.RECREATE_TOPIC: faults.recreate_topic,
        Kind.DELETE_TOPIC: faults.delete_topic,
        Kind.DELETE_NEW_TOPIC: faults.delete_new_topic,
        Kind.ADD_PARTITION: faults.add_partition,
        Kind.CREATE_TOPIC: faults.create_topic,
        Kind.REASSIGN: faults.reassign,
        Kind.REASSIGN_AGAIN: faults.reassign_again,
        Kind.CHANGE_CONFIG: faults.change_config,
    }


class _AdminFaults:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._world = stage.world
        self._zookeeper = stage.world.zookeeper
        self._recreated: set[str] = set()

    # Who rules

    def delete_controller(self, fault: Fault, host: Host) -> None:
        del fault, host
        self._zookeeper.delete_as_admin(paths.CONTROLLER)

    def resignations(self, fault: Fault, host: Host) -> None:
        """The same, before the one who has won is ready."""
        del host
        chance = fault.chance()
        for _ in range(chance.randint(3, 8)):
            self._stage.later(
                int(chance.random() * 2 * SECOND_US), partial(self._zookeeper.delete_as_admin, paths.CONTROLLER)
            )

    # Topics

    def recreate_topic(self, fault: Fault, host: Host) -> None:
        """Somebody removes a topic's znodes, and writes new ones when no broker has it any more.

        Nobody asked brokers to delete anything, so they hold on to it until they are restarted; and a leader of the
        topic before could change the ISR of the one after, where their znodes happen to be at one version. By chance
        all brokers are stopped for it, and find a topic of another id when they start. At most once for every topic.
        """
        del host
        chance = fault.chance()
        name = chance.choice(self._world.shape.topics).name
        topic = self._topic(name)
        if topic is None or topic.topic_id is None or name in self._recreated:
            return
        self._recreated.add(name)
        down = list(self._world.hosts.values()) if chance.random() < 0.5 else []
        for each in down:
            self._stage.die(each, lossy=False)
            self._stage.later(int((0.2 + chance.random()) * SECOND_US), self._stage.keep_down(each))
        self._stage.told.recreating(name)
        self._stage.note("admin", "topic %s is removed", name)
        self._remove(paths.topic(name))
        factor = len(next(iter(topic.partitions.values())).replicas)
        anew = {number: self._replicas(factor, chance) for number in topic.partitions}
        self._write_when_forgotten(TopicAssignment(name, anew, None, ZkVersion(0), 0), topic.topic_id)

    def _write_when_forgotten(self, topic: TopicAssignment, former: TopicId) -> None:
        """Restart whoever still has the topic before, and look again; also when everything has been healed."""
        if self._restarted(topic.topic):
            self._world.scheduler.at(LOOK_US, partial(self._write_when_forgotten, topic, former))
        else:
            self._write_topic(topic)
            self._restart_late(topic.topic, former, LATEST_LOOKS)

    def _restart_late(self, name: str, former: TopicId, looks: int) -> None:
        """Restart who gets what was on its way when nobody had the topic before: nothing else would tell it."""
        self._restarted(name, former)
        if looks:
            self._world.scheduler.at(LOOK_US, partial(self._restart_late, name, former, looks - 1))

    def _restarted(self, name: str, topic_id: TopicId | None = None) -> bool:
        """Restart whoever holds the topic; whether anybody does."""
        holders = [each for each in self._world.hosts.values() if self._world.holds(each, name, topic_id)]
        for holder in holders:
            process = holder.agent_process
            if process is not None and not process.paused:
                self._stage.note(holder.name, "is restarted: it holds %s, which is gone", name)
                self._stage.die(holder, lossy=False)
                start = self._stage.keep_down(holder)
                if self._stage.closed:
                    start = partial(self._world.start_agent, holder.broker)
                self._world.scheduler.at(RESTART_US, start)
        return bool(holders)

    def delete_topic(self, fault: Fault, host: Host) -> None:
        """A client or another tool deletes a topic; as soon as it is gone, a client creates it again.

        At most once for every topic. By chance a partition is added to it while it goes.
        """
        chance = fault.chance()
        shape = chance.choice(self._world.shape.topics)
        topic = self._topic(shape.name)
        if topic is None or topic.topic_id is None or shape.name in self._recreated:
            return
        self._recreated.add(shape.name)
        self._stage.told.recreating(shape.name)
        self._stage.note("admin", "topic %s is deleted", shape.name)
        anew = shape._replace(partitions=len(topic.partitions))
        Deletion(self._world, shape.name, topic.topic_id, by_marker=chance.random() < 0.5, anew=anew)
        if chance.random() < 0.3:
            self._stage.later(int(chance.random() * SECOND_US), partial(self.add_partition, fault, host))

    def delete_new_topic(self, fault: Fault, host: Host) -> None:
        """A client creates a topic, and deletes it soon; by chance another tool asks for what is not there."""
        del host
        chance = fault.chance()
        if chance.random() < 0.3:
            self._zookeeper.write_as_admin(paths.delete_topic(f"nobody-{fault.at_us}"), b"")
        shape = TopicShape(f"short-{fault.at_us}", chance.randint(1, 4), chance.choice((1, 2, 3)), 1)
        anew = shape if chance.random() < 0.5 else None
        by_marker = chance.random() < 0.5

        def delete() -> None:
            topic_id = self._world.topic_id(shape.name)
            if topic_id is not None:
                Deletion(self._world, shape.name, topic_id, by_marker=by_marker, anew=anew)

        Admin(self._world, (shape,), lambda: self._stage.later(int(chance.random() * SECOND_US), delete))

    def add_partition(self, fault: Fault, host: Host) -> None:
        """Somebody writes one more partition into a topic's znode."""
        del host
        chance = fault.chance()
        topic = self._topic(chance.choice(self._world.shape.topics).name)
        if topic is None:
            return
        factor = len(next(iter(topic.partitions.values())).replicas)
        partitions = {**topic.partitions, max(topic.partitions) + 1: self._replicas(factor, chance)}
        self._write_topic(TopicAssignment(topic.topic, partitions, topic.topic_id, topic.zk_version, topic.czxid))

    def create_topic(self, fault: Fault, host: Host) -> None:
        """A client asks for a topic that nobody uses; by chance somebody removes it for good."""
        del host
        chance = fault.chance()
        shape = TopicShape(f"late-{fault.at_us}", chance.randint(1, 3), chance.choice((2, 3)), 1)
        removed = chance.random() < 0.5
        delay_us = int((1 + 2 * chance.random()) * SECOND_US)

        def created() -> None:
            if removed:  # not before: the client would ask for it once more
                self._stage.later(delay_us, partial(self._remove_while_nobody_rules, shape.name))

        Admin(self._world, (shape,), created)

    def _remove_while_nobody_rules(self, name: str) -> None:
        """Whoever rules next has never heard of the topic; everybody else has."""
        if self._topic(name) is not None:
            self._stage.note("admin", "/controller and topic %s are removed", name)
            self._stage.told.removing(name)
            self._zookeeper.delete_as_admin(paths.CONTROLLER)
            self._remove(paths.topic(name))

    # Reassignments

    def reassign(self, fault: Fault, host: Host) -> None:
        """A client or another tool gives partitions other replicas."""
        del host
        self._reassign(fault.chance())

    def reassign_again(self, fault: Fault, host: Host) -> None:
        """The same, and before that is done: something else, or as it was before; up to three times."""
        del host
        chance = fault.chance()
        delay_us = 0
        self._reassign(chance)
        for _ in range(chance.randint(1, 3)):
            delay_us += int(chance.choice((0.05, 0.5, 1.5)) * chance.random() * SECOND_US)
            self._stage.later(delay_us, partial(self._reassign, random.Random(chance.random()), again=True))

    def _reassign(self, chance: random.Random, *, again: bool = False) -> None:
        known = [self._topic(name) for name in self._zookeeper.children(paths.TOPICS)]
        partitions = [
            (TopicPartition(topic.topic, number), assignment)
            for topic in known
            if topic is not None
            for number, assignment in sorted(topic.partitions.items())
        ]
        moving = [each for each in partitions if each[1].is_reassigning]
        candidates = moving if again and moving and chance.random() < 0.8 else partitions
        chosen = chance.sample(candidates, chance.randint(1, len(candidates))) if candidates else []
        cancel = chance.random() < (0.4 if again else 0.1)
        moves = {
            partition: None if cancel else self._target(partition.topic, assignment, chance)
            for partition, assignment in chosen
        }
        if moves and (cancel or chance.random() < 0.5):
            self._stage.note("admin", "asks to reassign %s", moves)
            asked = tuple(moves.items())
            Client(
                self._world,
                lambda: Asked(lambda: AlterReassignments(asked)),
                lambda answer: [each.error.name for each in answer],
            )
        elif moves:
            data = znodes.encode_asked_moves((partition, to) for partition, to in moves.items() if to is not None)
            self._stage.note("admin", "writes %s", data)
            self._zookeeper.write_as_admin(paths.REASSIGN_PARTITIONS, data)

    def _target(self, topic: str, now: ReplicaAssignment, chance: random.Random) -> tuple[BrokerId, ...]:
        """As many replicas as now, one more or one fewer, but enough for min.insync.replicas."""
        brokers = list(self._world.hosts)
        least = next((each.min_insync for each in self._world.shape.topics if each.name == topic), 1)
        least = OFFSETS_MIN_INSYNC if topic == OFFSETS_TOPIC else least
        factor = len(now.target) + chance.choice((0, 0, 0, -1, 1))
        return tuple(chance.sample(brokers, max(least, 1, min(factor, len(brokers)))))

    # Settings

    def change_config(self, fault: Fault, host: Host) -> None:
        """Settings of a topic, of a broker or of all brokers change, and all are told."""
        chance = fault.chance()
        choice = chance.random()
        if choice < 0.7:
            name = chance.choice(self._world.shape.topics).name
            path, entity, settings = paths.topic_config(name), f"topics/{name}", TOPIC_SETTINGS
            if any(topic.name == name and topic.unclean for topic in self._world.shape.topics):
                settings = (*TOPIC_SETTINGS, UNCLEAN, UNCLEAN)
        else:
            whom = str(host.broker) if choice < 0.9 else "<default>"
            path, entity, settings = f"{paths.CONFIG_BROKERS}/{whom}", f"brokers/{whom}", BROKER_SETTINGS
        before = self._zookeeper.read(path)
        key, values = chance.choice(settings)
        config = {} if before is None else znodes.decode_config(path, before.data)
        config[key] = chance.choice(values)
        data = znodes.encode_config(config, previous=None if before is None else before.data)
        if self._zookeeper.write_as_admin(path, data):
            self._stage.note(host.name, "%s: %s is %s", entity, key, config[key])
            self._zookeeper.write_as_admin(paths.config_change_prefix(), znodes.encode_config_change(entity), new=True)

    # How

    def _topic(self, name: str) -> TopicAssignment | None:
        path = paths.topic(name)
        znode = self._zookeeper.read(path)
        if znode is None:
            return None
        version = ZkVersion(znode.stat.version)
        topic = znodes.decode_topic(path, znode.data, topic=name, zk_version=version, czxid=znode.stat.czxid)
        return topic if topic.partitions else None

    def _write_topic(self, topic: TopicAssignment) -> None:
        path = paths.topic(topic.topic)
        before = self._zookeeper.read(path)
        previous = None if before is None else before.data
        self._stage.note("admin", "topic %s is written", topic.topic)
        self._zookeeper.write_as_admin(path, znodes.encode_topic(topic, previous=previous))

    def _remove(self, path: str) -> None:
        for name in self._zookeeper.children(path):
            self._remove(f"{path}/{name}")
        self._zookeeper.delete_as_admin(path)

    def _replicas(self, factor: int, chance: random.Random) -> ReplicaAssignment:
        brokers = list(self._world.hosts)
        return ReplicaAssignment(tuple(chance.sample(brokers, min(factor, len(brokers)))))
