"""Reads all replicas of some partitions side by side, up to the high watermark, and has them compared.

Holds no records: of each batch only what is compared, after its checksum was worked out.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum

import msgspec

from regency.clients.replicas.compacted import Batch
from regency.clients.replicas.comparison import Comparison, Divergence
from regency.clients.replicas.damages import Damaged, SoundSearch, read_to
from regency.clients.replicas.pace import Pacing
from regency.clients.replicas.wire import Place, Replica, ReplicaWire, Unanswered
from regency.kafka.fetching.values import FetchedPartition, FetchPartition
from regency.kafka.record_batch import BatchHeader, CorruptBatch, crc_matches, iter_batches
from regency.model.ids import BrokerId, Offset, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode

AT_ONCE = 32
"""Partitions that are read side by side."""
RESPONSE_BYTES = 8 << 20
PARTITION_BYTES = 1 << 20
_PAUSE_S = 0.1
_HANG_UP_S = 30.0
"""A longer pause is made without connections: brokers close those that rest (connections.max.idle.ms)."""

AGREES, DIVERGES, DAMAGED, BEHIND, OFFLINE, MISSING, FAILED = (
    "agrees",
    "diverges",
    "damaged",
    "behind",
    "offline",
    "missing",
    "failed",
)
_STATES = {
    ErrorCode.KAFKA_STORAGE_ERROR: (OFFLINE, "its log or its log directory is offline"),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: (MISSING, "its broker does not host it now"),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (MISSING, "its broker does not know it"),
    ErrorCode.UNKNOWN_TOPIC_ID: (MISSING, "its broker does not know the topic: it was perhaps deleted meanwhile"),
    ErrorCode.INCONSISTENT_TOPIC_ID: (MISSING, "its broker has another topic of that name"),
}


class Partition(msgspec.Struct, frozen=True):
    """A partition that is to be read; `places` has every assigned replica.

    Of a piece of it those batches are read whose last offset is from `begin` on and below `end` (None: all up to the
    `bound`): so each batch belongs to one piece, whichever replicas have it, and whatever they have at the borders.
    """

    name: TopicPartition
    topic_id: TopicId
    leader: int | None
    places: Mapping[BrokerId, Place | ErrorCode | Unanswered]
    begin: int = 0
    end: int | None = None
    is_compacted: bool = False
    """Whether replicas are compacted, each by itself. Such a partition is read in one piece."""

    @property
    def bound(self) -> int:
        """The leader's high watermark; where there is no leader or the leader is silent, the highest there is."""
        known = {broker: place for broker, place in self.places.items() if isinstance(place, Place)}
        if self.leader is not None and (led := known.get(BrokerId(self.leader))) is not None:
            return led.high_watermark
        return max((place.high_watermark for place in known.values()), default=0)

    @property
    def read_end(self) -> int:
        """Where reading ends: at the `bound`, or before."""
        return self.bound if self.end is None else min(self.bound, self.end)


class Verdict(msgspec.Struct, frozen=True):
    """What became of one replica."""

    broker: int
    state: str
    log_start: int | None
    read_to: int | None
    detail: str = ""


class PartitionResult(msgspec.Struct, frozen=True):
    """What became of one partition."""

    partition: Partition
    replicas: list[Verdict]
    divergences: list[Divergence]
    damages: list[Damaged]


class _Went(Enum):
    """What an answer about one replica came to."""

    ON = "on"
    """Something was learned."""
    NOWHERE = "nowhere"
    """It has not come as far yet."""
    STARVED = "starved"
    """There was no room for it in the answer."""
    OUTSIDE = "outside"
    """Its log does not have the offset."""


class _Reading:
    """One partition while it is read."""

    def __init__(self, partition: Partition, suspected: Collection[int] | None = None) -> None:
        self.partition = partition
        self.bound = partition.read_end
        self.read: dict[BrokerId, Place] = {}
        self.outcome: dict[BrokerId, tuple[str, str]] = {}
        """State and detail of the replicas that could not be read to the end."""
        self.damages: list[Damaged] = []
        self.waits_since: dict[BrokerId, float] = {}
        self.careful: set[BrokerId] = set()
        """Replicas that are read one batch at a time, as there is damage in what was to be read at once."""
        self.searches: dict[BrokerId, SoundSearch] = {}
        """Replicas of which is being found out where they can be read again."""
        for broker, place in partition.places.items():
            match place:
                case Place():
                    self.read[broker] = place
                case Unanswered():
                    self.outcome[broker] = (OFFLINE, place.why)
                case _:
                    self.outcome[broker] = _state(place)
        starts = {broker: max(place.log_start, partition.begin) for broker, place in self.read.items()}
        self.comparison = Comparison(starts, is_compacted=partition.is_compacted, suspected=suspected)
        for broker in self.read:
            self.end_if_done(broker)

    def end_if_done(self, broker: BrokerId) -> None:
        if self.comparison.next_offset(broker) >= self.bound:
            self.comparison.end(broker)

    def fail(self, broker: BrokerId, state: str, detail: str) -> None:
        """The replica can be read no further."""
        self.outcome[broker] = (state, detail)
        search = self.searches.pop(broker, None)
        if search is not None:
            self.damages.append(Damaged(broker, search.damaged, search.what, self.bound - 1))
        self.comparison.end(broker)

    def offset(self, broker: BrokerId) -> int:
        """What to ask the replica's broker for."""
        search = self.searches.get(broker)
        probe = None if search is None else search.probe
        return self.comparison.next_offset(broker) if probe is None else probe

    def wanted(self) -> list[BrokerId]:
        return [broker for broker in self.read if self.comparison.wants(broker)]

    def answered(
        self, broker: BrokerId, fetched: FetchedPartition | Unanswered, patience_s: float, *, is_first: bool
    ) -> _Went:
        """Take in an answer; `is_first`: this partition stood first in the question, so that there was room for it."""
        at = self.offset(broker)
        if isinstance(fetched, Unanswered):
            self.fail(broker, OFFLINE, fetched.why)
        elif fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return _Went.OUTSIDE
        elif fetched.error is ErrorCode.CORRUPT_MESSAGE:
            self._corrupt(broker, "its broker finds the batch damaged")
        elif fetched.error is ErrorCode.KAFKA_STORAGE_ERROR:
            # it could tell its offsets a moment ago: damage takes a log offline when it is found by a read
            self.fail(broker, FAILED, f"its broker cannot read it at offset {at}, and its log tells why")
        elif fetched.error is not ErrorCode.NONE:
            self.fail(broker, *_state(fetched.error))
        elif broker in self.searches and (fetched.records or fetched.high_watermark <= at):
            self._probed(broker, at, fetched)
        elif fetched.records:
            self._take(broker, fetched)
        elif fetched.high_watermark <= at:
            return self._behind(broker, fetched, patience_s)
        elif is_first:
            self.fail(broker, FAILED, f"its broker shows nothing at offset {at}, below its high watermark")
        else:
            return _Went.STARVED
        return _Went.ON

    def _take(self, broker: BrokerId, fetched: FetchedPartition) -> None:
        self.waits_since.pop(broker, None)
        batches: list[Batch] = []
        passed = False
        try:
            for at, header in iter_batches(fetched.records):
                passed = passed or self._is_beyond(header)
                if passed or header.last_offset < self.comparison.next_offset(broker):
                    continue
                if not crc_matches(fetched.records, header, at):
                    self.damages.append(Damaged(broker, header.base_offset, "the batch's checksum is wrong"))
                place = (header.base_offset, header.last_offset, header.leader_epoch)
                data = bytes(fetched.records[at : at + header.size]) if self.partition.is_compacted else None
                batches.append(Batch(*place, header.crc, header.size, data))
        except CorruptBatch as error:
            self.comparison.take(broker, batches)
            if passed:
                self.comparison.pass_to(broker, self.bound)
            elif not batches:
                self._corrupt(broker, f"no batch begins there: {error.reason}")
            self.end_if_done(broker)
            return
        self.comparison.take(broker, batches)
        if passed:
            self.comparison.pass_to(broker, self.bound)
        elif not batches:
            self.fail(broker, DAMAGED, f"its broker shows other offsets at {self.comparison.next_offset(broker)}")
        self.end_if_done(broker)

    def _is_beyond(self, header: BatchHeader) -> bool:
        """Whether it is the first batch that is not read: above the high watermark, or the next piece's."""
        offset = header.last_offset if self.bound < self.partition.bound else header.base_offset
        return offset >= self.bound

    def _corrupt(self, broker: BrokerId, what: str) -> None:
        """Nothing sound came from where the replica was asked: look where exactly that begins, then where it ends."""
        search = self.searches.get(broker)
        if search is not None:
            assert search.probe is not None
            search.refused(search.probe)
            self._go_on(broker, search)
        elif broker not in self.careful:
            self.careful.add(broker)
        else:
            offset = self.comparison.next_offset(broker)
            search = SoundSearch(offset, self.bound, what, self.comparison.borders(offset))
            self.searches[broker] = search
            self._go_on(broker, search)

    def _probed(self, broker: BrokerId, probe: int, fetched: FetchedPartition) -> None:
        """An answer without an error while is looked for where the replica can be read again."""
        search = self.searches[broker]
        if not fetched.records:
            search.nothing_from(probe)
        else:
            try:
                headers = [header for _, header in iter_batches(fetched.records) if header.last_offset >= probe]
            except CorruptBatch:
                headers = []
            if headers:
                search.served(probe, headers[0].base_offset)
            else:
                search.refused(probe)
        self._go_on(broker, search)

    def _go_on(self, broker: BrokerId, search: SoundSearch) -> None:
        """Read on behind the damage, if it is known by now where that is."""
        if search.probe is not None:
            return
        del self.searches[broker]
        self.careful.discard(broker)
        self.damages.append(Damaged(broker, search.damaged, search.what, search.until - 1))
        self.comparison.skip_to(broker, search.until)
        self.end_if_done(broker)

    def begins_later(self, broker: BrokerId, start: int) -> None:
        """The replica's log begins at `start`, which may be above what is to be read next, and had not that offset."""
        search = self.searches.get(broker)
        if start > self.comparison.next_offset(broker):
            if search is not None:
                del self.searches[broker]
                self.careful.discard(broker)
                self.damages.append(Damaged(broker, search.damaged, search.what, min(start, self.bound) - 1))
            self.comparison.skip_to(broker, start)
            self.end_if_done(broker)
        elif search is not None:
            assert search.probe is not None
            search.nothing_from(search.probe)
            self._go_on(broker, search)
        else:
            at, mark = self.comparison.next_offset(broker), self.partition.bound
            self.fail(broker, BEHIND, f"its log ends below offset {at}, the high watermark is {mark}")

    def _behind(self, broker: BrokerId, fetched: FetchedPartition, patience_s: float) -> _Went:
        since = self.waits_since.setdefault(broker, time.monotonic())
        if time.monotonic() - since >= patience_s:
            mark = fetched.high_watermark
            self.fail(broker, BEHIND, f"its high watermark is {mark}, the partition's is {self.partition.bound}")
        return _Went.NOWHERE

    def result(self) -> PartitionResult:
        self.comparison.finish()
        damaged = {damage.broker for damage in self.damages}
        verdicts = []
        for broker, place in self.partition.places.items():
            state, detail = self.outcome.get(broker, (AGREES, ""))
            if broker in damaged:
                state = DAMAGED
            elif broker in self.comparison.differs:
                state = DIVERGES
            start = place.log_start if isinstance(place, Place) else None
            end = read_to(self.comparison.next_offset(broker), self.damages, broker) if broker in self.read else None
            verdicts.append(Verdict(broker, state, start, end, detail))
        return PartitionResult(self.partition, verdicts, self.comparison.divergences, self.damages)


def read_and_compare(
    wire: ReplicaWire,
    partitions: Sequence[Partition],
    *,
    patience_s: float,
    on_progress: Callable[[int], object],
    pace: Pacing | None = None,
) -> Iterable[PartitionResult]:
    """Results in order. `on_progress` gets the offsets that were read, of all replicas together.

    A replica whose high watermark is behind is waited for `patience_s` seconds: followers learn it a fetch later.
    Without a `pace` brokers are read as fast as they answer.
    """
    for start in range(0, len(partitions), AT_ONCE):
        readings = [_Reading(partition) for partition in partitions[start : start + AT_ONCE]]
        _read(wire, {reading.partition.name: reading for reading in readings}, patience_s, on_progress, pace)
        for reading in readings:
            result = reading.result()
            if reading.partition.is_compacted and result.divergences:
                result = _look_again(wire, result, patience_s, on_progress, pace)
            yield result


def _look_again(
    wire: ReplicaWire,
    first: PartitionResult,
    patience_s: float,
    on_progress: Callable[[int], object],
    pace: Pacing | None,
) -> PartitionResult:
    """What of a compacted partition's differences is still there: it may have been compacted while it was read."""
    partition = first.partition
    name = partition.name
    found = wire.places({broker: [name] for broker in partition.places}, {name.topic: partition.topic_id})
    places = {broker: found[broker, name] for broker in partition.places}
    suspected = {offset for each in first.divergences for offset in range(each.from_offset, each.to_offset + 1)}
    reading = _Reading(msgspec.structs.replace(partition, places=places, end=None), suspected)
    _read(wire, {name: reading}, patience_s, on_progress, pace)
    return msgspec.structs.replace(reading.result(), partition=partition)


def _read(
    wire: ReplicaWire,
    readings: Mapping[TopicPartition, _Reading],
    patience_s: float,
    on_progress: Callable[[int], object],
    pace: Pacing | None,
) -> None:
    starved: dict[Replica, None] = {}
    while wanted := _wanted(readings, starved):
        starved, moved = {}, False
        outside: dict[BrokerId, list[TopicPartition]] = {}
        for (broker, name), fetched in _fetch(wire, wanted, pace).items():
            reading = readings[name]
            before = reading.comparison.next_offset(broker)
            went = reading.answered(broker, fetched, patience_s, is_first=name == wanted[broker][0].topic_partition)
            moved = moved or went is _Went.ON
            if went is _Went.OUTSIDE:
                outside.setdefault(broker, []).append(name)
            elif went is _Went.STARVED:
                starved[broker, name] = None
            on_progress(reading.comparison.next_offset(broker) - before)
        _begin_later(wire, readings, outside)
        for reading in readings.values():
            reading.comparison.advance()
        if not (moved or starved or outside):
            time.sleep(_PAUSE_S)


def _fetch(
    wire: ReplicaWire, wanted: Mapping[BrokerId, Sequence[FetchPartition]], pace: Pacing | None
) -> Mapping[Replica, FetchedPartition | Unanswered]:
    if pace is None:
        return wire.fetch(wanted, max_bytes=RESPONSE_BYTES)
    if pace.pause_s > _HANG_UP_S:
        wire.hang_up()
    pace.wait()
    answers = wire.fetch(wanted, max_bytes=min(RESPONSE_BYTES, pace.answer_bytes(len(wanted))))
    came = Counter[BrokerId]()
    for (broker, _), fetched in answers.items():
        if isinstance(fetched, FetchedPartition):
            came[broker] += len(fetched.records)
    pace.pay(came)
    return answers


def _wanted(
    readings: Mapping[TopicPartition, _Reading], starved: Mapping[Replica, None]
) -> dict[BrokerId, list[FetchPartition]]:
    """What to read next, by broker; first whom the last answer had no room for."""
    wanted: dict[BrokerId, list[FetchPartition]] = {}
    for name, reading in readings.items():
        for broker in reading.wanted():
            offset = Offset(reading.offset(broker))
            some = wanted.setdefault(broker, [])
            most = 1 if broker in reading.careful else PARTITION_BYTES
            some.append(FetchPartition(name, reading.partition.topic_id, offset, most))
    for broker, some in list(wanted.items()):
        full = [one for one in some if (broker, one.topic_partition) not in starved]
        wanted[broker] = [one for one in some if (broker, one.topic_partition) in starved] + full
    return wanted


def _begin_later(
    wire: ReplicaWire, readings: Mapping[TopicPartition, _Reading], outside: Mapping[BrokerId, Sequence[TopicPartition]]
) -> None:
    """Go on where the logs begin by now: retention removed what was to be read."""
    for (broker, name), listed in wire.starts(outside).items():
        reading = readings[name]
        if isinstance(listed, Unanswered):
            reading.fail(broker, OFFLINE, listed.why)
        elif listed.error is not ErrorCode.NONE:
            reading.fail(broker, *_state(listed.error))
        else:
            reading.begins_later(broker, listed.offset)


def _state(error: ErrorCode) -> tuple[str, str]:
    return _STATES.get(error, (FAILED, f"its broker answers {error.name}"))
