"""What is in a log, read behind the back of whoever owns it: no port is asked, so nothing can fail or take time.

Every byte is read once, and again when it has changed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from regency.broker_agent.log.partition_log import PartitionLog
from regency.kafka.record_batch import HEADER_BYTES, BatchHeader, CorruptBatch, crc_matches, read_header
from regency.model.ids import BrokerId
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
