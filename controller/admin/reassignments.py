"""AlterPartitionReassignments and ListPartitionReassignments (KIP-455)."""

from __future__ import annotations

from regency.controller.admin.asked import Asked
from regency.controller.reassignment.events import AlterReassignments, ListReassignments, PartitionOutcome
from regency.kafka.admin_answers import FIRST_WITH_FACTOR, Row, answer
from regency.kafka.apis import Message
from regency.kafka.codec import ListPartitionReassignmentsResponse, Request
from regency.model.facts import ReplicaAssignment
from regency.model.ids import BrokerId, TopicPartition


def alter(request: Request) -> Asked[tuple[PartitionOutcome, ...]]:
    """Begin, replace or cancel reassignments; answered when they stand in ZooKeeper."""
    message = request.message
    moves = tuple(
        (
            TopicPartition(topic.name, each.partition_index),
            None if each.replicas is None else tuple(map(BrokerId, each.replicas)),
        )
        for topic in message.topics
        for each in topic.partitions
    )
    keep_factor = request.version >= FIRST_WITH_FACTOR and not message.allow_replication_factor_change

    def respond(outcomes: tuple[PartitionOutcome, ...]) -> tuple[Message, tuple[()]]:
        return answer(request, (Row(*each.partition, each.error, each.message) for each in outcomes)), ()

    return Asked(AlterReassignments(moves, keep_factor=keep_factor), respond)


def list_ongoing(request: Request) -> Asked[tuple[tuple[TopicPartition, ReplicaAssignment], ...]]:
    """Name what is being reassigned."""
    named = request.message.topics
    if named is not None:
        named = tuple(TopicPartition(topic.name, number) for topic in named for number in topic.partition_indexes)

    def respond(under_way: tuple[tuple[TopicPartition, ReplicaAssignment], ...]) -> tuple[Message, tuple[()]]:
        topic_class = ListPartitionReassignmentsResponse.OngoingTopicReassignment
        by_topic: dict[str, list[Message]] = {}
        for (topic, number), assignment in under_way:
            ongoing = topic_class.OngoingPartitionReassignment(
                version=request.version,
                partition_index=number,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
            )
            by_topic.setdefault(topic, []).append(ongoing)
        topics = [topic_class(version=request.version, name=name, partitions=each) for name, each in by_topic.items()]
        return ListPartitionReassignmentsResponse(version=request.version, error_code=0, topics=topics), ()

    return Asked(ListReassignments(named), respond)
