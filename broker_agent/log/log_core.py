"""The state of one partition's log, and the steps that change it. PartitionLog says which steps make an operation."""

from __future__ import annotations

import errno
import functools
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Concatenate, NamedTuple, ParamSpec
from uuid import UUID

from regency.broker_agent.log.background import BackgroundSync, Trash
from regency.broker_agent.log.errors import IndexInDoubt, LogDamaged
from regency.broker_agent.log.flusher import LogFlusher
from regency.broker_agent.log.leader_epoch_cache import LeaderEpochCache
from regency.broker_agent.log.log_directory import LogDirectory
from regency.broker_agent.log.producer_state import ProducerStates, remove_snapshots, snapshot_offsets, write_snapshot
from regency.broker_agent.log.retention import must_roll
from regency.broker_agent.log.segment_swap import SegmentSwap
from regency.broker_agent.log.segments.damage import CorruptFile, KnownDamage
from regency.broker_agent.log.segments.index_building import IndexBuilding
from regency.broker_agent.log.segments.open_files import OpenFiles
from regency.broker_agent.log.segments.segment import MAX_RELATIVE_OFFSET, Segment
from regency.broker_agent.log.segments.segments import Cut, LogPosition, Segments
from regency.broker_agent.ports import Worker
from regency.kafka.logfiles.file_names import SNAPSHOT, offset_file
from regency.kafka.record_batch import BatchHeader, Buffer
from regency.model.clock import Clock
from regency.model.crash_points import crash_point
from regency.model.ids import NO_LEADER_EPOCH, UNKNOWN_OFFSET, LeaderEpoch, Offset, TopicId, TopicPartition
from regency.model.settings.log_config import LogConfig
from regency.runtime.descriptors import is_shortage
from regency.runtime.disk import Disk
from regency.runtime.metrics.recent import RecentTimes

logger = logging.getLogger(__name__)


class LogServices(NamedTuple):
    """What all logs of an agent share."""

    disk: Disk
    clock: Clock
    worker: Worker
    files: OpenFiles
    trash: Trash
    syncs: BackgroundSync
    cuts: BackgroundSync
    """Of files that were cut off: no high watermark is checkpointed before."""
    new_uuid: Callable[[], UUID]
    """For names that must not be there yet."""
    producer_expiration_ms: int
    """producer.id.expiration.ms"""
    flushes: RecentTimes
    """Told of every flush of a log, and its time."""


class LogParts(NamedTuple):
    """A log as it was found or made on the disk."""

    topic_partition: TopicPartition
    topic_id: TopicId
    directory: Path
    config: LogConfig
    segments: Segments
    epochs: LeaderEpochCache
    producers: ProducerStates
    log_start: Offset
    log_end: Offset
    recovery_point: Offset
    is_new: bool
    """Whether it has just been made: not even its directory's name is on the disk."""
    is_recovered: bool
    """Whether the last shutdown was not clean: what was written before may not be on the disk."""
    cleaned_to: Offset | None = None
    """Up to where it has been compacted; None where it never was."""


class Unsettled(NamedTuple):
    """What of cuts may not be on the disk, and has to be before anything is appended. Each cut makes another object."""

    names: bool = False
    """Which files were dropped: old ones that come back would mix with what is appended then."""
    producers: bool = False
    """The snapshot at the log's beginning, which alone tells who produced what is below."""
    epochs: bool = False
    """The epoch file still tells of what was dropped: it follows the names."""
    point: bool = False
    """A checkpoint may have a recovery point above the log end: what is appended below would be believed."""
    start: bool = False
    """A checkpoint may have a log start above the log's own: what is appended below would be dropped."""
    cleaned: bool = False
    """A checkpoint may say that what is appended next has been compacted."""
    tail: bool = False
    """Where the newest file was cut off: the old tail that comes back would stand in place of what is appended then,
    and a replica that tells how far its log goes would pass it off as committed (docs/concepts/durability.md).
    """


SETTLED = Unsettled()

P = ParamSpec("P")


def _in_one(step: Callable[Concatenate[LogCore, P], None]) -> Callable[Concatenate[LogCore, P], None]:
    """Have any error count as an I/O error, by which the directory fails: nothing may be written behind half a step."""

    @functools.wraps(step)
    def whole(self: LogCore, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            step(self, *args, **kwargs)
        except OSError:
            raise
        except Exception as error:
            raise OSError(errno.EIO, f"a change is half done: {error!r}", str(self.directory)) from error

    return whole


class LogCore:
    """Log start <= high watermark <= log end, and recovery point <= log end, always. Its steps raise OSError."""

    def __init__(self, parts: LogParts, home: LogDirectory, services: LogServices) -> None:
        self.topic_partition = parts.topic_partition
        self.topic_id = parts.topic_id
        self.directory = parts.directory
        self.config = parts.config
        self.home = home
        self.on_lowered: Callable[[Unsettled], None] = _ignore
        """Called where a checkpoint must follow the recovery point or the log start, which have gone back, at once."""
        self.unsettled = SETTLED
        """What of the last cuts the disk may not know."""
        self._services = services
        self._segments = parts.segments
        self._epochs = parts.epochs
        self._producers = parts.producers
        self._log_start = parts.log_start
        self._log_end = parts.log_end
        self._high_watermark = parts.log_start
        self._cut_at: Offset | None = None
        """Where the log ended when it was last cut off, or ended above a hole: its last batch may end below."""
        self.cleaned_to = parts.cleaned_to
        """Up to where it has been compacted, not above the log end; None where it never was."""
        self.cleaning: object | None = None
        """What is under way to compact it; another object, or None, once that has been overtaken by something else."""
        self._swap: SegmentSwap | None = None
        self._damage = KnownDamage(parts.topic_partition)
        self._snapshots_kept_from = parts.segments.first.base_offset
        self._checkpointed_recovery_point = parts.recovery_point
        self._buildings: dict[Segment, IndexBuilding] = {}
        self._segments.move_to(services.files, self._doubted)
        self._flusher = LogFlusher(
            services.disk,
            home,
            parts.segments,
            parts.epochs,
            parts.recovery_point,
            is_new=parts.is_new,
            is_recovered=parts.is_recovered,
            clock=services.clock,
            worker=services.worker,
            syncs=services.syncs,
            flushes=services.flushes,
        )

    @property
    def log_start_offset(self) -> Offset:
        """The first offset that is still offered."""
        return self._log_start

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next record."""
        return self._log_end

    @property
    def high_watermark(self) -> Offset:
        """Records below are committed; between log start and log end."""
        return self._high_watermark

    @property
    def recovery_point(self) -> Offset:
        """Records below were synced to the disk."""
        return self._flusher.recovery_point

    @property
    def latest_epoch(self) -> LeaderEpoch | None:
        """The newest leader epoch known, with or without records."""
        return self._epochs.latest

    @property
    def last_batch_epoch(self) -> LeaderEpoch:
        """The leader epoch of the last batch; -1 where there is none."""
        if self._log_end == self._log_start:
            return NO_LEADER_EPOCH
        epoch = self._epochs.epoch_at(Offset(self._log_end - 1))
        return NO_LEADER_EPOCH if epoch is None else epoch

    @property
    def epoch_entries(self) -> tuple[tuple[LeaderEpoch, Offset], ...]:
        """Every (leader epoch, start offset) known, oldest first."""
        return self._epochs.entries

    @property
    def size_bytes(self) -> int:
        """Bytes of batches on the disk."""
        return self._segments.size_bytes

    @property
    def segment_count(self) -> int:
        """Segments, the active one among them."""
        return len(self._segments)

    @property
    def first_base_offset(self) -> Offset:
        """Where the oldest segment begins, at or below the log start."""
        return self._segments.first.base_offset

    @property
    def segment_base_offsets(self) -> tuple[Offset, ...]:
        """Where each segment begins, oldest first."""
        return tuple(segment.base_offset for segment in self._segments)

    @property
    def is_settled(self) -> bool:
        """Whether the disk knows all that it must before anything is appended: nothing is appended before."""
        return self.unsettled is SETTLED

    @property
    def unsettled_paths(self) -> list[Path]:
        """What has to be synced before the log is settled."""
        unsettled, active = self.unsettled, self._segments.active
        tail = [active.log.path] if unsettled.tail else []
        snapshot = [offset_file(self.directory, self._log_end, SNAPSHOT)] if unsettled.producers else []
        return [*tail, *snapshot, self.directory] if unsettled.names else tail

    def settled(self) -> None:
        """The disk knows everything that was unsettled."""
        if self.unsettled.names:
            self._names_settled()
        self.unsettled = SETTLED

    def sync_cut_later(self) -> None:
        """Have it on the disk soon where recovery cut the log off: in the newest file, as rolls sync the others."""
        self._services.cuts.later(self._segments.active.log.path, self.home.failed)

    def _write(self, records: Buffer, batches: Sequence[tuple[int, BatchHeader]], now_ms: int) -> None:
        if self.unsettled is not SETTLED:
            self._settle()
        view = memoryview(records)
        begin = 0
        while begin < len(batches):
            first_at, first = batches[begin]
            end = self._log_end
            segment = self._segment_for(first, now_ms)
            stop, end_at = self._that_fit(segment, batches, begin)
            group = (
                batches[begin:stop] if not first_at else [(at - first_at, header) for at, header in batches[begin:stop]]
            )
            self._append(segment, view[first_at:end_at], group, end)
            begin = stop

    def _append(self, segment: Segment, data: Buffer, group: Sequence[tuple[int, BatchHeader]], begin: Offset) -> None:
        """Append one group, its epochs first; where that fails, no epoch is known of what is not there.

        An epoch whose first records were compacted away begins where the batch before ends, at `begin` for the first:
        later than it truly began, it would let a replica keep what an older leader wrote there (KIP-101). What
        flush.messages wants synced is, before it counts: by the log end, the producers, the high watermark.
        """
        before: Sequence[tuple[LeaderEpoch, Offset]] | None = None
        try:
            for _, header in group:
                if header.leader_epoch != self._epochs.latest and header.leader_epoch >= 0:
                    before = self._epochs.entries if before is None else before
                    self._epochs.assign(LeaderEpoch(header.leader_epoch), begin)
                begin = header.next_offset
            self._append_and_count(segment, data, group)
        except Exception:
            if before is not None:
                self._epochs.put_back(before)
                self._unsettle(names=True, epochs=True)  # the file follows before anything is appended
            raise

    @_in_one
    def _append_and_count(self, segment: Segment, data: Buffer, group: Sequence[tuple[int, BatchHeader]]) -> None:
        end, size = group[-1][1].next_offset, segment.size
        try:
            if end - self.recovery_point >= self.config.flush_messages:
                self._flusher.flush(end, lambda: segment.append(data, group))
            else:
                segment.append(data, group)
        except OSError as error:
            if segment.size > size and is_shortage(error):  # it is written, and must not count
                raise OSError(errno.EIO, f"a batch is half appended: {error}", str(segment.log.path)) from error
            raise
        for _, header in group:
            self._producers.update(header)
        self._log_end = end
        segment.tell_misfit()

    def _that_fit(self, segment: Segment, batches: Sequence[tuple[int, BatchHeader]], begin: int) -> tuple[int, int]:
        """Which batches from `begin` on go into `segment`, at least one: index and byte after the last."""
        start, header = batches[begin]
        room = self.config.segment_bytes - segment.size
        stop, end_at = begin + 1, start + header.size
        for at, header in batches[begin + 1 :]:
            if at + header.size - start > room or not segment.has_room(header.last_offset):
                break
            stop, end_at = stop + 1, at + header.size
        return stop, end_at

    def _segment_for(self, first: BatchHeader, now_ms: int) -> Segment:
        """The active segment, or a new one where the last batch ends: no hole is between two segments, by which
        recovery knows that one has lost its end. But where a hole is too wide for an index entry, the log ends after it
        from now on, and the disk knows that what stands before is synced.
        """
        active, begin = self._segments.active, self._end_of_batches()
        if first.last_offset - begin > MAX_RELATIVE_OFFSET:
            self._flusher.flush(self._log_end)
            self._log_end = self._flusher.recovery_point = Offset(first.base_offset)
            self._unsettle(point=True)
            self._begin_segment(self._log_end, now_ms)
        elif active.size and must_roll(active, self.config, first, now_ms, partition=self.topic_partition):
            self._begin_segment(begin, now_ms)
        return self._segments.active

    def _roll(self, now_ms: int) -> None:
        if self._segments.active.size:
            self._begin_segment(self._end_of_batches(), now_ms)

    def _end_of_batches(self) -> Offset:
        """Where the last batch ends: below the log end where that is in a hole."""
        active = self._segments.active
        if not active.size:
            return active.base_offset
        if self._log_end == self._cut_at:
            with suppress(CorruptFile):
                tail = active.read_tail()
                return tail.next_offset if tail else active.base_offset
        return self._log_end

    def _begin_segment(self, base_offset: Offset, now_ms: int) -> None:
        """`base_offset` is where the last batch ends, or the log end."""
        active = self._segments.active
        self._settle()
        crash_point("log.roll.before_seal")
        active.seal()
        self._flusher.sealed(active, base_offset)
        crash_point("log.roll.before_snapshot")
        self._producers.end_offset = self._log_end
        write_snapshot(self._services.disk, self.directory, self._producers)
        self._flusher.make_cut_last()
        crash_point("log.roll.before_segment")
        try:
            self._segments.create(base_offset, self.config, now_ms)
        except Exception:
            self._flusher.names_changed()  # after a power cut the log would end where an empty segment came back
            raise
        if base_offset < self.recovery_point:
            self._flusher.names_changed()  # nothing else tells that it was made after that was synced
        crash_point("log.roll.before_flush")
        # who produced it, too: when it has expired, nothing else is left of it
        snapshot = offset_file(self.directory, self._log_end, SNAPSHOT)
        self._flusher.flush_in_background(self._log_end, [snapshot])

    @_in_one
    def _restart_at(self, offset: Offset, producers: ProducerStates | None = None) -> None:
        """Drop all files, and begin another; the log is not settled then.

        It knows the producers of which `producers` says that they have batches below, or none. Without descriptors
        nothing is dropped, or all is done but that the other file is made when it is used.
        """
        if producers is None:
            producers = ProducerStates()
        producers.end_offset = offset
        known = len(producers) > 0
        snapshots = snapshot_offsets(self._services.disk, self.directory)
        if known:
            write_snapshot(self._services.disk, self.directory, producers)
            snapshots = [each for each in snapshots if each != offset]
        self._stop_cleaning()
        crash_point("log.restart.before_drop")
        removed = self._segments.drop_all()
        self._services.trash.put(removed, self.config.file_delete_delay_ms)
        crash_point("log.restart.before_snapshots")
        remove_snapshots(self._services.disk, self.directory, snapshots)
        crash_point("log.restart.before_segment")
        try:
            self._segments.create(offset, self.config, self._services.clock.wall_ms())
            crash_point("log.restart.after_segment")
        finally:
            self._producers = producers
            has_epochs = self._epochs.forget()
            start_lowered = offset < self._log_start
            self._log_end = self._log_start = self._high_watermark = offset
            point_lowered = self._flusher.restarts_at(offset)
            was_cleaned, self.cleaned_to = self.cleaned_to is not None, None
            self._unsettle(
                names=True,
                producers=known,
                epochs=has_epochs,
                point=point_lowered,
                start=start_lowered,
                cleaned=was_cleaned,
            )

    @_in_one
    def _cut(self, cut: Cut) -> None:
        """Cut the files; whatever part of that is on the disk after a crash, recovery makes it one log.

        For that the disk has the recovery point already: no start looks for holes below it. What needs a descriptor
        comes before anything is changed for good.
        """
        above = [offset for offset in snapshot_offsets(self._services.disk, self.directory) if offset > cut.end]
        cut.segment.hold()
        if self.cleaned_to is not None and self.cleaned_to > cut.end:
            self.cleaned_to = cut.end
            self._unsettle(cleaned=True)
        start_lowered = cut.end < self._log_start
        self._log_end = self._cut_at = cut.end
        self._log_start = min(self._log_start, cut.end)
        self._high_watermark = min(self._high_watermark, cut.end)
        crash_point("log.truncation.before_segments")
        removed = self._segments.drop_after(cut.segment)
        self._services.trash.put(removed, self.config.file_delete_delay_ms)
        crash_point("log.truncation.before_snapshots")
        remove_snapshots(self._services.disk, self.directory, above)
        self._unsettle(names=bool(above or removed), start=start_lowered, tail=True)
        crash_point("log.truncation.before_cut")
        cut.segment.truncate(cut.position, cut.end)

    def _drop_epochs(self) -> None:
        """Forget epochs that begin where the log ends."""
        try:
            self._epochs.truncate_from_end(self._log_end)
        except Exception:
            self._unsettle(names=True, epochs=True)  # the file follows before anything is appended
            raise

    def _unsettle(self, **what: bool) -> None:
        """Note what the disk may not know now, by the names of Unsettled."""
        if any(what.values()):
            self.unsettled = self.unsettled._replace(**{name: True for name, is_so in what.items() if is_so})

    def _is_known(self, **what: bool) -> None:
        left = self.unsettled._replace(**dict.fromkeys(what, False))
        self.unsettled = left if any(left) else SETTLED

    def _settle(self) -> None:
        """Have the disk know everything now, at the cost of some syncs: where no caller waited. Raises OSError."""
        self._settle_names()
        if self.unsettled.tail:
            self._services.disk.sync_path(self._segments.active.log.path)
        if self.unsettled.point or self.unsettled.start or self.unsettled.cleaned:
            self.on_lowered(self.unsettled)
        self.unsettled = SETTLED

    def _settle_names(self) -> None:
        if self.unsettled.names:
            crash_point("log.settling.before_sync")
            for path in self.unsettled_paths:
                self._services.disk.sync_path(path)
            self._names_settled()
            self._is_known(tail=True)

    def _names_settled(self) -> None:
        """Nothing that was dropped can come back: the epoch file, which may alone know its epochs, forgets them too."""
        if self.unsettled.epochs:
            crash_point("log.settling.before_epochs")
            self._epochs.save()
        if self._log_end == self._segments.first.base_offset:
            self._flusher.recovery_point = self._log_end
        self._is_known(names=True, producers=True, epochs=True)

    def move_to(self, directory: Path) -> None:
        """Rename the log's directory; the log goes on. Raises OSError."""
        self._services.disk.rename(self.directory, directory)
        self._services.trash.moved(self.directory, directory)
        self.directory = directory
        self._segments.renamed(directory)
        self._epochs.path = directory / self._epochs.path.name
        self._flusher.renamed()
        self.sync_cut_later()  # under the old name it may not have been found

    def _damaged(self, error: CorruptFile, offset: Offset = UNKNOWN_OFFSET) -> LogDamaged:
        """Take in that a file is damaged where it had to be walked over; returns what to raise."""
        flaw = error.flaw._replace(offset=offset)
        self._damage.found(flaw)
        return LogDamaged(self.directory, str(flaw))

    def _doubted(self, segment: Segment, why: str) -> None:
        """Have the worker walk over a segment whose indexes do not fit. Raises IndexInDoubt until it has; OSError."""
        if segment not in self._buildings:
            self._buildings[segment] = IndexBuilding(segment, why)
            self._build_indexes(self._buildings[segment])
        if segment in self._buildings:
            hint = "Ask again in a moment: the segment is read from its beginning to its end."
            raise IndexInDoubt(
                self.directory, f"the indexes of {segment.log.path.name} are built again: {why}", hint=hint
            )

    def _build_indexes(self, building: IndexBuilding) -> None:
        segment, cuts = building.segment, self._segments.cuts

        def done(outcome: BaseException | None) -> None:
            is_wanted = self._buildings.get(segment) is building  # not of a log that was given up
            is_same = is_wanted and segment in self._segments and cuts == self._segments.cuts
            if is_same and outcome is None and not building.may_end():
                self._build_indexes(building)
                return
            if is_wanted:
                del self._buildings[segment]
            try:
                if is_same and outcome is None:
                    building.end()
            except OSError as error:
                self.home.fail(error)
            finally:
                building.close()
            if outcome is not None:
                self.home.failed(outcome)

        self._services.worker.submit(building.walk, done)

    def _stop_cleaning(self) -> None:
        """What is under way to compact the log must not reach it any more. Raises OSError.

        A swap that has begun ends in between: names may not be on the disk then. Where descriptors are short, all goes
        on.
        """
        swap = self._swap
        if swap is not None:
            self._unsettle(names=True)
            swap.interrupt()
            logger.info("%s: its compaction is broken off", self.topic_partition)
            self._swap = None
            self._services.trash.put(swap.removed, self.config.file_delete_delay_ms)
        self.cleaning = None

    def _give_up(self) -> None:
        """Use no file any more."""
        self.cleaning = None
        if self._swap is not None:
            self._swap.give_up()
        self._buildings.clear()
        self._segments.close()

    def _position_of(self, offset: Offset) -> LogPosition:
        return self._segments.end if offset == self._log_end else self._segments.position_of(offset)


def _ignore(_unsettled: Unsettled) -> None:
    pass
