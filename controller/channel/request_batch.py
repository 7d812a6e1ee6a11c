"""What one event wants brokers to do, gathered while it decides and handed over when it is committed.

Content is taken from the context when handed over, so LeaderAndIsr and metadata always come from one record; the
content of whole topics is one value for all brokers with the same. A batch belongs to one controller epoch and is empty
between its events. Source: Kafka's ControllerBrokerRequestBatch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from regency.controller.channel import messages
from regency.controller.channel.channel_manager import ControllerChannelManager
from regency.controller.channel.messages import Rows, StopReplicaRow, TopicRows
from regency.controller.channel.slots import BrokerRequests
from regency.controller.state.context import ControllerContext
from regency.controller.state.states import ReplicaState
from regency.controller.state.topic_entry import ReplicaStates, TopicEntry
from regency.model.crash_points import crash_point
from regency.model.facts import LeaderIsrAndControllerEpoch, ReplicaAssignment
from regency.model.ids import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    NO_LEADER_EPOCH,
    BrokerId,
    LeaderEpoch,
    TopicId,
    TopicPartition,
)
from regency.protos import control_pb2 as pb

PARTITIONS_PER_DELTA = 20_000
"""Keeps an encoded delta below 2 MiB."""


class _Orders(msgspec.Struct):
    """What a broker shall do about partitions."""

    hosts: dict[TopicPartition, None] = {}
    new: set[TopicPartition] = set()
    """Partitions that are new to the broker as soon as it hosts them."""
    stops: dict[TopicPartition, bool] = {}
    """Whether to delete; then the partition may be in `hosts` as well, for afterwards."""
    strangers: dict[TopicPartition, StopReplicaRow] = {}


class RequestBatch:
    """LeaderAndIsr, StopReplica and metadata of one event. Dead brokers may be named: they are left out."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._clear()

    def _clear(self) -> None:
        self._orders: dict[BrokerId, _Orders] = {}
        self._metadata: dict[TopicPartition, None] = {}
        self._whole: dict[str, None] = {}
        self._removed: dict[str, TopicId] = {}
        self._brokers_changed = False
        self._snapshot = False
        self._starting: set[BrokerId] = set()

    def host(self, brokers: Iterable[BrokerId], partition: TopicPartition, *, is_new: bool = False) -> None:
        """These brokers shall lead or follow as the context says, and everybody shall know. `is_new` is sticky.

        No broker is asked to host anything of a topic that is being deleted (KAFKA-13342).
        """
        self._metadata[partition] = None
        if self._context.is_being_deleted(partition.topic):
            return
        for broker in brokers:
            orders = self._of(broker)
            orders.hosts[partition] = None
            if is_new:
                orders.new.add(partition)
            if orders.stops and not orders.stops.get(partition):
                orders.stops.pop(partition, None)

    def host_topic(self, topic: str) -> None:
        """All brokers whose replicas are Online when this is handed over shall host the topic, and everybody know."""
        self._whole[topic] = None

    def stop(self, broker: BrokerId, partition: TopicPartition, *, delete: bool) -> None:
        """The broker shall stop serving the partition, and delete it if `delete`, which is sticky."""
        orders = self._of(broker)
        orders.hosts.pop(partition, None)
        orders.stops[partition] = delete or orders.stops.get(partition, False)
        if delete:
            orders.new.discard(partition)

    def stop_stranger(self, broker: BrokerId, partition: TopicPartition, topic_id: TopicId) -> None:
        """The broker shall stop serving a partition that the context need not know, of this topic; its log stays."""
        self._of(broker).strangers[partition] = StopReplicaRow(topic_id, NO_LEADER_EPOCH, delete=False)

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

    def hand_over(self, channels: ControllerChannelManager) -> None:
        """Give everything to the channels and begin again. Only what is committed may be in the context by now."""
        pool = RowPool(self._context)
        whole = self._whole_topics(pool)
        requests = {
            broker: self._requests(broker, whole.get(broker, []), pool)
            for broker in sorted(self._orders.keys() | whole.keys())
            if broker in self._context.brokers
        }
        if self._brokers_changed:
            channels.set_brokers(dict(self._context.brokers))
        crash_point("controller.batch.before_metadata")
        self._hand_over_metadata(channels, pool)
        self._metadata.clear()
        if self._removed:
            channels.forget(dict(self._removed))
        crash_point("controller.batch.before_requests")
        channels.send(requests)
        crash_point("controller.batch.before_starts")
        for broker in sorted(self._starting):
            channels.start(broker)
        self._clear()

    def _hand_over_metadata(self, channels: ControllerChannelManager, pool: RowPool) -> None:
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

    def _append_deltas(self, channels: ControllerChannelManager, pool: RowPool) -> None:
        first = pb.MetadataDelta(
            removed_topics=[
                pb.RemovedTopic(topic=topic, topic_id=topic_id.bytes) for topic, topic_id in self._removed.items()
            ]
        )
        if self._brokers_changed:
            _add_brokers(first, self._context)
        changed = _by_topic(self._metadata)
        channels.metadata.append(_encode_deltas(self._context, first, changed, pool))

    def _of(self, broker: BrokerId) -> _Orders:
        orders = self._orders.get(broker)
        if orders is None:
            orders = self._orders[broker] = _Orders()
        return orders

    def _whole_topics(self, pool: RowPool) -> dict[BrokerId, list[TopicRows]]:
        """What each broker shall host of topics as a whole; orders are left for what else is wanted."""
        whole: dict[BrokerId, list[TopicRows]] = {}
        if not self._whole:
            return whole
        self._split_special()
        for name in self._whole:
            entry = self._context.topics.get(name)
            if entry is not None and not self._context.is_being_deleted(name):
                for broker, rows in pool.of_brokers(entry).items():
                    whole.setdefault(broker, []).append(TopicRows(name, entry.topic_id, rows))
        for broker, orders in self._orders.items():
            for partition in [each for each in orders.hosts if each.topic in self._whole]:
                if self._is_hosted(broker, partition):
                    del orders.hosts[partition]
        return whole

    def _split_special(self) -> None:
        """Order whole topics partition by partition where a live broker is also to stop, or to begin with a new one."""
        special = {partition.topic for partition in self._context.reassigning}
        for broker, orders in self._orders.items():
            if broker in self._context.brokers:
                special.update(partition.topic for partition in (*orders.stops, *orders.new))
        for name in [each for each in self._whole if each in special]:
            del self._whole[name]
            told = not self._context.is_being_deleted(name)
            for partition in self._context.partitions_of(name):
                self._metadata[partition] = None
                for broker, state in self._context.replica_states(partition) if told else ():
                    if state is ReplicaState.ONLINE and partition not in self._of(broker).stops:
                        self._of(broker).hosts[partition] = None

    def _is_hosted(self, broker: BrokerId, partition: TopicPartition) -> bool:
        context = self._context
        online = context.replica_state(partition, broker) is ReplicaState.ONLINE
        return online and context.leadership(partition) is not None

    def _requests(self, broker: BrokerId, topics: list[TopicRows], pool: RowPool) -> BrokerRequests:
        context = self._context
        orders = self._orders.pop(broker, _Orders())  # its memory is free before slots take as much
        shared: dict[frozenset[int], frozenset[int]] = {}
        for topic, numbers in _by_topic(orders.hosts).items():
            entry = context.topics.get(topic)
            if entry is not None and (rows := pool.of_some(entry, numbers)):
                new = {number for number in rows.numbers if orders.new and entry.names[number] in orders.new}
                if context.reassigning:
                    new.update(_joining(rows, broker))
                numbers_new = frozenset(new)
                topics.append(TopicRows(topic, entry.topic_id, rows, shared.setdefault(numbers_new, numbers_new)))
        stops = {partition: self._stop_of(partition, delete=delete) for partition, delete in orders.stops.items()}
        return BrokerRequests(topics, {**orders.strangers, **stops})

    def _stop_of(self, partition: TopicPartition, *, delete: bool) -> StopReplicaRow:
        leadership = self._context.leadership(partition)
        epoch: LeaderEpoch = NO_LEADER_EPOCH if leadership is None else leadership.leader_and_isr.leader_epoch
        if self._context.is_being_deleted(partition.topic):
            epoch = EPOCH_DURING_DELETE
        return StopReplicaRow(self._context.topic_id(partition.topic), epoch, delete)


def _joining(rows: Rows, broker: BrokerId) -> list[int]:
    """Where a reassignment adds the replica: it may begin empty, in whichever directory works (KAFKA-10314)."""
    return [
        number
        for number, leadership, assignment in zip(rows.numbers, rows.leaderships, rows.assignments, strict=True)
        if broker in assignment.adding and broker not in leadership.leader_and_isr.isr
    ]


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
    """`first`, followed by the content of these partitions of topics, of all for None; in pieces of bounded size."""
    pieces = [first]
    size = 0
    for name, numbers in topics.items():
        entry = context.topics.get(name)
        if entry is None:
            continue
        wanted = range(len(entry.names)) if numbers is None else numbers
        for start in range(0, len(wanted), PARTITIONS_PER_DELTA):
            part = wanted[start : start + PARTITIONS_PER_DELTA]
            rows = pool.of_all(entry) if part == range(len(entry.names)) else pool.of_some(entry, part, offline=True)
            if not rows:
                continue
            if size and size + len(rows) > PARTITIONS_PER_DELTA:
                pieces.append(pb.MetadataDelta())
                size = 0
            states = messages.add_rows(pieces[-1], TopicRows(name, entry.topic_id, rows))
            if context.is_being_deleted(name):
                states.leader[:] = [LEADER_DURING_DELETE] * len(rows)
            size += len(rows)
    return [piece.SerializeToString() for piece in pieces]


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


_Identities = tuple[int, ...]


class RowPool:
    """Made for one look at a context that does not change meanwhile: facts are compared by identity.

    That is quick, and finds nearly all that is equal, because the context shares what it holds.
    """

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._known: dict[tuple[object, ...], Rows] = {}
        self._of_brokers: dict[tuple[_Identities, ...], Mapping[BrokerId, Rows]] = {}
        self._of_all: dict[tuple[_Identities, ...], Rows] = {}
        self._online: dict[int, tuple[BrokerId, ...]] = {}
        self._offline: dict[int, tuple[BrokerId, ...]] = {}

    def of_brokers(self, entry: TopicEntry) -> Mapping[BrokerId, Rows]:
        """What each broker shall host of a topic: the partitions with a leadership its replica of is Online."""
        key = (*_identities(entry), tuple(map(id, entry.replica_states)))
        found = self._of_brokers.get(key)
        if found is None:
            indexes: dict[BrokerId, list[int]] = {}
            for number, states in enumerate(entry.replica_states):
                if entry.leadership[number] is not None:
                    for broker in self._online_of(states):
                        indexes.setdefault(broker, []).append(number)
            found = self._of_brokers[key] = {broker: self.of_some(entry, own) for broker, own in indexes.items()}
        return found

    def of_all(self, entry: TopicEntry) -> Rows:
        """What metadata has of a topic, for all brokers."""
        key = _identities(entry)
        rows = self._of_all.get(key)
        if rows is None:
            rows = self.of_some(entry, range(len(entry.names)), offline=True)
            if not self._context.offline_replicas:
                self._of_all[key] = rows
        return rows

    def of_some(self, entry: TopicEntry, numbers: Sequence[int], *, offline: bool = False) -> Rows:
        """The content of those of these partitions that have a leadership, in order; with `offline` also who is."""
        leaderships: list[LeaderIsrAndControllerEpoch] = []
        assignments: list[ReplicaAssignment] = []
        told = []
        last = len(entry.names) - 1
        for number in numbers:
            if number > last:
                break  # the topic was created again, with fewer partitions
            leadership, assignment = entry.leadership[number], entry.assignments[number]
            if leadership is not None and assignment is not None:
                told.append(number)
                leaderships.append(leadership)
                assignments.append(assignment)
        gone: Sequence[tuple[BrokerId, ...]] = ()
        if offline and self._context.offline_replicas:
            gone = tuple(self._context.offline(entry.names[number]) for number in told)
        elif offline:
            gone = tuple(map(self._offline_of, assignments))
        if not any(gone):
            gone = ()
        key = (tuple(told), tuple(map(id, leaderships)), tuple(map(id, assignments)), gone)
        rows = self._known.get(key)
        if rows is None:
            rows = self._known[key] = Rows(tuple(told), leaderships, assignments, gone)
        return rows

    def _online_of(self, states: ReplicaStates) -> tuple[BrokerId, ...]:
        online = self._online.get(id(states))
        if online is None:
            online = self._online[id(states)] = tuple(each for each, state in states if state is ReplicaState.ONLINE)
        return online

    def _offline_of(self, assignment: ReplicaAssignment) -> tuple[BrokerId, ...]:
        offline = self._offline.get(id(assignment))
        if offline is None:
            usable = self._context.usable
            offline = tuple(each for each in assignment.replicas if each not in usable)
            self._offline[id(assignment)] = offline
        return offline


def _identities(entry: TopicEntry) -> tuple[_Identities, _Identities]:
    return tuple(map(id, entry.leadership)), tuple(map(id, entry.assignments))
