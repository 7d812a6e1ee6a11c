"""The open logs of one log directory: made, checkpointed, closed. Data loop only; the worker writes."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from regency.broker_agent.log.background import raise_shortage
from regency.broker_agent.log.errors import LogStorageError
from regency.broker_agent.log.log_core import LogServices, Unsettled
from regency.broker_agent.log.log_directory import LogDirectory
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.log.recovery import create_log
from regency.broker_agent.ports import Worker
from regency.kafka.logfiles.checkpoints import OffsetCheckpoint
from regency.kafka.logfiles.file_names import DirectoryKind, aside_name
from regency.model.crash_points import crash_point
from regency.model.ids import ZERO_TOPIC_ID, Offset, TopicId, TopicPartition
from regency.model.settings.log_config import LogConfig

_MAX_DELETED = 10_000
"""Deleted logs that are remembered for the sake of the checkpoints, before these are written anyway."""

_Decided: TypeAlias = tuple[OffsetCheckpoint, dict[TopicPartition, Offset], int]
"""A checkpoint, what is to stand in it, and the number of that decision."""


class DirectoryLogs:
    """Logs by partition, and the high watermarks last decided to be checkpointed for them.

    A future log stands here like any other: the one it will replace is in another directory.
    """

    def __init__(
        self, directory: LogDirectory, worker: Worker, high_watermarks: Mapping[TopicPartition, Offset]
    ) -> None:
        self.directory = directory
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.high_watermarks = dict(high_watermarks)
        self._worker = worker
        self._looking = False
        self.recovery_points_written = True
        """Whether the ones decided last are on the disk."""
        self._deleted: set[TopicPartition] = set()
        """Logs that are gone and whose offsets may still be in a checkpoint on the disk."""

    @property
    def is_working(self) -> bool:
        """Whether the directory has not failed."""
        return self.directory.failure is None

    def add(self, log: PartitionLog) -> None:
        """Take a log that is in the directory."""
        self.logs[log.topic_partition] = log
        log.on_lowered = self.write_lowered

    def remove(self, topic_partition: TopicPartition) -> None:
        """Forget a log, its checkpointed offsets with it."""
        self.logs.pop(topic_partition, None)
        self.high_watermarks.pop(topic_partition, None)
        self._deleted.add(topic_partition)

    def put_aside(self, log: PartitionLog, services: LogServices, fate: DirectoryKind) -> None:
        """Take a log out of use, under another name. Raises LogStorageError."""
        aside = log.directory.with_name(aside_name(log.topic_partition, services.new_uuid(), fate))
        try:
            services.disk.rename(log.directory, aside)
        except OSError as error:
            raise log.home.fail(error) from error
        self.remove(log.topic_partition)
        log.abandon()
        log.directory = aside
        services.syncs.later(log.home.path, log.home.failed)

    def make_way_for(self, topic_partition: TopicPartition) -> None:
        """See to it that a new log does not get the offsets of a deleted one of the same name. Raises OSError.

        After a crash they would make it begin where the old one began, which costs every record below, and be
        believed to be synced up to where the old one was.
        """
        if topic_partition in self._deleted or len(self._deleted) > _MAX_DELETED:
            self.write_checkpoints()

    def write_checkpoints(self) -> None:
        """Write all checkpoints, of the logs that are here and no others, before returning. Raises OSError."""
        _write(self._decided())
        self._deleted.clear()
        crash_point("log.checkpoints.after_write")

    def write_checkpoints_later(self, then: Callable[[], None]) -> None:
        """Write all checkpoints soon; `then` is called on the data loop when that is done."""
        self._write_later(self._decided(), then)

    def _decided(self) -> list[_Decided]:
        """Every checkpoint with what is to stand in it, decided now."""
        return [
            self._decide_recovery_points(),
            self._decide_log_starts(),
            self._decide_high_watermarks(),
            self._decide_cleaned(),
        ]

    def _decide_recovery_points(self) -> _Decided:
        checkpoint = self.directory.recovery_points
        return checkpoint, {name: log.recovery_point for name, log in self.logs.items()}, checkpoint.decide()

    def _decide_log_starts(self) -> _Decided:
        checkpoint = self.directory.log_start_offsets
        starts = {
            name: log.log_start_offset
            for name, log in self.logs.items()
            if log.log_start_offset > log.first_base_offset
        }
        return checkpoint, starts, checkpoint.decide()

    def _decide_high_watermarks(self) -> _Decided:
        checkpoint = self.directory.high_watermarks
        return checkpoint, dict(self.high_watermarks), checkpoint.decide()

    def _decide_cleaned(self) -> _Decided:
        checkpoint = self.directory.cleaner_offsets
        cleaned = {name: log.cleaned_to for name, log in self.logs.items() if log.cleaned_to is not None}
        return checkpoint, cleaned, checkpoint.decide()

    def write_lowered(self, unsettled: Unsettled) -> None:
        """Checkpoint what has gone back of one log before returning. Raises OSError."""
        _write_lowered(self._lowered([unsettled]))

    def _lowered(self, unsettled: Sequence[Unsettled]) -> list[_Decided]:
        """The checkpoints of what has gone back, recovery points first, with what is to stand in them decided now."""
        decided: list[_Decided] = []
        if any(each.point for each in unsettled):
            decided.append(self._decide_recovery_points())
        if any(each.start for each in unsettled):
            decided.append(self._decide_log_starts())
        if any(each.cleaned for each in unsettled):
            decided.append(self._decide_cleaned())
        return decided

    def settle(self, logs: Iterable[PartitionLog], then: Callable[[], None]) -> None:
        """Have the disk know, soon, what of these logs is unsettled; `then` is called when that is over.

        Names first, as everywhere where a log begins again, then the checkpoints, with what stands in them for all logs
        here decided now: a recovery point that has gone back holds for what comes back too. A log that was cut again,
        renamed or removed meanwhile, or could not be synced, is as settled as before.
        """
        settled = [(log, log.unsettled, log.directory) for log in logs]
        names = [path for log, _, _ in settled for path in log.unsettled_paths]
        checkpoints = self._lowered([unsettled for _, unsettled, _ in settled])

        def write() -> dict[Path, OSError]:
            crash_point("log.settling.before_names")
            failed = self.directory.disk.sync_paths(names)
            raise_shortage(failed)
            _write_lowered(checkpoints)
            return failed

        def done(outcome: dict[Path, OSError] | BaseException) -> None:
            if isinstance(outcome, BaseException):
                self.directory.failed(outcome)
            else:
                self._settled(settled, outcome)
            then()

        self._worker.submit(write, done)

    def _settled(self, settled: Iterable[tuple[PartitionLog, Unsettled, Path]], failed: Mapping[Path, OSError]) -> None:
        for log, unsettled, at in settled:
            if log.unsettled is not unsettled or not self._is_at(log, at):
                continue
            try:
                for path in log.unsettled_paths:
                    if path in failed:
                        raise failed[path]
                log.settled()
            except OSError as error:
                self.directory.fail(error)

    def write_recovery_points_later(self, then: Callable[[], None] = lambda: None) -> None:
        """Checkpoint the recovery points soon; `then` is called on the data loop when that is done."""

        def written() -> None:
            self.recovery_points_written = True
            then()

        self.recovery_points_written = False
        self._write_later([self._decide_recovery_points()], written)
        crash_point("log.recovery_points.after_decision")

    def write_log_starts_later(self, then: Callable[[], None] = lambda: None) -> None:
        """Checkpoint soon where logs start; `then` is called on the data loop when that is done."""
        self._write_later([self._decide_log_starts()], then)
        crash_point("log.log_starts.after_decision")

    def write_cleaned_later(self) -> None:
        """Checkpoint soon up to where logs have been compacted."""
        self._write_later([self._decide_cleaned()])
        crash_point("log.cleaner_offsets.after_decision")

    def write_high_watermarks_later(self, changed: Mapping[TopicPartition, Offset]) -> None:
        """Checkpoint these high watermarks soon, with what is known of the others (KAFKA-1647)."""
        self.high_watermarks.update(changed)
        self._write_later([self._decide_high_watermarks()])
        crash_point("log.high_watermarks.after_decision")

    def look_later(self) -> None:
        """Look, soon, whether all logs are where they were: the directory may be emptied, or another be in its place.

        Files that are open would take records all the same, and the next start find none of them.
        """
        if self._looking:
            return
        self._looking = True
        path, disk = self.directory.path, self.directory.disk
        looked_for = [(log, log.directory) for log in self.logs.values()]

        def look() -> list[tuple[PartitionLog, Path]]:
            names = set(disk.names_in(path))
            return [(log, at) for log, at in looked_for if at.name not in names]

        def looked(outcome: list[tuple[PartitionLog, Path]] | BaseException) -> None:
            self._looking = False
            if isinstance(outcome, BaseException):
                self.directory.failed(outcome)
            else:
                # again, here where logs are renamed: one may have been away for the moment of the look
                gone = [at for log, at in outcome if self._is_at(log, at) and self._is_missing(at)]
                if gone:
                    self.directory.fail(FileNotFoundError(errno.ENOENT, "The directory of a log is gone", str(gone[0])))

        self._worker.submit(look, looked)

    def _is_at(self, log: PartitionLog, at: Path) -> bool:
        """Whether the log is still in use, and was not renamed."""
        return self.logs.get(log.topic_partition) is log and log.directory == at

    def _is_missing(self, at: Path) -> bool:
        try:
            return not self.directory.disk.exists(at)
        except OSError:
            return True

    def close(self, unsynced: Iterable[Path] = ()) -> None:
        """Flush and close every log, write the checkpoints, and only then the clean-shutdown marker.

        `unsynced` are files that were to be synced soon, of which some may be gone. Raises OSError or
        LogStorageError; no marker is left then.
        """
        logs, disk = list(self.logs.values()), self.directory.disk
        for log in logs:
            log.stop_cleaning()
        unsettled = [log for log in logs if not log.is_settled]
        for error in disk.sync_paths([path for log in unsettled for path in log.unsettled_paths]).values():
            raise error
        for log in unsettled:
            log.settled()  # nothing is appended any more, and the checkpoints come below
        to_sync = dict.fromkeys(path for log in logs for path in log.finish_files())
        to_sync.update(dict.fromkeys(path for path in unsynced if disk.exists(path)))
        crash_point("log.closing.before_flush")
        for error in disk.sync_paths(list(to_sync)).values():
            raise error
        for log in logs:
            log.close()
        crash_point("log.clean_shutdown.before_checkpoints")
        self.write_checkpoints()
        crash_point("log.clean_shutdown.before_marker")
        self.directory.leave_clean_marker()
        crash_point("log.clean_shutdown.after_marker")

    def _write_later(self, decided: Sequence[_Decided], written: Callable[[], None] = lambda: None) -> None:
        def done(outcome: BaseException | None) -> None:
            if outcome is None:
                written()
            else:
                self.directory.failed(outcome)

        self._worker.submit(lambda: _write(decided), done)


def _write(checkpoints: Iterable[_Decided]) -> None:
    for checkpoint, offsets, number in checkpoints:
        checkpoint.write(offsets, number)


def _write_lowered(checkpoints: Iterable[_Decided]) -> None:
    crash_point("log.settling.before_checkpoints")
    _write(checkpoints)
    crash_point("log.settling.after_checkpoints")


def make_log(
    services: LogServices,
    home: LogDirectory,
    path: Path,
    topic_partition: TopicPartition,
    topic_id: TopicId,
    config: LogConfig,
) -> PartitionLog:
    """An empty log at `path`, which is new, in log directory `home`. Raises OSError, LogStorageError.

    Then nothing is at `path`: what was made is removed later, for which there may be no descriptor now.
    """
    log = None
    try:
        services.disk.make_directory(path)
        crash_point("log.creation.before_segment")
        now_ms = services.clock.wall_ms()
        parts = create_log(path, topic_partition, topic_id, config, now_ms, services.files)
        log = PartitionLog(parts, home, services)
        crash_point("log.creation.before_topic_id")
        if topic_id != ZERO_TOPIC_ID:
            log.set_topic_id(topic_id)
    except (OSError, LogStorageError):
        if log is not None:
            log.abandon()
        aside = path.with_name(aside_name(topic_partition, services.new_uuid(), DirectoryKind.DELETE))
        with suppress(OSError):  # the directory may have failed, or there is nothing
            services.disk.rename(path, aside)
            services.trash.put([aside], 0)
        raise
    crash_point("log.creation.before_sync")
    for created in (path, home.path):
        services.syncs.later(created, home.failed)
    return log
