"""One partition's log: appends, reads, epochs, truncation, the high watermark. Passive; data loop only.

Only flushes, syncs and removals leave the data loop, through the worker, by path or on renamed
files. An I/O error fails the whole log directory: the call raises LogStorageError, and so does every later one. Lack of
descriptors or memory, or of an index that fits, raises LogBusy, which is one too: nothing was appended then, but for
the first of a follower's batches, up to the log end and synced as flush.messages says; the call may be repeated.
"""

from __future__ import annotations

import errno
import functools
import logging
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from regency.broker_agent.log.append_rules import LOG_APPEND_TIME, Origin, check_produced, check_replicated
from regency.broker_agent.log.cleaning.job import Cleaned, CleaningJob, CleaningLimits, Source
from regency.broker_agent.log.errors import CutNotPrepared, IndexInDoubt, LogDamaged, OffsetOutOfRange, RecordsRejected
from regency.broker_agent.log.log_core import LogCore
from regency.broker_agent.log.producer_state import (
    ProducerStates,
    remove_snapshots,
    restore,
    snapshot_offsets,
    write_snapshot,
)
from regency.broker_agent.log.retention import SegmentFacts, expired_segments
from regency.broker_agent.log.segment_swap import Replacement, SegmentSwap
from regency.broker_agent.log.segments.damage import CorruptFile
from regency.broker_agent.log.segments.segment import Segment
from regency.broker_agent.log.segments.segments import AppendInfo, LogPosition, ReadInfo
from regency.broker_agent.log.segments.time_lookup import TimestampAndOffset, find_greatest, find_timestamp
from regency.broker_agent.log.selection import ClosedSegment, Dirty, dirty_part
from regency.broker_agent.steps import Steps
from regency.kafka.fetching.values import EpochEndOffset
from regency.kafka.logfiles.checkpoints import CheckpointMalformed, format_partition_metadata, replace_file
from regency.kafka.logfiles.file_names import PARTITION_METADATA, SNAPSHOT, offset_file
from regency.kafka.record_batch import Buffer, CorruptBatch, iter_batches, read_header, stamp
from regency.kafka.record_batch import stamp_log_append_time as stamp_time
from regency.model.crash_points import crash_point
from regency.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicId
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.log_config import COMPACT, NEVER

logger = logging.getLogger(__name__)

MOST_TOLD = 20_000
"""Batches of producers that a replica gets which begins again: 46 bytes each, and their records have expired."""

P = ParamSpec("P")
T = TypeVar("T")


def _on_disk(method: Callable[Concatenate[PartitionLog, P], T]) -> Callable[Concatenate[PartitionLog, P], T]:
    """Refuse the call if the directory has failed, and fail the directory if the call cannot read or write."""

    @functools.wraps(method)
    def guarded(self: PartitionLog, /, *args: P.args, **kwargs: P.kwargs) -> T:
        home = self.home
        if home.failure is not None:
            home.check()
        try:
            return method(self, *args, **kwargs)
        except OSError as error:
            raise home.fail(error) from error
        except MemoryError as error:
            raise home.fail(OSError(errno.ENOMEM, "Cannot allocate memory")) from error
        except CorruptFile as error:
            raise self._damaged(error) from error

    return guarded


class PartitionLog(LogCore):
    """The log of one replica. log start <= high watermark <= log end, and recovery point <= log end, always."""

    @_on_disk
    def append_as_leader(
        self, records: Buffer, leader_epoch: LeaderEpoch, now_ms: int, origin: Origin = Origin.CLIENT
    ) -> AppendInfo:
        """Append what a producer sent, or a coordinator here wrote: one batch; `now_ms` is wall time.

        Raises RecordsRejected; a batch that is already there is not written again but answered with its old place.
        """
        header = check_produced(records, self.config, origin)
        stamps_time = self.config.message_timestamp_type == LOG_APPEND_TIME
        is_numbered = origin is Origin.CLIENT and header.producer_id >= 0
        if is_numbered and (known := self._producers.check(header, all_known=self._knows_every_producer(now_ms))):
            appended_ms = known.timestamp if stamps_time else -1
            return AppendInfo(known.first_offset, known.last_offset, appended_ms, self._log_start, duplicate=True)
        data = bytearray(records)
        stamp(data, self._log_end, leader_epoch)
        if stamps_time:
            stamp_time(data, header, now_ms)
        header = read_header(data)
        self._write(data, [(0, header)], now_ms)
        return AppendInfo(
            Offset(header.base_offset), header.last_offset, now_ms if stamps_time else -1, self._log_start
        )

    def _knows_every_producer(self, now_ms: int) -> bool:
        """Whether all who ever wrote here are known: the log begins at 0, and is too young for anybody to expire.

        Its age goes by when its first segment was made or opened where its first batch claims to be of later.
        """
        oldest = self._segments.first
        is_whole = self._log_start == oldest.base_offset == 0 and not self._producers.forgot
        if COMPACT in self.config.cleanup_policy:  # batches of who has expired are gone, wherever they were
            return False
        expired_until_ms = now_ms - self._services.producer_expiration_ms
        return is_whole and (self._log_end == 0 or expired_until_ms < min(oldest.first_timestamp, oldest.created_ms))

    @_on_disk
    def append_as_follower(self, records: Buffer) -> AppendInfo:
        """Append what the leader sent: whole batches from the log end on; an incomplete last one is left out.

        Offsets may be missing before each of them and in them, down to batches without records: compaction leaves that.
        Raises RecordsRejected: CORRUPT_MESSAGE where fetching again may help, OFFSET_OUT_OF_RANGE where the batches
        begin below the log end. An empty log may begin lower, with a batch that straddles its start.
        """
        try:
            batches = list(iter_batches(records))
        except CorruptBatch as error:
            raise RecordsRejected(ErrorCode.CORRUPT_MESSAGE, error.message) from error
        if not batches:
            return AppendInfo(self._log_end, Offset(self._log_end - 1), -1, self._log_start)
        check_replicated(records, batches)
        base = Offset(batches[0][1].base_offset)
        if base < self._log_end:
            if self._log_end != self._log_start or not self._log_end < batches[0][1].next_offset:
                raise RecordsRejected(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{self.topic_partition} ends at {self._log_end}; records from {base} on do not fit there",
                )
            self._restart_at(base, self._producers.copy())
        self._write(records, batches, self._services.clock.wall_ms())
        return AppendInfo(base, Offset(self._log_end - 1), -1, self._log_start)

    @_on_disk
    def end_above_hole(self, offset: Offset) -> None:
        """End at `offset`, although no batch is left between the end of now and there: as a log does that was cut off
        in a hole. After a crash it ends at its last batch.
        """
        self._settle()
        self._log_end = self._producers.end_offset = self._cut_at = max(self._log_end, offset)

    @_on_disk
    def read(self, offset: Offset, max_bytes: int, *, max_offset: Offset, min_one_batch: bool) -> ReadInfo:
        """Whole batches from the one that holds `offset` on, ending below `max_offset`, at most `max_bytes`.

        With `min_one_batch` the first one is returned whatever its size. Empty where `offset` is at or above
        `max_offset`. Every batch is checked on every read: what is sound before a damaged one is returned, and from
        there on LogDamaged raised. Raises OffsetOutOfRange below the log start and above the log end.
        """
        if not self._log_start <= offset <= self._log_end:
            raise OffsetOutOfRange(self.topic_partition, offset, self._log_start, self._log_end)
        if offset >= max_offset or offset == self._log_end:
            return ReadInfo(b"", self._position_of(offset))
        try:
            read, flaw = self._segments.read(
                offset,
                max_bytes,
                max_offset=max_offset,
                log_end=self._log_end,
                min_one_batch=min_one_batch,
                epochs=self._epochs.span_at,
            )
        except CorruptFile as error:
            raise self._damaged(error, offset) from error
        if flaw is not None:
            self._damage.found(flaw)
            if not read.records:
                raise LogDamaged(self.directory, str(flaw))
        elif self._damage and read.records:
            self._damage.read_well(offset)
        return read

    @property
    def damage(self) -> str:
        """What is known to be damaged, for people; empty where nothing is."""
        if not self._damage:
            return ""
        self._damage.keep(self._log_start, self._log_end)
        return self._damage.describe()

    @_on_disk
    def position_of(self, offset: Offset) -> LogPosition:
        """Where the batch that holds `offset` is. Raises OffsetOutOfRange."""
        if not self._log_start <= offset <= self._log_end:
            raise OffsetOutOfRange(self.topic_partition, offset, self._log_start, self._log_end)
        return self._position_of(offset)

    @_on_disk
    def bytes_between(self, lower: Offset, upper: Offset) -> int | None:
        """Bytes of the batches from `lower` up to `upper`; 0 where upper is lower, None where the log lacks either."""
        if not (self._log_start <= lower <= self._log_end and self._log_start <= upper <= self._log_end):
            return None
        if upper <= lower:
            return 0
        return self._segments.bytes_between(self._position_of(lower), self._position_of(upper))

    @_on_disk
    def assign_epoch(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Note that `epoch` begins at `start_offset`; what contradicts it is forgotten."""
        self._settle_names()
        self._epochs.assign(epoch, start_offset)

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> EpochEndOffset:
        """The greatest known epoch not above `epoch`, and where it ends; (-1, -1) where that is not known."""
        return self._epochs.end_offset_for(epoch, self._log_end)

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The leader epoch that `offset` belongs to; -1 where that is not known."""
        epoch = self._epochs.epoch_at(offset)
        return NO_LEADER_EPOCH if epoch is None else epoch

    def offset_for_timestamp(self, timestamp: int, max_offset: Offset) -> Steps[TimestampAndOffset | None]:
        """The first record below `max_offset` whose timestamp is not below `timestamp`; None where there is none.

        In a batch that straddles `timestamp` and is compressed with snappy, lz4 or zstd, or claims more than 100,000
        records, or whose records cannot be read, the batch's first offset stands for the record's.
        """
        found = yield from self._search(lambda: find_timestamp(self._segments, timestamp, self._log_start))
        return found if found and found.offset < max_offset else None

    def greatest_timestamp(self, max_offset: Offset) -> Steps[TimestampAndOffset | None]:
        """The greatest timestamp of a record below `max_offset` (KIP-734); None where there is no such record."""
        return self._search(lambda: find_greatest(self._segments, self._log_start, max_offset))

    def _search(self, begin: Callable[[], Steps[TimestampAndOffset | None]]) -> Steps[TimestampAndOffset | None]:
        search, cuts = begin(), self._segments.cuts
        while True:
            if cuts != self._segments.cuts:
                search, cuts = begin(), self._segments.cuts
            is_over, found = self._step(search)
            if is_over:
                return found
            yield

    @_on_disk
    def _step(self, search: Steps[TimestampAndOffset | None]) -> tuple[bool, TimestampAndOffset | None]:
        try:
            next(search)
        except StopIteration as end:
            return True, end.value
        return False, None

    @_on_disk
    def prepare_cut(self, offset: Offset) -> bool:
        """Lower the recovery point to where `truncate_to(offset)` cuts; False until the log is settled.

        A compaction of what is above is broken off: a start would take its holes for damage.
        """
        if self._log_start < offset < self._log_end:
            end = self._segments.find_cut(offset).end
            if end < self.recovery_point:
                self._stop_cleaning()
            self._unsettle(point=self._flusher.ends_at(end))
        return not self.unsettled.point

    @_on_disk
    def truncate_to(self, offset: Offset) -> bool:
        """Drop the batch that holds `offset` and all after it; returns whether there were any.

        The log ends at `offset` then, or below where a batch straddled it. Epochs that begin at the end are forgotten
        in any case (KAFKA-10706). Where nothing is left, producers are forgotten too: what is known of them is of
        batches below the log start, which nothing says are the leader's. The log may not be settled afterwards.
        Raises CutNotPrepared where it has to be settled first.
        """
        if not self.prepare_cut(offset):
            raise CutNotPrepared(f"A checkpoint may have a recovery point of {self.topic_partition} above {offset}.")
        if offset >= self._log_end:
            if not self._segments.active.size:
                self._segments.active.hold()  # it may not have been made where the log began again
            self._drop_epochs()
            return False
        logger.info("%s: truncated to %d, it ended at %d", self.topic_partition, offset, self._log_end)
        if offset <= self._log_start:
            self._restart_at(offset)
            return True
        self._stop_cleaning()
        cut = self._segments.find_cut(offset)
        end = cut.end
        producers = self._producers.copy()
        if not producers.truncate_to(end):
            producers = restore(self._services.disk, self.directory, self._segments, trusted=end, log_end=end)
        self._cut(cut)
        self._producers = producers
        crash_point("log.truncation.before_epochs")
        self._drop_epochs()
        return True

    @_on_disk
    def truncate_fully_and_start_at(self, offset: Offset, producers: bytes = b"") -> None:
        """Drop everything; the log is empty and begins at `offset`. It is not settled then.

        `producers`, the leader's `producers_below_start` where its log begins there, are known from then on: they have
        no records any more, and repeat themselves all the same. Raises RecordsRejected where that is no snapshot.
        """
        states = ProducerStates()
        if producers:
            try:
                states.load(offset_file(self.directory, offset, SNAPSHOT), producers, offset)
            except CheckpointMalformed as error:
                raise RecordsRejected(ErrorCode.CORRUPT_MESSAGE, error.message) from error
        logger.info(
            "%s: emptied to begin at %d, it held %d to %d", self.topic_partition, offset, self._log_start, self._log_end
        )
        self._restart_at(offset, states)

    def set_high_watermark(self, offset: Offset) -> Offset:
        """Set it, kept between log start and log end; it may go down. Returns what it became."""
        self._high_watermark = max(self._log_start, min(offset, self._log_end))
        return self._high_watermark

    def maybe_increment_high_watermark(self, offset: Offset) -> bool:
        """Raise it to `offset`, which is not above the log end; returns whether it rose."""
        if offset > self._log_end:
            raise ValueError(f"{self.topic_partition}: high watermark {offset} above the log end {self._log_end}")
        if offset <= self._high_watermark:
            return False
        self._high_watermark = offset
        return True

    @_on_disk
    def maybe_increment_log_start(self, offset: Offset) -> bool:
        """Offer nothing below `offset` any more; returns whether that is news. Raises OffsetOutOfRange above the HW."""
        if offset > self._high_watermark:
            raise OffsetOutOfRange(self.topic_partition, offset, self._log_start, self._high_watermark)
        if offset <= self._log_start:
            return False
        crash_point("log.log_start.before_epochs")
        self._epochs.truncate_from_start(offset)
        self._log_start = offset
        return True

    @_on_disk
    def delete_old_segments(self, now_ms: int) -> int:
        """Take expired segments out of use, oldest first and only below the high watermark; returns how many.

        `now_ms` is wall time. The log start rises before the first is gone. None of a log that is not settled.
        """
        if not self.is_settled or self._swap is not None:
            return 0
        while True:
            facts = [
                SegmentFacts(segment.size, segment.largest_timestamp(), upper)
                for segment, upper in self._segments.upper_bounds(self._log_end)
            ]
            expired = expired_segments(
                facts, self.config, log_start=self._log_start, high_watermark=self._high_watermark, now_ms=now_ms
            )
            deciding = islice(self._segments, expired.segments + 1)  # they, and the one that ends them
            if not self._check_greatest_timestamps(deciding):
                break
        if not expired.segments:
            return 0
        if expired.segments == len(self._segments) and self._segments.active.size:
            self._begin_segment(self._log_end, now_ms)  # above a hole, too: nothing else may tell where the log begins
        start = facts[expired.segments - 1].upper_bound
        crash_point("log.retention.before_log_start")
        self.maybe_increment_log_start(start)
        crash_point("log.retention.before_drop")
        removed = self._segments.drop_first(expired.segments)
        crash_point("log.retention.after_drop")
        self._services.trash.put(removed, self.config.file_delete_delay_ms)
        logger.info(
            "%s: %d segments expired, it starts at %d: %s", self.topic_partition, expired.segments, start, expired.why
        )
        return expired.segments

    def _check_greatest_timestamps(self, segments: Iterable[Segment]) -> bool:
        """Whether any was not checked before. Raises IndexInDoubt where some cannot be yet, once all others are."""
        doubt: IndexInDoubt | None = None
        checked_now = False
        for segment in segments:
            try:
                checked_now = segment.check_greatest_timestamp() or checked_now
            except IndexInDoubt as error:
                doubt = error
        if doubt is not None:
            raise doubt
        return checked_now

    def dirty_part(self, now_ms: int) -> Dirty | None:
        """What can be compacted now, and whether it is time; None where there is nothing. `now_ms` is wall time."""
        closed = [
            ClosedSegment(each.base_offset, upper, each.size, each.first_timestamp, each.max_timestamp)
            for each, upper in self._segments.upper_bounds(self._log_end)
            if each is not self._segments.active
        ]
        return dirty_part(
            closed,
            self.config,
            log_start=self._log_start,
            cleaned_to=self.cleaned_to,
            stable=min(self._high_watermark, self.recovery_point),
            now_ms=now_ms,
        )

    def begin_cleaning(self, dirty: Dirty, now_ms: int, limits: CleaningLimits) -> CleaningJob | None:
        """What a cleaner has to do for that, which counts until `cleaning` is another; None where it has to wait."""
        if not self.is_settled or self._swap is not None:
            return None
        sources = [
            Source(segment.base_offset, segment.size) for segment in self._segments if segment.base_offset < dirty.end
        ]
        job = CleaningJob(
            directory=str(self.directory),
            segments=tuple(sources),
            end=dirty.end,
            first_dirty=dirty.first,
            now_ms=now_ms,
            delete_retention_ms=self.config.delete_retention_ms,
            segment_bytes=self.config.segment_bytes,
            segment_index_bytes=self.config.segment_index_bytes,
            index_interval_bytes=self.config.index_interval_bytes,
            map_bytes=limits.map_bytes,
            load_factor=limits.load_factor,
            buffer_bytes=limits.buffer_bytes,
            bytes_per_second=limits.bytes_per_second,
            producers=self._producers.last_batches(),
        )
        self.cleaning = job
        return job

    @_on_disk
    def end_cleaning(self, job: CleaningJob, cleaned: Cleaned, then: Callable[[], None]) -> None:
        """Take in what a cleaner has made of `job`; `then` is called when the log is that, at once or later.

        It is not called where the log was cut off, or is about to be, closed or lost meanwhile. Nothing is taken in
        where segments that were cleaned are gone, as retention removes them: then `then` is called too. A checkpoint
        must have the recovery point of now.
        """
        if self.cleaning is not job:
            return
        replacements = self._replacements(cleaned)
        if replacements is None:
            self.cleaning = None
            then()
            return

        def done(error: OSError | None) -> None:
            if self._swap is not swap:
                return
            self._swap = self.cleaning = None
            self._services.trash.put(swap.removed, self.config.file_delete_delay_ms)
            if error is not None:
                self.home.fail(error)
                return
            crash_point("log.compaction.before_end")
            self.cleaned_to = cleaned.end
            then()

        def make(base: Offset, suffix: str) -> Segment:
            now_ms = self._services.clock.wall_ms()
            return Segment(self.directory, base, self.config, self._services.files, now_ms, self._doubted, suffix)

        swap = SegmentSwap(self._segments, replacements, make, self._services.disk, self._services.worker, done)
        self._swap = swap
        if not replacements:
            done(None)
            return
        try:
            swap.begin()
        except OSError:
            self._swap = self.cleaning = None  # where descriptors were short, it is cleaned once more
            raise

    def _replacements(self, cleaned: Cleaned) -> list[Replacement] | None:
        """The segments that are to be replaced, by what replaces them; None where one is gone, or is another."""
        by_base = {segment.base_offset: segment for segment in self._segments}
        job = self.cleaning
        assert isinstance(job, CleaningJob)
        sizes = {source.base: source.size for source in job.segments}
        found = []
        for each in cleaned.segments:
            sources = [by_base[base] for base in each.sources if base in by_base]
            if [source.size for source in sources] != [sizes[base] for base in each.sources]:
                return None
            found.append(Replacement(each.base, sources))
        return found

    @_on_disk
    def stop_cleaning(self) -> None:
        """Break off what is under way to compact the log: it is closed, or its settings have changed."""
        self._stop_cleaning()

    @_on_disk
    def roll(self) -> None:
        """Begin a new segment, unless the active one is empty."""
        self._roll(self._services.clock.wall_ms())

    @_on_disk
    def flush(self) -> None:
        """Sync everything to the disk before returning."""
        self._settle()
        self._flusher.flush(self._log_end)

    @_on_disk
    def flush_in_background(self) -> None:
        """Sync what is there now, soon; the recovery point follows when it is done."""
        self._flusher.flush_in_background(self._log_end)

    @_on_disk
    def take_over(self, other: PartitionLog) -> None:
        """Know whatever `other` knows, which holds the same records up to the same end: epochs without records too,
        producers whose batches are gone, the high watermark, the topic id, up to where it is compacted.
        """
        if other.log_end_offset != self._log_end:
            raise ValueError(f"{self.directory} ends at {self._log_end}, {other.directory} at {other.log_end_offset}")
        if self.topic_id != other.topic_id:
            self.set_topic_id(other.topic_id)
        self._settle_names()
        self._epochs.take(other.epoch_entries)
        self._epochs.truncate_from_start(self._log_start)
        self._producers = other._producers.copy()
        self.cleaned_to = other.cleaned_to
        crash_point("log.take_over.before_snapshot")
        write_snapshot(self._services.disk, self.directory, self._producers)
        self.set_high_watermark(other.high_watermark)

    @_on_disk
    def make_last(self, then: Callable[[bool], None]) -> None:
        """Sync everything there is now, soon; `then` is called when it is done, and told whether that still holds."""
        also = [offset_file(self.directory, self._log_end, SNAPSHOT), self.directory / PARTITION_METADATA]
        self._flusher.flush_all_in_background(self._log_end, also, then)

    @property
    def is_flush_due(self) -> bool:
        """Whether flush.ms has passed since the last flush and there is something to flush."""
        return self.config.flush_ms != NEVER and self._flusher.is_due(self._log_end, self.config.flush_ms)

    @_on_disk
    def set_topic_id(self, topic_id: TopicId) -> None:
        """Keep the topic's identity with the log."""
        path = self.directory / PARTITION_METADATA
        replace_file(self._services.disk, path, format_partition_metadata(topic_id), sync=False)
        self.topic_id = topic_id
        self._services.syncs.later(path, self.home.failed)

    def latest_producers(self) -> list[tuple[int, int, int, int]]:
        """Id, epoch, last sequence number (-1: none) and last timestamp of each producer that is remembered."""
        return self._producers.latest()

    def producers_below_start(self) -> bytes:
        """A snapshot of the producers that have batches below the log start, and of these batches; empty for none."""
        states, left_out = self._producers.below(self._log_start, MOST_TOLD)
        if left_out:
            logger.warning(
                "%s: a replica that begins again does not get %d batches of producers that are older than %d others",
                self.topic_partition,
                left_out,
                MOST_TOLD,
            )
        return states.encode() if len(states) else b""

    def expire_producers(self, now_ms: int) -> None:
        """Forget idempotent producers whose last batch is as old as producer.id.expiration.ms at this wall time.

        Not in a young log, where batches may tell of long ago all the same: there everybody is known, and has to be
        after a restart too, as snapshots do not say whom they leave out.
        """
        if not self._knows_every_producer(now_ms):
            self._producers.expire(now_ms - self._services.producer_expiration_ms)

    @_on_disk
    def remove_old_snapshots(self) -> None:
        """Remove snapshots of producers that no recovery and no truncation would begin with. Call it before each
        checkpoint of recovery points: one counts when the next is decided, as by then it is on the disk.
        """
        begins = min(self._checkpointed_recovery_point, self.recovery_point, self._high_watermark)
        kept_from = min(self._segments.floor(begins).base_offset, self._segments.second_newest.base_offset)
        if kept_from > self._snapshots_kept_from:
            old = [offset for offset in snapshot_offsets(self._services.disk, self.directory) if offset < kept_from]
            remove_snapshots(self._services.disk, self.directory, old)
            self._snapshots_kept_from = kept_from
        self._checkpointed_recovery_point = self.recovery_point

    @_on_disk
    def finish_files(self) -> list[Path]:
        """Write what files have after a clean shutdown: last index entries, a snapshot of producers.

        Returns what must be synced before `close`.
        """
        self._segments.active.seal()
        crash_point("log.closing.before_snapshot")
        write_snapshot(self._services.disk, self.directory, self._producers)
        # nothing but the snapshot knows of producers whose batches have expired
        snapshot = offset_file(self.directory, self._log_end, SNAPSHOT)
        also = [snapshot, self.directory] if len(self._producers) else []
        return list(dict.fromkeys([*self._flusher.unsynced(self._log_end), *also]))

    def close(self) -> None:
        """Give up the files of a log that takes no more records, after `finish_files`: all of it has been synced."""
        self._flusher.synced(self._log_end)
        self._give_up()

    def abandon(self) -> None:
        """Give the files up as they are."""
        self._give_up()
