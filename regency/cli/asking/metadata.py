"""Topics and partitions as any broker tells them, for the commands that look at all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

import msgspec

from regency.cli.asking.kafka_clients import admin_client


class PartitionFacts(msgspec.Struct):
    """A partition as metadata has it. `leader_id` is -1 while nobody leads."""

    partition_index: int
    leader_id: int
    replica_nodes: list[int]
    isr_nodes: list[int]
    leader_epoch: int = -1
    offline_replicas: list[int] = []

    @property
    def out_of_sync(self) -> list[int]:
        """Replicas that are not in the ISR."""
        return [replica for replica in self.replica_nodes if replica not in self.isr_nodes]


class TopicFacts(msgspec.Struct):
    """A topic as metadata has it."""

    name: str
    partitions: list[PartitionFacts] = []
    error_code: int = 0
    topic_id: UUID | None = None


def all_topics(servers: str) -> list[TopicFacts]:
    """Every topic, by name. Raises CommandFailed when no broker answers."""
    with admin_client(servers) as client:
        replies = client.describe_topics(None)
    return decode_topics(replies)


def decode_topics(replies: Iterable[Mapping[str, object]]) -> list[TopicFacts]:
    """Topics from kafka-python's dictionaries, partitions in order."""
    topics = sorted((msgspec.convert(dict(reply), TopicFacts) for reply in replies), key=lambda topic: topic.name)
    for topic in topics:
        topic.partitions.sort(key=lambda partition: partition.partition_index)
    return topics
