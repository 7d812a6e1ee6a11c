"""Committed offsets of a group, and those whose commit is not decided yet. A million of them take about 120 MB."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from regency.kafka.groups.records import OffsetAndMetadata, commit_time, has_expiry, read_offset_value
from regency.model.ids import ProducerId, TopicPartition


class Retention(NamedTuple):
    """Which offsets of a group go by age: those whose topic nobody reads. Source: KIP-211, KIP-496."""

    since_ms: int | None
    """When their age began (wall); None: with the commit of each."""
    read_topics: frozenset[str]


class _Undecided:
    """Writes of one partition's offset that are begun."""

    __slots__ = ("decided", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self.decided = -1
        """The latest in the log of those that are decided: what was written before it does not count any more."""


class GroupOffsets:
    """Offsets as their records' values, by topic and partition.

    Bytes in dictionaries, not objects: the garbage collector need not look at them, and a fetch reads few.
    """

    __slots__ = ("_topics", "_undecided", "transactional")

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, bytes]] = {}
        self._undecided: dict[TopicPartition, _Undecided] = {}
        self.transactional: dict[ProducerId, dict[TopicPartition, bytes]] = {}
        """Offsets of transactions that are open: neither committed nor dropped."""

    def get(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """What is committed."""
        partitions = self._topics.get(partition.topic)
        stored = None if partitions is None else partitions.get(partition.partition)
        return None if stored is None else read_offset_value(stored)

    def set(self, topic: str, partition: int, stored: bytes | None) -> int:
        """Commit a value, or drop what is committed; by how much the number of offsets changes."""
        partitions = self._topics.get(topic)
        if stored is not None:
            if partitions is None:
                partitions = self._topics[topic] = {}
            before = len(partitions)
            partitions[partition] = stored
            return len(partitions) - before
        if partitions is None or partitions.pop(partition, None) is None:
            return 0
        if not partitions:
            del self._topics[topic]
        return -1

    # Writes: numbered in the order of the log. Each is decided once, in any order.

    def begin(self, partition: TopicPartition) -> None:
        """A write is begun."""
        undecided = self._undecided.get(partition)
        if undecided is None:
            undecided = self._undecided[partition] = _Undecided()
        undecided.waiting += 1

    def decide(self, partition: TopicPartition, number: int, stored: bytes | None, *, written: bool) -> int:
        """The write with this number is over; by how much the number of offsets changes."""
        undecided = self._undecided[partition]
        undecided.waiting -= 1
        if not undecided.waiting:
            del self._undecided[partition]
        if not written or number < undecided.decided:
            return 0
        undecided.decided = number
        return self.set(partition.topic, partition.partition, stored)

    def is_undecided(self, partition: TopicPartition) -> bool:
        """Whether another value may be committed at any moment."""
        if partition in self._undecided:
            return True
        return any(partition in offsets for offsets in self.transactional.values())

    # All of them

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def has_other_than(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether something is left when these are gone: another offset, or a write that is not decided."""
        return bool(self._undecided or self.transactional) or len(self) > len(partitions)

    def topics(self) -> list[str]:
        """Topics with committed offsets or with writes that are not decided, as of now."""
        return list(dict.fromkeys([*self._topics, *(partition.topic for partition in self._undecided)]))

    def of_topic(self, topic: str) -> list[TopicPartition]:
        """Partitions of a topic with a committed offset or with a write that is not decided."""
        found = [TopicPartition(topic, partition) for partition in self._topics.get(topic, ())]
        if self._undecided:
            known = set(found)
            found += [each for each in self._undecided if each.topic == topic and each not in known]
        return found

    def drop(self, topic: str) -> int:
        """Forget what is committed of a topic; how many offsets that was."""
        return len(self._topics.pop(topic, ()))

    def committed(self) -> Iterator[TopicPartition]:
        """Partitions with a committed offset."""
        for topic, partitions in self._topics.items():
            for partition in partitions:
                yield TopicPartition(topic, partition)

    def expired(self, topic: str, retention: Retention, wall_ms: int, retention_ms: int) -> list[TopicPartition]:
        """Offsets of one topic that are to go now. An expiry that the commit named counts alone."""
        if topic in retention.read_topics:
            return []
        found = []
        for partition, stored in self._topics.get(topic, {}).items():
            if has_expiry(stored):
                expires_ms = read_offset_value(stored).expire_ms
                assert expires_ms is not None
            else:
                began_ms = commit_time(stored) if retention.since_ms is None else retention.since_ms
                expires_ms = began_ms + retention_ms
            if wall_ms >= expires_ms:
                found.append(TopicPartition(topic, partition))
        return [partition for partition in found if not self.is_undecided(partition)]
