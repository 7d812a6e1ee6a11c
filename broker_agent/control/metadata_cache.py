"""The cluster as an agent knows it from UpdateMetadata: immutable snapshots, swapped whole, read without locks.

The cache applies numbered deltas and snapshots. `prepare` changes nothing and may run on any one thread at a time (the
control server's); `publish` and all that reads or subscribes belongs to the data loop. Never talks to ZooKeeper or to
the controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from regency.model.facts import Endpoint
from regency.model.ids import (
    LEADER_DURING_DELETE,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicId,
    TopicPartition,
    ZkVersion,
)


class PartitionMetadata(msgspec.Struct, frozen=True, gc=False):
    """Where a partition is and who leads it. `leader` is -1 when there is none."""

    partition: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    zk_version: ZkVersion
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...] = ()


class TopicMetadata(msgspec.Struct, frozen=True):
    """A topic and its partitions by number (missing ones have no leader yet)."""

    name: str
    topic_id: TopicId
    partitions: Mapping[int, PartitionMetadata]


class BrokerNode(msgspec.Struct, frozen=True):
    """A live broker. `endpoints` holds Kafka's listeners and the control ones."""

    id: BrokerId
    epoch: BrokerEpoch
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    shutting_down: bool = False

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of the listener of that name, if the broker has one."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


class MetadataSnapshot(msgspec.Struct, frozen=True):
    """One consistent view. `version` grows with every change, so that what is encoded from it can be cached."""

    version: int
    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    brokers: Mapping[BrokerId, BrokerNode]
    topics: Mapping[str, TopicMetadata]
    names: Mapping[TopicId, str]

    def endpoints(self, listener: str) -> dict[BrokerId, tuple[Endpoint, str | None]]:
        """Address and rack, by broker, of the live brokers that have a listener of that name."""
        found = ((broker, node.endpoint(listener), node.rack) for broker, node in sorted(self.brokers.items()))
        return {broker: (endpoint, rack) for broker, endpoint, rack in found if endpoint is not None}

    def partition(self, topic_partition: TopicPartition) -> PartitionMetadata | None:
        """The partition's metadata, or None where it is not known."""
        topic = self.topics.get(topic_partition.topic)
        return topic.partitions.get(topic_partition.partition) if topic else None


EMPTY = MetadataSnapshot(0, BrokerId(-1), ControllerEpoch(0), {}, {}, {})
"""Before the first UpdateMetadata."""


class RulingController(msgspec.Struct, frozen=True):
    """The controller with the newest epoch this agent has heard of. `endpoint` is host:port of its gRPC server."""

    id: BrokerId
    epoch: ControllerEpoch
    endpoint: str


class TopicDelta(msgspec.Struct, frozen=True):
    """Partitions of one topic that changed. A partition whose leader is -2 is being deleted and leaves the metadata."""

    name: str
    topic_id: TopicId
    partitions: Sequence[PartitionMetadata]


class MetadataChange(msgspec.Struct, frozen=True):
    """One step of the metadata. `brokers` replaces the live brokers as a whole; None leaves them as they are."""

    brokers: Sequence[BrokerNode] | None = None
    topics: Sequence[TopicDelta] = ()
    removed: Sequence[tuple[str, TopicId]] = ()


class MetadataUpdate(msgspec.Struct, frozen=True):
    """An UpdateMetadata request: deltas numbered from `first_delta`, or part of a snapshot as of `first_delta` - 1."""

    controller_epoch: ControllerEpoch
    controller_id: BrokerId
    changes: Sequence[MetadataChange]
    first_delta: int
    snapshot: bool = False
    first_chunk: bool = False
    last_chunk: bool = False


class Refused(msgspec.Struct, frozen=True):
    """The update does not follow what is held: nothing was taken, and the controller shall send a snapshot."""

    why: str


class Prepared(msgspec.Struct, frozen=True):
    """What `publish` puts in place. `view` is None after a piece of a snapshot that is not the last."""

    epoch: ControllerEpoch
    next_delta: int
    view: MetadataSnapshot | None
    staged: MetadataSnapshot | None


class MetadataCache:
    """The current view of the cluster, and who rules it. Implements `Peers`.

    A controller's deltas are numbered from 1 in each of its epochs and mean something only on top of one of its own
    snapshots, so the first update of an epoch must be a snapshot: what an older controller told may name topics that
    are gone.
    """

    def __init__(self) -> None:
        self._view = EMPTY
        self._epoch = ControllerEpoch(0)
        self._next_delta = 0
        self._staged: MetadataSnapshot | None = None
        self._ruling: RulingController | None = None
        self._predecessor: RulingController | None = None
        self._subscribers: list[Callable[[MetadataSnapshot], None]] = []

    @property
    def current(self) -> MetadataSnapshot:
        """The newest complete view; never changes once handed out."""
        return self._view

    @property
    def ruling(self) -> RulingController | None:
        """The controller to report and forward to; None before the first control request."""
        return self._ruling

    @property
    def predecessor(self) -> RulingController | None:
        """Who ruled before, as far as this agent heard: whom clients may still take for the controller."""
        return self._predecessor

    def broker_epoch(self, broker: BrokerId) -> BrokerEpoch | None:
        """Registered incarnation of a live broker; None where it is not known to live."""
        node = self._view.brokers.get(broker)
        return node.epoch if node else None

    def is_shutting_down(self, broker: BrokerId) -> bool:
        """Whether the broker is leaving under controlled shutdown."""
        node = self._view.brokers.get(broker)
        return node is not None and node.shutting_down

    def has_partition(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition exists somewhere in the cluster."""
        return self._view.partition(topic_partition) is not None

    def subscribe(self, callback: Callable[[MetadataSnapshot], None]) -> None:
        """Call back on the data loop with the view whenever it, or who rules, has changed."""
        self._subscribers.append(callback)

    def saw_controller(self, controller: RulingController) -> None:
        """Remember the ruling controller, unless one of a newer epoch is known.

        Clients see the new one with its first metadata, which names it among the live brokers too.
        """
        if self._ruling is None or controller.epoch > self._ruling.epoch:
            self._predecessor, self._ruling = self._ruling, controller
            self._tell()

    def apply(self, update: MetadataUpdate) -> Refused | None:
        """`prepare` and `publish` in one step, on the data loop. None: taken."""
        prepared = self.prepare(update)
        if isinstance(prepared, Refused):
            return prepared
        self.publish(prepared)
        return None

    def prepare(self, update: MetadataUpdate) -> Prepared | Refused:
        """Work out the view after an update, without publishing it. Calls must not overlap."""
        if update.snapshot:
            return self._prepare_snapshot(update)
        if update.controller_epoch != self._epoch or self._next_delta == 0:
            return Refused(f"no snapshot of controller epoch {update.controller_epoch} has been received")
        if update.first_delta != self._next_delta:
            return Refused(f"expected delta {self._next_delta}, got {update.first_delta}")
        view = merge(self._view, update)
        return Prepared(update.controller_epoch, self._next_delta + len(update.changes), view, None)

    def _prepare_snapshot(self, update: MetadataUpdate) -> Prepared | Refused:
        if update.first_chunk:
            base = EMPTY
        elif self._staged is not None and self._staged.controller_epoch == update.controller_epoch:
            base = self._staged
        else:
            return Refused("a piece of a snapshot whose first piece has not been received")
        view = merge(base, update)
        if update.last_chunk:
            return Prepared(update.controller_epoch, update.first_delta, view, None)
        return Prepared(self._epoch, self._next_delta, None, view)

    def publish(self, prepared: Prepared) -> None:
        """Put a prepared update in place and tell subscribers. Data loop only."""
        self._epoch = prepared.epoch
        self._next_delta = prepared.next_delta
        self._staged = prepared.staged
        if prepared.view is not None:
            self._swap(prepared.view)

    def _swap(self, view: MetadataSnapshot) -> None:
        self._view = msgspec.structs.replace(view, version=self._view.version + 1)
        self._tell()

    def _tell(self) -> None:
        for callback in tuple(self._subscribers):
            callback(self._view)

    async def wait_for(self, predicate: Callable[[MetadataSnapshot], bool], timeout_ms: int) -> bool:
        """Whether a view satisfied the predicate within `timeout_ms` milliseconds (0: look once)."""
        if predicate(self._view):
            return True
        if timeout_ms <= 0:
            return False
        satisfied: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def look(view: MetadataSnapshot) -> None:
            if not satisfied.done() and predicate(view):
                satisfied.set_result(None)

        self._subscribers.append(look)
        try:
            await asyncio.wait_for(satisfied, timeout_ms / 1000)
        except TimeoutError:
            return False
        finally:
            self._subscribers.remove(look)
        return True


def merge(base: MetadataSnapshot, update: MetadataUpdate) -> MetadataSnapshot:
    """The view after applying an update's changes, in order, to `base`, which stays as it is."""
    brokers: Mapping[BrokerId, BrokerNode] = base.brokers
    topics = dict(base.topics)
    names = dict(base.names)
    for change in update.changes:
        if change.brokers is not None:
            brokers = {node.id: node for node in sorted(change.brokers, key=lambda node: node.id)}
        for name, topic_id in change.removed:
            held = topics.get(name)
            if held is not None and held.topic_id == topic_id:
                del topics[name]
            names.pop(topic_id, None)
        for delta in change.topics:
            _merge_topic(topics, names, delta)
    return MetadataSnapshot(base.version, update.controller_id, update.controller_epoch, brokers, topics, names)


def _merge_topic(topics: dict[str, TopicMetadata], names: dict[TopicId, str], delta: TopicDelta) -> None:
    held = topics.get(delta.name)
    partitions: dict[int, PartitionMetadata] = {}
    if held is not None:
        if held.topic_id == delta.topic_id:
            partitions.update(held.partitions)
        else:
            names.pop(held.topic_id, None)
    for partition in delta.partitions:
        if partition.leader == LEADER_DURING_DELETE:
            partitions.pop(partition.partition, None)
        else:
            partitions[partition.partition] = partition
    if partitions:
        topics[delta.name] = TopicMetadata(delta.name, delta.topic_id, partitions)
        names[delta.topic_id] = delta.name
    else:
        topics.pop(delta.name, None)
        names.pop(delta.topic_id, None)
