"""Control-plane messages as facts: columns in, structs out, and back. Pure; raises ControlMessageMalformed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import ClassVar
from uuid import UUID

from regency.broker_agent.control.metadata_cache import (
    BrokerNode,
    MetadataChange,
    MetadataUpdate,
    PartitionMetadata,
    TopicDelta,
)
from regency.broker_agent.replication.api import (
    AppliedState,
    LeaderAddress,
    PartitionState,
    ReplicaDescription,
    StopPartition,
)
from regency.model.errors import RegencyError
from regency.model.facts import Endpoint
from regency.model.ids import (
    ZERO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicId,
    TopicPartition,
)
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2


class ControlMessageMalformed(RegencyError):
    """Columns of a message do not fit together, or an id is not one."""

    code: ClassVar[str] = "control_message_malformed"


def decode_states(topics: Iterable[control_pb2.PartitionStates]) -> list[PartitionState]:
    """The partitions of a LeaderAndIsr request, in its order."""
    states: list[PartitionState] = []
    for topic in topics:
        topic_id = decode_topic_id(topic.topic_id)
        count = len(topic.partition)
        _same_length(topic, count, topic.leader, topic.leader_epoch, topic.zk_version, topic.controller_epoch)
        columns = zip(
            topic.partition,
            topic.controller_epoch,
            topic.leader,
            topic.leader_epoch,
            _lists(topic, count, topic.isr_len, topic.isr),
            topic.zk_version,
            _lists(topic, count, topic.replicas_len, topic.replicas),
            _lists(topic, count, topic.adding_len, topic.adding),
            _lists(topic, count, topic.removing_len, topic.removing),
            _flags(topic, count, topic.is_new),
            strict=True,
        )
        states.extend(PartitionState(TopicPartition(topic.topic, number), topic_id, *rest) for number, *rest in columns)
    return states


def decode_leaders(leaders: Iterable[control_pb2.LeaderEndpoint]) -> dict[BrokerId, LeaderAddress]:
    """Where the leaders named in a LeaderAndIsr request are."""
    return {
        BrokerId(leader.broker_id): LeaderAddress(
            BrokerId(leader.broker_id), BrokerEpoch(leader.broker_epoch), leader.host, leader.port
        )
        for leader in leaders
    }


def decode_stops(topics: Iterable[control_pb2.StopPartitions]) -> list[StopPartition]:
    """The partitions of a StopReplica request, in its order."""
    stops: list[StopPartition] = []
    for topic in topics:
        topic_id = decode_topic_id(topic.topic_id)
        count = len(topic.partition)
        deletes = _flags(topic, count, topic.delete_partition)
        _same_length(topic, count, topic.leader_epoch)
        stops.extend(
            StopPartition(TopicPartition(topic.topic, partition), topic_id, LeaderEpoch(epoch), delete)
            for partition, epoch, delete in zip(topic.partition, topic.leader_epoch, deletes, strict=True)
        )
    return stops


def decode_update(request: control_pb2.UpdateMetadataRequest) -> MetadataUpdate:
    """An UpdateMetadata request with all its deltas."""
    return MetadataUpdate(
        ControllerEpoch(request.header.controller_epoch),
        BrokerId(request.header.controller_id),
        [decode_delta(control_pb2.MetadataDelta.FromString(delta)) for delta in request.deltas],
        request.first_delta,
        request.snapshot,
        request.first_chunk,
        request.last_chunk,
    )


def decode_delta(delta: control_pb2.MetadataDelta) -> MetadataChange:
    """One step of the metadata."""
    brokers = [_decode_broker(broker) for broker in delta.live_brokers] if delta.brokers_present else None
    return MetadataChange(
        brokers,
        [_decode_topic(topic) for topic in delta.topics],
        [(removed.topic, decode_topic_id(removed.topic_id)) for removed in delta.removed_topics],
    )


def _decode_broker(broker: control_pb2.BrokerMetadata) -> BrokerNode:
    endpoints = tuple(
        Endpoint(endpoint.listener, endpoint.host, endpoint.port, endpoint.security_protocol or "PLAINTEXT")
        for endpoint in broker.endpoints
    )
    return BrokerNode(
        BrokerId(broker.broker_id),
        BrokerEpoch(broker.broker_epoch),
        endpoints,
        broker.rack or None,
        broker.shutting_down,
    )


def _decode_topic(topic: control_pb2.PartitionStates) -> TopicDelta:
    count = len(topic.partition)
    _same_length(topic, count, topic.leader, topic.leader_epoch, topic.zk_version)
    columns = zip(
        topic.partition,
        topic.leader,
        topic.leader_epoch,
        topic.zk_version,
        _lists(topic, count, topic.isr_len, topic.isr),
        _lists(topic, count, topic.replicas_len, topic.replicas),
        _lists(topic, count, topic.offline_len, topic.offline),
        strict=True,
    )
    partitions = [PartitionMetadata(*row) for row in columns]
    return TopicDelta(topic.topic, decode_topic_id(topic.topic_id), partitions)


def decode_topic_id(data: bytes) -> TopicId:
    """A topic id of 16 bytes; no bytes are the zero id."""
    if not data:
        return ZERO_TOPIC_ID
    if len(data) != 16:
        raise ControlMessageMalformed(f"A topic id has 16 bytes, not {len(data)}.")
    return TopicId(UUID(bytes=data))


def encode_errors(
    applied: Mapping[TopicPartition, AppliedState], topic_ids: Mapping[TopicPartition, TopicId]
) -> list[control_pb2.PartitionErrors]:
    """The partitions that were not done, by topic; those that were are left out."""
    failed = sorted(partition for partition, state in applied.items() if state.error is not ErrorCode.NONE)
    messages: list[control_pb2.PartitionErrors] = []
    for topic, partitions in groupby(failed, key=lambda partition: partition.topic):
        named = list(partitions)
        messages.append(
            control_pb2.PartitionErrors(
                topic=topic,
                topic_id=topic_ids.get(named[0], ZERO_TOPIC_ID).bytes,
                partition=[partition.partition for partition in named],
                error_code=[applied[partition].error for partition in named],
                leader_epoch=[applied[partition].leader_epoch for partition in named],
            )
        )
    return messages


def encode_descriptions(
    topic: str, topic_id: bytes, described: Sequence[tuple[int, ErrorCode, ReplicaDescription | None]]
) -> control_pb2.ReplicaDescriptions:
    """What is known of the replicas of one topic; unknown numbers are -1."""
    message = control_pb2.ReplicaDescriptions(topic=topic, topic_id=topic_id)
    for partition, error, replica in described:
        message.partition.append(partition)
        message.error_code.append(error)
        message.leader_epoch.append(replica.leader_epoch if replica else -1)
        message.last_batch_epoch.append(replica.last_batch_epoch if replica else -1)
        message.log_start_offset.append(replica.log_start_offset if replica else -1)
        message.log_end_offset.append(replica.log_end_offset if replica else -1)
        message.high_watermark.append(replica.high_watermark if replica else -1)
        epochs = replica.epochs if replica else ()
        message.epochs_len.append(len(epochs))
        message.epoch.extend(epoch for epoch, _ in epochs)
        message.epoch_start.extend(start for _, start in epochs)
    return message


def _same_length(
    topic: control_pb2.PartitionStates | control_pb2.StopPartitions, count: int, *columns: Sequence[int]
) -> None:
    for column in columns:
        if len(column) != count:
            raise ControlMessageMalformed(f"A column of topic {topic.topic} has {len(column)} of {count} entries.")


def _flags(
    topic: control_pb2.PartitionStates | control_pb2.StopPartitions, count: int, column: Sequence[bool]
) -> Sequence[bool]:
    if not column:
        return [False] * count
    _same_length(topic, count, column)
    return column


def _lists(
    topic: control_pb2.PartitionStates, count: int, lengths: Sequence[int], flat: Sequence[int]
) -> list[tuple[BrokerId, ...]]:
    if not lengths:
        if flat:
            raise ControlMessageMalformed(f"A list column of topic {topic.topic} has no lengths.")
        return [()] * count
    if len(lengths) != count or sum(lengths) != len(flat) or min(lengths) < 0:
        raise ControlMessageMalformed(f"A list column of topic {topic.topic} does not fit its {count} partitions.")
    lists: list[tuple[BrokerId, ...]] = []
    position = 0
    for length in lengths:
        lists.append(tuple(BrokerId(broker) for broker in flat[position : position + length]))
        position += length
    return lists
