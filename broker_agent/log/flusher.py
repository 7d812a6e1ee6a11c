"""Getting one log's bytes onto the disk, at once or on the worker pool. Holds the recovery point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from regency.broker_agent.log.background import BackgroundSync
from regency.broker_agent.log.leader_epoch_cache import LeaderEpochCache
from regency.broker_agent.log.log_directory import LogDirectory
from regency.broker_agent.log.segments.open_files import LogFile
from regency.broker_agent.log.segments.segment import Segment
from regency.broker_agent.log.segments.segments import Segments
from regency.broker_agent.ports import Worker
from regency.model.clock import Clock
from regency.model.crash_points import crash_point
from regency.model.ids import Offset
from regency.runtime.disk import Disk
from regency.runtime.metrics.recent import RecentTimes


class LogFlusher:
    """Syncs a log's segments and the names of new ones, its epoch file always before the data of those epochs."""

    def __init__(
        self,
        disk: Disk,
        home: LogDirectory,
        segments: Segments,
        epochs: LeaderEpochCache,
        recovery_point: Offset,
        *,
        is_new: bool,
        is_recovered: bool,
        clock: Clock,
        worker: Worker,
        syncs: BackgroundSync,
        flushes: RecentTimes,
    ) -> None:
        """`flushes` takes the time of every flush."""
        self.recovery_point = recovery_point
        """Records below were synced to the disk."""
        self._disk = disk
        self._home = home
        self._segments = segments
        self._epochs = epochs
        self._clock = clock
        self._worker = worker
        self._syncs = syncs
        self._flushes = flushes
        self._directory_unsynced = is_new
        """Whether the name of the log's own directory may not be on the disk."""
        self._epochs_unsynced = is_recovered
        self._cut_before = recovery_point if is_recovered else None
        """Where the log was cut off and that may not be on the disk: the segment before must be synced, too."""
        self._truncations = 0
        self._seals = 0
        self._last_flush_ms = clock.monotonic_ms()
        epochs.on_written = self._epochs_written

    def flush(self, log_end: Offset, write: Callable[[], None] | None = None) -> None:
        """Sync everything below `log_end` before returning; `write` has yet to write some of it, to the newest segment.

        Whatever takes a descriptor comes before: where there is none, nothing has been written. Raises OSError.
        """
        began_ms = self._clock.monotonic_ms()
        is_needed = self.recovery_point < log_end or self._cut_before is not None
        segments = self._unsynced_segments() if is_needed else []
        if self._epochs_unsynced:
            with suppress(FileNotFoundError):  # there has been no epoch yet
                self._disk.sync_path(self._epochs.path)
        crash_point("log.flush.before_data")
        for file in _files(segments[:-1]):
            file.sync()
        if write is not None:
            segments[-1].hold()
        crash_point("log.flush.before_directory")
        for directory in self._unsynced_names(segments):
            self._disk.sync_path(directory)
        if write is not None:
            write()
        crash_point("log.flush.before_newest")
        for file in _files(segments[-1:]):
            file.sync()
        crash_point("log.flush.before_recovery_point")
        self.synced(log_end)
        if is_needed:
            self._flushes.record((self._last_flush_ms - began_ms) * 1000, self._last_flush_ms)

    def unsynced(self, log_end: Offset) -> list[Path]:
        """Files and directories to be synced, in any order, before `synced(log_end)`. Raises OSError."""
        is_needed = self.recovery_point < log_end or self._cut_before is not None
        segments = self._unsynced_segments() if is_needed else []
        epochs = [self._epochs.path] if self._epochs_unsynced and self._disk.exists(self._epochs.path) else []
        return [*epochs, *(file.path for file in _files(segments)), *self._unsynced_names(segments)]

    def synced(self, log_end: Offset) -> None:
        """Note that everything below `log_end` has been synced, names and epochs too."""
        self._epochs_unsynced = self._directory_unsynced = False
        self._cut_before = None
        self.recovery_point = max(self.recovery_point, log_end)
        self._last_flush_ms = self._clock.monotonic_ms()

    def flush_in_background(self, log_end: Offset, also: Sequence[Path] = ()) -> None:
        """Sync what is below `log_end` now, and the files `also`, soon; then the recovery point follows."""
        if self.recovery_point >= log_end and not also:
            return
        self._last_flush_ms = self._clock.monotonic_ms()
        paths = [self._epochs.path, *also] if self._epochs_unsynced else also
        segments = [segment for segment in self._unsynced_segments() if segment.base_offset < log_end]
        names = list(dict.fromkeys([*self._unsynced_names(segments), *(path.parent for path in also)]))
        self._submit(log_end, paths, _files(segments), names, lambda _: None)

    def flush_all_in_background(self, log_end: Offset, also: Sequence[Path], then: Callable[[bool], None]) -> None:
        """Sync everything below `log_end`, every name, and the files `also`, whatever is believed to be synced.

        `then` is called on the data loop when that is done, and told whether it holds: the log was not cut off, rolled
        or renamed meanwhile.
        """
        self._last_flush_ms = self._clock.monotonic_ms()
        names = [self._epochs.path.parent, self._home.path]
        self._submit(log_end, [self._epochs.path, *also], _files(self._unsynced_segments()), names, then)

    def _submit(
        self,
        log_end: Offset,
        paths: Sequence[Path],
        files: Sequence[LogFile],
        names: Sequence[Path],
        then: Callable[[bool], None],
    ) -> None:
        changes = self._truncations, self._seals

        def sync() -> _Synced:
            began_ms = self._clock.monotonic_ms()
            missing = _sync(self._disk, paths, files, names)
            return _Synced(self._clock.monotonic_ms() - began_ms, missing)

        def done(outcome: _Synced | BaseException) -> None:
            if isinstance(outcome, BaseException):
                self._home.failed(outcome)
                return
            self._flushes.record(outcome.took_ms * 1000, self._clock.monotonic_ms())
            holds = changes == (self._truncations, self._seals)
            if holds and outcome.missing:
                self._sync_expired(log_end, outcome.missing, names, then)
                return
            if holds:
                self._directory_unsynced = False
                self._cut_before = None
                self.recovery_point = max(self.recovery_point, log_end)
            then(holds)

        self._worker.submit(sync, done)

    def _sync_expired(
        self, log_end: Offset, missing: Sequence[LogFile], names: Sequence[Path], then: Callable[[bool], None]
    ) -> None:
        """Sync files that were renamed by retention, and that they were: else a power cut could bring them back under
        their old names, without their records.
        """
        try:
            renamed = [file for file in missing if file.exists()]
        except OSError as error:
            self._home.fail(error)
        else:
            self._submit(log_end, (), renamed, [*names, self._epochs.path.parent], then)

    def names_changed(self) -> None:
        """Note that the disk may not know which files are in the log's directory: it must, before more is synced."""
        self._epochs_unsynced = True

    def is_due(self, log_end: Offset, flush_ms: int) -> bool:
        """Whether `flush_ms` has passed since the last flush and there is something to flush."""
        return self.recovery_point < log_end and self._clock.monotonic_ms() - self._last_flush_ms >= flush_ms

    def ends_at(self, log_end: Offset) -> bool:
        """Note that the log was cut off at `log_end`; returns whether the recovery point had to go back."""
        self._truncations += 1
        self._cut_before = log_end if self._cut_before is None else min(self._cut_before, log_end)
        lowered = self.recovery_point > log_end
        self.recovery_point = min(self.recovery_point, log_end)
        return lowered

    def renamed(self) -> None:
        """Note that the log's directory has another name: what is being synced may not find its files."""
        self._truncations += 1
        self._epochs_unsynced = self._directory_unsynced = True

    def restarts_at(self, log_end: Offset) -> bool:
        """Note that the log is empty and begins at `log_end`; returns whether the recovery point had to go back.

        It does not rise, as long as what was dropped may come back.
        """
        lowered = self.ends_at(log_end)
        self._cut_before = None
        return lowered

    def make_cut_last(self) -> None:
        """Sync where the log was cut off, before it goes on in another file. Raises OSError.

        After a power cut the old records could stand before the new ones otherwise, and nothing would tell.
        """
        if self._cut_before is not None:
            for file in _files(self._unsynced_segments()):
                file.sync()
            self._cut_before = None

    def sealed(self, segment: Segment, log_end: Offset) -> None:
        """Note that the segment, with which the log ends, has got its last time index entry. Raises OSError.

        Once another segment follows, this one is not read again below the recovery point, which so must not be above
        it before that entry is on the disk: half of one, after a power cut, would be a time long past.
        """
        self._seals += 1
        if self.recovery_point >= log_end:
            segment.times.file.sync()

    def _unsynced_segments(self) -> list[Segment]:
        """All from the recovery point on, and from where the log was cut off."""
        if self._cut_before is None:
            return self._segments.from_offset(self.recovery_point)
        return self._segments.from_offset(Offset(min(self.recovery_point, self._cut_before - 1)))

    def _unsynced_names(self, segments: Sequence[Segment]) -> list[Path]:
        """The log's directory, where files were made or replaced in it since the recovery point, and the one above."""
        made = any(segment.base_offset >= self.recovery_point for segment in segments)
        names = [self._epochs.path.parent] if made or self._epochs_unsynced else []
        return [*names, self._home.path] if self._directory_unsynced else names

    def _epochs_written(self) -> None:
        self._epochs_unsynced = True
        self._syncs.later(self._epochs.path, self._home.failed)


class _Synced(NamedTuple):
    took_ms: int
    missing: Sequence[LogFile]
    """Files that were not there under the name they had."""


def _files(segments: Iterable[Segment]) -> list[LogFile]:
    return [file for segment in segments for file in segment.files]


def _sync(disk: Disk, paths: Sequence[Path], files: Iterable[LogFile], names: Sequence[Path]) -> list[LogFile]:
    """Sync all of them in this order; returns the files that were not found."""
    for path in paths:
        with suppress(FileNotFoundError):  # it was never made, or the log was deleted meanwhile
            disk.sync_path(path)
    crash_point("log.background_flush.before_data")
    missing = []
    for file in files:
        try:
            disk.sync_path(file.path)
        except FileNotFoundError:
            missing.append(file)
    crash_point("log.background_flush.before_directory")
    with suppress(FileNotFoundError):
        for directory in names:
            disk.sync_path(directory)
    crash_point("log.background_flush.after_sync")
    return missing
