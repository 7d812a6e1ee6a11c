"""What one event wants brokers to do, gathered while it decides and handed over when it is committed.

Content is taken from the context when handed over, so LeaderAndIsr and metadata always come from one record. A batch
belongs to one controller epoch and is empty between its events. Source: reference section 5.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from regency.controller import messages
from regency.controller.channels import BrokerRequests, Channels
from regency.controller.context import ControllerContext
from regency.controller.desired_state import Host, Stop
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
        hosts: dict[TopicPartition, Host] = {}
        requests = {
            broker: self._requests(broker, wanted, hosts)
            for broker, wanted in sorted(self._wanted.items())
            if broker in self._context.brokers
        }
        if self._brokers_changed:
            channels.set_brokers(dict(self._context.brokers))
        crash_point("controller.batch.before_metadata")
        self._hand_over_metadata(channels, hosts)
        if self._removed:
            channels.forget(dict(self._removed))
        crash_point("controller.batch.before_requests")
        channels.send(requests)
        crash_point("controller.batch.before_starts")
        for broker in sorted(self._starting):
            channels.start(broker)
        self._clear()

    def _hand_over_metadata(self, channels: Channels, hosts: dict[TopicPartition, Host]) -> None:
        whole = self._snapshot and channels.metadata.snapshot() is None
        if whole and channels.metadata.last == 0:
            channels.metadata.set_snapshot(encode_snapshot(self._context, hosts))
            return
        if self._brokers_changed or self._metadata or self._removed:
            self._append_deltas(channels, hosts)
        if whole:
            channels.metadata.set_snapshot(encode_snapshot(self._context, hosts))

    def _append_deltas(self, channels: Channels, hosts: dict[TopicPartition, Host]) -> None:
        changed: dict[TopicPartition, Host] = {}
        for partition in self._metadata:
            host = hosts.get(partition) or content_of(self._context, partition)
            if host is not None:
                changed[partition] = host
        first = pb.MetadataDelta(
            removed_topics=[
                pb.RemovedTopic(topic=topic, topic_id=topic_id.bytes) for topic, topic_id in self._removed.items()
            ]
        )
        if self._brokers_changed:
            _add_brokers(first, self._context)
        channels.metadata.append(_encode_deltas(self._context, first, changed))

    def _requests(
        self, broker: BrokerId, wanted: Mapping[TopicPartition, int], hosts: dict[TopicPartition, Host]
    ) -> BrokerRequests:
        told: dict[TopicPartition, Host] = {}
        stops: dict[TopicPartition, Stop] = dict(self._strangers.get(broker, {}))
        new: list[TopicPartition] = []
        for partition, flags in wanted.items():
            if flags & _STOP_OR_DELETE:
                stops[partition] = self._stop_of(partition, delete=bool(flags & _DELETE))
            if flags & _HOST:
                host = hosts.get(partition) or content_of(self._context, partition)
                if host is not None:
                    hosts[partition] = told[partition] = host
                    if flags & _NEW or _is_joining(host, broker):
                        new.append(partition)
        return BrokerRequests(told, frozenset(new), stops)

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


def encode_snapshot(context: ControllerContext, known: Mapping[TopicPartition, Host]) -> list[bytes]:
    """The whole metadata, in pieces. `known` holds contents that have been made already."""
    changed: dict[TopicPartition, Host] = {}
    for partition in context.partitions():
        host = known.get(partition) or content_of(context, partition)
        if host is not None:
            changed[partition] = host
    first = pb.MetadataDelta()
    _add_brokers(first, context)
    return _encode_deltas(context, first, changed)


def _add_brokers(delta: pb.MetadataDelta, context: ControllerContext) -> None:
    delta.brokers_present = True
    delta.live_brokers.extend(messages.live_brokers(context.brokers, context.shutting_down))


def _encode_deltas(
    context: ControllerContext, first: pb.MetadataDelta, changed: Mapping[TopicPartition, Host]
) -> list[bytes]:
    encoded: list[bytes] = []
    rest = iter(changed.items())
    delta = first
    while True:
        piece = dict(islice(rest, PARTITIONS_PER_DELTA))
        if encoded and not piece:
            return encoded
        delta.topics.extend(
            messages.partition_states(piece, offline=context.offline, deleting=context.topics_deletion_started)
        )
        encoded.append(delta.SerializeToString())
        delta = pb.MetadataDelta()
