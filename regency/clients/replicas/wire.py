"""Questions to single replicas, followers too, as Kafka's debugging consumer: a few per broker, not one per partition.

Every broker has one connection and one thread, so that all are asked at once. Who does not answer is not asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from regency.clients.nodes import Node
from regency.kafka.codec import DescribeLogDirsRequest
from regency.kafka.fetching.session import FINAL_EPOCH, NO_SESSION
from regency.kafka.fetching.values import (
    DEBUGGING,
    FetchedPartition,
    FetcherLimits,
    FetchPartition,
    FetchPlan,
    ListedOffset,
    OffsetsPlan,
)
from regency.kafka.fetching.wire import (
    FETCH_VERSION,
    LIST_OFFSETS_VERSION,
    fetch_reply,
    fetch_request,
    offsets_reply,
    offsets_request,
)
from regency.kafka.peer import PeerConnection, PeerUnavailable
from regency.model.ids import NO_BROKER_EPOCH, NO_LEADER_EPOCH, BrokerId, Offset, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode

EARLIEST, LATEST = -2, -1
LOG_DIRS_VERSION = 4
PARTITIONS_AT_ONCE = 2_000
CONNECT_TIMEOUT_MS = 3_000
REQUEST_TIMEOUT_MS = 10_000

T = TypeVar("T")
AskedT = TypeVar("AskedT")
Replica = tuple[BrokerId, TopicPartition]


class Unanswered(msgspec.Struct, frozen=True):
    """A broker could not be asked: it is not live, or did not answer."""

    why: str


class Place(msgspec.Struct, frozen=True):
    """How far one replica's log goes, as its own broker tells."""

    log_start: Offset
    log_end: Offset
    high_watermark: Offset


class ReplicaWire:
    """`nodes` are the live brokers."""

    def __init__(self, nodes: Mapping[BrokerId, Node], *, timeout_ms: int = REQUEST_TIMEOUT_MS) -> None:
        self._peers = {
            broker: PeerConnection(
                node.host,
                node.port,
                client_id="regency-cli",
                connect_timeout_ms=min(timeout_ms, CONNECT_TIMEOUT_MS),
                request_timeout_ms=timeout_ms,
            )
            for broker, node in nodes.items()
        }
        self.silent: dict[BrokerId, str] = {}
        """Live brokers that did not answer, and how."""
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(nodes)), thread_name_prefix="replicas")

    def close(self) -> None:
        """Close all connections."""
        for peer in self._peers.values():
            peer.close()
        self._pool.shutdown()

    def hang_up(self) -> None:
        """Let go of all connections; the next question opens its own."""
        for peer in self._peers.values():
            peer.hang_up()

    def places(
        self, wanted: Mapping[BrokerId, Sequence[TopicPartition]], ids: Mapping[str, TopicId]
    ) -> dict[Replica, Place | ErrorCode | Unanswered]:
        """How far each replica's log goes; `ids` are the topics'."""
        return self._ask_all(wanted, lambda peer, some: _places(peer, some, ids))

    def starts(self, wanted: Mapping[BrokerId, Sequence[TopicPartition]]) -> dict[Replica, ListedOffset | Unanswered]:
        """Where each replica's log begins."""
        return self._ask_all(wanted, lambda peer, some: _listed(peer, some, EARLIEST))

    def fetch(
        self, wanted: Mapping[BrokerId, Sequence[FetchPartition]], *, max_bytes: int
    ) -> dict[Replica, FetchedPartition | Unanswered]:
        """Records of each replica up to its own high watermark. A broker's first partition gets a batch at least."""
        return self._ask_all(
            wanted, lambda peer, some: _fetch(peer, some, max_bytes), name=lambda one: one.topic_partition
        )

    def sizes(self, wanted: Mapping[BrokerId, Sequence[TopicPartition]]) -> dict[Replica, int]:
        """Bytes of each replica's log; those whose brokers do not tell are left out."""
        answers = self._ask_all(wanted, _sizes)
        return {replica: size for replica, size in answers.items() if isinstance(size, int)}

    def _ask_all(
        self,
        wanted: Mapping[BrokerId, Sequence[AskedT]],
        ask: Callable[[PeerConnection, Sequence[AskedT]], dict[TopicPartition, T]],
        *,
        name: Callable[[AskedT], TopicPartition] = lambda asked: asked,  # type: ignore[assignment,return-value]
    ) -> dict[Replica, T | Unanswered]:
        brokers = [broker for broker, some in wanted.items() if some]
        answers = self._pool.map(lambda broker: self._ask(broker, wanted[broker], ask), brokers)
        found: dict[Replica, T | Unanswered] = {}
        for broker, told in zip(brokers, answers, strict=True):
            silent = Unanswered(self.silent.get(broker, f"broker {broker} is not live"))
            for asked in wanted[broker]:
                found[broker, name(asked)] = told.get(name(asked), silent)
        return found

    def _ask(
        self,
        broker: BrokerId,
        wanted: Sequence[AskedT],
        ask: Callable[[PeerConnection, Sequence[AskedT]], dict[TopicPartition, T]],
    ) -> dict[TopicPartition, T]:
        told: dict[TopicPartition, T] = {}
        peer = self._peers.get(broker)
        if peer is None or broker in self.silent:
            return told
        try:
            for start in range(0, len(wanted), PARTITIONS_AT_ONCE):
                told.update(ask(peer, wanted[start : start + PARTITIONS_AT_ONCE]))
        except PeerUnavailable as error:
            self.silent[broker] = str(error)
        return told


@contextmanager
def replica_wire(nodes: Mapping[BrokerId, Node], *, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Iterator[ReplicaWire]:
    """A ReplicaWire that is closed at the end."""
    wire = ReplicaWire(nodes, timeout_ms=timeout_ms)
    try:
        yield wire
    finally:
        wire.close()


def _listed(
    peer: PeerConnection, wanted: Sequence[TopicPartition], timestamp: int
) -> dict[TopicPartition, ListedOffset]:
    plan = OffsetsPlan(timestamp, [(name, NO_LEADER_EPOCH) for name in wanted])
    return dict(offsets_reply(peer.exchange(offsets_request(plan, DEBUGGING), LIST_OFFSETS_VERSION)).partitions)


def _places(
    peer: PeerConnection, wanted: Sequence[TopicPartition], ids: Mapping[str, TopicId]
) -> dict[TopicPartition, Place | ErrorCode]:
    """Log ends by ListOffsets; a fetch right there brings no records, but high watermark and log start.

    A log that was cut in between is asked again, once.
    """
    found: dict[TopicPartition, Place | ErrorCode] = {}
    for _ in range(2):
        left = [
            name for name in wanted if found.get(name, ErrorCode.OFFSET_OUT_OF_RANGE) is ErrorCode.OFFSET_OUT_OF_RANGE
        ]
        ends = _listed(peer, left, LATEST) if left else {}
        found.update({name: end.error for name, end in ends.items() if end.error is not ErrorCode.NONE})
        there = {name: end.offset for name, end in ends.items() if end.error is ErrorCode.NONE}
        asked = [FetchPartition(name, ids[name.topic], offset, 0) for name, offset in there.items()]
        for name, fetched in (_fetch(peer, asked, 0) if asked else {}).items():
            place = Place(fetched.log_start_offset, there[name], fetched.high_watermark)
            found[name] = place if fetched.error is ErrorCode.NONE else fetched.error
    return found


def _sizes(peer: PeerConnection, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    numbers: dict[str, list[int]] = {}
    for name in wanted:
        numbers.setdefault(name.topic, []).append(name.partition)
    described = DescribeLogDirsRequest.DescribableLogDirTopic
    topics = [described(version=LOG_DIRS_VERSION, topic=topic, partitions=some) for topic, some in numbers.items()]
    answer = peer.exchange(DescribeLogDirsRequest(version=LOG_DIRS_VERSION, topics=topics), LOG_DIRS_VERSION)
    return {
        TopicPartition(topic.name, each.partition_index): each.partition_size
        for directory in answer.results
        for topic in directory.topics
        for each in topic.partitions
        if not each.is_future_key
    }


def _fetch(
    peer: PeerConnection, wanted: Sequence[FetchPartition], max_bytes: int
) -> dict[TopicPartition, FetchedPartition]:
    names = {(one.topic_id, one.topic_partition.partition): one.topic_partition for one in wanted if one.topic_id}
    limits = FetcherLimits(max_bytes, max_bytes, min_bytes=0, max_wait_ms=0, backoff_ms=0)
    plan = FetchPlan(NO_BROKER_EPOCH, NO_SESSION, FINAL_EPOCH, wanted, (), names, limits)
    reply = fetch_reply(plan, peer.exchange(fetch_request(plan, DEBUGGING), FETCH_VERSION))
    if reply.error is not ErrorCode.NONE:
        return {one.topic_partition: FetchedPartition(reply.error) for one in wanted}
    return dict(reply.partitions)
