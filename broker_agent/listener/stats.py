"""What the listener counts, in plain integers for the metrics: connections and why they were closed, traffic by topic,
how long requests take. Data loop only; some additions per partition, no more. Each kind of trouble is logged when first
met.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from regency.broker_agent.replication.api import ProduceResult
from regency.kafka.apis import ApiKey
from regency.kafka.fetching.values import FetchedPartition, FetchPartition
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.runtime.logging import is_power_of_ten
from regency.runtime.metrics.recent import RecentTimes

logger = logging.getLogger(__name__)

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
    """Counts since the start, over all topics and by topic (Kafka's BrokerTopicMetrics).

    A topic that is nobody's here any more loses its counters; the sums over all stay.
    """

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


FETCH_CONSUMER: Final = "FetchConsumer"
FETCH_FOLLOWER: Final = "FetchFollower"
KINDS: Final = {
    **{key: "".join(word.capitalize() for word in key.name.split("_")) for key in ApiKey},
    ApiKey.FETCH: FETCH_CONSUMER,
}
"""Kafka's names of the APIs, such as ListOffsets; a fetch is a consumer's until its handler has looked."""


class RequestTimes:
    """Requests of one kind: how long they take, by part, and which errors they are answered.

    A request has four moments: it is begun, its handler returns, its answer is there, the answer is written. The
    handler may return before the answer is there (it waits in the purgatory, or for ZooKeeper) or after. There is no
    request queue: a connection's next request waits in its buffer.
    """

    __slots__ = ("erred", "errors", "local", "queue", "remote", "send", "total", "versions")

    def __init__(self) -> None:
        self.versions: Counter[int] = Counter()
        self.errors: Counter[int] = Counter()
        """By Kafka's error code, one for each partition that has it."""
        self.erred = 0
        """Answers with any."""
        self.total = RecentTimes()
        self.local = RecentTimes()
        self.remote = RecentTimes()
        self.queue = RecentTimes()
        self.send = RecentTimes()

    def record(self, version: int, began: int, handled: int, done: int, turn: int, written: int) -> None:
        """A request was answered. Moments in nanoseconds of one clock; `handled` 0: the answer came before that."""
        self.versions[version] += 1
        now_ms = written // 1_000_000
        worked = handled if 0 < handled < done else done
        self.total.record((written - began) // 1000, now_ms)
        self.local.record((worked - began) // 1000, now_ms)
        self.remote.record((done - worked) // 1000, now_ms)
        self.queue.record((turn - done) // 1000, now_ms)
        self.send.record((written - turn) // 1000, now_ms)


class Timing:
    """All requests, by kind: an API's name, or FetchConsumer and FetchFollower."""

    def __init__(self) -> None:
        self.kinds: dict[str, RequestTimes] = {}

    def of(self, kind: str) -> RequestTimes:
        """Requests of one kind."""
        found = self.kinds.get(kind)
        if found is None:
            found = self.kinds[kind] = RequestTimes()
        return found


class Closing(Enum):
    """Why the listener closed a connection. The value is a phrase for people."""

    MALFORMED = "it sent what is no request"
    OVERSIZED = "it announced a request larger than socket.request.max.bytes, or of negative size"
    HALF_SENT = "it went away in the middle of a request"
    UNSUPPORTED = "it asked for an API or version that is not offered"
    UNACKNOWLEDGED = "a produce with acks=0 failed, which it can only learn this way"
    IDLE = "it was idle for connections.max.idle.ms"
    TOO_MANY = "max.connections or max.connections.per.ip is reached"
    UNREAD = "it did not read its answers, and regency.queued.max.response.bytes was used up"
    SLOW = "its request came in slowly, and queued.max.request.bytes was used up"
    NO_DESCRIPTORS = "there is no descriptor for it: see docs/operate/install.md about open files"
    FAILED = "its request failed in an unexpected way"


@dataclass(slots=True)
class ListenerStats:
    """Counters since the agent started."""

    accepted: int = 0
    open: int = 0
    closed_for: dict[Closing, int] = field(default_factory=lambda: dict.fromkeys(Closing, 0))
    requests: dict[ApiKey, int] = field(default_factory=lambda: dict.fromkeys(ApiKey, 0))
    handler_failures: int = 0
    unsent_bytes: int = 0
    """Of answers, over all connections."""
    incoming_bytes: int = 0
    """Of requests that have not begun, over all connections; what is small is not counted."""
    fetches_held_back: int = 0
    """Fetches of consumers that got no records, as too much was unsent."""
    open_by_listener: Counter[str] = field(default_factory=Counter)
    traffic: Traffic = field(default_factory=Traffic)
    timing: Timing = field(default_factory=Timing)

    def count_closing(self, reason: Closing, peer: str, detail: str) -> None:
        """Count a connection that is closed for `reason`; log the first one, and then every tenfold number."""
        self.closed_for[reason] += 1
        count = self.closed_for[reason]
        if is_power_of_ten(count):
            logger.warning("closed the connection from %s: %s (%s); %d so far", peer, reason.value, detail, count)
