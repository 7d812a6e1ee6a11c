"""The cluster as an agent knows it from UpdateMetadata: immutable snapshots, swapped whole, read without locks."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from regency.model.facts import Endpoint
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, TopicId, TopicPartition, ZkVersion


class PartitionMetadata(msgspec.Struct, frozen=True, gc=False):
    """Where a partition is and who leads it. `leader` is -1 when there is none."""

    partition: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    zk_version: ZkVersion
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...] = ()


class TopicMetadata(msgspec.Struct, frozen=True):
    """A topic and its partitions by number (missing ones have no leader yet)."""

    name: str
    topic_id: TopicId
    partitions: Mapping[int, PartitionMetadata]


class BrokerNode(msgspec.Struct, frozen=True):
    """A live broker. `endpoints` holds Kafka's listeners and the control ones."""

    id: BrokerId
    epoch: BrokerEpoch
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    shutting_down: bool = False

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of the listener of that name, if the broker has one."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


class MetadataSnapshot(msgspec.Struct, frozen=True):
    """One consistent view. `version` grows with every change, so that what is encoded from it can be cached."""

    version: int
    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    brokers: Mapping[BrokerId, BrokerNode]
    topics: Mapping[str, TopicMetadata]
    names: Mapping[TopicId, str]

    def partition(self, topic_partition: TopicPartition) -> PartitionMetadata | None:
        """The partition's metadata, or None where it is not known."""
        topic = self.topics.get(topic_partition.topic)
        return topic.partitions.get(topic_partition.partition) if topic else None


EMPTY = MetadataSnapshot(0, BrokerId(-1), ControllerEpoch(0), {}, {}, {})
"""Before the first UpdateMetadata."""
