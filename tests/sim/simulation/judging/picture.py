"""What ZooKeeper holds, read whole: what everybody else is compared with when all has healed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from regency.model import znodes
from regency.model.errors import ZnodeMalformed
from regency.model.facts import LeaderIsrAndControllerEpoch, TopicAssignment
from regency.model.ids import BrokerEpoch, BrokerId, TopicPartition, ZkVersion
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Znode


class Committed(Protocol):
    """What is committed in ZooKeeper."""

    def read(self, path: str, /) -> Znode | None: ...

    def children(self, path: str, /) -> tuple[str, ...]:
        """Sorted names of a znode's children; none where there is no such znode."""
        ...


class Picture:
    """The cluster as ZooKeeper has it."""

    def __init__(self, committed: Committed) -> None:
        self.brokers: dict[BrokerId, BrokerEpoch] = {}
        self.markers = committed.children(paths.DELETE_TOPICS)
        """Topics whose deletion is asked for."""
        self.topics: dict[str, TopicAssignment] = {}
        """But those that are being deleted."""
        self.states: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}
        self.is_asked = committed.read(paths.REASSIGN_PARTITIONS) is not None
        """Whether reassignments are asked for in ZooKeeper."""
        self.notifications = committed.children(paths.ISR_CHANGE_NOTIFICATION)
        self.failed_directories = committed.children(paths.LOG_DIR_EVENT_NOTIFICATION)
        self.elections_asked = committed.read(paths.PREFERRED_ELECTION) is not None
        self.controller: BrokerId | None = None
        self.controller_session = 0
        read = committed.read
        for name in committed.children(paths.BROKER_IDS):
            registration = read(f"{paths.BROKER_IDS}/{name}")
            if registration is not None:
                self.brokers[BrokerId(int(name))] = BrokerEpoch(registration.stat.czxid)
        for name in committed.children(paths.TOPICS):
            topic = read(paths.topic(name))
            if topic is not None and read(paths.delete_topic(name)) is None:
                self._add_topic(committed, name, topic)
        controller = read(paths.CONTROLLER)
        if controller is not None:
            self.controller = znodes.decode_controller(paths.CONTROLLER, controller.data)
            self.controller_session = controller.stat.ephemeral_owner

        self._committed = committed

    def config(self, entity: str) -> Mapping[str, str]:
        """What stands in ZooKeeper for this entity, such as `topics/t`; malformed settings are none."""
        znode = self._committed.read(paths.config_of(entity))
        try:
            return {} if znode is None else znodes.decode_config(znode.path, znode.data)
        except ZnodeMalformed:
            return {}

    def _add_topic(self, committed: Committed, name: str, znode: Znode) -> None:
        version = ZkVersion(znode.stat.version)
        topic = znodes.decode_topic(znode.path, znode.data, topic=name, zk_version=version, czxid=znode.stat.czxid)
        self.topics[name] = topic
        for number in sorted(topic.partitions):
            partition = TopicPartition(name, number)
            path = paths.partition_state(partition)
            state = committed.read(path)
            if state is not None:
                version = ZkVersion(state.stat.version)
                self.states[partition] = znodes.decode_state(path, state.data, zk_version=version)

    def partitions(self) -> list[tuple[TopicPartition, tuple[BrokerId, ...]]]:
        return [
            (TopicPartition(name, number), topic.partitions[number].replicas)
            for name, topic in self.topics.items()
            for number in sorted(topic.partitions)
        ]
