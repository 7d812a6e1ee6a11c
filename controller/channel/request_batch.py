"""What one event wants brokers to do, gathered while it decides and handed over when it is committed.

Content is taken from the context when handed over, so LeaderAndIsr and metadata always come from one record. A batch
belongs to one controller epoch and is empty between its events. Source: Kafka's ControllerBrokerRequestBatch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from regency.controller.channel import messages
from regency.controller.channel.channels import BrokerRequests, Channels
from regency.controller.channel.row_pool import RowPool
from regency.controller.channel.wanted import Host, Stop, TopicRows
from regency.controller.state.context import ControllerContext
from regency.controller.state.states import ReplicaState
from regency.controller.state.topic_entry import TopicEntry
from regency.model.crash_points import crash_point
from regency.model.ids import (
    EPOCH_DURING_DELETE,
    NO_LEADER_EPOCH,
    BrokerId,
    LeaderEpoch,
    TopicId,
    TopicPartition,
)
from regency.protos import control_pb2 as pb

PARTITIONS_PER_DELTA = 20_000
"""Keeps an encoded delta below 2 MiB."""

_HOST, _NEW, _STOP, _DELETE = 1, 2, 4, 8
_STOP_OR_DELETE = _STOP | _DELETE


class RequestBatch:
    """LeaderAndIsr, StopReplica and metadata of one event. Dead brokers may be named: they are left out."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._clear()

    def _clear(self) -> None:
        self._wanted: dict[BrokerId, dict[TopicPartition, int]] = {}
        self._metadata: dict[TopicPartition, None] = {}
        self._whole: dict[str, None] = {}
        self._removed: dict[str, TopicId] = {}
        self._brokers_changed = False
        self._snapshot = False
        self._starting: set[BrokerId] = set()
        self._strangers: dict[BrokerId, dict[TopicPartition, Stop]] = {}

    def host(self, brokers: Iterable[BrokerId], partition: TopicPartition, *, is_new: bool = False) -> None:
        """These brokers shall lead or follow as the context says, and everybody shall know. `is_new` is sticky.

        Of a topic that is being deleted nobody is told to host anything (KAFKA-13342).
        """
        if self._context.is_being_deleted(partition.topic):
            self._metadata[partition] = None
            return
        flag = _HOST | _NEW if is_new else _HOST
        for broker in brokers:
            wanted = self._wanted.get(broker)
            if wanted is None:
                wanted = self._wanted[broker] = {}
            wanted[partition] = (wanted.get(partition, 0) & (_DELETE | _NEW)) | flag
        self._metadata[partition] = None

    def host_topic(self, topic: str) -> None:
        """All brokers whose replicas are Online when this is handed over shall host the topic, and everybody know."""
        self._whole[topic] = None

    def stop(self, broker: BrokerId, partition: TopicPartition, *, delete: bool) -> None:
        """The broker shall stop serving the partition, and delete it if `delete`, which is sticky."""
        wanted = self._wanted.setdefault(broker, {})
        if delete:
            wanted[partition] = _STOP | _DELETE
        else:
            wanted[partition] = (wanted.get(partition, 0) & (_DELETE | _NEW)) | _STOP

    def stop_stranger(self, broker: BrokerId, partition: TopicPartition, topic_id: TopicId) -> None:
        """The broker shall stop serving a partition that the context need not know, of this topic; its log stays."""
        self._wanted.setdefault(broker, {})
        self._strangers.setdefault(broker, {})[partition] = Stop(topic_id, NO_LEADER_EPOCH, delete=False)

    def metadata(self, partitions: Iterable[TopicPartition]) -> None:
        """Everybody shall know these partitions' leadership."""
        for partition in partitions:
            self._metadata[partition] = None

    def brokers_changed(self) -> None:
        """Everybody shall know the live brokers."""
        self._brokers_changed = True

    def topic_removed(self, topic: str, topic_id: TopicId) -> None:
        """Everybody shall forget the topic."""
        self._removed[topic] = topic_id

    def snapshot(self) -> None:
        """A whole picture of the metadata shall be at hand for brokers that have none."""
        self._snapshot = True

    def start(self, broker: BrokerId) -> None:
        """With this event the broker has been told all it hosts: its conversation may begin."""
        self._starting.add(broker)

    def hand_over(self, channels: Channels) -> None:
        """Give everything to the channels and begin anew. Only what is committed may be in the context by now."""
        pool = RowPool(self._context)
        whole = self._whole_topics(pool)
        requests = {
            broker: self._requests(broker, whole.get(broker, []), pool)
            for broker in sorted(self._wanted.keys() | whole.keys())
            if broker in self._context.brokers
        }
        if self._brokers_changed:
            channels.set_brokers(dict(self._context.brokers))
        crash_point("controller.batch.before_metadata")
        self._hand_over_metadata(channels, pool)
        if self._removed:
            channels.forget(dict(self._removed))
        crash_point("controller.batch.before_requests")
        channels.send(requests)
        crash_point("controller.batch.before_starts")
        for broker in sorted(self._starting):
            channels.start(broker)
        self._clear()

    def _hand_over_metadata(self, channels: Channels, pool: RowPool) -> None:
        whole = self._snapshot and channels.metadata.snapshot() is None
        if whole and channels.metadata.last == 0:
            channels.metadata.set_snapshot(encode_snapshot(self._context, pool))
            return
        for topic in self._whole:
            self._metadata.update(dict.fromkeys(self._context.partitions_of(topic)))
        if self._brokers_changed or self._metadata or self._removed:
            self._append_deltas(channels, pool)
        if whole:
            channels.metadata.set_snapshot(encode_snapshot(self._context, pool))

    def _append_deltas(self, channels: Channels, pool: RowPool) -> None:
        first = pb.MetadataDelta(
            removed_topics=[
                pb.RemovedTopic(topic=topic, topic_id=topic_id.bytes) for topic, topic_id in self._removed.items()
            ]
        )
        if self._brokers_changed:
            _add_brokers(first, self._context)
        changed = _by_topic(self._metadata)
        channels.metadata.append(_encode_deltas(self._context, first, changed, pool))

    def _whole_topics(self, pool: RowPool) -> dict[BrokerId, list[TopicRows]]:
        """What each broker shall host of topics as a whole; `_wanted` is left with what else is wanted."""
        whole: dict[BrokerId, list[TopicRows]] = {}
        if not self._whole:
            return whole
        self._split_special()
        for name in self._whole:
            entry = self._context.topics.get(name)
            if entry is not None and not self._context.is_being_deleted(name):
                for broker, rows in pool.of_brokers(entry).items():
                    whole.setdefault(broker, []).append(TopicRows(name, entry.topic_id, rows))
        for broker, wanted in self._wanted.items():
            for partition in [each for each, flags in wanted.items() if flags == _HOST]:
                if partition.topic in self._whole and self._is_hosted(broker, partition):
                    del wanted[partition]
        return whole

    def _split_special(self) -> None:
        """Note one by one what is wanted of whole topics where a live broker is also to stop, or to begin anew."""
        special = {partition.topic for partition in self._context.reassigning}
        for broker, wanted in self._wanted.items():
            if broker in self._context.brokers:
                special.update(partition.topic for partition, flags in wanted.items() if flags != _HOST)
        for name in [each for each in self._whole if each in special]:
            del self._whole[name]
            told = not self._context.is_being_deleted(name)
            for partition in self._context.partitions_of(name):
                self._metadata[partition] = None
                for broker, state in self._context.replica_states(partition) if told else ():
                    if state is ReplicaState.ONLINE:
                        self._wanted.setdefault(broker, {}).setdefault(partition, _HOST)

    def _is_hosted(self, broker: BrokerId, partition: TopicPartition) -> bool:
        context = self._context
        online = context.replica_state(partition, broker) is ReplicaState.ONLINE
        return online and context.leadership(partition) is not None

    def _requests(self, broker: BrokerId, whole: list[TopicRows], pool: RowPool) -> BrokerRequests:
        context = self._context
        told: dict[TopicPartition, Host] = {}
        stops: dict[TopicPartition, Stop] = dict(self._strangers.get(broker, {}))
        new: list[TopicPartition] = []
        wanted = self._wanted.get(broker, {})
        plain = _by_topic(partition for partition, flags in wanted.items() if flags == _HOST)
        special = {
            partition.topic for partition, flags in wanted.items() if flags != _HOST or partition in context.reassigning
        }
        for topic, numbers in plain.items():
            entry = context.topics.get(topic)
            if entry is not None and topic not in special:
                rows = pool.of_some(entry, numbers)
                if rows:
                    whole.append(TopicRows(topic, entry.topic_id, rows))
        for partition, flags in wanted.items() if special else ():
            if partition.topic not in special:
                continue
            if flags & _STOP_OR_DELETE:
                stops[partition] = self._stop_of(partition, delete=bool(flags & _DELETE))
            host = content_of(context, partition) if flags & _HOST else None
            if host is not None:
                told[partition] = host
                if flags & _NEW or _is_joining(host, broker):
                    new.append(partition)
        return BrokerRequests(told, frozenset(new), stops, whole)

    def _stop_of(self, partition: TopicPartition, *, delete: bool) -> Stop:
        leadership = self._context.leadership(partition)
        epoch: LeaderEpoch = NO_LEADER_EPOCH if leadership is None else leadership.leader_and_isr.leader_epoch
        if self._context.is_being_deleted(partition.topic):
            epoch = EPOCH_DURING_DELETE
        return Stop(self._context.topic_id(partition.topic), epoch, delete)


def _is_joining(host: Host, broker: BrokerId) -> bool:
    """Whether a reassignment adds the replica: it may begin empty, in whichever directory works (KAFKA-10314)."""
    adding = host.assignment.adding
    return bool(adding) and broker in adding and broker not in host.leadership.leader_and_isr.isr


def content_of(context: ControllerContext, partition: TopicPartition) -> Host | None:
    """What brokers are told of the partition; None while it has no leadership."""
    leadership = context.leadership(partition)
    if leadership is None:
        return None
    return Host(context.topic_id(partition.topic), leadership, context.assignment(partition))


def encode_snapshot(context: ControllerContext, pool: RowPool) -> list[bytes]:
    """The whole metadata, in pieces."""
    first = pb.MetadataDelta()
    _add_brokers(first, context)
    return _encode_deltas(context, first, dict.fromkeys(context.topics), pool)


def _add_brokers(delta: pb.MetadataDelta, context: ControllerContext) -> None:
    delta.brokers_present = True
    delta.live_brokers.extend(messages.live_brokers(context.brokers, context.shutting_down))


def _encode_deltas(
    context: ControllerContext, first: pb.MetadataDelta, topics: Mapping[str, Sequence[int] | None], pool: RowPool
) -> list[bytes]:
    """`first`, followed by what is told of these partitions of topics, of all for None; in pieces of bounded size."""
    pieces = [[first.SerializeToString()]]
    size = 0
    for topic, numbers in topics.items():
        entry = context.topics.get(topic)
        for count, encoded in () if entry is None else _encode_topic(context, entry, numbers, pool):
            if size and size + count > PARTITIONS_PER_DELTA:
                pieces.append([])
                size = 0
            pieces[-1].append(messages.embedded(pb.MetadataDelta.TOPICS_FIELD_NUMBER, encoded))
            size += count
    return [b"".join(piece) for piece in pieces]


def _encode_topic(
    context: ControllerContext, entry: TopicEntry, numbers: Sequence[int] | None, pool: RowPool
) -> Iterator[tuple[int, bytes]]:
    """The metadata of partitions of a topic, with their number; of many in several parts."""
    size = len(entry.names)
    wanted = range(size) if numbers is None else [number for number in numbers if number < size]
    partial = context.offline_replicas or context.is_being_deleted(entry.name)
    if not partial and len(wanted) <= PARTITIONS_PER_DELTA:
        rows = pool.of_all(entry) if numbers is None else pool.of_some(entry, numbers, offline=True)
        if rows:
            yield len(rows), messages.encode_rows(TopicRows(entry.name, entry.topic_id, rows))
        return
    hosts = ((entry.names[number], content_of(context, entry.names[number])) for number in wanted)
    rest = ((partition, host) for partition, host in hosts if host is not None)
    while piece := dict(islice(rest, PARTITIONS_PER_DELTA)):
        (states,) = messages.partition_states(piece, offline=context.offline, deleting=context.topics_deletion_started)
        yield len(piece), states.SerializeToString()


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Numbers of partitions, sorted, by topic in order of first appearance."""
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        own = numbers.get(topic)
        if own is None:
            own = numbers[topic] = []
        own.append(number)
    for own in numbers.values():
        own.sort()
    return numbers
