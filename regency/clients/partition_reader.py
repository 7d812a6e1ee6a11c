"""Reads a range of one partition from its leader, as an ordinary consumer: batches as they are, checked.

Blocking, without a thread of its own. Waits are bounded: where nothing comes for the poll timeout, that is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from regency.clients.batch_scan import Batches, Corruption, scan
from regency.clients.cluster_client import EARLIEST, LATEST, ClusterClient
from regency.clients.connections import Connections
from regency.clients.errors import ClusterUnavailable, CorruptRecords, DataLoss, ReadRefused, ReadTimedOut, TopicGone
from regency.clients.nodes import Node
from regency.clients.settings import ClientSettings
from regency.kafka.fetching.session import FINAL_EPOCH, NO_SESSION
from regency.kafka.fetching.values import CONSUMER, FetchedPartition, FetcherLimits, FetchPartition, FetchPlan
from regency.kafka.fetching.wire import FETCH_VERSION, fetch_reply, fetch_request
from regency.kafka.peer import PeerUnavailable
from regency.model.ids import NO_BROKER_EPOCH, LeaderEpoch, Offset, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode

DOUBT_MS: Final = 3_000
"""How long the cluster must say that a topic, or the end of a log, is gone: brokers learn of changes one by one."""

SMALLEST_FETCH_BYTES: Final = 64 << 10
FIRST_RECORD_BYTES: Final = 256
"""What an offset is taken to have until some were read: a short range shall not bring megabytes of what follows it."""

_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""The broker is not, or does not know that it is, the leader: look who is."""


class Skipped(NamedTuple):
    """Offsets that a read goes on without: from `start` up to but without `until`."""

    partition: TopicPartition
    start: int
    until: int
    why: str

    def __str__(self) -> str:
        return f"{self.partition}: skipped {self.until - self.start} offsets from {self.start} on: {self.why}"


class Range(msgspec.Struct, frozen=True):
    """What is to be read: offsets from `start` up to but without `end`. `topic_id` None: of whichever topic it is."""

    partition: TopicPartition
    topic_id: TopicId | None
    start: int
    end: int


class _Leader(NamedTuple):
    node: Node
    epoch: LeaderEpoch
    topic_id: TopicId


class PartitionReader:
    """Iterate it once. Without `on_skip` whatever is missing is an error: DataLoss or CorruptRecords.

    With it a read goes on behind what is missing, having told. Always raised: ReadTimedOut, ReadRefused, and
    CorruptRecords where it is not known where the next batch begins.
    """

    def __init__(
        self,
        settings: ClientSettings,
        wanted: Range,
        *,
        poll_timeout_ms: int,
        on_skip: Callable[[Skipped], object] | None = None,
        connections: Connections | None = None,
    ) -> None:
        self._settings = settings
        self._partition = wanted.partition
        self._topic_id = wanted.topic_id
        self._position = wanted.start
        self._end = wanted.end
        self._poll_timeout_ms = poll_timeout_ms
        self._on_skip = on_skip
        self._connections = Connections(settings) if connections is None else connections
        self._leader: _Leader | None = None
        self._newest_epoch = LeaderEpoch(-1)
        self._bytes_per_offset = float(FIRST_RECORD_BYTES)
        self._failures = 0
        self._since_ms = 0
        self._doubts: dict[str, int] = {}
        """Since when topic or end of the log are said to be gone."""

    def close(self) -> None:
        """Close all connections; another thread that reads ends with an error."""
        self._connections.close()

    def __iter__(self) -> Iterator[Batches]:
        """Answers with batches of the range, in order; the first and the last may reach beyond it."""
        self._went_on()
        while self._position < self._end:
            batches = self._next()
            if batches is not None and batches.headers:
                yield batches

    def _next(self) -> Batches | None:
        """One answer, dealt with; None where it brought no batches."""
        leader = self._find_leader()
        if leader is None:
            return None
        asked_ms = self._connections.now_ms
        try:
            fetched = self._fetch(leader, self._position, self._fetch_bytes())
        except PeerUnavailable as error:
            self._look_again(error.message)
            return None
        code = fetched.error
        if code is ErrorCode.NONE:
            return self._take(fetched, asked_ms)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range()
        elif code is ErrorCode.CORRUPT_MESSAGE:
            self._damaged(leader)
        elif code in _ELSEWHERE or code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR:
            self._look_again(f"broker {leader.node.id} answers {code.name}")
        else:
            raise ReadRefused(self._partition, self._position, f"broker {leader.node.id} answers {code.name}")
        return None

    def _find_leader(self) -> _Leader | None:
        """Who leads, as far as is known; None after a wait where there is none."""
        if self._leader is not None:
            return self._leader
        deadline = self._since_ms + self._poll_timeout_ms
        try:
            told = self._connections.metadata([self._partition.topic], deadline, turn=self._failures > 0)
        except ClusterUnavailable as error:
            raise self._timed_out(error.message) from error
        topic = told.topics.get(self._partition.topic)
        if topic is None or self._partition.partition not in topic.partitions:
            self._vanishing("the cluster has no such topic or partition any more")
            return None
        if topic.topic_id is None:
            raise ReadRefused(self._partition, self._position, "its brokers tell no topic ids, as those before 2.8")
        if self._topic_id not in (None, topic.topic_id):
            self._vanishing("the topic was deleted, and another one made under its name")
            return None
        self._topic_id = topic.topic_id
        self._doubts.pop("topic", None)
        found = told.leader(self._partition)
        if found is None:
            self._look_again("it has no leader")
            return None
        node, epoch = found
        if epoch < self._newest_epoch:
            self._look_again(f"metadata has leader epoch {epoch}, an older one than {self._newest_epoch}")
            return None
        self._newest_epoch = epoch
        self._leader = _Leader(node, epoch, topic.topic_id)
        return self._leader

    def _fetch(self, leader: _Leader, offset: int, max_bytes: int) -> FetchedPartition:
        wanted = FetchPartition(self._partition, leader.topic_id, Offset(offset), max_bytes, leader.epoch)
        limits = FetcherLimits(
            max_bytes=self._settings.fetch_max_bytes,
            partition_max_bytes=max_bytes,
            min_bytes=self._settings.fetch_min_bytes,
            max_wait_ms=self._settings.fetch_max_wait_ms,
            backoff_ms=0,
        )
        names = {(leader.topic_id, self._partition.partition): self._partition}
        plan = FetchPlan(NO_BROKER_EPOCH, NO_SESSION, FINAL_EPOCH, (wanted,), (), names, limits)
        request = fetch_request(plan, CONSUMER)
        timeout = self._settings.request_timeout_ms + self._settings.fetch_max_wait_ms
        answer = self._connections.peer(leader.node).exchange(request, FETCH_VERSION, timeout_ms=timeout)
        reply = fetch_reply(plan, answer)
        if reply.error is not ErrorCode.NONE:
            return FetchedPartition(reply.error)
        return dict(reply.partitions).get(self._partition, FetchedPartition(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _fetch_bytes(self) -> int:
        """As much as the rest of the range is thought to have, and a bit more."""
        rest = int((self._end - self._position) * self._bytes_per_offset * 1.1) + SMALLEST_FETCH_BYTES
        return min(rest, self._settings.partition_fetch_bytes)

    def _take(self, fetched: FetchedPartition, asked_ms: int) -> Batches | None:
        """What is in an answer without an error."""
        begin = self._position
        batches = scan(
            memoryview(fetched.records),
            begin,
            self._end,
            check_crcs=self._settings.check_crcs,
            high_watermark=fetched.high_watermark,
        )
        if batches.headers:
            offsets = batches.next_offset - batches.headers[0][1].base_offset
            self._bytes_per_offset = batches.size / max(offsets, 1)
        if self._settings.read_committed and any(header.is_transactional for _, header in batches.headers):
            raise CorruptRecords(
                self._partition,
                next(header.base_offset for _, header in batches.headers if header.is_transactional),
                "it belongs to a transaction, and aborted ones are not known here",
                hint='Leave kafka.isolation.level at "read_uncommitted".',
            )
        self._position = batches.next_offset
        if batches.corruption is not None:
            self._corrupt(batches.corruption)
        if self._position > begin:
            self._went_on()
        else:
            self._nothing_came(fetched, asked_ms)
        return batches

    def _nothing_came(self, fetched: FetchedPartition, asked_ms: int) -> None:
        """The long poll is over: the end of the range is beyond the high watermark."""
        why = f"its high watermark is {fetched.high_watermark}, the range ends at {self._end}"
        if self._connections.now_ms - asked_ms < self._settings.retry_backoff_ms:
            self._wait(why)
        elif self._connections.closed or self._connections.now_ms - self._since_ms >= self._poll_timeout_ms:
            raise self._timed_out(why)

    def _out_of_range(self) -> None:
        """The log does not have the position: it begins above it, or was cut off below it."""
        client = ClusterClient(self._settings, connections=self._connections)
        try:
            earliest = client.offsets({self._partition: EARLIEST})[self._partition]
            latest = client.offsets({self._partition: LATEST})[self._partition]
        except (ClusterUnavailable, TopicGone) as error:
            self._look_again(error.message)
            return
        if earliest is not None and earliest > self._position:
            self._lose(min(earliest, self._end), f"the log begins at {earliest}")
        elif latest is not None and latest < self._position and self._doubted("end"):
            self._lose(self._end, f"the log ends at {latest}: it was cut off, or the topic is another one")
        else:
            self._look_again(
                f"its leader has offsets {earliest} to {latest}, and does not give offset {self._position}"
            )

    def _vanishing(self, why: str) -> None:
        """The topic is not there, says one broker."""
        if self._doubted("topic"):
            self._lose(self._end, why)
        else:
            self._look_again(why)

    def _doubted(self, what: str) -> bool:
        """Whether it was said to be gone for long enough to be believed."""
        now = self._connections.now_ms
        return now - self._doubts.setdefault(what, now) >= min(DOUBT_MS, self._poll_timeout_ms // 2)

    def _damaged(self, leader: _Leader) -> None:
        """The leader's file is damaged at the position: it says so instead of serving it."""
        reason = f"broker {leader.node.id} finds it damaged on its disk"
        if self._on_skip is None:
            raise CorruptRecords(
                self._partition, self._position, reason, hint="See docs/operate/damage.md: another replica has it."
            )
        try:
            sound = self._next_sound(leader)
        except PeerUnavailable as error:
            self._look_again(error.message)
        else:
            self._lose(sound, reason)

    def _next_sound(self, leader: _Leader) -> int:
        """The first offset found that is served again, else the end: ever further ahead, then half-way back."""
        damaged, step = self._position, 1
        sound = self._end
        while damaged + 1 < sound:
            probe = min(damaged + step, sound - 1) if sound == self._end else (damaged + sound) // 2
            fetched = self._fetch(leader, probe, 1)
            if fetched.error is ErrorCode.CORRUPT_MESSAGE:
                damaged = probe
                step *= 2
            elif fetched.error is ErrorCode.NONE:
                sound = probe
            else:
                raise PeerUnavailable(f"Broker {leader.node.id} answers {fetched.error.name}.")
        return sound

    def _corrupt(self, found: Corruption) -> None:
        """Bytes that came are not what a producer sent."""
        if self._on_skip is None or found.next_offset is None:
            raise CorruptRecords(self._partition, found.offset, found.reason, hint=found.hint)
        self._lose(min(found.next_offset, self._end), found.reason)

    def _lose(self, until: int, why: str) -> None:
        if self._on_skip is None:
            raise DataLoss(self._partition, self._position, until, why)
        self._on_skip(Skipped(self._partition, self._position, until, why))
        self._position = until
        self._went_on()

    def _went_on(self) -> None:
        self._failures = 0
        self._since_ms = self._connections.now_ms
        self._doubts.clear()

    def _look_again(self, why: str) -> None:
        """Find the leader again, after a wait."""
        self._leader = None
        self._wait(why)

    def _wait(self, why: str) -> None:
        self._failures += 1
        if not self._connections.back_off(self._failures, self._since_ms + self._poll_timeout_ms):
            raise self._timed_out(why)

    def _timed_out(self, why: str) -> ReadTimedOut:
        return ReadTimedOut(self._partition, self._position, self._poll_timeout_ms, why.rstrip("."))
