"""What a reader asks a cluster: which topics there are, and which offsets. Any broker, then the leaders.

For one thread at a time. Every question ends within `api_timeout_ms`, also with dead brokers and during elections.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Final, NamedTuple, Self

import msgspec

from regency.clients.cluster_metadata import MISSING, ClusterMetadata
from regency.clients.connections import Connections
from regency.clients.errors import ClusterUnavailable, OffsetRefused, TopicGone
from regency.clients.nodes import Node
from regency.clients.settings import ClientSettings
from regency.kafka.codec import DescribeConfigsRequest, ListOffsetsRequest, Message
from regency.kafka.peer import PeerConnection, PeerUnavailable
from regency.model.ids import ZERO_TOPIC_ID, LeaderEpoch, Offset, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode, error_code

__all__ = ["EARLIEST", "LATEST", "ClusterClient", "ClusterUnavailable", "OffsetRefused", "TopicFacts", "TopicGone"]

LATEST: Final = -1
"""Timestamp that stands for the end: the high watermark."""
EARLIEST: Final = -2
"""Timestamp that stands for where the log begins."""

LIST_OFFSETS_VERSION: Final = 7
DESCRIBE_CONFIGS_VERSION: Final = 4
TOPIC_RESOURCE: Final = 2
MAX_MESSAGE_BYTES: Final = "max.message.bytes"
CONSUMER: Final = -1
DEBUGGING: Final = -2
"""Replica ids of who asks: a consumer hears of high watermarks, a debugger of log ends."""
PARTITIONS_AT_ONCE: Final = 2_000
"""In one request: a broker answers other clients in between."""
BROKERS_AT_ONCE: Final = 16
MISSING_PATIENCE_MS: Final = 2_000
"""How long a topic must be unknown to be taken as one that does not exist: brokers learn of new ones one by one."""

Asked = tuple[TopicPartition, LeaderEpoch, int]
"""A partition, the epoch its leader is asked in, and a timestamp."""
Answer = Offset | ErrorCode | str | None
"""An offset, none because no record is as late, an error, or in words why there is no answer."""

_UNEXPECTED: Final = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR})


class TopicFacts(msgspec.Struct, frozen=True):
    """A topic as metadata tells it; `partitions` rise."""

    topic_id: TopicId
    partitions: tuple[int, ...]


class LogEnd(NamedTuple):
    """An end of a log, and the leader epoch it was told in."""

    offset: Offset
    epoch: LeaderEpoch


class ClusterClient:
    """Connects with the first question, and again to the leader of then."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        connections: Connections | None = None,
        on_silence: Callable[[ClusterUnavailable], object] | None = None,
    ) -> None:
        """`on_silence` is called while no broker answers, as by Connections; not with `connections` of one's own."""
        self._settings = settings
        self._connections = Connections(settings, on_silence=on_silence) if connections is None else connections

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    def topics(self, names: Collection[str] | None) -> dict[str, TopicFacts]:
        """Topics of these names, those that do not exist left out; None: all there are, internal ones too.

        Never creates a topic. Raises ClusterUnavailable.
        """
        deadline = self._connections.now_ms + self._settings.api_timeout_ms
        found: dict[str, TopicFacts] = {}
        missing = None if names is None else set(names)
        patience = min(deadline, self._connections.now_ms + MISSING_PATIENCE_MS)
        rounds = 0
        while missing is None or missing:
            told = self._connections.metadata(missing, deadline, turn=rounds > 0)
            rounds += 1
            found.update(_facts(told))
            if missing is None:
                break
            missing -= found.keys()
            unsettled = [name for name in sorted(missing) if told.errors.get(name) not in MISSING]
            if missing and not self._connections.back_off(rounds, deadline if unsettled else patience):
                if not unsettled:
                    break
                errors = ", ".join(f"{name} ({told.errors.get(name, ErrorCode.NONE).name})" for name in unsettled[:3])
                raise ClusterUnavailable(
                    f"{len(unsettled)} topics could not be looked up: {errors}.", hint="`regency status` shows more."
                )
        return dict(sorted(found.items()))

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset | None]:
        """For each partition the first offset whose record has that timestamp (wall milliseconds) or a later one.

        None where no record has. LATEST and EARLIEST are timestamps too. Raises TopicGone for a partition that does not
        exist, OffsetRefused for one whose leader refuses to tell, ClusterUnavailable where one does not answer in time.
        """
        found = self._listed(wanted, CONSUMER, self._connections.now_ms + self._settings.api_timeout_ms)
        return {name: found.offsets[name] for name in wanted}

    def committed_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Where the logs end now, once all below is committed: what is in a log by now does not come to light later.

        A high watermark alone does not say that: what was appended above it becomes visible when replicas have it, or
        are out of the ISR. Waits for that, and begins again where another leads by then, whose log may end elsewhere.
        The two questions go by what two brokers know: one that was deposed and has not heard of it agrees with itself.
        Raises as `offsets`, and ClusterUnavailable where it takes longer than the time of a question.
        """
        deadline = self._connections.now_ms + self._settings.api_timeout_ms
        ends: dict[TopicPartition, LogEnd] = {}
        waiting = set(partitions)
        rounds = 0
        while waiting:
            ends |= self._ends(waiting - ends.keys(), DEBUGGING, deadline)
            visible = self._ends(waiting, CONSUMER, deadline)
            for name, (offset, epoch) in visible.items():
                if epoch != ends[name].epoch:
                    del ends[name]
                elif offset >= ends[name].offset:
                    waiting.remove(name)
            rounds += 1
            if waiting and not self._connections.back_off(rounds, deadline):
                raise _uncommitted(min(waiting), visible, ends)
        return {name: ends[name].offset for name in partitions}

    def largest_batches(self, topics: Collection[str]) -> dict[str, int]:
        """Bytes of the largest batch each topic takes (max.message.bytes), where the cluster tells it.

        Left out are topics that do not exist and those whose settings one may not see; all where no broker answers
        the first time it is asked. Creates no topic, raises nothing.
        """
        resource = DescribeConfigsRequest.DescribeConfigsResource
        request = DescribeConfigsRequest(
            version=DESCRIBE_CONFIGS_VERSION,
            resources=[
                resource(
                    version=DESCRIBE_CONFIGS_VERSION,
                    resource_type=TOPIC_RESOURCE,
                    resource_name=topic,
                    configuration_keys=[MAX_MESSAGE_BYTES],
                )
                for topic in topics
            ],
            include_synonyms=False,
            include_documentation=False,
        )
        try:
            results = self._connections.ask_once(request, DESCRIBE_CONFIGS_VERSION).results
        except ClusterUnavailable:
            return {}
        return {
            result.resource_name: int(each.value)
            for result in results
            if result.error_code == ErrorCode.NONE
            for each in result.configs
            if each.name == MAX_MESSAGE_BYTES and (each.value or "").isdecimal()
        }

    def _ends(
        self, partitions: Collection[TopicPartition], replica: int, deadline: int
    ) -> dict[TopicPartition, LogEnd]:
        found = self._listed(dict.fromkeys(partitions, LATEST), replica, deadline, turn=True)
        return {name: LogEnd(found.offsets[name] or Offset(0), found.epochs[name]) for name in partitions}

    def _listed(
        self, wanted: Mapping[TopicPartition, int], replica: int, deadline: int, *, turn: bool = False
    ) -> _Listing:
        """Everything that was asked for, answered by leaders; `turn`: as another broker names them than last time."""
        listing = _Listing(wanted, replica)
        patience = min(deadline, self._connections.now_ms + MISSING_PATIENCE_MS)
        rounds = 0
        while listing.left:
            names = {name.topic for name in listing.left}
            told = self._connections.metadata(names, deadline, turn=turn or rounds > 0)
            rounds += 1
            for node, asked in listing.by_leader(told):
                listing.asked.append((node, asked))
            self._ask_all(listing, deadline)
            if not listing.left:
                break
            if self._connections.now_ms >= patience and (gone := listing.gone()) is not None:
                raise gone
            if not self._connections.back_off(rounds, deadline):
                raise listing.unavailable(self._settings.servers)
        return listing

    def _ask_all(self, listing: _Listing, deadline_ms: int) -> None:
        """Ask every leader at once, each in pieces."""
        asked, listing.asked = listing.asked, []
        if not asked:
            return
        timeout = max(1, min(self._settings.request_timeout_ms, deadline_ms - self._connections.now_ms))
        with ThreadPoolExecutor(min(BROKERS_AT_ONCE, len(asked)), thread_name_prefix="offsets") as pool:
            answers = pool.map(
                lambda one: _ask(self._connections.peer(one[0]), one[1], listing.replica, timeout), asked
            )
            for told in answers:
                listing.take(told)


class _Listing:
    """A question for offsets while it is answered."""

    def __init__(self, wanted: Mapping[TopicPartition, int], replica: int) -> None:
        self.replica = replica
        self.left: dict[TopicPartition, int] = dict(wanted)
        self.offsets: dict[TopicPartition, Offset | None] = {}
        self.epochs: dict[TopicPartition, LeaderEpoch] = {}
        """In which its leader was asked last."""
        self.asked: list[tuple[Node, list[Asked]]] = []
        self._why: dict[TopicPartition, str] = {}
        """Of those that are left: what came in place of an offset last."""
        self._missing: set[TopicPartition] = set()

    def by_leader(self, told: ClusterMetadata) -> Iterable[tuple[Node, list[Asked]]]:
        """Those that are left, by who leads them."""
        by_leader: dict[Node, list[Asked]] = {}
        self._missing.clear()
        for name, timestamp in self.left.items():
            topic = told.topics.get(name.topic)
            led = told.leader(name)
            if led is not None:
                node, epoch = led
                self.epochs[name] = epoch
                by_leader.setdefault(node, []).append((name, epoch, timestamp))
            elif topic is not None and name.partition in topic.partitions:
                self._why[name] = "it has no leader"
            else:
                error = told.errors.get(name.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                self._why[name] = f"its metadata has {error.name}"
                if error in MISSING:
                    self._missing.add(name)
        return by_leader.items()

    def take(self, told: Mapping[TopicPartition, Answer]) -> None:
        """What a leader answered: an offset, none, or why not. Raises OffsetRefused."""
        for name, value in told.items():
            if isinstance(value, ErrorCode):
                if value is ErrorCode.CORRUPT_MESSAGE or not (value.retriable or value in _UNEXPECTED):
                    raise OffsetRefused(name, self.left[name], value.name)
                self._why[name] = f"its leader answers {value.name}"
            elif isinstance(value, str):
                self._why[name] = value
            elif name in self.left:
                self.offsets[name] = value
                del self.left[name]

    def gone(self) -> TopicGone | None:
        """The error for a partition that does not exist, where there is one."""
        if not self._missing:
            return None
        name = min(self._missing)
        others = f" ({len(self._missing) - 1} others neither)" if len(self._missing) > 1 else ""
        return TopicGone(
            f"The cluster has no partition {name.partition} of topic {name.topic}{others}.",
            name.topic,
            hint="`regency topics list` shows which topics there are.",
        )

    def unavailable(self, servers: str) -> ClusterUnavailable:
        """The error for what could not be asked in time."""
        some = [f"{name}: {self._why.get(name, 'not asked')}" for name in sorted(self.left)[:3]]
        return ClusterUnavailable(
            f"Offsets of {len(self.left)} partitions could not be had from {servers}; {'; '.join(some)}.",
            hint="`regency status` shows whether all brokers are up.",
        )


def _uncommitted(
    name: TopicPartition, visible: Mapping[TopicPartition, LogEnd], ends: Mapping[TopicPartition, LogEnd]
) -> ClusterUnavailable:
    end = f"its log ends at {ends[name].offset}" if name in ends else "another leads by now"
    return ClusterUnavailable(
        f"{name}: its high watermark stays at {visible[name].offset}, {end}: what will stay is not decided yet.",
        hint="Replicas that are in sync do not follow any more; `regency status` shows which.",
    )


def _facts(told: ClusterMetadata) -> dict[str, TopicFacts]:
    return {
        name: TopicFacts(topic.topic_id or ZERO_TOPIC_ID, tuple(sorted(topic.partitions)))
        for name, topic in told.topics.items()
    }


def _ask(peer: PeerConnection, wanted: Sequence[Asked], replica: int, timeout_ms: int) -> dict[TopicPartition, Answer]:
    """What one leader answers; in words where it gives no answer."""
    told: dict[TopicPartition, Answer] = {name: "its leader has left it out" for name, _, _ in wanted}
    for start in range(0, len(wanted), PARTITIONS_AT_ONCE):
        some = wanted[start : start + PARTITIONS_AT_ONCE]
        try:
            answer = peer.exchange(_request(some, replica), LIST_OFFSETS_VERSION, timeout_ms=timeout_ms)
        except PeerUnavailable as error:
            told.update({name: error.message for name, _, _ in wanted[start:]})
            break
        for topic in answer.topics:
            for row in topic.partitions:
                name = TopicPartition(topic.name, row.partition_index)
                if name in told:
                    told[name] = _offset(row)
    return told


def _offset(row: Message) -> Offset | ErrorCode | None:
    error = error_code(row.error_code)
    if error is not ErrorCode.NONE:
        return error
    return None if row.offset < 0 else Offset(row.offset)


def _request(wanted: Sequence[Asked], replica: int) -> Message:
    topic_class = ListOffsetsRequest.ListOffsetsTopic
    by_topic: dict[str, list[Message]] = {}
    for name, epoch, timestamp in wanted:
        row = topic_class.ListOffsetsPartition(
            partition_index=name.partition, current_leader_epoch=epoch, timestamp=timestamp
        )
        by_topic.setdefault(name.topic, []).append(row)
    return ListOffsetsRequest(
        version=LIST_OFFSETS_VERSION,
        replica_id=replica,
        isolation_level=0,
        topics=[topic_class(name=topic, partitions=rows) for topic, rows in by_topic.items()],
    )
