"""What handlers ask of a metadata snapshot. Pure."""

from __future__ import annotations

from regency.broker_agent.control.metadata import MetadataSnapshot, PartitionMetadata
from regency.model.facts import Endpoint
from regency.model.ids import NO_LEADER, BrokerId
from regency.model.kafka_errors import ErrorCode


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
    """Error and leader to show to a client on `listener`: -1 and why, where it could not reach the leader."""
    node = snapshot.brokers.get(partition.leader)
    if partition.leader < 0 or node is None:
        return ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
    if node.endpoint(listener) is None:
        return ErrorCode.LISTENER_NOT_FOUND, NO_LEADER
    return ErrorCode.NONE, partition.leader
