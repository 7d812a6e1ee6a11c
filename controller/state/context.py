"""ControllerContext: what the ruling controller knows, in one controller epoch. Only the controller's thread uses it.

Other threads may copy (see topic_copies.py): what the lists and dictionaries hold is immutable.

Per topic there are lists by partition number, and tuples that repeat (ISRs, assignments, replica states) are shared, so
that two million partitions fit into memory. No I/O, no decisions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from regency.controller.state.election import Inquiry
from regency.controller.state.states import PartitionState, ReplicaState, StateTrace
from regency.controller.state.topic_entry import ReplicaStates, TopicEntry
from regency.model.facts import Broker, LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment, TopicAssignment
from regency.model.ids import NO_LEADER, ZERO_TOPIC_ID, BrokerEpoch, BrokerId, PartitionReplica, TopicId, TopicPartition
from regency.model.znodes import NO_LOSS

T = TypeVar("T")

NO_ASSIGNMENT = ReplicaAssignment(())
"""Assignment of a partition that is not known."""


class ControllerContext:
    """Brokers, assignments, leadership, states and deletion sets."""

    def __init__(self) -> None:
        self.brokers: dict[BrokerId, Broker] = {}
        """Live brokers, those shutting down included."""
        self.members: set[BrokerId] = set()
        """Brokers that live or may return: all that have ever registered, but for those that are gone for good.

        What another one is to delete is not waited for: it never held anything, or never will again.
        """
        self.last_epochs: dict[BrokerId, BrokerEpoch] = {}
        self.process_since: dict[BrokerId, BrokerEpoch] = {}
        """The first registration of the process of each registered broker; those that do not say are left out."""
        """Of the newest registration of every broker that marks its incarnations, whether it is live or not."""
        self.unsteered: frozenset[BrokerId] = frozenset()
        """Brokers that are registered and left out: their registration cannot be read, or names no control listener."""
        self.shutting_down: set[BrokerId] = set()
        self.restarted: set[BrokerId] = set()
        """Brokers that are registered no more as they are known here: what that means for their replicas comes next."""
        self.shutdown_ends_ms: dict[BrokerId, int] = {}
        """When brokers that shut down are taken to stay, if they are still there; monotonic."""
        self.offline_replicas: dict[BrokerId, set[TopicPartition]] = {}
        """Replicas on live brokers that do not work: their directory failed, or the broker restarted unnoticed."""
        self.returning: set[BrokerId] = set()
        """Brokers that restarted, while what that means for their replicas is handled: then they take part again."""
        self.lost_epochs: dict[BrokerId, BrokerEpoch] = {}
        """Before which registration each broker may have lost something of its logs last."""
        self.unsure: dict[BrokerId, set[TopicPartition]] = {}
        """Partitions that have a broker in the ISR which may have lost something of them since it was in sync."""
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
        """Of partitions in state New or Offline: who has the longest log is being asked."""
        self.reassigning: dict[TopicPartition, None] = {}
        """Partitions with replicas being added or removed."""
        self.asked_seen: tuple[int, int] | None = None
        """czxid and version of /admin/reassign_partitions as it was when all it asks for was begun."""
        self.deleting: dict[TopicPartition, None] = {}
        """Partitions with former replicas whose deletion is not confirmed."""
        self.touched: dict[str, None] = {}
        """Topics of which something has changed that brokers host by; a reader takes out those it has looked at."""
        self.unjudged: dict[TopicPartition, int] = {}
        """States that others wrote and that were read again, by the zxid of their last write: whether all members of
        their ISRs still work is looked at in an event of its own (see brokers/notifications.py)."""
        self.trace: StateTrace | None = None
        """Gets every change of a state, where they are traced."""
        self.usable: frozenset[BrokerId] = frozenset()
        """Brokers that are live, as they are known here, and not shutting down."""
        self._isrs: dict[tuple[BrokerId, ...], tuple[BrokerId, ...]] = {}
        self._assignments: dict[ReplicaAssignment, ReplicaAssignment] = {}
        self._replica_states: dict[ReplicaStates, ReplicaStates] = {}
        self._all_online: dict[tuple[BrokerId, ...], ReplicaStates] = {}
        """First states of replicas whose brokers are all usable, as long as these stay the same."""
        self._changed_states: dict[ReplicaState, dict[tuple[int, BrokerId], ReplicaStates]] = {}
        """By the new state, then by the identity of the states before, which are shared and stay, and the replica."""

    # Brokers

    def add_broker(self, broker: Broker) -> None:
        """Add a live broker, or replace what is known of it."""
        self.brokers[broker.id] = broker
        self.members.add(broker.id)
        self.restarted.discard(broker.id)
        self._refresh_usable()

    def remove_broker(self, broker: BrokerId) -> None:
        """Forget a broker that died, with its shutdown and its failed directories."""
        self.brokers.pop(broker, None)
        self.offline_replicas.pop(broker, None)
        self.restarted.discard(broker)
        self.end_shutdown(broker)

    def note_restarts(self, epochs: Mapping[BrokerId, BrokerEpoch]) -> None:
        """Let no broker take part that is not registered under the epoch it is known by; `epochs` are those of now."""
        self.restarted = {each for each, broker in self.brokers.items() if epochs.get(each) != broker.epoch}
        self._refresh_usable()

    def note_losses(self, lost_epochs: Mapping[BrokerId, BrokerEpoch]) -> None:
        """Take in what registrations say of losses: who has a newer one than was known is unsure of all it has.

        It registered with that: what the registration says that is known already is no news.
        """
        registered = {each: broker.epoch for each, broker in self.brokers.items()}
        news = [
            each
            for each, epoch in lost_epochs.items()
            if epoch > max(self.lost_epochs.get(each, NO_LOSS), registered.get(each, NO_LOSS))
        ]
        self.lost_epochs.update(lost_epochs)
        for broker in news:
            for partition in self.partitions_on((broker,)):
                leadership = self.leadership(partition)
                if leadership is not None and broker in leadership.leader_and_isr.isr:
                    self.unsure.setdefault(broker, set()).add(partition)

    def judge_losses(self, partition: TopicPartition, mzxid: int) -> None:
        """Note which members may have lost something, of a state that was read: its last write has this zxid.

        Who was in sync with a leader had all of it. Without a leader, the write may have kept one that had lost some.
        """
        leadership = self.leadership(partition)
        assert leadership is not None, "it has just been read"
        now = leadership.leader_and_isr
        since = mzxid if now.has_leader else NO_LOSS
        for member in now.isr:
            if self.lost_epochs.get(member, NO_LOSS) > since:
                self.unsure.setdefault(member, set()).add(partition)

    def unsure_members(self, partition: TopicPartition) -> tuple[BrokerId, ...]:
        """Brokers in its ISR that may have lost something since they were in sync; none while it is led."""
        if not self.unsure:
            return ()
        return tuple([broker for broker in sorted(self.unsure) if partition in self.unsure[broker]])

    def steady(self, partition: TopicPartition, isr: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
        """Members that are still what was in sync: their brokers have not registered again since."""
        if not self.restarted and partition not in self.unjudged:
            return isr
        former = self.former_members(partition)
        return tuple([each for each in isr if each not in self.restarted and each not in former])

    def former_members(self, partition: TopicPartition) -> tuple[BrokerId, ...]:
        """Members of an ISR that was read since ISRs were judged, which registered after it was written.

        The leader took in an earlier incarnation; a decision that kept the present one would hide that.
        """
        written, leadership = self.unjudged.get(partition), self.leadership(partition)
        if written is None or leadership is None:
            return ()
        isr = leadership.leader_and_isr.isr
        return tuple([each for each in isr if each in self.brokers and self.brokers[each].epoch > written])

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
        live: Collection[BrokerId] = self.usable
        if including_shutting_down:
            live = self.brokers.keys() - self.restarted if self.restarted else self.brokers
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
        shared: dict[int, ReplicaAssignment] = {}  # by identity: within a topic most that is equal is the same
        for number, assignment in sorted(topic.partitions.items()):
            if entry.assignments[number] is None:
                known = shared.get(id(assignment))
                if known is None:
                    known = shared[id(assignment)] = _shared(self._assignments, assignment)
                entry.assignments[number] = known
                partition = entry.names[number]
                added.append(partition)
                if assignment.adding or assignment.removing or assignment.deleting:
                    self._note_reassignment(partition, assignment)
        entry.changes += 1
        self.partition_count += len(added)
        return added

    def remove_topic(self, topic: str) -> None:
        """Forget a topic whose znode is gone."""
        if self.trace is not None:
            self._trace_end(topic)
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
            for those in (*self.offline_replicas.values(), *self.unsure.values()):
                those.difference_update(partitions)
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
        entry.changes += 1
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

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Every partition of a topic, by number; none where it is not known."""
        entry = self.topics.get(topic)
        return [] if entry is None else [entry.names[number] for number, _ in entry.partitions()]

    def partitions_on(self, brokers: Collection[BrokerId]) -> list[TopicPartition]:
        """Partitions with a replica on one of the brokers."""
        wanted = frozenset(brokers)
        found = []
        for entry in self.topics.values():
            for partition, assignment in zip(entry.names, entry.assignments, strict=True):
                if assignment is not None and not wanted.isdisjoint(assignment.replicas):
                    found.append(partition)
        return found

    def replicas_on(self, brokers: Collection[BrokerId]) -> list[PartitionReplica]:
        """All replicas on these brokers, by partition, then by broker."""
        ordered = sorted(brokers)
        wanted = frozenset(ordered)
        found = []
        for name, entry in self.topics.items():
            for number, assignment in entry.partitions():
                if not wanted.isdisjoint(assignment.replicas):
                    for broker in ordered:
                        if broker in assignment.replicas:
                            found.append(PartitionReplica(name, number, broker))
        return found

    def is_queued_for_deletion(self, topic: str) -> bool:
        """Whether the topic's deletion was asked for. Nothing new may be begun with it."""
        return topic in self.topics_to_delete

    def is_being_deleted(self, topic: str) -> bool:
        """Whether replicas of the topic are being deleted: no broker may get the order to host it (KAFKA-13342)."""
        return topic in self.topics_deletion_started

    # Leadership

    def leadership(self, partition: TopicPartition) -> LeaderIsrAndControllerEpoch | None:
        """Who leads and who is in sync, as last read or written; None where no state znode exists."""
        entry = self.topics.get(partition.topic)
        if entry is None or partition.partition >= len(entry.leadership):
            return None
        return entry.leadership[partition.partition]

    def leader(self, partition: TopicPartition) -> BrokerId:
        """The leader; NO_LEADER where there is none, or no state znode."""
        leadership = self.leadership(partition)
        return NO_LEADER if leadership is None else leadership.leader_and_isr.leader

    def isr(self, partition: TopicPartition) -> tuple[BrokerId, ...]:
        """The replicas in sync; none where no state znode exists."""
        leadership = self.leadership(partition)
        return () if leadership is None else leadership.leader_and_isr.isr

    def set_leadership(self, partition: TopicPartition, leadership: LeaderIsrAndControllerEpoch) -> None:
        """Note what the state znode holds."""
        entry = self.topics[partition.topic]
        entry.leadership[partition.partition] = leadership
        entry.changes += 1
        self.touched[partition.topic] = None
        if self.unsure:
            self._settle(partition, leadership.leader_and_isr)

    def _settle(self, partition: TopicPartition, now: LeaderAndIsr) -> None:
        """Who leads has what is committed from now on, and who is in sync with it."""
        for broker in self.unsure_members(partition):
            if now.has_leader or broker not in now.isr:
                self.unsure[broker].discard(partition)
                if not self.unsure[broker]:
                    del self.unsure[broker]

    def set_leaderships(self, read: Mapping[TopicPartition, LeaderIsrAndControllerEpoch]) -> None:
        """Note what many state znodes hold."""
        topic, known = "", self.topics.get("")
        for partition, leadership in read.items():
            name, number = partition
            if known is None or name != topic:
                topic, known = name, self.topics[name]
                self.touched[name] = None
            known.leadership[number] = leadership
            known.changes += 1

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
        entry = self.topics[partition.topic]
        if self.trace is not None:
            self.trace.partition(partition, self.partition_state(partition), state, self.leadership(partition))
        entry.partition_states[partition.partition] = state
        entry.changes += 1
        if state is PartitionState.NEW or state is PartitionState.OFFLINE:
            self.leaderless.add(partition)
        else:
            self.leaderless.discard(partition)
            self.inquiries.pop(partition, None)

    def replica_state(self, partition: TopicPartition, broker: BrokerId) -> ReplicaState:
        """The replica's state; NON_EXISTENT where it is not known."""
        for replica, state in self.replica_states(partition):
            if replica == broker:
                return state
        return ReplicaState.NON_EXISTENT

    def replica_states(self, partition: TopicPartition) -> ReplicaStates:
        """All replicas of a partition with their states, by broker; none where it is not known."""
        entry = self.topics.get(partition.topic)
        if entry is None or partition.partition >= len(entry.replica_states):
            return ()
        return entry.replica_states[partition.partition]

    def set_replica_state(self, partition: TopicPartition, broker: BrokerId, state: ReplicaState) -> None:
        """Move a replica of a known topic into a state; NON_EXISTENT forgets it."""
        entry = self.topics[partition.topic]
        entry.grow(partition.partition)
        if self.trace is not None:
            self.trace.replica(partition, broker, self.replica_state(partition, broker), state)
        states = entry.replica_states[partition.partition]
        known, key = self._changed_states.setdefault(state, {}), (id(states), broker)
        changed = known.get(key)
        if changed is None:
            others = [each for each in states if each[0] != broker]
            kept = others if state is ReplicaState.NON_EXISTENT else [*others, (broker, state)]
            ordered = tuple(sorted(kept, key=lambda each: each[0]))
            changed = known[key] = _shared(self._replica_states, ordered)
        entry.replica_states[partition.partition] = changed
        entry.changes += 1
        self.touched[partition.topic] = None

    def begin_replicas(self, topic: str) -> list[PartitionReplica]:
        """Give all replicas of a topic their first states, Online or Ineligible. Returns those that are Ineligible."""
        entry = self.topics[topic]
        self.touched[topic] = None
        ineligible: list[PartitionReplica] = []
        alike = not self.offline_replicas
        """Whether a replica's state depends on its broker alone: else partitions of the same brokers may differ."""
        known = self._all_online
        for number, assignment in entry.partitions():
            states = known.get(assignment.replicas) if alike else None
            if states is None:
                partition = entry.names[number]
                own = {replica: self._first_state(replica, partition) for replica in sorted(assignment.replicas)}
                states = _shared(self._replica_states, tuple(own.items()))
                offline = [replica for replica in assignment.replicas if own[replica] is not ReplicaState.ONLINE]
                ineligible += (PartitionReplica(topic, number, replica) for replica in offline)
                if alike and not offline:
                    known[assignment.replicas] = states
            entry.replica_states[number] = states
            if self.trace is not None:
                for replica, state in states:
                    self.trace.replica(entry.names[number], replica, ReplicaState.NON_EXISTENT, state)
        entry.changes += 1
        return ineligible

    def begin_partitions(self, topic: str, states: list[PartitionState]) -> None:
        """Give all partitions of a topic their first states, by number."""
        entry = self.topics[topic]
        entry.partition_states = states
        entry.changes += 1
        waiting = (PartitionState.NEW, PartitionState.OFFLINE)
        self.leaderless.update(name for name, state in zip(entry.names, states, strict=True) if state in waiting)
        if self.trace is not None:
            for name, state in zip(entry.names, states, strict=True):
                self.trace.partition(name, PartitionState.NON_EXISTENT, state, self.leadership(name))

    def offline_partitions(self) -> int:
        """Partitions without a leader whose deletion has not begun, those that never had one among them.

        Kafka counts only those that lost theirs. It makes no difference who of both waits for a broker.
        """
        deleting = self.topics_deletion_started
        if not deleting:
            return len(self.leaderless)
        return sum(1 for partition in self.leaderless if partition.topic not in deleting)

    def _trace_end(self, topic: str) -> None:
        assert self.trace is not None, "somebody reads"
        for partition in self.partitions_of(topic):
            for replica, state in self.replica_states(partition):
                self.trace.replica(partition, replica, state, ReplicaState.NON_EXISTENT)
            before = self.partition_state(partition)
            if before is not PartitionState.NON_EXISTENT:
                self.trace.partition(partition, before, PartitionState.NON_EXISTENT, None)

    def _note_reassignment(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        if assignment.is_reassigning:
            self.reassigning[partition] = None
        elif self.reassigning:
            self.reassigning.pop(partition, None)
        if assignment.deleting:
            self.deleting[partition] = None
        elif self.deleting:
            self.deleting.pop(partition, None)

    def _first_state(self, broker: BrokerId, partition: TopicPartition) -> ReplicaState:
        return ReplicaState.ONLINE if self.is_online(broker, partition) else ReplicaState.DELETION_INELIGIBLE

    def _refresh_usable(self) -> None:
        self.usable = frozenset(self.brokers) - self.shutting_down - self.restarted
        self._all_online.clear()


def _shared(pool: dict[T, T], value: T) -> T:
    return pool.setdefault(value, value)
