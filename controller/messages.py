"""Builds the control plane's messages (protos/control.proto): facts about partitions as columns per topic. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from regency.controller.desired_state import Host, Stop
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


def leader_endpoints(
    hosts: Iterable[Host], brokers: Mapping[BrokerId, Broker], listener: str
) -> list[pb.LeaderEndpoint]:
    """Where the leaders named in `hosts` are reached on the inter-broker listener; those not live are left out."""
    leaders = sorted({host.leadership.leader_and_isr.leader for host in hosts})
    endpoints = []
    for leader in leaders:
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
    hosts = [host for _, host in rows]
    decided = [host.leadership.leader_and_isr for host in hosts]
    isrs = [each.isr for each in decided]
    replicas = [host.assignment.replicas for host in hosts]
    message = pb.PartitionStates(
        topic=topic,
        topic_id=hosts[0].topic_id.bytes,
        partition=[number for number, _ in rows],
        leader=[LEADER_DURING_DELETE] * len(rows) if during_delete else [each.leader for each in decided],
        leader_epoch=[each.leader_epoch for each in decided],
        zk_version=[each.zk_version for each in decided],
        controller_epoch=[host.leadership.controller_epoch for host in hosts],
        isr_len=[len(isr) for isr in isrs],
        isr=[member for isr in isrs for member in isr],
        replicas_len=[len(each) for each in replicas],
        replicas=[replica for each in replicas for replica in each],
    )
    if any(host.assignment.adding for host in hosts):
        message.adding_len.extend(len(host.assignment.adding) for host in hosts)
        message.adding.extend(replica for host in hosts for replica in host.assignment.adding)
    if any(host.assignment.removing for host in hosts):
        message.removing_len.extend(len(host.assignment.removing) for host in hosts)
        message.removing.extend(replica for host in hosts for replica in host.assignment.removing)
    if is_new is not None:
        flags = [is_new(TopicPartition(topic, number)) for number, _ in rows]
        if any(flags):
            message.is_new.extend(flags)
    if offline is not None:
        unavailable = [offline(TopicPartition(topic, number)) for number, _ in rows]
        if any(unavailable):
            message.offline_len.extend(map(len, unavailable))
            message.offline.extend(replica for each in unavailable for replica in each)
    return message
