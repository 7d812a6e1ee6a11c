"""Builds the control plane's messages (protos/control.proto): facts about partitions as columns per topic. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain

import msgspec

from regency.controller.channel.wanted import Host, Rows, Stop, TopicRows
from regency.model.facts import Broker
from regency.model.ids import LEADER_DURING_DELETE, BrokerEpoch, BrokerId, ControllerEpoch, TopicId, TopicPartition
from regency.protos import control_pb2 as pb


class Origin(msgspec.Struct, frozen=True):
    """The controller a message comes from."""

    controller: BrokerId
    epoch: ControllerEpoch
    endpoint: str
    """host:port of its gRPC server."""


def header(origin: Origin, broker_epoch: BrokerEpoch, seq: int) -> pb.Header:
    """Header of a request to one incarnation of a broker."""
    return pb.Header(
        controller_id=origin.controller,
        controller_epoch=origin.epoch,
        broker_epoch=broker_epoch,
        seq=seq,
        controller_endpoint=origin.endpoint,
    )


def partition_states(
    hosts: Mapping[TopicPartition, Host],
    *,
    is_new: Callable[[TopicPartition], bool] | None = None,
    offline: Callable[[TopicPartition], Sequence[BrokerId]] | None = None,
    deleting: Collection[str] = (),
) -> list[pb.PartitionStates]:
    """Columns for the partitions, one message per topic id in order of first appearance.

    What is wanted of a topic that was deleted and of its successor of the same name stays apart. `is_new` fills that
    column (LeaderAndIsr); `offline` fills the replicas that do not work, and topics in `deleting` get leader -2
    (UpdateMetadata).
    """
    by_topic: dict[str, list[tuple[int, Host]]] = {}
    others: dict[tuple[str, TopicId], list[tuple[int, Host]]] = {}
    for partition, host in hosts.items():
        rows = by_topic.setdefault(partition.topic, [])
        if rows and not _is_same(rows[0][1].topic_id, host.topic_id):
            rows = others.setdefault((partition.topic, host.topic_id), [])
        rows.append((partition.partition, host))
    return [
        _topic_states(topic, rows, is_new, offline, during_delete=topic in deleting)
        for topic, rows in (*by_topic.items(), *((topic, rows) for (topic, _), rows in others.items()))
    ]


def partition_refs(partitions: Mapping[TopicPartition, TopicId]) -> list[pb.PartitionRefs]:
    """Partitions by topic, in order of first appearance, each topic under its id."""
    numbers: dict[str, list[int]] = {}
    ids: dict[str, TopicId] = {}
    for partition, topic_id in partitions.items():
        numbers.setdefault(partition.topic, []).append(partition.partition)
        ids[partition.topic] = topic_id
    return [pb.PartitionRefs(topic=topic, topic_id=ids[topic].bytes, partition=numbers[topic]) for topic in numbers]


def encode_rows(topic: TopicRows) -> bytes:
    """A PartitionStates, encoded; its columns only once for all that are told the same."""
    rows = topic.rows
    columns = rows.encoded
    if columns is None:
        columns = rows.encoded = _columns(rows).SerializeToString()
    return pb.PartitionStates(topic=topic.topic, topic_id=topic.topic_id.bytes).SerializeToString() + columns


def embedded(field: int, encoded: bytes) -> bytes:
    """An encoded message as field `field`, 1 to 15, of another that is encoded."""
    key, size = bytes((field << 3 | 2,)), len(encoded)
    while size > 0x7F:
        key += bytes((size & 0x7F | 0x80,))
        size >>= 7
    return key + bytes((size,)) + encoded


def leader_endpoints(
    leaders: Iterable[BrokerId], brokers: Mapping[BrokerId, Broker], listener: str
) -> list[pb.LeaderEndpoint]:
    """Where these leaders are reached on the inter-broker listener; those not live are left out."""
    endpoints = []
    for leader in sorted(set(leaders)):
        broker = brokers.get(leader)
        endpoint = broker.endpoint(listener) if broker is not None else None
        if broker is not None and endpoint is not None:
            endpoints.append(
                pb.LeaderEndpoint(broker_id=leader, broker_epoch=broker.epoch, host=endpoint.host, port=endpoint.port)
            )
    return endpoints


def stop_partitions(stops: Mapping[TopicPartition, Stop]) -> list[pb.StopPartitions]:
    """Columns of a StopReplica, one message per topic id."""
    by_topic: dict[tuple[str, TopicId], pb.StopPartitions] = {}
    for partition, stop in stops.items():
        key = partition.topic, stop.topic_id
        message = by_topic.get(key)
        if message is None:
            message = by_topic[key] = pb.StopPartitions(topic=partition.topic, topic_id=stop.topic_id.bytes)
        message.partition.append(partition.partition)
        message.leader_epoch.append(stop.leader_epoch)
        message.delete_partition.append(stop.delete)
    return list(by_topic.values())


def live_brokers(brokers: Mapping[BrokerId, Broker], shutting_down: Collection[BrokerId]) -> list[pb.BrokerMetadata]:
    """The live brokers with all their endpoints, by id."""
    return [
        pb.BrokerMetadata(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            endpoints=[
                pb.BrokerEndpoint(
                    listener=endpoint.listener,
                    host=endpoint.host,
                    port=endpoint.port,
                    security_protocol=endpoint.security_protocol,
                )
                for endpoint in broker.endpoints
            ],
            rack=broker.rack or "",
            shutting_down=broker.id in shutting_down,
        )
        for _, broker in sorted(brokers.items())
    ]


def _is_same(one: TopicId, other: TopicId) -> bool:
    return one is other or one == other  # nearly always the very same object, which is much quicker to see


def _topic_states(
    topic: str,
    rows: Sequence[tuple[int, Host]],
    is_new: Callable[[TopicPartition], bool] | None,
    offline: Callable[[TopicPartition], Sequence[BrokerId]] | None,
    *,
    during_delete: bool,
) -> pb.PartitionStates:
    numbers, hosts = [number for number, _ in rows], [host for _, host in rows]
    unavailable = [tuple(offline(TopicPartition(topic, number))) for number in numbers] if offline is not None else []
    message = _columns(
        Rows(numbers, [host.leadership for host in hosts], [host.assignment for host in hosts], unavailable)
    )
    message.topic, message.topic_id = topic, hosts[0].topic_id.bytes
    if during_delete:
        message.leader[:] = [LEADER_DURING_DELETE] * len(rows)
    if is_new is not None:
        flags = [is_new(TopicPartition(topic, number)) for number in numbers]
        if any(flags):
            message.is_new.extend(flags)
    return message


def _columns(rows: Rows) -> pb.PartitionStates:
    """A message of everything but the topic and what is new."""
    decided = [leadership.leader_and_isr for leadership in rows.leaderships]
    isrs = [each.isr for each in decided]
    assignments = rows.assignments
    replicas = [assignment.replicas for assignment in assignments]
    message = pb.PartitionStates(
        partition=rows.numbers,
        leader=[each.leader for each in decided],
        leader_epoch=[each.leader_epoch for each in decided],
        zk_version=[each.zk_version for each in decided],
        controller_epoch=[leadership.controller_epoch for leadership in rows.leaderships],
        isr_len=list(map(len, isrs)),
        isr=list(chain.from_iterable(isrs)),
        replicas_len=list(map(len, replicas)),
        replicas=list(chain.from_iterable(replicas)),
    )
    adding, removing = [each.adding for each in assignments], [each.removing for each in assignments]
    for lists, lengths, flat in (
        (adding, message.adding_len, message.adding),
        (removing, message.removing_len, message.removing),
        (rows.offline, message.offline_len, message.offline),
    ):
        if any(lists):
            lengths.extend(map(len, lists))
            flat.extend(chain.from_iterable(lists))
    return message
