"""What a broker shall do about a partition, and the same of many partitions of a topic as one value. Values only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from regency.model.facts import LeaderIsrAndControllerEpoch, ReplicaAssignment
from regency.model.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition


class LeaderAndIsrRow(msgspec.Struct, frozen=True, gc=False):
    """Lead or follow: the decision says which. One value serves all brokers and the metadata."""

    topic_id: TopicId
    leadership: LeaderIsrAndControllerEpoch
    assignment: ReplicaAssignment


class StopReplicaRow(msgspec.Struct, frozen=True, gc=False):
    """Stop serving the partition, and delete its log if `delete`. `leader_epoch` -1 unknown, -2 topic being deleted."""

    topic_id: TopicId
    leader_epoch: LeaderEpoch
    delete: bool


Row = LeaderAndIsrRow | StopReplicaRow


class Rows:
    """Leadership and assignment of some partitions of a topic, whatever its name; they do not change.

    In a large cluster most topics are like others but for their names, and brokers host the same partitions: one value
    serves all brokers that get the same, and is encoded once.
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
    """What a broker shall host of a topic."""

    topic: str
    topic_id: TopicId
    rows: Rows
    new: AbstractSet[int] = frozenset()
    """Numbers of the partitions that are new to the broker."""

    def __len__(self) -> int:
        return len(self.rows.numbers)

    def partitions(self) -> Iterator[TopicPartition]:
        """The partitions, in order."""
        return (TopicPartition(self.topic, number) for number in self.rows.numbers)

    def each(self) -> Iterator[tuple[TopicPartition, LeaderAndIsrRow]]:
        """The partitions one by one."""
        rows = self.rows
        for number, leadership, assignment in zip(rows.numbers, rows.leaderships, rows.assignments, strict=True):
            yield TopicPartition(self.topic, number), LeaderAndIsrRow(self.topic_id, leadership, assignment)


def rows_by_topic(rows: Mapping[TopicPartition, Row], new: Collection[TopicPartition]) -> list[TopicRows]:
    """What is to be hosted, by topic in order of first appearance. A topic and its namesake stay apart."""
    by_topic: dict[tuple[str, TopicId], dict[int, LeaderAndIsrRow]] = {}
    for (topic, number), row in rows.items():
        if isinstance(row, LeaderAndIsrRow):
            by_topic.setdefault((topic, row.topic_id), {})[number] = row
    new_numbers: dict[str, set[int]] = {}
    for topic, number in new:
        new_numbers.setdefault(topic, set()).add(number)
    return [
        TopicRows(
            topic,
            topic_id,
            Rows(tuple(own), [row.leadership for row in own.values()], [row.assignment for row in own.values()]),
            new_numbers.get(topic, frozenset()),
        )
        for (topic, topic_id), own in by_topic.items()
    ]
