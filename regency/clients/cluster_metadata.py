"""Metadata as facts: who leads which partition of which topic, and where brokers are reached. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import msgspec

from regency.clients.nodes import Node
from regency.kafka.codec import Message, MetadataRequest
from regency.model.ids import NO_LEADER, ZERO_TOPIC_ID, BrokerId, LeaderEpoch, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode, error_code

METADATA_VERSION: Final = 12
"""Topic ids (10), leader epochs (7)."""

MISSING: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INVALID_TOPIC_EXCEPTION}
)
"""Errors of a topic that the broker that was asked does not know; another may know it by now."""


class Leadership(NamedTuple):
    """Who leads a partition, -1 for none, and in which leader epoch."""

    leader: BrokerId
    epoch: LeaderEpoch


class TopicMetadata(msgspec.Struct, frozen=True):
    """A topic; `topic_id` is None from brokers that know none."""

    topic_id: TopicId | None
    partitions: Mapping[int, Leadership]


class ClusterMetadata(msgspec.Struct, frozen=True):
    """What one broker knows."""

    brokers: Mapping[BrokerId, Node]
    topics: Mapping[str, TopicMetadata]
    errors: Mapping[str, ErrorCode]
    """Of topics that are not in `topics`."""

    def leader(self, name: TopicPartition) -> tuple[Node, LeaderEpoch] | None:
        """Where the leader of a partition is reached, and its epoch; None where it has none or is not there."""
        topic = self.topics.get(name.topic)
        led = topic.partitions.get(name.partition) if topic is not None else None
        node = self.brokers.get(led.leader) if led is not None else None
        return None if led is None or node is None else (node, led.epoch)


def metadata_request(names: Collection[str] | None) -> Message:
    """Ask for these topics, or for all. Creates none."""
    topic_class = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        version=METADATA_VERSION,
        topics=None if names is None else [topic_class(topic_id=ZERO_TOPIC_ID, name=name) for name in sorted(names)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )


def metadata_reply(answer: Message) -> ClusterMetadata:
    """What a Metadata response says."""
    brokers = {
        BrokerId(each.node_id): Node(BrokerId(each.node_id), each.host, each.port, each.rack) for each in answer.brokers
    }
    topics: dict[str, TopicMetadata] = {}
    errors: dict[str, ErrorCode] = {}
    for topic in answer.topics:
        if topic.error_code == ErrorCode.NONE:
            topics[topic.name] = TopicMetadata(topic.topic_id, _partitions(topic))
        elif topic.name is not None:
            errors[topic.name] = error_code(topic.error_code)
    return ClusterMetadata(brokers, topics, errors)


def _partitions(topic: Message) -> dict[int, Leadership]:
    """A leader told with an error, such as one that has no such listener, cannot be asked."""
    return {
        partition.partition_index: Leadership(
            NO_LEADER if partition.error_code != ErrorCode.NONE else BrokerId(partition.leader_id),
            LeaderEpoch(partition.leader_epoch),
        )
        for partition in topic.partitions
    }
