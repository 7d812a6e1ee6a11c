"""What a broker shall do about a partition, one by one or for many partitions of a topic at once. Values only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from regency.model.facts import LeaderIsrAndControllerEpoch, ReplicaAssignment
from regency.model.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition


class Host(msgspec.Struct, frozen=True):
    """Lead or follow: the decision says which. One value serves all brokers and the metadata."""

    topic_id: TopicId
    leadership: LeaderIsrAndControllerEpoch
    assignment: ReplicaAssignment


class Stop(msgspec.Struct, frozen=True):
    """Stop serving the partition, and delete its log if `delete`. `leader_epoch` -1 unknown, -2 topic being deleted."""

    topic_id: TopicId
    leader_epoch: LeaderEpoch
    delete: bool


Wanted = Host | Stop


class Rows:
    """Leadership and assignment of some partitions of a topic, whatever its name; they do not change.

    In a large cluster most topics are like others but for their names, and brokers host the same partitions: one value
    serves all who are told the same, and is encoded once.
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
    """What a broker shall host of a topic, nothing of it new to the broker."""

    topic: str
    topic_id: TopicId
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows.numbers)

    def partitions(self) -> Iterator[TopicPartition]:
        """The partitions, in order."""
        return (TopicPartition(self.topic, number) for number in self.rows.numbers)

    def hosts(self) -> dict[TopicPartition, Host]:
        """The same, one by one."""
        rows = self.rows
        return {
            TopicPartition(self.topic, number): Host(self.topic_id, leadership, assignment)
            for number, leadership, assignment in zip(rows.numbers, rows.leaderships, rows.assignments, strict=True)
        }
