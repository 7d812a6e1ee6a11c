"""Who has which partition and what is on its way, and requests to change it, in batches, to the ruling controller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from regency.cli.asking.refusals import refusal
from regency.cli.asking.wire import REQUEST_TIMEOUT_MS, ClusterWire, PartitionFacts, cluster_wire
from regency.clients.nodes import Node
from regency.kafka.apis import Message
from regency.model.facts import ReplicaAssignment
from regency.model.ids import BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode

BATCH: Final = 2_000
"""Partitions in one request."""
_VERSION: Final = 0

Replicas = tuple[BrokerId, ...]


@dataclass(frozen=True)
class Situation:
    """The cluster now. `assignment` of what is on its way has old and new replicas; `moving` tells them apart."""

    nodes: Mapping[BrokerId, Node]
    assignment: Mapping[TopicPartition, Replicas]
    moving: Mapping[TopicPartition, ReplicaAssignment]
    facts: Mapping[TopicPartition, PartitionFacts]

    @property
    def racks(self) -> dict[BrokerId, str | None]:
        """Live brokers and their racks."""
        return {broker: node.rack for broker, node in self.nodes.items()}

    @property
    def topics(self) -> set[str]:
        """Names of all topics."""
        return {partition.topic for partition in self.assignment}


@dataclass(frozen=True)
class Refused:
    """A partition for which the controller said no."""

    partition: TopicPartition
    error: int
    message: str


def look(servers: str) -> Situation:
    """The cluster now. Raises CommandFailed."""
    with cluster_wire(servers) as wire:
        nodes, moving, topics = wire.brokers(), ongoing(wire), wire.topics()
    facts = {
        TopicPartition(topic.name, partition.partition_index): partition
        for topic in topics
        for partition in topic.partitions
    }
    assignment = {partition: tuple(map(BrokerId, each.replica_nodes)) for partition, each in facts.items()}
    for partition, each in moving.items():
        assignment[partition] = each.replicas
    return Situation(nodes, assignment, moving, facts)


def ongoing(wire: ClusterWire) -> dict[TopicPartition, ReplicaAssignment]:
    """All reassignments under way, by partition. Raises CommandFailed."""
    from regency.kafka.codec import ListPartitionReassignmentsRequest

    request = ListPartitionReassignmentsRequest(version=_VERSION, timeout_ms=REQUEST_TIMEOUT_MS, topics=None)
    answer = _ask_ruler(wire, request)
    found = {
        TopicPartition(topic.name, each.partition_index): ReplicaAssignment(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in answer.topics
        for each in topic.partitions
    }
    return dict(sorted(found.items()))


def alter(servers: str, wanted: Sequence[tuple[TopicPartition, Replicas | None]]) -> list[Refused]:
    """Ask for replicas (None: cancel), in batches. Returns what was refused. Raises CommandFailed."""
    refused: list[Refused] = []
    with cluster_wire(servers) as wire:
        for start in range(0, len(wanted), BATCH):
            answer = _ask_ruler(wire, _request(wanted[start : start + BATCH]))
            refused += [
                Refused(TopicPartition(topic.name, each.partition_index), each.error_code, each.error_message or "")
                for topic in answer.responses
                for each in topic.partitions
                if each.error_code != ErrorCode.NONE
            ]
    return refused


def describe_refused(refused: Iterable[Refused], shown: int = 5) -> str:
    """The first of them in words."""
    told = [each.message.rstrip(".") or f"{each.partition}: error {each.error}" for each in refused]
    more = f"; and {len(told) - shown} more" if len(told) > shown else ""
    return "; ".join(told[:shown]) + more


def _request(wanted: Sequence[tuple[TopicPartition, Replicas | None]]) -> Message:
    from regency.kafka.codec import AlterPartitionReassignmentsRequest

    topic_class = AlterPartitionReassignmentsRequest.ReassignableTopic
    by_topic: dict[str, list[Message]] = {}
    for partition, replicas in wanted:
        by_topic.setdefault(partition.topic, []).append(
            topic_class.ReassignablePartition(
                version=_VERSION,
                partition_index=partition.partition,
                replicas=None if replicas is None else list(replicas),
            )
        )
    topics = [topic_class(version=_VERSION, name=topic, partitions=each) for topic, each in by_topic.items()]
    return AlterPartitionReassignmentsRequest(version=_VERSION, timeout_ms=REQUEST_TIMEOUT_MS, topics=topics)


def _ask_ruler(wire: ClusterWire, request: Message) -> Message:
    """The answer; the request does no harm twice."""
    answer = wire.ask_ruler(request, _VERSION, repeatable=True)
    if answer.error_code != ErrorCode.NONE:
        raise refusal("the reassignments", answer.error_code, answer.error_message)
    return answer
