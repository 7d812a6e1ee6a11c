"""ControllerContext: what the ruling controller knows, in one controller epoch. Only the controller's thread uses it.

Per topic there are lists by partition number, and tuples that repeat (ISRs, assignments, replica states) are shared, so
that two million partitions fit into memory. No I/O, no decisions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TypeVar

import msgspec

from regency.controller.election import LogEnd
from regency.controller.states import PartitionState, ReplicaState
from regency.model.facts import (
    Broker,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicAssignment,
)
from regency.model.ids import ZERO_TOPIC_ID, BrokerEpoch, BrokerId, TopicId, TopicPartition, ZkVersion

ReplicaStates = tuple[tuple[BrokerId, ReplicaState], ...]
T = TypeVar("T")

NO_ASSIGNMENT = ReplicaAssignment(())
"""Assignment of a partition that is not known."""


class TopicEntry:
    """One topic: identity, and one list entry per partition number (None where there is no such one)."""

    __slots__ = (
        "assignments",
        "czxid",
        "leadership",
        "name",
        "names",
        "partition_states",
        "replica_states",
        "topic_id",
        "zk_version",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.topic_id: TopicId = ZERO_TOPIC_ID
        self.czxid = 0
        self.zk_version = ZkVersion(0)
        self.names: list[TopicPartition] = []
        """What each partition is called, one value for all who go through them."""
        self.assignments: list[ReplicaAssignment | None] = []
        self.leadership: list[LeaderIsrAndControllerEpoch | None] = []
        self.partition_states: list[PartitionState] = []
        self.replica_states: list[ReplicaStates] = []

    def grow(self, partition: int) -> None:
        """Make room for partition number `partition`."""
        missing = partition + 1 - len(self.assignments)
        if missing > 0:
            self.names.extend(TopicPartition(self.name, number) for number in range(len(self.names), partition + 1))
            self.assignments.extend([None] * missing)
            self.leadership.extend([None] * missing)
            self.partition_states.extend([PartitionState.NON_EXISTENT] * missing)
            self.replica_states.extend([()] * missing)

    def partitions(self) -> Iterator[tuple[int, ReplicaAssignment]]:
        """Numbers and assignments of the partitions there are, in order."""
        for number, assignment in enumerate(self.assignments):
            if assignment is not None:
                yield number, assignment


class Inquiry(msgspec.Struct):
    """Who was asked how far its log of a partition goes, and what was answered; None for one who does not tell."""

    due_ms: int
    """When it is over, whoever is silent; monotonic."""
    forced: bool = False
    """Somebody asked for this very election: settings do not matter."""
    asked: dict[BrokerId, BrokerEpoch] = {}
    ends: dict[BrokerId, LogEnd | None] = {}


class ControllerContext:
    """Brokers, assignments, leadership, states and deletion sets."""

    def __init__(self) -> None:
        self.brokers: dict[BrokerId, Broker] = {}
        """Live brokers, those shutting down included."""
        self.shutting_down: set[BrokerId] = set()
        self.shutdown_ends_ms: dict[BrokerId, int] = {}
        """When brokers that shut down are taken to stay, if they are still there; monotonic."""
        self.offline_replicas: dict[BrokerId, set[TopicPartition]] = {}
        """Replicas on live brokers that do not work: their directory failed, or the broker restarted unnoticed."""
        self.topics: dict[str, TopicEntry] = {}
        self.partition_count = 0
        self.topics_to_delete: set[str] = set()
        """Topics whose deletion was asked for."""
        self.topics_deletion_started: set[str] = set()
        """Those of them whose replicas are being deleted: all but the ones that are being reassigned first."""
        self.topics_ineligible: dict[str, str] = {}
        """Those of them that wait, and for what, in words."""
        self.leaderless: set[TopicPartition] = set()
        """Partitions in state New or Offline."""
        self.inquiries: dict[TopicPartition, Inquiry] = {}
        """Of partitions in state Offline: who has the longest log is being asked."""
        self.reassigning: dict[TopicPartition, None] = {}
        """Partitions with replicas being added or removed."""
        self.asked_seen: tuple[int, int] | None = None
        """czxid and version of /admin/reassign_partitions as it was when all it asks for was begun."""
        self.deleting: dict[TopicPartition, None] = {}
        """Partitions with former replicas whose deletion is not confirmed."""
        self.touched: dict[str, None] = {}
        """Topics of which something has changed that brokers host by; whoever has looked at them takes them out."""
        self.usable: frozenset[BrokerId] = frozenset()
        """Brokers that are live and not shutting down."""
        self._isrs: dict[tuple[BrokerId, ...], tuple[BrokerId, ...]] = {}
        self._assignments: dict[ReplicaAssignment, ReplicaAssignment] = {}
        self._replica_states: dict[ReplicaStates, ReplicaStates] = {}
        self._all_online: dict[tuple[BrokerId, ...], ReplicaStates] = {}
        self._changed_states: dict[tuple[ReplicaStates, BrokerId, ReplicaState], ReplicaStates] = {}

    # Brokers

    def add_broker(self, broker: Broker) -> None:
        """Add a live broker, or replace what is known of it."""
        self.brokers[broker.id] = broker
        self._refresh_usable()

    def remove_broker(self, broker: BrokerId) -> None:
        """Forget a broker that died, with its shutdown and its failed directories."""
        self.brokers.pop(broker, None)
        self.offline_replicas.pop(broker, None)
        self.end_shutdown(broker)

    def begin_shutdown(self, broker: BrokerId) -> None:
        """Note that a live broker is leaving under controlled shutdown."""
        self.shutting_down.add(broker)
        self._refresh_usable()

    def end_shutdown(self, broker: BrokerId) -> None:
        """Note that a broker has left, or stays after all."""
        self.shutting_down.discard(broker)
        self.shutdown_ends_ms.pop(broker, None)
        self._refresh_usable()

    def mark_offline(self, broker: BrokerId, partitions: Iterable[TopicPartition]) -> None:
        """Note that these replicas do not work although their broker lives."""
        self.offline_replicas.setdefault(broker, set()).update(partitions)

    def mark_online(self, broker: BrokerId, partitions: Iterable[TopicPartition]) -> None:
        """Note that these replicas work again."""
        remaining = self.offline_replicas.pop(broker, set()).difference(partitions)
        if remaining:
            self.offline_replicas[broker] = remaining

    def clear_offline(self, broker: BrokerId) -> None:
        """Forget which replicas of the broker did not work."""
        self.offline_replicas.pop(broker, None)

    def is_online(self, broker: BrokerId, partition: TopicPartition) -> bool:
        """Whether the broker could serve the partition now."""
        return broker in self.usable and partition not in self.offline_replicas.get(broker, ())

    def online(self, partition: TopicPartition, *, including_shutting_down: bool = False) -> Collection[BrokerId]:
        """Brokers that could serve the partition, if it were assigned to them; for membership tests."""
        live: Collection[BrokerId] = self.brokers if including_shutting_down else self.usable
        if not self.offline_replicas:
            return live
        return [broker for broker in sorted(live) if partition not in self.offline_replicas.get(broker, ())]

    def offline(self, partition: TopicPartition) -> tuple[BrokerId, ...]:
        """Assigned replicas that do not work: their broker is dead or shutting down, or their directory failed."""
        replicas = self.assignment(partition).replicas
        if not self.offline_replicas and self.usable.issuperset(replicas):
            return ()
        online = self.online(partition)
        return tuple(replica for replica in replicas if replica not in online)

    # Topics and assignments

    def put_topic(self, topic: TopicAssignment) -> list[TopicPartition]:
        """Take in a topic znode. Returns the partitions that were not known before.

        What is known of a partition's replicas is not replaced: only a reassignment changes them.
        """
        entry = self.topics.get(topic.topic)
        if entry is None:
            entry = self.topics[topic.topic] = TopicEntry(topic.topic)
        entry.zk_version = topic.zk_version
        entry.czxid = topic.czxid
        self.touched[topic.topic] = None
        if topic.topic_id is not None:
            entry.topic_id = topic.topic_id
        added = []
        if topic.partitions:
            entry.grow(max(topic.partitions))
        for number, assignment in sorted(topic.partitions.items()):
            if entry.assignments[number] is None:
                entry.assignments[number] = _shared(self._assignments, assignment)
                partition = entry.names[number]
                added.append(partition)
                if assignment.adding or assignment.removing or assignment.deleting:
                    self._note_reassignment(partition, assignment)
        self.partition_count += len(added)
        return added

    def remove_topic(self, topic: str) -> None:
        """Forget a topic whose znode is gone."""
        entry = self.topics.pop(topic, None)
        self.touched[topic] = None
        if entry is not None:
            partitions = [TopicPartition(topic, number) for number, _ in entry.partitions()]
            self.partition_count -= len(partitions)
            self.leaderless.difference_update(partitions)
            for partition in partitions:
                self.inquiries.pop(partition, None)
            for partition in partitions:
                self.reassigning.pop(partition, None)
                self.deleting.pop(partition, None)
            for offline in self.offline_replicas.values():
                offline.difference_update(partitions)
        self.topics_to_delete.discard(topic)
        self.topics_deletion_started.discard(topic)
        self.topics_ineligible.pop(topic, None)

    def assignment(self, partition: TopicPartition) -> ReplicaAssignment:
        """The assignment; without replicas where the partition is not known."""
        entry = self.topics.get(partition.topic)
        if entry is None or partition.partition >= len(entry.assignments):
            return NO_ASSIGNMENT
        return entry.assignments[partition.partition] or NO_ASSIGNMENT

    def set_assignment(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Replace the assignment of a partition of a known topic."""
        entry = self.topics[partition.topic]
        entry.grow(partition.partition)
        entry.assignments[partition.partition] = _shared(self._assignments, assignment)
        self.touched[partition.topic] = None
        self._note_reassignment(partition, assignment)

    def is_reassigning(self, topic: str) -> bool:
        """Whether a partition of the topic has replicas being added or removed."""
        entry = self.topics.get(topic)
        if entry is None or not self.reassigning:
            return False
        return any(assignment.is_reassigning for _, assignment in entry.partitions())

    def topic_id(self, topic: str) -> TopicId:
        """The topic's id; all zero where it has none."""
        entry = self.topics.get(topic)
        return ZERO_TOPIC_ID if entry is None else entry.topic_id

    def partitions(self) -> Iterator[TopicPartition]:
        """Every partition, by topic in order of arrival, then by number."""
        for entry in self.topics.values():
            for partition, assignment in zip(entry.names, entry.assignments, strict=True):
                if assignment is not None:
                    yield partition

    def partitions_on(self, brokers: Collection[BrokerId]) -> list[TopicPartition]:
        """Partitions with a replica on one of the brokers."""
        wanted = frozenset(brokers)
        found = []
        for entry in self.topics.values():
            for partition, assignment in zip(entry.names, entry.assignments, strict=True):
                if assignment is not None and not wanted.isdisjoint(assignment.replicas):
                    found.append(partition)
        return found

    def is_queued_for_deletion(self, topic: str) -> bool:
        """Whether somebody asked for the topic's deletion. Nothing new may be begun with it."""
        return topic in self.topics_to_delete

    def is_being_deleted(self, topic: str) -> bool:
        """Whether replicas of the topic are being deleted: nobody may be told to host it (KAFKA-13342)."""
        return topic in self.topics_deletion_started

    # Leadership

    def leadership(self, partition: TopicPartition) -> LeaderIsrAndControllerEpoch | None:
        """Who leads and who is in sync, as last read or written; None where no state znode exists."""
        entry = self.topics.get(partition.topic)
        if entry is None or partition.partition >= len(entry.leadership):
            return None
        return entry.leadership[partition.partition]

    def set_leadership(self, partition: TopicPartition, leadership: LeaderIsrAndControllerEpoch) -> None:
        """Note what the state znode holds."""
        self.topics[partition.topic].leadership[partition.partition] = leadership
        self.touched[partition.topic] = None

    def shared_isr(self, isr: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
        """The one tuple kept for all partitions with this ISR."""
        return _shared(self._isrs, isr)

    # States

    def partition_state(self, partition: TopicPartition) -> PartitionState:
        """The partition's state; NON_EXISTENT where it is not known."""
        entry = self.topics.get(partition.topic)
        if entry is None or partition.partition >= len(entry.partition_states):
            return PartitionState.NON_EXISTENT
        return entry.partition_states[partition.partition]

    def set_partition_state(self, partition: TopicPartition, state: PartitionState) -> None:
        """Move a partition of a known topic into a state."""
        self.topics[partition.topic].partition_states[partition.partition] = state
        if state is PartitionState.NEW or state is PartitionState.OFFLINE:
            self.leaderless.add(partition)
        else:
            self.leaderless.discard(partition)
            self.inquiries.pop(partition, None)

    def replica_state(self, partition: TopicPartition, broker: BrokerId) -> ReplicaState:
        """The replica's state; NON_EXISTENT where it is not known."""
        entry = self.topics.get(partition.topic)
        if entry is None or partition.partition >= len(entry.replica_states):
            return ReplicaState.NON_EXISTENT
        for replica, state in entry.replica_states[partition.partition]:
            if replica == broker:
                return state
        return ReplicaState.NON_EXISTENT

    def set_replica_state(self, partition: TopicPartition, broker: BrokerId, state: ReplicaState) -> None:
        """Move a replica of a known topic into a state; NON_EXISTENT forgets it."""
        entry = self.topics[partition.topic]
        entry.grow(partition.partition)
        states = entry.replica_states[partition.partition]
        key = (states, broker, state)
        changed = self._changed_states.get(key)
        if changed is None:
            others = [each for each in states if each[0] != broker]
            kept = others if state is ReplicaState.NON_EXISTENT else [*others, (broker, state)]
            ordered = tuple(sorted(kept, key=lambda each: each[0]))
            changed = self._changed_states[key] = _shared(self._replica_states, ordered)
        entry.replica_states[partition.partition] = changed
        self.touched[partition.topic] = None

    def begin_replicas(self, partition: TopicPartition, replicas: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
        """Give all replicas of a partition their first states, Online or Ineligible. Returns those that are Online."""
        entry = self.topics[partition.topic]
        self.touched[partition.topic] = None
        if not self.offline_replicas and self.usable.issuperset(replicas):
            states = self._all_online.get(replicas)
            if states is None:
                pairs = tuple((replica, ReplicaState.ONLINE) for replica in sorted(replicas))
                states = self._all_online[replicas] = _shared(self._replica_states, pairs)
            entry.replica_states[partition.partition] = states
            return replicas
        online = tuple(replica for replica in replicas if self.is_online(replica, partition))
        for replica in replicas:
            state = ReplicaState.ONLINE if replica in online else ReplicaState.DELETION_INELIGIBLE
            self.set_replica_state(partition, replica, state)
        return online

    def offline_partitions(self) -> int:
        """Partitions without a leader whose deletion has not begun."""
        deleting = self.topics_deletion_started
        return sum(
            1
            for partition in self.leaderless
            if partition.topic not in deleting and self.partition_state(partition) is PartitionState.OFFLINE
        )

    def _note_reassignment(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        if assignment.is_reassigning:
            self.reassigning[partition] = None
        elif self.reassigning:
            self.reassigning.pop(partition, None)
        if assignment.deleting:
            self.deleting[partition] = None
        elif self.deleting:
            self.deleting.pop(partition, None)

    def _refresh_usable(self) -> None:
        self.usable = frozenset(self.brokers) - self.shutting_down


def _shared(pool: dict[T, T], value: T) -> T:
    return pool.setdefault(value, value)
