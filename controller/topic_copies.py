"""What other threads see of the topics that the ruling controller knows: copies, made anew where something has changed.

The controller's thread takes no part in it and waits for nothing: what its lists, sets and dictionaries hold is
immutable, and each is copied by one call that no other Python code runs in between of. A topic that changes while it is
copied is copied again next time: its count of changes grows after every change, and is read before the lists are.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import msgspec

from regency.controller.context import ControllerContext
from regency.controller.states import ReplicaState
from regency.controller.topic_entry import TopicEntry
from regency.model.facts import Broker, LeaderIsrAndControllerEpoch, ReplicaAssignment
from regency.model.ids import BrokerId, TopicId


class TopicCopy(msgspec.Struct, frozen=True):
    """One topic as it was at a moment, and what is counted of it. Lists go by partition number; nobody changes them."""

    name: str
    topic_id: TopicId
    assignments: Sequence[ReplicaAssignment | None]
    """None where there is no such partition."""
    leadership: Sequence[LeaderIsrAndControllerEpoch | None]
    """None where no state znode exists."""
    queued: bool
    """Somebody asked for its deletion."""
    led: int
    """Partitions that have ever had a leader."""
    imbalanced: int
    """Those of them that their preferred replica does not lead; 0 where `queued`."""
    replicas_to_delete: int
    """Where `queued`, replicas whose deletion is not confirmed."""
    replicas_ineligible: int
    """Those of them that cannot be deleted now."""


class Copies(msgspec.Struct, frozen=True):
    """All that is counted, as it was at a moment. Sums over topics are of their copies."""

    brokers: Mapping[BrokerId, Broker] = {}
    """Live ones, those shutting down included."""
    topics: Sequence[TopicCopy] = ()
    """But for those that are being deleted."""
    topic_count: int = 0
    partitions: int = 0
    """With leadership information."""
    imbalanced: int = 0
    topics_to_delete: int = 0
    topics_ineligible: int = 0
    replicas_to_delete: int = 0
    replicas_ineligible: int = 0


class _Kept(msgspec.Struct):
    entry: TopicEntry
    changes: int
    copy: TopicCopy


class TopicCopies:
    """The copies of one controller's topics. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._context: ControllerContext | None = None
        self._kept: dict[str, _Kept] = {}

    def take(self, context: ControllerContext | None) -> Copies:
        """Everything as it is now; nothing where nobody rules. Takes time for all topics, and for what has changed."""
        with self._lock:
            if context is not self._context:
                self._context, self._kept = context, {}
            if context is None:
                return Copies()
            queued, started = context.topics_to_delete.copy(), context.topics_deletion_started.copy()
            kept, self._kept = self._kept, {}
            for name, entry in context.topics.copy().items():
                known = kept.get(name)
                if known is None or not _still_right(known, entry, queued=name in queued):
                    known = _copy(entry, queued=name in queued)
                self._kept[name] = known
            copies = [each.copy for each in self._kept.values()]
            return Copies(
                context.brokers.copy(),
                [copy for copy in copies if copy.name not in started],
                len(copies),
                sum(copy.led for copy in copies),
                sum(copy.imbalanced for copy in copies),
                len(queued),
                len(context.topics_ineligible),
                sum(copy.replicas_to_delete for copy in copies),
                sum(copy.replicas_ineligible for copy in copies),
            )


def _still_right(known: _Kept, entry: TopicEntry, *, queued: bool) -> bool:
    return known.entry is entry and known.changes == entry.changes and known.copy.queued is queued


def _copy(entry: TopicEntry, *, queued: bool) -> _Kept:
    changes = entry.changes
    assignments, leadership = entry.assignments[:], entry.leadership[:]
    states = entry.replica_states[:] if queued else ()
    led = imbalanced = to_delete = ineligible = 0
    for assignment, leader in zip(assignments, leadership, strict=False):  # a topic may just be growing
        if assignment is not None and leader is not None:
            led += 1
            imbalanced += not queued and is_imbalanced(assignment, leader)
    for replicas in states:
        for _, state in replicas:
            to_delete += state is not ReplicaState.DELETION_SUCCESSFUL
            ineligible += state is ReplicaState.DELETION_INELIGIBLE
    counts = (led, imbalanced, to_delete, ineligible)
    return _Kept(entry, changes, TopicCopy(entry.name, entry.topic_id, assignments, leadership, queued, *counts))


def is_imbalanced(assignment: ReplicaAssignment, leadership: LeaderIsrAndControllerEpoch) -> bool:
    """Whether another than the preferred replica leads, or none.

    One that a reassignment adds is not expected to lead before it is in sync. Source: Kafka's ControllerContext,
    hasPreferredLeader; but a new preferred replica that leads already is not counted.
    """
    if not assignment.replicas:
        return False
    preferred, now = assignment.replicas[0], leadership.leader_and_isr
    return now.leader != preferred and (preferred not in assignment.adding or preferred in now.isr)
