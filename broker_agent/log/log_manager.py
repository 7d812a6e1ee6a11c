"""All logs of an agent in all its directories: opening, creating, deleting, checkpoints, retention, clean close.

Data loop only, but for opening, which comes before the loop and uses threads of its own.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from uuid import UUID, uuid4

from regency.broker_agent.log.background import BackgroundSync, Trash
from regency.broker_agent.log.directory_logs import DirectoryLogs
from regency.broker_agent.log.disk import Disk, OsDisk
from regency.broker_agent.log.errors import LogStorageError
from regency.broker_agent.log.file_names import DirectoryKind, aside_name
from regency.broker_agent.log.log_core import LogServices
from regency.broker_agent.log.log_directory import LogDirectory
from regency.broker_agent.log.log_loading import OpenedDirectory, open_directories
from regency.broker_agent.log.open_files import OpenFiles
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.log.recovery import create_log
from regency.broker_agent.ports import Worker
from regency.model.clock import Clock
from regency.model.crash_points import crash_point
from regency.model.ids import ZERO_TOPIC_ID, BrokerId, Offset, TopicId, TopicPartition
from regency.model.log_config import LogConfig

logger = logging.getLogger(__name__)

_MAX_OPEN_FILES = 16_384
"""And never more than half of what the process may have: the rest is for connections."""


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
        self._recovered: list[PartitionLog] = []
        """Logs that may have been cut off before they were opened, or then, and the disk may not know."""
        self._held_back: list[tuple[PartitionLog, Offset]] = []
        """High watermarks that are not checkpointed before the disk knows where logs were cut off."""
        for found in opened:
            held = {parts.topic_partition for parts in found.logs}
            marks = {partition: mark for partition, mark in found.high_watermarks.items() if partition in held}
            logs = DirectoryLogs(found.directory, services.worker, marks)
            self._directories[found.directory] = logs
            found.directory.on_failure = self._directory_failed
            for parts in found.logs:
                log = PartitionLog(parts, found.directory, services)
                self._add(logs, log)
                if parts.is_recovered:
                    self._recovered.append(log)
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
    ) -> LogManager:
        """Lock the directories and open every log in them, recovering what was not closed cleanly. Blocks.

        `recovery_threads` work per directory; `progress` is told (logs opened, logs found), on those threads. A
        directory that cannot be read is offline, and `on_dir_failure` is told so before this returns. At run time
        `on_dir_failure` is called inside the call that failed, once per directory: it must only take note. `disk` is
        the operating system's unless another is given, `new_uuid` tells directories that are put aside apart. Raises
        LogDirInvalid where no directory is usable, or one is in use or belongs to another broker or cluster.
        """
        disk = disk or OsDisk()
        services = LogServices(
            disk=disk,
            clock=clock,
            worker=worker,
            files=OpenFiles(min(disk.max_open_files // 2, _MAX_OPEN_FILES), disk),
            trash=Trash(disk, clock, worker),
            syncs=BackgroundSync(disk, worker),
            cuts=BackgroundSync(disk, worker),
            new_uuid=new_uuid,
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
    def offline_dirs(self) -> tuple[Path, ...]:
        """Directories that have failed."""
        return tuple(directory.path for directory in self._directories if directory.failure is not None)

    def create(
        self, topic_partition: TopicPartition, topic_id: TopicId, config: LogConfig, *, is_new: bool
    ) -> PartitionLog:
        """The log of a partition, made in the directory with the fewest logs where there is none yet.

        Raises LogStorageError where no directory works, or where one is offline and the partition is not `is_new`: its
        log may be there.
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
        for logs in sorted(self._working(), key=lambda logs: len(logs.logs)):
            try:
                logs.make_way_for(topic_partition)
                log = self._create_in(logs.directory, topic_partition, topic_id, config)
            except OSError as error:
                logs.directory.fail(error)
                continue
            except LogStorageError:
                continue
            self._add(logs, log)
            return log
        raise LogStorageError(None, f"all are offline, {topic_partition} has no place")

    def delete_async(self, topic_partition: TopicPartition) -> None:
        """Take a log out of use now and remove it later. Nothing where there is none. Raises LogStorageError."""
        log = self._put_aside(topic_partition, DirectoryKind.DELETE)
        if log is not None:
            self._services.trash.put([log.directory], log.config.file_delete_delay_ms)

    def mark_stray(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Take logs out of use that the cluster does not know, and keep them on the disk. Raises LogStorageError."""
        for topic_partition in topic_partitions:
            log = self._put_aside(topic_partition, DirectoryKind.STRAY)
            if log is not None:
                crash_point("log.stray.after_rename")
                logger.warning("%s is not assigned to this broker any more; kept as %s", topic_partition, log.directory)

    def set_config(self, topic: str, config: LogConfig) -> None:
        """Let all logs of a topic go by `config` from now on."""
        for topic_partition, log in self._logs.items():
            if topic_partition.topic == topic:
                log.config = config

    def high_watermark_checkpoint(self, topic_partition: TopicPartition) -> Offset:
        """The high watermark last checkpointed for a log that is open; 0 where there is none."""
        log = self._logs.get(topic_partition)
        marks = self._directories[log.home].high_watermarks if log else {}
        return marks.get(topic_partition, Offset(0))

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, Offset]) -> None:
        """Checkpoint these, soon; logs not named keep what was checkpointed for them.

        Not before the disk knows where logs were cut off: if a power cut brought back what was there, a newer high
        watermark would call it committed.
        """
        for log in self._recovered:
            if self._logs.get(log.topic_partition) is log:  # else it is deleted, or its directory has failed
                log.sync_cut_later()
        self._recovered.clear()
        found = ((self._logs.get(topic_partition), offset) for topic_partition, offset in high_watermarks.items())
        self._held_back = [(log, offset) for log, offset in found if log is not None]
        self._services.cuts.when_done(self._checkpoint_held_back)

    def checkpoint_recovery_points(self) -> None:
        """Checkpoint up to where each log was synced, soon, and remove snapshots that no recovery would begin with."""
        for logs in self._working():
            logs.write_recovery_points_later()
            for log in list(logs.logs.values()):
                if not self._tried(log.remove_old_snapshots):
                    break

    def checkpoint_log_start_offsets(self) -> None:
        """Checkpoint, soon, log starts that do not follow from the segments."""
        for logs in self._working():
            logs.write_log_starts_later()

    def run_retention(self, now_ms: int) -> None:
        """Take expired segments out of use, forget idle producers, and remove what was deleted long enough ago.

        `now_ms` is wall time.
        """
        for logs in self._working():
            for log in list(logs.logs.values()):
                log.expire_producers(now_ms)
                if not self._tried(functools.partial(log.delete_old_segments, now_ms)):
                    break
        self.remove_deleted_files()

    def remove_deleted_files(self) -> int | None:
        """Remove what was deleted long enough ago; returns the monotonic time of the next such moment, if any."""
        return self._services.trash.remove_due()

    def flush_dirty_logs(self) -> None:
        """Flush, in the background, logs whose flush.ms has passed."""
        for logs in self._working():
            for log in list(logs.logs.values()):
                if log.is_flush_due and not self._tried(log.flush_in_background):
                    break

    def close(self) -> None:
        """Flush and close everything, write all checkpoints, mark each directory that closed whole as clean. Blocks."""
        for directory, offsets in self._take_held_back().items():
            self._directories[directory].high_watermarks.update(offsets)
        for logs in self._working():
            try:
                logs.close()
            except (OSError, LogStorageError) as error:
                logger.warning("%s is not closed cleanly and will be recovered: %s", logs.directory.path, error)
        self._services.files.close_all()
        self._logs.clear()
        for directory in self._directories:
            directory.unlock()

    def _checkpoint_held_back(self) -> None:
        for directory, offsets in self._take_held_back().items():
            self._directories[directory].write_high_watermarks_later(offsets)

    def _take_held_back(self) -> dict[LogDirectory, dict[TopicPartition, Offset]]:
        """The high watermarks that wait, by directory, but for those of logs that are gone."""
        held_back, self._held_back = self._held_back, []
        taken: dict[LogDirectory, dict[TopicPartition, Offset]] = {}
        for log, offset in held_back:
            if self._logs.get(log.topic_partition) is log:
                taken.setdefault(log.home, {})[log.topic_partition] = offset
        return taken

    def _checkpoint_what_was_found(self) -> None:
        """Recovery may have cut logs below their checkpointed offsets, and a deletion may not have reached them."""
        crash_point("log.recovery.before_checkpoints")
        for logs in self._working():
            try:
                logs.write_checkpoints()
            except OSError as error:
                logs.directory.fail(error)

    def _add(self, logs: DirectoryLogs, log: PartitionLog) -> None:
        self._logs[log.topic_partition] = log
        logs.add(log)

    def _create_in(
        self, directory: LogDirectory, topic_partition: TopicPartition, topic_id: TopicId, config: LogConfig
    ) -> PartitionLog:
        path = directory.path / str(topic_partition)
        self._services.disk.make_directory(path)
        crash_point("log.creation.before_segment")
        now_ms = self._services.clock.wall_ms()
        parts = create_log(path, topic_partition, topic_id, config, now_ms, self._services.files)
        log = PartitionLog(parts, directory, self._services)
        crash_point("log.creation.before_topic_id")
        if topic_id != ZERO_TOPIC_ID:
            log.set_topic_id(topic_id)
        crash_point("log.creation.before_sync")
        for created in (path, directory.path):
            self._services.syncs.later(created, directory.failed)
        return log

    def _working(self) -> list[DirectoryLogs]:
        return [logs for logs in self._directories.values() if logs.is_working]

    def _tried(self, work: Callable[[], object]) -> bool:
        """Do something with one log; False where its directory failed, of which everybody knows by then."""
        try:
            work()
        except LogStorageError:
            return False
        return True

    def _put_aside(self, topic_partition: TopicPartition, fate: DirectoryKind) -> PartitionLog | None:
        log = self._logs.pop(topic_partition, None)
        if log is None:
            return None
        self._directories[log.home].remove(topic_partition)
        log.abandon()
        crash_point("log.put_aside.before_rename")
        target = log.directory.with_name(aside_name(topic_partition, self._services.new_uuid(), fate))
        try:
            self._services.disk.rename(log.directory, target)
        except OSError as error:
            raise log.home.fail(error) from error
        log.directory = target
        self._services.syncs.later(log.home.path, log.home.failed)
        return log

    def _directory_failed(self, directory: LogDirectory) -> None:
        for topic_partition, log in self._directories[directory].logs.items():
            self._logs.pop(topic_partition, None)  # nothing is in there once everything was closed
            log.abandon()
        self._directories[directory].logs.clear()
        self._on_dir_failure(directory.path, directory.failure or "")
