"""All logs of an agent in all its directories: opening, creating, deleting, checkpoints, retention, clean close.

Data loop only, but for opening, which comes before the loop and uses threads of its own.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from uuid import UUID, uuid4

from regency.broker_agent.log.background import BackgroundSync, Trash
from regency.broker_agent.log.directories.continuity import Continuity, are_whole
from regency.broker_agent.log.directories.directory_logs import DirectoryLogs, make_log
from regency.broker_agent.log.directories.future_logs import FutureLogs
from regency.broker_agent.log.directories.log_loading import OpenedDirectory, open_directories
from regency.broker_agent.log.errors import IndexInDoubt, LogBusy, LogDamaged, LogStorageError
from regency.broker_agent.log.log_core import LogServices
from regency.broker_agent.log.log_directory import LogDirectory
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.log.segments.open_files import OpenFiles
from regency.broker_agent.log.selection import is_compacted
from regency.broker_agent.ports import Worker
from regency.broker_agent.steps import Steps
from regency.kafka.logfiles.file_names import DirectoryKind
from regency.model.clock import Clock
from regency.model.crash_points import crash_point
from regency.model.ids import BrokerId, Offset, TopicId, TopicPartition
from regency.model.settings.log_config import NEVER, LogConfig
from regency.runtime.descriptors import log_share
from regency.runtime.disk import Disk, OsDisk
from regency.runtime.metrics.recent import RecentTimes

logger = logging.getLogger(__name__)

PRODUCER_EXPIRATION_MS = 86_400_000

PREFERENCES = 10_000
"""Logs that are not there yet of which it is known in which directory they are to be made."""


class LogManager:
    """Logs by partition. A directory that fails takes its logs out of here, and new ones go elsewhere."""

    def __init__(
        self,
        opened: Sequence[OpenedDirectory],
        default: LogConfig,
        services: LogServices,
        on_dir_failure: Callable[[Path, str], None],
    ) -> None:
        self._services = services
        self._on_dir_failure = on_dir_failure
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._directories: dict[LogDirectory, DirectoryLogs] = {}
        directories = [found.directory for found in opened]
        paths = [str(directory.path) for directory in directories]
        self.continuity = Continuity(
            directories, whole=are_whole([found.traces for found in opened], paths, services.disk.boot_id)
        )
        """Whether something was lost before the start."""
        self._preferred: dict[TopicPartition, Path] = {}
        """Directories in which logs are to be made that are not there yet."""
        self.futures = FutureLogs(self._directories, self._logs, services)
        self._recovered: list[PartitionLog] = []
        """Logs that may have been cut off before they were opened, or then, and the disk may not know."""
        self._held_back: list[tuple[PartitionLog, Offset]] = []
        """High watermarks that are not checkpointed before the disk knows where logs were cut off."""
        for found in opened:
            held = {parts.topic_partition for parts in (*found.logs, *found.futures)}
            marks = {partition: mark for partition, mark in found.high_watermarks.items() if partition in held}
            logs = DirectoryLogs(found.directory, services.worker, marks)
            self._directories[found.directory] = logs
            found.directory.on_failure = self._directory_failed
            for parts in (*found.logs, *found.futures):
                log = PartitionLog(parts, found.directory, services)
                logs.add(log)
                if parts.is_recovered:
                    self._recovered.append(log)
            self._logs.update((parts.topic_partition, logs.logs[parts.topic_partition]) for parts in found.logs)
            self.futures.add(logs.logs[parts.topic_partition] for parts in found.futures)
            services.trash.put(found.deleted, default.file_delete_delay_ms)
        self._checkpoint_what_was_found()

    @classmethod
    def open(
        cls,
        dirs: Sequence[Path],
        default: LogConfig,
        *,
        broker_id: BrokerId,
        cluster_id: str,
        clock: Clock,
        worker: Worker,
        recovery_threads: int,
        on_dir_failure: Callable[[Path, str], None],
        disk: Disk | None = None,
        new_uuid: Callable[[], UUID] = uuid4,
        progress: Callable[[int, int], None] | None = None,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
    ) -> LogManager:
        """Lock the directories and open every log in them, recovering what was not closed cleanly. Blocks.

        `recovery_threads` work per directory; `progress` gets (logs opened, logs found), on those threads. A
        directory that cannot be read is offline, and `on_dir_failure` is called before this returns. At run time
        `on_dir_failure` is called inside the call that failed, once per directory: it must only take note. `disk` is
        the operating system's unless another is given, `new_uuid` tells directories that are put aside apart. Raises
        LogDirInvalid where no directory is usable, or one is in use or belongs to another broker or cluster, LogBusy
        where the process lacks descriptors or memory.
        """
        disk = disk or OsDisk()
        services = LogServices(
            disk=disk,
            clock=clock,
            worker=worker,
            files=OpenFiles(log_share(disk.max_open_files), disk),
            trash=Trash(disk, clock, worker),
            syncs=BackgroundSync(disk, worker),
            cuts=BackgroundSync(disk, worker),
            new_uuid=new_uuid,
            producer_expiration_ms=producer_expiration_ms,
            flushes=RecentTimes(),
        )
        opened = open_directories(
            disk,
            dirs,
            default,
            broker_id=broker_id,
            cluster_id=cluster_id,
            now_ms=clock.wall_ms(),
            threads_per_directory=recovery_threads,
            progress=progress,
            new_uuid=new_uuid,
        )
        for found in opened:
            if found.directory.failure is not None:
                on_dir_failure(found.directory.path, found.directory.failure)
        return cls(opened, default, services, on_dir_failure)

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition; None where there is none, or its directory is offline."""
        return self._logs.get(topic_partition)

    def all(self) -> Mapping[TopicPartition, PartitionLog]:
        """Every log, live."""
        return MappingProxyType(self._logs)

    @property
    def flushes(self) -> RecentTimes:
        """Every flush of a log since the start, and its time."""
        return self._services.flushes

    @property
    def directories(self) -> tuple[DirectoryLogs, ...]:
        """Every directory in the order of log.dirs, with the logs in it, which are none where it has failed."""
        return tuple(self._directories.values())

    def directory(self, path: Path) -> DirectoryLogs | None:
        """The log directory at this absolute path."""
        return next((logs for logs in self._directories.values() if logs.directory.path == path), None)

    def measure_space(self, done: Callable[[Mapping[Path, tuple[int, int]]], None]) -> None:
        """Ask for bytes in all and bytes usable of every directory's volume; those that cannot be asked are left out.

        `done` is called later, on the data loop.
        """
        disk, paths = self._services.disk, [logs.directory.path for logs in self._working()]

        def measure() -> dict[Path, tuple[int, int]]:
            found = {}
            for path in paths:
                with suppress(OSError):  # what is wrong with it shows when it is used
                    found[path] = disk.space(path)
            return found

        def measured(outcome: dict[Path, tuple[int, int]] | BaseException) -> None:
            done({} if isinstance(outcome, BaseException) else outcome)

        self._services.worker.submit(measure, measured)

    @property
    def offline_dirs(self) -> tuple[Path, ...]:
        """Directories that have failed."""
        return tuple(directory.path for directory in self._directories if directory.failure is not None)

    def create(
        self, topic_partition: TopicPartition, topic_id: TopicId, config: LogConfig, *, is_new: bool
    ) -> PartitionLog:
        """The log of a partition, made where that is preferred, or where the fewest are, if there is none.

        Raises LogStorageError where no directory works, or where one is offline and the partition is not `is_new`: its
        log may be there. LogBusy leaves nothing behind.
        """
        existing = self._logs.get(topic_partition)
        if existing is not None:
            return existing
        if not is_new and self.offline_dirs:
            raise LogStorageError(
                self.offline_dirs[0],
                f"it is offline and may hold {topic_partition}",
                hint="Repair the disk and restart the agent, or remove it from log.dirs.",
            )
        self._drop_future(topic_partition, DirectoryKind.STRAY)  # it replaces nothing any more
        preferred = self._preferred.get(topic_partition)
        for logs in sorted(self._working(), key=lambda logs: (logs.directory.path != preferred, len(logs.logs))):
            try:
                logs.make_way_for(topic_partition)
                path = logs.directory.path / str(topic_partition)
                log = make_log(self._services, logs.directory, path, topic_partition, topic_id, config)
            except OSError as error:
                refused = logs.directory.fail(error)
                if isinstance(refused, LogBusy):
                    raise refused from error
                continue
            except LogBusy:
                raise
            except LogStorageError:
                continue
            self._preferred.pop(topic_partition, None)
            self._logs[topic_partition] = log
            logs.add(log)
            return log
        raise LogStorageError(None, f"all are offline, {topic_partition} has no place")

    def topics(self) -> frozenset[str]:
        """Topics with a log. Looks at every log."""
        return frozenset(topic_partition.topic for topic_partition in self._logs)

    def prefer(self, topic_partition: TopicPartition, directory: Path) -> None:
        """Make the partition's log in this directory if it is made in this process's life, and the directory works.

        Of more than `PREFERENCES` logs that are not made the oldest wish is forgotten: any name may be wished for.
        """
        self._preferred[topic_partition] = directory
        if len(self._preferred) > PREFERENCES:
            oldest = next(iter(self._preferred))
            logger.warning("forgot where the log of %s was to be made: there are %d later wishes", oldest, PREFERENCES)
            del self._preferred[oldest]

    def delete_async(self, topic_partition: TopicPartition) -> None:
        """Take a log out of use now and remove it later, and the one that was to replace it.

        Nothing where there is none. Raises LogStorageError.
        """
        self._drop_future(topic_partition, DirectoryKind.DELETE)
        log = self._put_aside(topic_partition, DirectoryKind.DELETE)
        if log is not None:
            self._services.trash.put([log.directory], log.config.file_delete_delay_ms)

    def mark_stray(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Take logs out of use that the cluster does not know, and keep them on the disk. Raises LogStorageError."""
        for topic_partition in topic_partitions:
            self._drop_future(topic_partition, DirectoryKind.DELETE)
            log = self._put_aside(topic_partition, DirectoryKind.STRAY)
            if log is not None:
                crash_point("log.stray.after_rename")
                logger.warning("%s is not assigned to this broker any more; kept as %s", topic_partition, log.directory)

    def set_configs(self, configs: Mapping[str, LogConfig]) -> None:
        """Let all logs of these topics go by their new settings from now on. Looks at every log, once.

        Of one that is not to be compacted any more no compaction goes on, unless descriptors are short this moment.
        """
        for logs in (self._logs, self.futures.all()):
            for topic_partition, log in list(logs.items()):
                config = configs.get(topic_partition.topic)
                if config is None:
                    continue
                if is_compacted(log.config) and not is_compacted(config):
                    self._tried(log.stop_cleaning)
                log.config = config

    def settle(self, topic_partitions: Iterable[TopicPartition], then: Callable[[], None]) -> None:
        """Have the disk know, soon, where these logs were cut off or are about to be; all of a directory in one go.

        `then` is called on the data loop, once, when that is over for those that are still here, and never before this
        returns. One that could not be settled does it itself when it is written to.
        """
        of_directory: dict[LogDirectory, list[PartitionLog]] = {}
        for log in map(self._logs.get, topic_partitions):
            if log is not None and not log.is_settled:
                of_directory.setdefault(log.home, []).append(log)
        left = len(of_directory)

        def one_is_done() -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        for directory, logs in of_directory.items():
            self._directories[directory].settle(logs, one_is_done)
        if not of_directory:
            self._services.worker.submit(lambda: None, lambda _: then())

    def high_watermark_checkpoint(self, topic_partition: TopicPartition) -> Offset:
        """The high watermark last checkpointed for a log that is open; 0 where there is none."""
        log = self._logs.get(topic_partition)
        marks = self._directories[log.home].high_watermarks if log else {}
        return marks.get(topic_partition, Offset(0))

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, Offset]) -> None:
        """Checkpoint these and those of future logs, soon; logs not named keep what was checkpointed for them.

        Not before the disk knows where logs were cut off: if a power cut brought back what was there, a newer high
        watermark would call it committed.
        """
        for log in self._recovered:
            if self._holds(log):
                log.sync_cut_later()
        self._recovered.clear()
        found = ((self._logs.get(topic_partition), offset) for topic_partition, offset in high_watermarks.items())
        self._held_back = [(log, offset) for log, offset in found if log is not None]
        self._held_back.extend((log, log.high_watermark) for log in self.futures.all().values())
        self._services.cuts.when_done(self._checkpoint_held_back)

    def checkpoint_recovery_points(self) -> Steps[None]:
        """Checkpoint up to where each log was synced, soon, and remove snapshots that no recovery would begin with.

        As everything here that looks at all logs, in steps: a log each, done as they are asked for.
        """
        for logs in self._working():
            for log in self._still_held(logs) if logs.recovery_points_written else ():
                if not self._tried(log.remove_old_snapshots):
                    break
                yield
            if logs.is_working:
                logs.write_recovery_points_later()

    def checkpoint_log_start_offsets(self) -> None:
        """Checkpoint, soon, log starts that do not follow from the segments."""
        for logs in self._working():
            logs.write_log_starts_later()

    def checkpoint_log_starts_of(
        self, names: Iterable[TopicPartition], then: Callable[[list[TopicPartition]], None]
    ) -> None:
        """Checkpoint, soon, where these logs start, all others of their directories with them.

        `then` is called for each directory when that is done, with those of the names that are in it; not where that
        fails, nor for a log that is not here.
        """
        of_directory: dict[LogDirectory, list[TopicPartition]] = {}
        for name in names:
            if (log := self._logs.get(name)) is not None:
                of_directory.setdefault(log.home, []).append(name)
        for home, held in of_directory.items():
            self._directories[home].write_log_starts_later(functools.partial(then, held))

    def run_retention(self, now_ms: int) -> Steps[None]:
        """Take expired segments out of use, and remove what was deleted long enough ago; in steps.

        `now_ms` is wall time. A future log keeps what the one has that it will replace.
        """
        for logs in self._working():
            for log in self._still_held(logs):
                if self.futures.get(log.topic_partition) is log:
                    continue
                if not self._tried(functools.partial(log.delete_old_segments, now_ms)):
                    break
                yield
        self.remove_deleted_files()

    def expire_producers(self, now_ms: int) -> Steps[None]:
        """Forget idempotent producers that have been idle for long; in steps. `now_ms` is wall time.

        Not when logs are opened, as Kafka does: right after a restart producers repeat what was not answered, and those
        that write of old events look as if they were idle.
        """
        for log in list(self._logs.values()):
            log.expire_producers(now_ms)
            yield

    def remove_deleted_files(self) -> None:
        """Remove what was deleted long enough ago."""
        self._services.trash.remove_due()

    def flush_dirty_logs(self) -> Steps[None]:
        """Flush, in the background, logs whose flush.ms has passed; in steps."""
        for logs in self._working():
            for log in self._still_held(logs):
                if log.config.flush_ms == NEVER:
                    continue  # most: one look costs nothing worth a step
                if log.is_flush_due and not self._tried(log.flush_in_background):
                    break
                yield

    def close(self) -> None:
        """Flush and close everything, write all checkpoints, mark each directory that closed whole as clean. Blocks."""
        for directory, offsets in self._take_held_back().items():
            self._directories[directory].high_watermarks.update(offsets)
        unsynced = self._services.syncs.give_up()
        for logs in self._working():
            path = logs.directory.path
            try:
                logs.close(each for each in unsynced if each.is_relative_to(path))
            except Exception as error:  # noqa: BLE001 - whatever it is, the other directories close
                logger.warning("%s is not closed cleanly and will be recovered: %r", logs.directory.path, error)
        self._services.files.close_all()
        self._logs.clear()
        self.futures.clear()
        for directory in self._directories:
            directory.unlock()

    def _checkpoint_held_back(self) -> None:
        for directory, offsets in self._take_held_back().items():
            self._directories[directory].write_high_watermarks_later(offsets)

    def _take_held_back(self) -> dict[LogDirectory, dict[TopicPartition, Offset]]:
        """The high watermarks that wait, by directory, but for those of logs that are gone, or cut off this moment."""
        held_back, self._held_back = self._held_back, []
        taken: dict[LogDirectory, dict[TopicPartition, Offset]] = {}
        for log, offset in held_back:
            if self._holds(log) and log.is_settled:
                taken.setdefault(log.home, {})[log.topic_partition] = offset
        return taken

    def _checkpoint_what_was_found(self) -> None:
        """Recovery may have cut logs below their checkpointed offsets, and a deletion may not have reached them."""
        crash_point("log.recovery.before_checkpoints")
        for logs in self._working():
            try:
                logs.write_checkpoints()
            except OSError as error:
                logs.directory.fail_at_start(error)

    def _holds(self, log: PartitionLog) -> bool:
        """Whether the log is in use; else it is deleted, or its directory has failed."""
        return self._logs.get(log.topic_partition) is log or self.futures.get(log.topic_partition) is log

    def _still_held(self, logs: DirectoryLogs) -> Iterator[PartitionLog]:
        """The logs of a directory now, each if it is in use when its turn comes."""
        return (log for log in list(logs.logs.values()) if self._holds(log))

    def _drop_future(self, topic_partition: TopicPartition, fate: DirectoryKind) -> None:
        try:
            self.futures.put_aside(topic_partition, fate)
        except LogStorageError as error:
            logger.warning("a copy of %s stays on the disk until the next start: %s", topic_partition, error)

    def _working(self) -> list[DirectoryLogs]:
        return [logs for logs in self._directories.values() if logs.is_working]

    def _tried(self, work: Callable[[], object]) -> bool:
        """Do something with one log; False where its directory failed, of which everybody knows by then, or where
        there are no descriptors: it is done the next time.
        """
        try:
            work()
        except LogDamaged as error:
            logger.warning("nothing is tidied up in a damaged log: %s", error)
        except IndexInDoubt:
            pass  # of this log alone
        except LogStorageError:
            return False
        return True

    def _put_aside(self, topic_partition: TopicPartition, fate: DirectoryKind) -> PartitionLog | None:
        log = self._logs.get(topic_partition)
        if log is None:
            return None
        crash_point("log.put_aside.before_rename")
        self._directories[log.home].put_aside(log, self._services, fate)
        del self._logs[topic_partition]
        return log

    def _directory_failed(self, directory: LogDirectory) -> None:
        for topic_partition, log in self._directories[directory].logs.items():
            if not self.futures.forget(log):
                self._logs.pop(topic_partition, None)  # nothing is in there once everything was closed
            log.abandon()
        self._directories[directory].logs.clear()
        self.continuity.break_off()
        self._on_dir_failure(directory.path, directory.failure or "")
