"""One cleaning, step by step: the dirty part is read into an offset map, then all is read again and what stays written.

Nothing that is there is changed: new segments go to `.cleaned` files, which are on the disk when the cleaning is over.
Between two steps the log may grow, or its segments be renamed or removed: what is not found ends the cleaning.
Source: LogCleaner.Cleaner of Kafka 3.9, `buildOffsetMap`, `groupSegmentsBySize`, `cleanInto`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from regency.broker_agent.log.cleaning.batches import Piece, read_piece
from regency.broker_agent.log.cleaning.job import Cleaned, CleanedSegment, CleaningJob, remove_cleaned
from regency.broker_agent.log.cleaning.keeping import Kept, LastOfProducer, Round, Tally, keep, passed_markers
from regency.broker_agent.log.cleaning.offset_map import OffsetMap
from regency.broker_agent.log.cleaning.transactions import (
    AbortedTransaction,
    Transactions,
    format_aborted,
    read_aborted,
)
from regency.broker_agent.log.errors import Uncleanable
from regency.broker_agent.log.segments.index_building import build_at_once
from regency.broker_agent.log.segments.open_files import MIN_LIMIT, OpenFiles
from regency.broker_agent.log.segments.segment import MAX_RELATIVE_OFFSET, Segment
from regency.kafka.logfiles.checkpoints import write_new
from regency.kafka.logfiles.file_names import CLEANED, INDEX, LOG, TIME_INDEX, TXN_INDEX, offset_file
from regency.kafka.record_batch import OVERHEAD_BYTES, BatchHeader, CorruptBatch, batch_size
from regency.model.crash_points import crash_point
from regency.model.ids import Offset
from regency.model.settings.log_config import LogConfig
from regency.runtime.disk import Disk

Cleaning: TypeAlias = Generator[int, None, Cleaned]
"""Yields after each step the bytes that were read or written in it."""

_MOST_BYTES: Final = 2**31 - 1
"""Of a segment: a position is a number of 32 bits."""


class _Closed(NamedTuple):
    """A segment that takes no more batches."""

    base: Offset
    upper: Offset
    """Where the next one begins."""
    size: int
    index_bytes: int
    time_index_bytes: int


def clean(job: CleaningJob, disk: Disk) -> Cleaning:
    """Clean. Raises Uncleanable, and OSError: FileNotFoundError where the log is not what it was. Removes its files
    then.
    """
    directory = Path(job.directory)
    remove_cleaned(disk, directory)
    try:
        return (yield from _Cleaner(job, disk).clean())
    except CorruptBatch as error:
        raise Uncleanable(f"{directory}: {error}.") from error
    except BaseException:
        remove_cleaned(disk, directory)
        raise


class _Cleaner:
    def __init__(self, job: CleaningJob, disk: Disk) -> None:
        self._job = job
        self._disk = disk
        self._directory = Path(job.directory)
        self._read = self._written = 0
        self._tally = Tally()

    def clean(self) -> Cleaning:
        job = self._job
        bases = [*(source.base for source in job.segments), job.end]
        segments = [
            self._closed(source.base, upper, source.size)
            for source, (_, upper) in zip(job.segments, pairwise(bases), strict=True)
        ]
        aborted = [each for segment in segments for each in self._aborted(segment)]
        offsets = OffsetMap(job.map_bytes, job.load_factor, job.end - job.first_dirty)
        end = yield from self._map(offsets, segments, aborted)
        round_ = Round(
            offsets,
            job.first_dirty,
            offsets.survivors(job.first_dirty, end),
            end,
            {id_: LastOfProducer(*last) for id_, last in job.producers.items()},
            job.now_ms,
            job.delete_retention_ms,
        )
        transactions = Transactions(aborted)
        cleaned = []
        for group in grouped([segment for segment in segments if segment.base < end], job):
            is_changed = yield from self._rewrite(group, round_, transactions)
            if is_changed:
                cleaned.append(CleanedSegment(group[0].base, tuple(segment.base for segment in group)))
        if cleaned:
            crash_point("log.cleaning.before_sync")
            self._disk.sync_path(self._directory)
        return Cleaned(
            end=end,
            segments=tuple(cleaned),
            bytes_read=self._read,
            bytes_written=self._written,
            records_read=self._tally.records_read,
            records_kept=self._tally.records_kept,
            without_key=self._tally.without_key,
            map_fill=offsets.fill,
        )

    def _closed(self, base: Offset, upper: Offset, size: int) -> _Closed:
        sizes = [self._size(offset_file(self._directory, base, suffix)) for suffix in (INDEX, TIME_INDEX)]
        return _Closed(base, upper, size, *sizes)

    def _size(self, path: Path) -> int:
        fd = self._disk.open_existing(path)
        try:
            return self._disk.size(fd)
        finally:
            self._disk.close(fd)

    def _aborted(self, segment: _Closed) -> Sequence[AbortedTransaction]:
        path = offset_file(self._directory, segment.base, TXN_INDEX)
        try:
            return read_aborted(self._disk.read_file(path))
        except FileNotFoundError:
            return ()
        except ValueError as error:
            raise Uncleanable(f"{path}: {error}.") from error

    def _pieces(self, segment: _Closed) -> Generator[Piece, None, None]:
        path = offset_file(self._directory, segment.base, LOG)
        fd = self._disk.open_existing(path)
        try:
            position = 0
            while position < segment.size:
                left = segment.size - position
                source = self._disk.read(fd, min(self._job.buffer_bytes, left), position)
                needed = batch_size(source) if len(source) >= OVERHEAD_BYTES else left + 1
                if needed > left:
                    raise Uncleanable(f"{path}: it ends within a batch, which begins at byte {position}.")
                if needed > len(source):
                    source = self._disk.read(fd, needed, position)
                piece = read_piece(source, str(path), position)
                if not piece.size:
                    raise Uncleanable(f"{path}: no batch begins at byte {position}.")
                self._read += piece.size
                yield piece
                position += piece.size
        finally:
            self._disk.close(fd)

    def _map(
        self, offsets: OffsetMap, segments: Sequence[_Closed], aborted: Sequence[AbortedTransaction]
    ) -> Generator[int, None, Offset]:
        """Fill the map. Returns the offset up to which that was done."""
        job, transactions = self._job, Transactions(aborted)
        end = job.first_dirty
        for segment in segments:
            if segment.upper <= job.first_dirty:
                continue
            with closing(self._pieces(segment)) as pieces:
                for piece in pieces:
                    batches = self._put(offsets, piece, transactions)
                    if batches:
                        end = max(end, piece.places[batches - 1][1].next_offset)
                    if batches < len(piece.places):
                        if end == job.first_dirty:
                            raise Uncleanable(
                                f"{self._directory}: the offset map has no room for a single batch: {offsets.capacity} "
                                "keys are too few. Raise log.cleaner.dedupe.buffer.size."
                            )
                        return end
                    yield piece.size
            end = segment.upper  # also where the next batch is further on (KAFKA-8764)
        return end

    def _put(self, offsets: OffsetMap, piece: Piece, transactions: Transactions) -> int:
        """Enter the keys of a piece; returns of how many batches there was room for them."""
        records = piece.records
        enters = (records.key_sizes >= 0) & (records.offsets >= self._job.first_dirty)
        for index, is_data in passed_markers(piece, transactions):
            if not is_data:
                enters[records.firsts[index] : records.firsts[index + 1]] = False
        entered = np.flatnonzero(enters)
        below = np.searchsorted(entered, records.firsts)  # of each batch: how many are entered before it
        hashes = offsets.hashes(piece.plain, records.key_at[entered], records.key_sizes[entered])
        done, whole = 0, len(piece.places)
        while done < whole:
            stop = int(np.searchsorted(below, below[done] + offsets.room, side="right")) - 1
            if stop <= done:
                return done
            some = slice(int(below[done]), int(below[stop]))
            offsets.put(hashes[some], records.offsets[entered[some]])
            done = stop
        return done

    def _rewrite(
        self, group: Sequence[_Closed], round_: Round, transactions: Transactions
    ) -> Generator[int, None, bool]:
        """Write one new segment; returns whether it is needed: not where all is as it was."""
        files = OpenFiles(MIN_LIMIT, self._disk)
        job = self._job
        config = LogConfig(
            segment_bytes=job.segment_bytes,
            segment_index_bytes=job.segment_index_bytes,
            index_interval_bytes=job.index_interval_bytes,
        )
        target = Segment(self._directory, group[0].base, config, files, job.now_ms, build_at_once, CLEANED)
        crash_point("log.cleaning.before_segment")
        target.create()
        try:
            is_changed = len(group) > 1
            last = next((segment for segment in reversed(group) if segment.size), None)
            for segment in group:
                left = segment.size
                with closing(self._pieces(segment)) as pieces:
                    for piece in pieces:
                        left -= piece.size
                        is_last = segment is last and not left
                        kept = list(keep(piece, round_, transactions, self._tally, is_last=is_last))
                        is_changed |= len(kept) < len(piece.places) or any(each.is_changed for each in kept)
                        written = self._append(target, kept)
                        yield piece.size + written
            if is_changed:
                self._finish(target, transactions)
                yield 0
        finally:
            target.close()
        if not is_changed:
            self._written -= target.size
            for file in target.files:
                file.remove()
        transactions.retained.clear()
        return is_changed

    def _append(self, target: Segment, kept: Sequence[Kept]) -> int:
        if not kept:
            return 0
        data = b"".join([each.data for each in kept])
        if target.size + len(data) > _MOST_BYTES:
            raise Uncleanable(f"{target.log.path}: it would be larger than a segment may be, {_MOST_BYTES} bytes.")
        places: list[tuple[int, BatchHeader]] = []
        at = 0
        for each in kept:
            places.append((at, each.header))
            at += len(each.data)
        target.append(data, places)
        self._written += len(data)
        return len(data)

    def _finish(self, target: Segment, transactions: Transactions) -> None:
        """Have everything of a new segment on the disk."""
        target.seal()
        crash_point("log.cleaning.before_flush")
        for file in target.files:
            file.sync()
        if transactions.retained:
            path = offset_file(self._directory, target.base_offset, TXN_INDEX)
            content = format_aborted(transactions.retained)
            write_new(self._disk, path.with_name(path.name + CLEANED), content, sync=True)


def grouped(segments: Sequence[_Closed], job: CleaningJob) -> list[list[_Closed]]:
    """Which segments become one: as many as fit into it, by their sizes before (KAFKA-12889)."""
    groups: list[list[_Closed]] = []
    for segment in segments:
        if groups and _fits(groups[-1], segment, job):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(group: Sequence[_Closed], segment: _Closed, job: CleaningJob) -> bool:
    if segment.upper - 1 - group[0].base > MAX_RELATIVE_OFFSET:
        return False
    whole = [*group, segment]
    return (
        sum(each.size for each in whole) <= job.segment_bytes
        and sum(each.index_bytes for each in whole) <= job.segment_index_bytes
        and sum(each.time_index_bytes for each in whole) <= job.segment_index_bytes
    )
