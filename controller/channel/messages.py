"""What brokers shall host: as values, many of a topic as one; and as messages of protos/control.proto. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain

import msgspec

from regency.model.facts import Broker, LeaderIsrAndControllerEpoch, ReplicaAssignment
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, TopicId, TopicPartition
from regency.protos import control_pb2 as pb


class LeaderAndIsrRow(msgspec.Struct, frozen=True, gc=False):
    """Lead or follow: the decision says which. One value serves all brokers and the metadata."""

    topic_id: TopicId
    leadership: LeaderIsrAndControllerEpoch
    assignment: ReplicaAssignment


class StopReplicaRow(msgspec.Struct, frozen=True, gc=False):
    """Stop serving the partition, and delete its log if `delete`. `leader_epoch` -1 unknown, -2 topic being deleted."""

    topic_id: TopicId
    leader_epoch: LeaderEpoch
    delete: bool


Row = LeaderAndIsrRow | StopReplicaRow


class Rows:
    """Leadership and assignment of some partitions of a topic, whatever its name; they do not change.

    In a large cluster most topics are like others but for their names, and brokers host the same partitions: one value
    serves all brokers that get the same, and is encoded once.
    """

    __slots__ = ("assignments", "encoded", "leaders", "leaderships", "named", "numbers", "offline")

    def __init__(
        self,
        numbers: Sequence[int],
        leaderships: Sequence[LeaderIsrAndControllerEpoch],
        assignments: Sequence[ReplicaAssignment],
        offline: Sequence[tuple[BrokerId, ...]] = (),
    ) -> None:
        self.numbers = numbers
        self.leaderships = leaderships
        self.assignments = assignments
        self.offline = offline
        """Of each partition the replicas that do not work; empty where all do, and where that is not told."""
        self.leaders = frozenset(leadership.leader_and_isr.leader for leadership in leaderships)
        self.named = sum(len(each.leader_and_isr.isr) for each in leaderships) + sum(
            len(each.replicas) for each in assignments
        )
        """How many brokers stand in ISRs and assignments together."""
        self.encoded: bytes | None = None
        """The columns, once they have been encoded."""

    def __len__(self) -> int:
        return len(self.numbers)


class TopicRows(msgspec.Struct, frozen=True):
    """What a broker shall host of a topic."""

    topic: str
    topic_id: TopicId
    rows: Rows
    new: AbstractSet[int] = frozenset()
    """Numbers of the partitions that are new to the broker."""

    def __len__(self) -> int:
        return len(self.rows.numbers)

    def partitions(self) -> Iterator[TopicPartition]:
        """The partitions, in order."""
        return (TopicPartition(self.topic, number) for number in self.rows.numbers)

    def each(self) -> Iterator[tuple[TopicPartition, LeaderAndIsrRow]]:
        """The partitions one by one."""
        rows = self.rows
        for number, leadership, assignment in zip(rows.numbers, rows.leaderships, rows.assignments, strict=True):
            yield TopicPartition(self.topic, number), LeaderAndIsrRow(self.topic_id, leadership, assignment)


def rows_by_topic(rows: Mapping[TopicPartition, Row], new: Collection[TopicPartition]) -> list[TopicRows]:
    """What is to be hosted, by topic in order of first appearance. A topic and its namesake stay apart."""
    by_topic: dict[tuple[str, TopicId], dict[int, LeaderAndIsrRow]] = {}
    for (topic, number), row in rows.items():
        if isinstance(row, LeaderAndIsrRow):
            by_topic.setdefault((topic, row.topic_id), {})[number] = row
    new_numbers: dict[str, set[int]] = {}
    for topic, number in new:
        new_numbers.setdefault(topic, set()).add(number)
    return [
        TopicRows(
            topic,
            topic_id,
            Rows(tuple(own), [row.leadership for row in own.values()], [row.assignment for row in own.values()]),
            new_numbers.get(topic, frozenset()),
        )
        for (topic, topic_id), own in by_topic.items()
    ]


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


def partition_refs(partitions: Mapping[TopicPartition, TopicId]) -> list[pb.PartitionRefs]:
    """Partitions by topic, in order of first appearance, each topic under its id."""
    numbers: dict[str, list[int]] = {}
    ids: dict[str, TopicId] = {}
    for partition, topic_id in partitions.items():
        numbers.setdefault(partition.topic, []).append(partition.partition)
        ids[partition.topic] = topic_id
    return [pb.PartitionRefs(topic=topic, topic_id=ids[topic].bytes, partition=numbers[topic]) for topic in numbers]


def add_rows(message: pb.LeaderAndIsrRequest | pb.MetadataDelta, topic: TopicRows) -> pb.PartitionStates:
    """Add a topic's content; its columns are encoded only once for all brokers that get the same."""
    rows = topic.rows
    if rows.encoded is None:
        rows.encoded = _columns(rows).SerializeToString()
    added = message.topics.add(topic=topic.topic, topic_id=topic.topic_id.bytes)
    added.MergeFromString(rows.encoded)
    if topic.new:
        added.is_new.extend(number in topic.new for number in rows.numbers)
    return added


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


def stop_partitions(stops: Mapping[TopicPartition, StopReplicaRow]) -> list[pb.StopPartitions]:
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
