"""The rules of logs: what is in one, against what its owner says of it, and against all other logs there have been."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.log.producer_state import ProducerStates
from regency.broker_agent.replication.partition import Partition
from regency.kafka.record_batch import HEADER_BYTES, BatchHeader, CorruptBatch, crc_matches, read_header
from regency.model.ids import BrokerId, Offset, TopicId
from simulation.disk_files import UNCHANGED, File
from simulation.judging.facts import Digest
from simulation.judging.invariants import broken

Peek = Callable[[BrokerId, Path], File | None]
"""A file as the broker's processes would read it now; None where there is no such file."""


class Batch(NamedTuple):
    """A batch that is all in a file."""

    offset: int
    """Of its first record."""
    digest: Digest
    header: BatchHeader
    end: int
    """The byte behind it."""
    is_sound: bool


def batches_in(file: File) -> Sequence[Batch]:
    """The batches from the file's first byte on, up to what is none or not all there."""
    seen: list[Batch] = file.seen
    content = file.content
    if file.changed_from != UNCHANGED:
        while seen and seen[-1].end > file.changed_from:
            seen.pop()
        file.changed_from = UNCHANGED
    at = seen[-1].end if seen else 0
    while len(content) - at >= HEADER_BYTES:
        try:
            header = read_header(content, at)
        except CorruptBatch:
            break
        end = at + header.size
        if end > len(content):
            break
        following = header.base_offset + header.last_offset_delta + 1
        digest = Digest(following, header.crc, header.leader_epoch)
        seen.append(Batch(header.base_offset, digest, header, end, crc_matches(content, header, at)))
        at = end
    return seen


def batches_of(broker: BrokerId, log: PartitionLog, peek: Peek) -> Iterator[Batch]:
    """All batches in the files of a log, sound or not."""
    for segment in log._segments:
        file = peek(broker, segment.log.path)
        if file is not None:
            yield from batches_in(file)


class LogCursor:
    """How far a log has been read."""

    __slots__ = ("_broker", "_index", "_log", "_peek", "_segment", "offset")

    def __init__(self, broker: BrokerId, log: PartitionLog, peek: Peek) -> None:
        self._broker = broker
        self._log = log
        self._peek = peek
        self._segment = -1
        self._index = 0
        self.offset: int = log.log_start_offset

    def go_back_to(self, offset: int) -> None:
        if offset < self.offset:
            self.offset = offset
            self._segment = -1

    def read_to(self, end: int) -> Iterator[tuple[int, Digest]]:
        """First offset and digest of every batch from here on that ends at or below `end`."""
        log = self._log
        self.offset = max(self.offset, log.log_start_offset)
        while self.offset < end:
            bases = log._segments._bases
            number = max(bisect_right(bases, self.offset) - 1, 0)
            segment, bound = log._segments._segments[number], bases[number + 1] if number + 1 < len(bases) else end
            if segment.base_offset != self._segment:
                self._segment, self._index = segment.base_offset, 0
            file = self._peek(self._broker, segment.log.path)
            batches: Sequence[Batch] = () if file is None else batches_in(file)
            if self._index >= len(batches):
                raise broken(
                    "watermark-within-log",
                    f"broker {self._broker}, {log.topic_partition}: no batch at {self.offset}, the log ends at {end}",
                )
            bound = min(bound, end)
            for batch in batches[self._index :]:
                following = batch.digest.next_offset
                if following > end:
                    return
                self._index += 1
                if not batch.is_sound:
                    raise broken(
                        "batches-sound",
                        f"broker {self._broker}, {log.topic_partition}: the batch at {batch.offset} is damaged",
                    )
                if following > self.offset:
                    self.offset = following
                    yield batch.offset, batch.digest
                    if following >= bound:
                        break


Key = tuple[TopicId, int]
"""A partition, by the topic's identity."""


Place = tuple[int, int]
"""Of a batch: offset and leader epoch."""

_FIRST: Place = (-1, -1)
"""What a log's first batch follows."""


class Reader:
    """How far the rules have read a log."""

    __slots__ = ("cursor", "last")

    def __init__(self, broker: BrokerId, log: PartitionLog, peek: Peek) -> None:
        self.cursor = LogCursor(broker, log, peek)
        self.last: Place | None = _FIRST if log.log_start_offset == 0 else None
        """The last batch that was read; None where that is not known."""


class LogRules:
    """Remembers what every leader has written in its epoch, and behind what. Raises InvariantBroken."""

    def __init__(self, peek: Peek) -> None:
        self._peek = peek
        self._written: dict[Key, dict[Place, Digest]] = {}
        self._follows: dict[Key, dict[Place, Place]] = {}

    def check_appended(self, broker: BrokerId, key: Key, log: PartitionLog, reader: Reader) -> None:
        """Look at what is in a log behind what was looked at before."""
        check_epochs(broker, log)
        written, follows = self._written.setdefault(key, {}), self._follows.setdefault(key, {})
        if reader.cursor.offset < log.log_start_offset:
            reader.last = None
        for offset, digest in reader.cursor.read_to(log.log_end_offset):
            place = offset, digest.leader_epoch
            first = written.setdefault(place, digest)
            if first != digest:
                raise broken("log-matching", f"{_name(broker, log)}: {digest} at {offset}, where another had {first}")
            if reader.last is not None and follows.setdefault(place, reader.last) != reader.last:
                raise broken(
                    "log-matching",
                    f"{_name(broker, log)}: {digest} at {offset} follows what is at {_told(reader.last)}; in another "
                    f"log it followed what is at {_told(follows[place])}",
                )
            reader.last = place
            if offset >= log.log_start_offset and log.epoch_at(Offset(offset)) != digest.leader_epoch:
                raise broken(
                    "epochs-fit", f"{_name(broker, log)}: {digest} at {offset}, epochs are {log.epoch_entries}"
                )

    def check_leader(self, broker: BrokerId, partition: Partition, *, is_compacted: bool) -> None:
        """A leader knows its epoch, and its producers; where batches were compacted away, by other rules."""
        log = partition.log
        if log.latest_epoch != partition.leader_epoch:
            raise broken(
                "epoch-noted",
                f"broker {broker}, {partition.topic_partition}: leads in leader epoch {partition.leader_epoch}, its "
                f"log knows {log.epoch_entries}",
            )
        if not is_compacted:
            self.check_producers(broker, log)

    def check_producers(self, broker: BrokerId, log: PartitionLog) -> None:
        """Compare the producers a log knows with the batches in it."""
        known, wanted = log._producers._producers, self._replayed(broker, log)._producers
        for number, producer in wanted.items():
            held = known.get(number)
            if (
                held is None
                or held.epoch != producer.epoch
                or not held.batches
                or held.batches[-1] != producer.batches[-1]
            ):
                raise broken(
                    "producers-fit",
                    f"broker {broker}, {log.topic_partition}: of producer {number} the log has "
                    f"{producer.batches[-1]} in epoch {producer.epoch}, known is "
                    f"{None if held is None else (list(held.batches), held.epoch)}",
                )

    def _replayed(self, broker: BrokerId, log: PartitionLog) -> ProducerStates:
        producers = ProducerStates()
        for batch in batches_of(broker, log, self._peek):
            if batch.digest.next_offset <= log.log_end_offset:
                producers.update(batch.header)
        return producers


def check_epochs(broker: BrokerId, log: PartitionLog) -> None:
    """The epochs a log knows rise, and begin within it."""
    before, end = (-1, -1), log.log_end_offset
    for entry in log._epochs._entries:
        if entry[0] <= before[0] or entry[1] <= before[1] or entry[1] > end:
            raise broken(
                "epochs-fit",
                f"broker {broker}, {log.topic_partition}: epochs begin at {log.epoch_entries}, the log ends at "
                f"{log.log_end_offset}",
            )
        before = entry


def check_cut(broker: BrokerId, log: PartitionLog) -> None:
    """A follower that was cut off knows no epoch that begins at its end: it has been nobody's leader since."""
    if any(start >= log.log_end_offset for _, start in log.epoch_entries):
        raise broken(
            "epochs-fit",
            f"broker {broker}, {log.topic_partition}: cut off to {log.log_end_offset}, and epochs begin at "
            f"{log.epoch_entries}",
        )


def _name(broker: BrokerId, log: PartitionLog) -> str:
    return f"broker {broker}, {log.topic_partition}"


def _told(place: Place) -> str:
    return f"{place[0]} in leader epoch {place[1]}"
