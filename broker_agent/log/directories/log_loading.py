"""Opening log directories at start: lock, identity, clean-shutdown marker, then every log, on threads of its own.

A directory that cannot be read is offline from the start; one that must not be used ends the start.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from regency.broker_agent.log.directories.continuity import NO_TRACES, Traces, are_whole, read_traces
from regency.broker_agent.log.directories.duplicates import FoundInDirectory, settle_duplicates, settle_moves
from regency.broker_agent.log.errors import LogDirInvalid
from regency.broker_agent.log.log_core import LogParts
from regency.broker_agent.log.log_directory import LogDirectory
from regency.broker_agent.log.recovery import FoundLog, open_log
from regency.kafka.logfiles.file_names import TMP, DirectoryKind, directory_kind, parse_future, parse_partition
from regency.model.ids import BrokerId, Offset, TopicPartition
from regency.model.settings.log_config import LogConfig
from regency.runtime.disk import Disk

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]

NO_DIRECTORY_WORKS = "No log directory works: repair one of log.dirs."
"""What to do where none could be opened."""


class OpenedDirectory(NamedTuple):
    """A directory and what was found in it; nothing where it is offline."""

    directory: LogDirectory
    logs: list[LogParts]
    futures: list[LogParts]
    """Logs that will replace one in another directory."""
    deleted: list[Path]
    """Directories of deleted logs, to be removed."""
    high_watermarks: dict[TopicPartition, Offset]
    traces: Traces = NO_TRACES


def open_directories(
    disk: Disk,
    paths: Sequence[Path],
    config: LogConfig,
    *,
    broker_id: BrokerId,
    cluster_id: str,
    now_ms: int,
    threads_per_directory: int,
    progress: Progress | None,
    new_uuid: Callable[[], UUID],
) -> list[OpenedDirectory]:
    """Open every directory in `paths`. Raises LogDirInvalid or LogBusy, and leaves none locked then."""
    directories = [LogDirectory(disk, path) for path in dict.fromkeys(path.absolute() for path in paths)]
    try:
        found = [_find(disk, directory, broker_id, cluster_id) for directory in directories]
        settle_duplicates(disk, [(each.directory, each.logs) for each in found], new_uuid)
        settle_moves(disk, found)
        if are_whole([each.traces for each in found], [str(each.path) for each in directories], disk.boot_id):
            found = [_as_whole(each) for each in found]
        opened = _open_all(disk, found, config, now_ms, threads_per_directory, progress)
        _refuse_none_working(directories)
    except BaseException:  # whatever ends the start must not leave directories locked
        for directory in directories:
            directory.unlock()
        raise
    return opened


def _find(disk: Disk, directory: LogDirectory, broker_id: BrokerId, cluster_id: str) -> FoundInDirectory:
    """Lock a directory, check whose it is, and list what is in it."""
    found = FoundInDirectory(directory, [], [], [])
    try:
        directory.lock()
        directory.claim(broker_id, cluster_id)
        clean = directory.take_clean_marker()
        found = found._replace(traces=read_traces(directory, marker=clean))
        recovery_points = directory.read_checkpoint(directory.recovery_points)
        log_starts = directory.read_checkpoint(directory.log_start_offsets)
        cleaned = directory.read_checkpoint(directory.cleaner_offsets)
        for name in disk.names_in(directory.path):
            path = directory.path / name
            if not disk.is_directory(path):
                if name.endswith(TMP):
                    disk.remove(path)
                continue
            future = parse_future(path.name)
            partition = future or parse_partition(path.name)
            if partition is not None:
                point, start = recovery_points.get(partition, Offset(0)), log_starts.get(partition, Offset(0))
                logs = found.logs if future is None else found.futures
                logs.append(FoundLog(partition, path, clean, point, start, cleaned_to=cleaned.get(partition)))
            elif directory_kind(path.name) is DirectoryKind.DELETE:
                found.deleted.append(path)
            elif directory_kind(path.name) is not DirectoryKind.STRAY:
                logger.warning("%s is left alone: its name is not that of a partition", path)
    except OSError as error:
        directory.fail_at_start(error)
        return FoundInDirectory(directory, [], [], [])
    return found


def _as_whole(found: FoundInDirectory) -> FoundInDirectory:
    logs, futures = ([log._replace(whole=True) for log in some] for some in (found.logs, found.futures))
    return found._replace(logs=logs, futures=futures)


def _refuse_none_working(directories: Sequence[LogDirectory]) -> None:
    failures = [directory.failure for directory in directories if directory.failure is not None]
    if len(failures) == len(directories):
        raise LogDirInvalid(directories[0].path, failures[0], hint=NO_DIRECTORY_WORKS)


def _open_all(
    disk: Disk,
    directories: Sequence[FoundInDirectory],
    config: LogConfig,
    now_ms: int,
    threads_per_directory: int,
    progress: Progress | None,
) -> list[OpenedDirectory]:
    counter = _Counter(sum(len(found.logs) + len(found.futures) for found in directories), progress)

    def open_one(directory: LogDirectory, log: FoundLog) -> LogParts | None:
        return _open_one(disk, directory, log, config, now_ms, counter)

    opened = _map_on_threads(open_one, directories, max(threads_per_directory, 1))
    return [_with_high_watermarks(found, logs) for found, logs in zip(directories, opened, strict=True)]


def _with_high_watermarks(found: FoundInDirectory, opened: Sequence[LogParts | None]) -> OpenedDirectory:
    directory = found.directory
    if directory.failure is None:
        try:
            marks = directory.read_checkpoint(directory.high_watermarks)
        except OSError as error:
            directory.fail_at_start(error)
        else:
            are_future = {log.directory for log in found.futures}
            parts = [each for each in opened if each is not None]
            logs = [each for each in parts if each.directory not in are_future]
            futures = [each for each in parts if each.directory in are_future]
            return OpenedDirectory(directory, logs, futures, found.deleted, marks, found.traces)
    return OpenedDirectory(directory, [], [], found.deleted, {})


def _map_on_threads(
    open_one: Callable[[LogDirectory, FoundLog], LogParts | None], directories: Sequence[FoundInDirectory], threads: int
) -> list[list[LogParts | None]]:
    pools = [ThreadPoolExecutor(threads, thread_name_prefix="log-recovery") for _ in directories]
    try:
        futures = [
            [pool.submit(open_one, found.directory, log) for log in (*found.logs, *found.futures)]
            for pool, found in zip(pools, directories, strict=True)
        ]
        return [[future.result() for future in of_directory] for of_directory in futures]
    finally:
        for pool in pools:
            pool.shutdown(cancel_futures=True)


def _open_one(
    disk: Disk, directory: LogDirectory, found: FoundLog, config: LogConfig, now_ms: int, counter: _Counter
) -> LogParts | None:
    if directory.failure is not None:
        return None
    try:
        return open_log(disk, found, config, now_ms)
    except OSError as error:
        directory.fail_at_start(error)
        return None
    finally:
        counter.add()


class _Counter:
    """Tells how many logs are open, from many threads."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        """One more."""
        with self._lock:
            self._done += 1
            if self._progress is not None:
                self._progress(self._done, self._total)
