"""Opening the log of one partition from its directory, and making it whole first where the last shutdown was not clean.

Runs on a worker thread, one log per thread at a time, with open files of its own. What follows the first damaged batch
is dropped: the leader has it, or no replica has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from regency.broker_agent.log.leader_epoch_cache import LeaderEpochCache
from regency.broker_agent.log.log_core import LogParts
from regency.broker_agent.log.producer_state import ProducerStates, restore
from regency.broker_agent.log.segments.index_building import build_at_once
from regency.broker_agent.log.segments.open_files import LogFile, OpenFiles
from regency.broker_agent.log.segments.segment import Segment
from regency.broker_agent.log.segments.segments import Segments
from regency.kafka.logfiles.checkpoints import CheckpointMalformed, read_epochs, read_partition_metadata
from regency.kafka.logfiles.file_names import (
    CLEANED,
    DELETED,
    EPOCH_CHECKPOINT,
    INDEX,
    LOG,
    LOG_START_OFFSETS,
    SWAP,
    TIME_INDEX,
    TMP,
    TXN_INDEX,
    offset_file,
    parse_offset_file,
)
from regency.kafka.record_batch import HEADER_BYTES, BatchHeader, CorruptBatch, batch_size, crc_matches, iter_batches
from regency.model.crash_points import crash_point
from regency.model.ids import NO_LEADER_EPOCH, ZERO_TOPIC_ID, LeaderEpoch, Offset, TopicId, TopicPartition
from regency.model.settings.log_config import LogConfig
from regency.runtime.disk import Disk

logger = logging.getLogger(__name__)

_OPEN_FILES = 16
_SCAN_CHUNK = 1 << 20


class FoundLog(NamedTuple):
    """A partition's directory and what the checkpoints of its log directory say about it."""

    topic_partition: TopicPartition
    directory: Path
    clean: bool
    """Whether the last shutdown was clean."""
    recovery_point: Offset
    log_start: Offset
    whole: bool = False
    """Whether all that was written before is there yet, synced or not: only the process has ended."""
    cleaned_to: Offset | None = None


def open_log(disk: Disk, found: FoundLog, config: LogConfig, now_ms: int) -> LogParts:
    """Read the log from the disk, recovered from its recovery point on if that is needed. Raises OSError."""
    files = OpenFiles(_OPEN_FILES, disk)
    try:
        try:
            return _Opening(found, config, files, now_ms).load()
        except CorruptBatch as error:
            logger.warning("%s: recovered from its first batch on, it is damaged: %s", found.directory, error)
            files.close_all()
            return _Opening(found, config, files, now_ms, check_all=True).load()
    finally:
        files.close_all()


def create_log(
    directory: Path,
    topic_partition: TopicPartition,
    topic_id: TopicId,
    config: LogConfig,
    now_ms: int,
    files: OpenFiles,
) -> LogParts:
    """Make an empty log in `directory`, which is new. Raises OSError."""
    segments = Segments(directory, files, [])
    segments.create(Offset(0), config, now_ms)
    return LogParts(
        topic_partition=topic_partition,
        topic_id=topic_id,
        directory=directory,
        config=config,
        segments=segments,
        epochs=LeaderEpochCache(files.disk, directory / EPOCH_CHECKPOINT),
        producers=ProducerStates(),
        log_start=Offset(0),
        log_end=Offset(0),
        recovery_point=Offset(0),
        is_new=True,
        is_recovered=False,
    )


class _Opening:
    """One log being opened."""

    def __init__(
        self, found: FoundLog, config: LogConfig, files: OpenFiles, now_ms: int, *, check_all: bool = False
    ) -> None:
        self._found = found
        self._checked_from = Offset(0) if check_all else found.recovery_point
        self._trusts_files = found.clean and not check_all
        self._directory = found.directory
        self._config = config
        self._files = files
        self._disk = files.disk
        self._now_ms = now_ms
        self._read: list[ReadRange] = []
        self._last_epoch = int(NO_LEADER_EPOCH)
        """Of the batches read last, as far as they stand side by side: epochs rise."""
        self._believes_hole = False
        """Whether there is one that counts as damage once the power is cut."""

    def load(self) -> LogParts:
        """All steps in order."""
        crash_point("log.recovery.before_tidy")
        bases = self._tidy()
        crash_point("log.recovery.before_segments")
        segments, log_end = self._load_segments(bases)
        log_start = self._log_start(segments, log_end)
        if segments and log_end < log_start:
            self._drop(segments)
        if not segments or log_end < log_start:
            segments, log_end = [], log_start
        chain = Segments(self._directory, self._files, segments)
        if not segments:
            chain.create(log_start, self._config, self._now_ms)
            self._disk.sync_path(self._directory)  # the name alone says where it begins, once no checkpoint does
        crash_point("log.recovery.before_epochs")
        epochs = self._load_epochs(chain, log_start, log_end)
        crash_point("log.recovery.before_producers")
        synced = log_end if self._trusts_files else min(self._found.recovery_point, log_end)
        # Nothing else tells who wrote what was before the first segment; no cut leaves a snapshot behind.
        trusted = max(synced, chain.first.base_offset)
        if self._believes_hole:
            self._sync(chain)
            synced = log_end
        return LogParts(
            topic_partition=self._found.topic_partition,
            topic_id=self._topic_id(),
            directory=self._directory,
            config=self._config,
            segments=chain,
            epochs=epochs,
            producers=restore(self._disk, self._directory, chain, trusted=trusted, log_end=log_end),
            log_start=log_start,
            log_end=log_end,
            recovery_point=synced,
            is_new=False,
            is_recovered=not self._trusts_files,
            cleaned_to=self._cleaned_to(log_end),
        )

    def _sync(self, chain: Segments) -> None:
        """Have everything on the disk that was not known to be: the recovery point rises, and is checkpointed before
        the log is used.
        """
        for segment in chain.from_offset(self._found.recovery_point):
            for file in segment.files:
                file.sync()
        for error in self._disk.sync_paths([self._directory / EPOCH_CHECKPOINT, self._directory]).values():
            if not isinstance(error, FileNotFoundError):
                raise error

    def _log_start(self, segments: Sequence[Segment], log_end: Offset) -> Offset:
        """The checkpointed log start, but not below the first segment.

        Above the end it is where a tail was lost, of which the rest is deleted already. After a clean shutdown, where
        nothing was lost, that is a mistake, and so is a start above the first leader epoch's, which rises with it: it
        must not cost records, which all replicas would drop if this one leads.
        """
        first = segments[0].base_offset if segments else Offset(0)
        start = max(self._found.log_start, first)
        if start == first or not segments or self._read or not self._trusts_files:
            return start
        begin = max(first, min(start, self._epochs_begin(first if start > log_end else start)))
        if begin > log_end:
            begin = first
        if begin < start:
            logger.warning(
                "%s: begins at %d: %s says %d, but the log was closed in order, ends at %d, and its leader epochs do "
                "not begin there",
                self._directory,
                begin,
                self._directory.with_name(LOG_START_OFFSETS),
                self._found.log_start,
                log_end,
            )
        return begin

    def _cleaned_to(self, log_end: Offset) -> Offset | None:
        """None also where the checkpoint names what is not there: all is looked at again."""
        cleaned_to = self._found.cleaned_to
        return cleaned_to if cleaned_to is not None and cleaned_to <= log_end else None

    def _epochs_begin(self, otherwise: Offset) -> Offset:
        """Where the first leader epoch begins by its file; `otherwise` where that does not say."""
        try:
            on_file = read_epochs(self._disk, self._directory / EPOCH_CHECKPOINT)
        except (FileNotFoundError, CheckpointMalformed):
            return otherwise
        return on_file[0][1] if on_file else otherwise

    def _tidy(self) -> list[Offset]:
        """Remove what earlier deletions and crashes left; returns base offsets of segments, rising."""
        self._finish_swaps()
        names = self._disk.names_in(self._directory)
        bases = [parsed[0] for parsed in map(parse_offset_file, names) if parsed and parsed[1] == LOG]
        for name in names:
            parsed = parse_offset_file(name)
            is_lone_index = parsed and parsed[1] in (INDEX, TIME_INDEX, TXN_INDEX) and parsed[0] not in bases
            if is_lone_index or name.endswith((DELETED, CLEANED, TMP, SWAP)):
                self._disk.remove(self._directory / name)
        return sorted(bases)

    def _finish_swaps(self) -> None:
        """Put cleaned segments in the place of those they were made from, where all of them are whole.

        They are once no `.cleaned` one is left; those below the lowest are of a swap of their own (Kafka splits
        segments so). What a swap replaces begins within it: its last batch is always kept.
        """
        names = self._disk.names_in(self._directory)
        bases = {suffix: _bases_of(names, suffix) for suffix in (LOG, LOG + SWAP)}
        unfinished = [parsed[0] for parsed in (_parse_suffixed(name, CLEANED) for name in names) if parsed]
        swapped = [base for base in bases[LOG + SWAP] if not unfinished or base < min(unfinished)]
        if not swapped:
            return
        crash_point("log.recovery.before_swap")
        for base in swapped:
            end = self._end_of(base)
            replaced = [each for each in bases[LOG] if each == base or base < each < end]
            logger.info("%s: segments %s are replaced by a compacted one from %d on", self._directory, replaced, base)
            for each in replaced:
                for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
                    self._disk.remove(offset_file(self._directory, each, suffix), missing_ok=True)
        crash_point("log.recovery.before_swap_sync")
        self._disk.sync_path(self._directory)
        for suffixes in ((INDEX, TIME_INDEX, TXN_INDEX), (LOG,)):  # a start that finds no batches removes the rest
            for base in swapped:
                for suffix in suffixes:
                    swap = offset_file(self._directory, base, suffix + SWAP)
                    if self._disk.exists(swap):
                        crash_point("log.recovery.before_swap_rename")
                        self._disk.rename(swap, offset_file(self._directory, base, suffix))
            self._disk.sync_path(self._directory)

    def _end_of(self, base: Offset) -> Offset:
        """Where the batches of a `.swap` segment end."""
        segment = Segment(self._directory, base, self._config, self._files, self._now_ms, build_at_once, SWAP)
        segment.size = segment.log.size()
        end = base
        with suppress(CorruptBatch):  # it was whole: what has befallen it since is found when it is loaded
            for _, header in segment.headers():
                end = header.next_offset
        segment.close()
        return end

    def _load_segments(self, bases: list[Offset]) -> tuple[list[Segment], Offset]:
        """Segments up to the first damage, and the offset they end at."""
        segments: list[Segment] = []
        end = Offset(0)
        for base, following in zip_longest(bases, bases[1:]):
            segment = self._segment(base)
            segments.append(segment)
            must_check = not self._trusts_files and (following is None or following > self._checked_from)
            loaded = None if must_check else _load_sound(segment, following, ends_at=self._checked_from)
            if loaded is not None:
                end, self._last_epoch = loaded, NO_LEADER_EPOCH
                continue
            whole, end = self._recover(segment, following)
            is_hole = following is not None and self._is_hole(end, following)
            self._believes_hole |= is_hole and self._found.whole
            if following is not None and (not whole or (is_hole and not self._found.whole)):
                later = bases[len(segments) :]
                logger.warning("%s: dropped the segments %s, the log ends at %d", self._directory, later, end)
                self._drop([self._segment(gone) for gone in later])
                break
        return segments, end

    def _segment(self, base: Offset) -> Segment:
        return Segment(self._directory, base, self._config, self._files, self._now_ms, build_at_once)

    def _drop(self, segments: Sequence[Segment]) -> None:
        """Delete segments, newest first, so that what is left is always a prefix, and for good.

        Synced, as they would follow what is appended next if they came back.
        """
        crash_point("log.recovery.before_drop")
        for segment in reversed(segments):
            for file in segment.files:
                file.remove()
        crash_point("log.recovery.before_sync")
        self._disk.sync_path(self._directory)

    def _recover(self, segment: Segment, following: Offset | None) -> tuple[bool, Offset]:
        """Check every batch and index it again, cutting the file off at the first damage, or where the next one begins.

        Returns whether there was none, and the offset the segment ends at.
        """
        size = segment.log.size()
        crash_point("log.recovery.before_reindex")
        segment.reset_indexes()
        good, end = 0, segment.base_offset
        epochs = EpochReader(end)
        why = "an incomplete batch"
        try:
            for position, header, after in _with_next(_checked_batches(segment.log, size), following):
                base = Offset(header.base_offset)
                is_doubted = self._is_hole(end, base) and after is not None and header.next_offset > after
                if base < end or is_doubted or not segment.has_room(header.last_offset):
                    why = f"offset {header.base_offset} cannot follow {end - 1}"
                    break
                if 0 <= header.leader_epoch < self._last_epoch:
                    why = f"its leader epoch {header.leader_epoch} is older than what stands before it: it was cut off"
                    break
                if following is not None and header.next_offset > following:
                    why = f"the segment from {following} on is newer: cutting this one off was lost"
                    break
                segment.count(position, header)
                epochs.note(header)
                self._last_epoch = max(self._last_epoch, header.leader_epoch)
                good, end = position + header.size, header.next_offset
        except CorruptBatch as error:
            why = error.reason
        self._read.append(epochs.range(end))
        segment.size = good
        segment.seal()
        if good < size:
            crash_point("log.recovery.before_cut")
            segment.log.truncate(good)
            crash_point("log.recovery.after_cut")
            logger.warning(
                "%s: cut off %d bytes at byte %d, offset %d: %s", segment.log.path, size - good, good, end, why
            )
        return good == size or end == following, end

    def _is_hole(self, end: Offset, base: Offset) -> bool:
        """Whether offsets are missing of which the recovery point does not say that they were compacted.

        Between two segments it means that the first has lost its end. Within one no power cut makes a hole: what it
        takes are bytes, without which the rest is no batch. A batch above it stands there by right, as a leader that
        compacts sent it; only a wrong offset, which is under no checksum, leaves a hole, too, and is told by the batch
        after it, which contradicts.

        A hole may reach from below the recovery point to above: a log ends in one where it was cut off in one, and what
        stood behind has come back.
        """
        return base > max(end, self._found.recovery_point) and not self._found.clean

    def _load_epochs(self, chain: Segments, log_start: Offset, log_end: Offset) -> LeaderEpochCache:
        path = self._directory / EPOCH_CHECKPOINT
        try:
            on_file = read_epochs(self._disk, path)
            why = "the file says nothing of the oldest"  # also after a clean shutdown, if the log start went back
            if _is_stale(chain, on_file):
                on_file, why = [], "the file does not have the newest, it is an old one"
        except (FileNotFoundError, CheckpointMalformed) as error:
            on_file = []
            why = str(error)
        known_from = on_file[0][1] if on_file else log_end
        if known_from > log_start:
            self._read_epochs(chain, log_start, known_from, log_end, why)
        entries = merge_epochs(on_file, self._read)
        cache = LeaderEpochCache(self._disk, path, entries)
        if entries != on_file:
            cache.save()
        cache.truncate_from_start(log_start)
        cache.truncate_from_end(log_end)
        return cache

    def _read_epochs(self, chain: Segments, start: Offset, stop: Offset, log_end: Offset, why: str) -> None:
        """Read the epochs of the batches from `start` to `stop`, segment by segment, where that was not done already.

        Segments whose deletion was lost come back after the file was cut to what follows them.
        """
        read = {part.start for part in self._read}
        ends = [*(segment.base_offset for segment in chain), log_end][1:]
        unknown = [
            (segment, end)
            for segment, end in zip(chain, ends, strict=True)
            if segment.size and segment.base_offset < stop and end > start and segment.base_offset not in read
        ]
        if unknown:
            logger.warning(
                "%s: leader epochs are read from the batches of %d segments: %s", self._directory, len(unknown), why
            )
        for segment, end in unknown:
            reader = EpochReader(segment.base_offset)
            for _, header in segment.headers():
                reader.note(header)
            self._read.append(reader.range(end))

    def _topic_id(self) -> TopicId:
        try:
            return read_partition_metadata(self._disk, self._directory) or ZERO_TOPIC_ID
        except CheckpointMalformed as error:
            logger.warning("%s: the topic id is not known until the controller says it: %s", self._directory, error)
            return ZERO_TOPIC_ID


def _bases_of(names: Sequence[str], suffix: str) -> list[Offset]:
    """Base offsets of the files whose names end so, rising."""
    found = [parse_offset_file(name.removesuffix(suffix) + LOG) for name in names if name.endswith(suffix)]
    return sorted(parsed[0] for parsed in found if parsed)


def _parse_suffixed(name: str, suffix: str) -> tuple[Offset, str] | None:
    return parse_offset_file(name.removesuffix(suffix)) if name.endswith(suffix) else None


def _is_stale(chain: Segments, on_file: Sequence[EpochEntry]) -> bool:
    """Whether the newest batches have an epoch that the file does not have: two of them, as a bit may have flipped."""
    epochs = [header.leader_epoch for _, header in chain.active.headers(chain.active.offsets.last_position)][-2:]
    end = on_file[-1][0] if on_file else NO_LEADER_EPOCH
    return len(epochs) == 2 and epochs[0] == epochs[1] > end


def _load_sound(segment: Segment, following: Offset | None, *, ends_at: Offset) -> Offset | None:
    """Take a segment as it is; returns where it ends, or None where its files contradict each other.

    `ends_at` is the recovery point: the one that ends there may have been cut off, and be long again after a crash.
    """
    if not all(file.exists() for file in segment.files):
        return None
    if not segment.offsets.fits(segment.log.size()) or not segment.times.fits():
        return None
    try:
        segment.load()
        if segment.lacks_entries:
            return None
        if following is not None and following != ends_at:
            return following
        tail = segment.read_tail()
    except CorruptBatch:
        return None
    end = tail.next_offset if tail else segment.base_offset
    if following is None:
        return end if segment.has_true_last_entries(end) else None
    return following if end <= following else None


def _with_next(
    batches: Iterator[tuple[int, BatchHeader]], following: Offset | None
) -> Iterator[tuple[int, BatchHeader, Offset | None]]:
    """Each batch with the offset of the one after it, of which `following` comes after the last, and None for damage.

    Raises CorruptBatch as `batches` does, after the last sound one.
    """
    last = next(batches, None)
    while last is not None:
        after, damage = following, None
        try:
            follower = next(batches, None)
        except CorruptBatch as error:
            follower, after, damage = None, None, error
        if follower is not None:
            after = Offset(follower[1].base_offset)
        yield *last, after
        if damage is not None:
            raise damage
        last = follower


def _checked_batches(log: LogFile, size: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every whole batch. Raises CorruptBatch at the first whose checksum is wrong."""
    position = 0
    while size - position >= HEADER_BYTES:
        chunk = log.read(min(_SCAN_CHUNK, size - position), position)
        needed = batch_size(chunk)
        if needed > size - position:
            return
        if needed > len(chunk):
            chunk = log.read(needed, position)
        consumed = 0
        for at, header in iter_batches(chunk):
            if not crc_matches(chunk, header, at):
                raise CorruptBatch(position + at, "its checksum is wrong")
            yield position + at, header
            consumed = at + header.size
        if not consumed:
            return
        position += consumed


EpochEntry = tuple[LeaderEpoch, Offset]


class EpochBegin(NamedTuple):
    """An epoch that begins between two offsets: where they differ, its first batches may have been compacted away."""

    epoch: LeaderEpoch
    lowest: Offset
    """Where the batch before ends."""
    highest: Offset
    """Where its first batch begins that is there."""


class ReadRange(NamedTuple):
    """Offsets whose batches were all read, and each batch's epoch where it is not that of the one before."""

    start: Offset
    end: Offset
    begins: tuple[EpochBegin, ...]

    def entries(self, on_file: Sequence[EpochEntry]) -> Iterator[EpochEntry]:
        """The epochs, where `on_file` has them in the holes; it may also know some of which no batch is left."""
        before = NO_LEADER_EPOCH
        for epoch, lowest, highest in self.begins:
            known = [entry for entry in on_file if before < entry[0] <= epoch and lowest <= entry[1] <= highest]
            yield from known if known and known[-1][0] == epoch else [(epoch, lowest)]
            before = epoch


class EpochReader:
    """Collects the epochs of batches that are read in order."""

    def __init__(self, start: Offset) -> None:
        self._start = self._end = start
        self._begins: list[EpochBegin] = []

    def note(self, header: BatchHeader) -> None:
        """Count in the next batch."""
        if header.leader_epoch >= 0 and (not self._begins or header.leader_epoch != self._begins[-1].epoch):
            begin = Offset(header.base_offset)
            self._begins.append(EpochBegin(LeaderEpoch(header.leader_epoch), min(self._end, begin), begin))
        self._end = header.next_offset

    def range(self, end: Offset) -> ReadRange:
        """What was read, up to `end`."""
        return ReadRange(self._start, end, tuple(self._begins))


def merge_epochs(on_file: Sequence[EpochEntry], read: Sequence[ReadRange]) -> list[EpochEntry]:
    """The entries of leader-epoch-checkpoint, corrected by the batches that were read: strictly rising in both columns.

    The file may be newer than the batches, if these came back with a truncation that was lost, or older.
    """
    kept = [entry for entry in on_file if not any(part.start <= entry[1] < part.end for part in read)]
    merged: list[EpochEntry] = []
    found = [entry for part in read for entry in part.entries(on_file)]
    for entry in sorted([*kept, *found], key=lambda entry: entry[1]):
        if not merged or entry[0] > merged[-1][0]:
            merged.append(entry)
    return merged
