"""What goes through the listener by topic, in plain integers. Data loop only; some additions per partition, no more.

Kafka's BrokerTopicMetrics. A topic without a partition here any more loses its counters; the sums over all stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from regency.broker_agent.replication.api import ProduceResult
from regency.kafka.fetching.values import FetchedPartition, FetchPartition
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode

_EVERYDAY_PRODUCES: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Refusals that Kafka does not count as failures of a broker (ReplicaManager.appendToLocalLog)."""
_EVERYDAY_FETCHES: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""The same of reads (ReplicaManager.readFromLocalLog)."""
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_COUNT_AT: Final = slice(57, 61)
"""Where a batch of format 2 says how many records it holds."""


class Counts:
    """Of one topic, or of all."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.produces = 0
        self.failed_produces = 0
        self.fetches = 0
        self.failed_fetches = 0


class Traffic:
    """Counts since the start, over all topics and by topic."""

    def __init__(self) -> None:
        self.all = Counts()
        self.topics: dict[str, Counts] = {}
        self.replication_bytes_out = 0

    def produced(
        self, results: Mapping[TopicPartition, ProduceResult], sizes: Mapping[TopicPartition, tuple[int, int]]
    ) -> None:
        """The results of a produce, by partition; `sizes` are bytes and records of what was to be appended there."""
        for key, result in results.items():
            error = result.error
            counts = self._of(key.topic, error)
            size, records = sizes.get(key, (0, 0))
            for each in counts:
                each.produces += 1
                if result.base_offset >= 0:
                    each.messages_in += records
                    each.bytes_in += size
                elif error in _TOO_LARGE:
                    each.bytes_rejected += size
            if error is not ErrorCode.NONE and error not in _EVERYDAY_PRODUCES:
                for each in counts:
                    each.failed_produces += 1

    def fetched_by_follower(self, asked: int, news: Mapping[TopicPartition, FetchedPartition]) -> None:
        """A follower asked for so many partitions, and hears of those in which there is something new."""
        self.all.fetches += asked
        for result in news.values():
            if result.records:
                self.replication_bytes_out += len(result.records)
            elif result.error is not ErrorCode.NONE and result.error not in _EVERYDAY_FETCHES:
                self.all.failed_fetches += 1

    def fetched_by_consumer(
        self, asked: Iterable[FetchPartition], news: Mapping[TopicPartition, FetchedPartition]
    ) -> None:
        """A consumer asked for these partitions, and hears of those in which there is something new."""
        topics = self.topics
        for wanted in asked:
            self.all.fetches += 1
            held = topics.get(wanted.topic_partition.topic)
            if held is not None:
                held.fetches += 1
        for key, result in news.items():
            size = len(result.records)
            if size:
                for each in self._of(key.topic, result.error):
                    each.bytes_out += size
            elif result.error is not ErrorCode.NONE and result.error not in _EVERYDAY_FETCHES:
                for each in self._of(key.topic, result.error):
                    each.failed_fetches += 1

    def keep(self, topics: Collection[str]) -> None:
        """Only these topics are hosted here: others are forgotten, new ones counted from now on."""
        for topic in [topic for topic in self.topics if topic not in topics]:
            del self.topics[topic]
        for topic in topics:
            if topic not in self.topics:
                self.topics[topic] = Counts()

    def _of(self, topic: str, error: ErrorCode) -> tuple[Counts, ...]:
        """The counters of a topic and of all. A name that is no topic of ours gets none: clients make up many."""
        held = self.topics.get(topic)
        if held is None:
            if error is not ErrorCode.NONE:
                return (self.all,)
            held = self.topics[topic] = Counts()
        return self.all, held


def records_in(batch: memoryview) -> int:
    """How many records a produced batch says it holds; the log refuses one whose word is not true."""
    return int.from_bytes(batch[_COUNT_AT], "big")
