"""How well a topic's partitions are: counts, and which are worst off. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from heapq import nsmallest
from typing import Final

import msgspec

from regency.controller.state.states import PartitionState
from regency.model.facts import LeaderIsrAndControllerEpoch, ReplicaAssignment
from regency.model.ids import NO_LEADER, BrokerId, TopicPartition

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
    partition: TopicPartition,
    led: bool,
    assignment: ReplicaAssignment,
    leadership: LeaderIsrAndControllerEpoch | None,
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
