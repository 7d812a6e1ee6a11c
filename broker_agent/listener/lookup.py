"""What handlers ask of a metadata snapshot. Pure."""

from __future__ import annotations

from regency.broker_agent.metadata import MetadataSnapshot, PartitionMetadata
from regency.model.facts import Endpoint
from regency.model.ids import NO_LEADER, BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode

_NOT_HERE = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REPLICA_NOT_AVAILABLE}
)


def refine(snapshot: MetadataSnapshot, topic_partition: TopicPartition, error: ErrorCode) -> ErrorCode:
    """Tell a partition that is elsewhere from one that nobody knows (KAFKA-10223).

    The ReplicaManager knows what this broker hosts; that a partition exists at all is in the metadata.
    """
    if error not in _NOT_HERE:
        return error
    if snapshot.partition(topic_partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


def endpoints(snapshot: MetadataSnapshot, listener: str) -> dict[BrokerId, tuple[Endpoint, str | None]]:
    """Address and rack, by broker, of the live brokers that have a listener of that name."""
    found = {}
    for broker in sorted(snapshot.brokers):
        node = snapshot.brokers[broker]
        endpoint = node.endpoint(listener)
        if endpoint is not None:
            found[broker] = (endpoint, node.rack)
    return found


def leader_error(snapshot: MetadataSnapshot, partition: PartitionMetadata, listener: str) -> tuple[ErrorCode, BrokerId]:
    """Error and leader to show to a client that came in on `listener`: -1 and why, where it could not reach the
    leader."""
    node = snapshot.brokers.get(partition.leader)
    if partition.leader < 0 or node is None:
        return ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
    if node.endpoint(listener) is None:
        return ErrorCode.LISTENER_NOT_FOUND, NO_LEADER
    return ErrorCode.NONE, partition.leader
