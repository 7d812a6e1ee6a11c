"""What other threads see of the topics that the ruling controller knows: copies, made again where something changed.

Of each topic a copy has the assignments and leaderships, what is counted of it, and how well its partitions are.

The controller's thread takes no part in it and waits for nothing: what its lists, sets and dictionaries hold is
immutable, and each is copied by one call that no other Python code runs in between of. A topic that changes while it is
copied is copied again next time: its count of changes grows after every change, and is read before the lists are.

Those who copy do not wait for each other either. Two may copy the same topic at once; if the older copy is the one that
is kept, its count of changes says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from heapq import nsmallest
from typing import Final

import msgspec

from regency.controller.state.context import ControllerContext
from regency.controller.state.states import PartitionState, ReplicaState
from regency.controller.state.topic_entry import TopicEntry
from regency.model.facts import Broker, LeaderIsrAndControllerEpoch, ReplicaAssignment
from regency.model.ids import NO_LEADER, BrokerId, TopicId, TopicPartition


class TopicCopy(msgspec.Struct, frozen=True):
    """One topic as it was at a moment, and what is counted of it. Lists go by partition number, and do not change."""

    name: str
    topic_id: TopicId
    assignments: Sequence[ReplicaAssignment | None]
    """None where there is no such partition."""
    leadership: Sequence[LeaderIsrAndControllerEpoch | None]
    """None where no state znode exists."""
    queued: bool
    """Its deletion was asked for."""
    partitions: int
    led: int
    """Partitions that have ever had a leader."""
    imbalanced: int
    """Those of them that their preferred replica does not lead; 0 where `queued`."""
    replicas_to_delete: int
    """Where `queued`, replicas whose deletion is not confirmed."""
    replicas_ineligible: int
    """Those of them that cannot be deleted now."""
    health: TopicHealth | None
    """How well its partitions are; None: all are led and in sync."""


class Copies(msgspec.Struct, frozen=True):
    """All that is counted, as it was at a moment. Sums over topics are of their copies."""

    brokers: Mapping[BrokerId, Broker] = {}
    """Live ones, those shutting down included."""
    shutting_down: AbstractSet[BrokerId] = frozenset()
    absent: AbstractSet[BrokerId] = frozenset()
    """Members of the cluster that are not live."""
    topics: Sequence[TopicCopy] = ()
    """But for those that are being deleted."""
    topic_count: int = 0
    partitions: int = 0
    led: int = 0
    """Partitions with leadership information."""
    imbalanced: int = 0
    reassigning: int = 0
    topics_to_delete: int = 0
    topics_ineligible: int = 0
    replicas_to_delete: int = 0
    replicas_ineligible: int = 0
    deleting: int = 0
    """Topics whose deletion has begun."""
    uncounted: int = 0
    """Topics that were not copied since they changed: what is known of them is old, or nothing."""


class _Kept(msgspec.Struct):
    entry: TopicEntry
    changes: int
    copy: TopicCopy


class TopicCopies:
    """The copies of one term's topics, which all who count share. Any thread."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._kept: dict[str, _Kept] = {}

    def take(self, enough: Callable[[], bool] = lambda: False) -> Copies:
        """Everything as it is now. Takes time for all topics, and for the partitions of those that have changed.

        `enough` is asked after every topic that is copied: once it says so, the others are left as they were.
        """
        context, kept = self._context, self._kept
        queued, started = context.topics_to_delete.copy(), context.topics_deletion_started.copy()
        topics = context.topics.copy()
        copies: list[TopicCopy] = []
        uncounted, over = 0, False
        for name, entry in topics.items():
            known = kept.get(name)
            if known is None or not _still_right(known, entry, queued=name in queued):
                if over:
                    uncounted += 1
                else:
                    known = kept[name] = _copy(entry, queued=name in queued)
                    over = enough()
            if known is not None:
                copies.append(known.copy)
        if len(kept) > len(topics):
            for gone in kept.copy().keys() - topics.keys():
                kept.pop(gone, None)
        return Copies(
            brokers=(brokers := context.brokers.copy()),
            shutting_down=context.shutting_down.copy(),
            absent=context.members.copy() - brokers.keys(),
            topics=[copy for copy in copies if copy.name not in started],
            topic_count=len(topics),
            partitions=sum(copy.partitions for copy in copies),
            led=sum(copy.led for copy in copies),
            imbalanced=sum(copy.imbalanced for copy in copies),
            reassigning=len(context.reassigning),
            topics_to_delete=len(queued),
            topics_ineligible=len(context.topics_ineligible),
            replicas_to_delete=sum(copy.replicas_to_delete for copy in copies),
            replicas_ineligible=sum(copy.replicas_ineligible for copy in copies),
            deleting=len(started),
            uncounted=uncounted,
        )


def _still_right(known: _Kept, entry: TopicEntry, *, queued: bool) -> bool:
    return known.entry is entry and known.changes == entry.changes and known.copy.queued is queued


def _copy(entry: TopicEntry, *, queued: bool) -> _Kept:
    changes = entry.changes
    assignments, leadership = entry.assignments[:], entry.leadership[:]
    replicas = entry.replica_states[:] if queued else ()
    health = health_of(entry.name, assignments, leadership, entry.partition_states[:])
    led = imbalanced = to_delete = ineligible = 0
    for assignment, leader in zip(assignments, leadership, strict=False):  # a topic may just be growing
        if assignment is not None and leader is not None:
            led += 1
            imbalanced += not queued and is_imbalanced(assignment, leader)
    for states in replicas:
        for _, state in states:
            to_delete += state is not ReplicaState.DELETION_SUCCESSFUL
            ineligible += state is ReplicaState.DELETION_INELIGIBLE
    partitions = len(assignments) - assignments.count(None)
    counts = (partitions, led, imbalanced, to_delete, ineligible)
    copy = TopicCopy(entry.name, entry.topic_id, assignments, leadership, queued, *counts, health)
    return _Kept(entry, changes, copy)


def is_imbalanced(assignment: ReplicaAssignment, leadership: LeaderIsrAndControllerEpoch) -> bool:
    """Whether another than the preferred replica leads, or none.

    One that a reassignment adds is not expected to lead before it is in sync. Source: Kafka's ControllerContext,
    hasPreferredLeader; but a new preferred replica that leads already is not counted.
    """
    if not assignment.replicas:
        return False
    preferred, now = assignment.replicas[0], leadership.leader_and_isr
    return now.leader != preferred and (preferred not in assignment.adding or preferred in now.isr)


NAMED_PER_TOPIC: Final = 10
"""So many partitions of one topic are named; the rest are in the counts."""


class TroubleKind(Enum):
    """What is wrong with a partition, the worst first. The values are stable: tools read them."""

    OFFLINE = "offline"
    UNDER_MIN_ISR = "under_min_isr"
    UNDER_REPLICATED = "under_replicated"


_RANKS: Final = {kind: rank for rank, kind in enumerate(TroubleKind)}


class Troubled(msgspec.Struct, frozen=True):
    """A partition that is not led, or lacks replicas in its ISR."""

    partition: TopicPartition
    led: bool
    leader: BrokerId
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    reassigning: bool

    def kind(self, min_isr: int) -> TroubleKind:
        """What is wrong with it, where the topic's min.insync.replicas is `min_isr`."""
        if not self.led:
            return TroubleKind.OFFLINE
        if is_under(len(self.isr), len(self.replicas), min_isr):
            return TroubleKind.UNDER_MIN_ISR
        return TroubleKind.UNDER_REPLICATED


class TopicHealth(msgspec.Struct, frozen=True):
    """How well the partitions of one topic are."""

    offline: int
    under_replicated: int
    """Those offline included."""
    sizes: dict[tuple[int, int], int]
    """Of those that are led: how many have an ISR of so many of so many replicas."""
    worst: tuple[Troubled, ...]
    """The worst of them, those without a leader first."""

    def under_min_isr(self, min_isr: int) -> int:
        """How many that are led have fewer in-sync replicas than produces with acks=all need."""
        return sum(count for (size, replicas), count in self.sizes.items() if is_under(size, replicas, min_isr))


def is_under(isr: int, replicas: int, min_isr: int) -> bool:
    """Whether an ISR of that size is too small: a partition of fewer replicas than `min_isr` needs all of them."""
    return isr < min(min_isr, replicas)


def health_of(
    topic: str,
    assignments: Sequence[ReplicaAssignment | None],
    leaderships: Sequence[LeaderIsrAndControllerEpoch | None],
    states: Sequence[PartitionState],
) -> TopicHealth | None:
    """How well the topic's partitions are, of lists by their number; None: all are led and in sync."""
    lacking: list[tuple[bool, int, int, ReplicaAssignment, LeaderIsrAndControllerEpoch | None]] = []
    sizes: Counter[tuple[int, int]] = Counter()
    absent, online = PartitionState.NON_EXISTENT, PartitionState.ONLINE
    rows = zip(assignments, leaderships, states, strict=False)  # a topic may just be growing
    for number, (assignment, leadership, state) in enumerate(rows):
        if assignment is None or state is absent:  # or it is just being taken in
            continue
        led = leadership is not None and state is online
        isr = () if leadership is None else leadership.leader_and_isr.isr
        wide, deep = len(assignment.replicas), len(isr)
        if led:
            if deep >= wide or (assignment.adding and not _lacks(assignment, isr)):
                continue
            sizes[deep, wide] += 1
        lacking.append((led, deep, number, assignment, leadership))
    if not lacking:
        return None
    lacking.sort()  # by how bad it is; numbers differ
    worst = tuple(
        _troubled(TopicPartition(topic, number), led, assignment, leadership)
        for led, _, number, assignment, leadership in lacking[:NAMED_PER_TOPIC]
    )
    return TopicHealth(len(lacking) - sizes.total(), len(lacking), dict(sizes), worst)


def worst_of(
    topics: Mapping[str, TopicHealth], min_isrs: Mapping[str, int], most: int
) -> list[tuple[TroubleKind, Troubled]]:
    """The partitions that are worst off, at most so many: without a leader, then under min ISR, then the others."""

    def badness(each: Troubled) -> tuple[int, tuple[bool, int, TopicPartition]]:
        return _RANKS[each.kind(min_isrs[each.partition.topic])], _how_bad(each)

    # No other topic can have one of them.
    among = nsmallest(most, topics.values(), key=lambda health: badness(health.worst[0]))
    found = nsmallest(most, (each for health in among for each in health.worst), key=badness)
    return [(each.kind(min_isrs[each.partition.topic]), each) for each in found]


def _lacks(assignment: ReplicaAssignment, isr: tuple[BrokerId, ...]) -> bool:
    return any(each not in isr and each not in assignment.adding for each in assignment.replicas)


def _troubled(
    partition: TopicPartition, led: bool, assignment: ReplicaAssignment, leadership: LeaderIsrAndControllerEpoch | None
) -> Troubled:
    leader: BrokerId = NO_LEADER
    isr: tuple[BrokerId, ...] = ()
    if leadership is not None:
        leader, isr = leadership.leader_and_isr.leader, leadership.leader_and_isr.isr
    return Troubled(
        partition, led, leader if led else NO_LEADER, assignment.replicas, isr, reassigning=assignment.is_reassigning
    )


def _how_bad(each: Troubled) -> tuple[bool, int, TopicPartition]:
    return each.led, len(each.isr), each.partition
