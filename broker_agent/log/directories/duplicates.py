"""Partitions of which log directories have several logs, at start: one stays, and nothing that was written is deleted.

A log is made in another directory where its first one has failed, be it in the middle of making it there. When that
directory works again, what is left in it is either empty, and removed, or an older copy, and set aside as a stray.

A future log grows in `T-P.UNIQUE-future`. When it is complete, the log it replaces is renamed to `T-P.UNIQUE-delete`,
with the same UNIQUE, and only when the disk knows that is the future one renamed to `T-P`. So at any time either there
is a log, or the two names tell which one becomes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from regency.broker_agent.log.directories.continuity import NO_TRACES, Traces
from regency.broker_agent.log.log_directory import LogDirectory
from regency.broker_agent.log.recovery import FoundLog
from regency.kafka.logfiles.file_names import (
    LOG,
    PARTITION_METADATA,
    DirectoryKind,
    aside_name,
    offset_file,
    parse_future,
    parse_offset_file,
    replaced_name,
)
from regency.model.ids import TopicPartition
from regency.runtime.disk import Disk

logger = logging.getLogger(__name__)

UNKNOWN_MS = -1


class _Copy(NamedTuple):
    directory: LogDirectory
    log: FoundLog
    is_used: bool
    """Whether a record was ever appended to it."""
    made_ms: int
    """When its topic id was written, which is when it was made; UNKNOWN_MS where it has none."""


def settle_duplicates(
    disk: Disk, found: Sequence[tuple[LogDirectory, list[FoundLog]]], new_uuid: Callable[[], UUID]
) -> None:
    """Leave one log per partition in the lists of what was found; never refuses.

    Of logs that were used the one that was made last stays: it was made while the directories of the others were
    offline. A directory that fails at this is offline.
    """
    holders: dict[TopicPartition, list[tuple[LogDirectory, list[FoundLog], FoundLog]]] = {}
    for directory, logs in found:
        for log in logs:
            holders.setdefault(log.topic_partition, []).append((directory, logs, log))
    for held in holders.values():
        if len(held) > 1:
            copies = [copy for directory, _, log in held if (copy := _look(disk, directory, log)) is not None]
            kept = max(copies, key=lambda copy: (copy.is_used, copy.made_ms), default=None)
            for _, logs, log in held:
                if kept is None or log is not kept.log:
                    logs.remove(log)
            for copy in copies:
                if kept is not None and copy is not kept:
                    _put_away(disk, copy, kept.log.directory, new_uuid)


def _look(disk: Disk, directory: LogDirectory, log: FoundLog) -> _Copy | None:
    """What tells a copy from others; None where its directory has failed."""
    if directory.failure is not None:
        return None
    path = log.directory
    try:
        names = disk.names_in(path)
        offsets = [parsed[0] for parsed in map(parse_offset_file, names) if parsed and parsed[1] == LOG]
        is_used = any(offset or disk.read_file(offset_file(path, offset, LOG)) for offset in offsets)
        made_ms = _modified_ms(disk, path / PARTITION_METADATA) if PARTITION_METADATA in names else UNKNOWN_MS
    except OSError as error:
        directory.fail_at_start(error)
        return None
    return _Copy(directory, log, is_used, made_ms)


def _modified_ms(disk: Disk, path: Path) -> int:
    fd = disk.open(path)
    try:
        return disk.modified_ms(fd)
    finally:
        disk.close(fd)


def _put_away(disk: Disk, copy: _Copy, other: Path, new_uuid: Callable[[], UUID]) -> None:
    path = copy.log.directory
    if copy.directory.failure is not None:
        return
    try:
        if not copy.is_used:
            logger.warning("%s is removed: it is empty, made in vain before %s was", path, other)
            disk.remove_tree(path)
            return
        aside = path.with_name(aside_name(copy.log.topic_partition, new_uuid(), DirectoryKind.STRAY))
        logger.warning("%s is used: %s, which was made before it, is set aside as %s", other, path, aside.name)
        disk.rename(path, aside)
        disk.sync_path(path.parent)
    except OSError as error:
        copy.directory.fail_at_start(error)


class FoundInDirectory(NamedTuple):
    """What one log directory holds, before any log of it is opened."""

    directory: LogDirectory
    logs: list[FoundLog]
    futures: list[FoundLog]
    deleted: list[Path]
    """Directories of deleted logs, to be removed."""
    traces: Traces = NO_TRACES


def settle_moves(disk: Disk, found: Sequence[FoundInDirectory]) -> None:
    """Finish swaps that were under way, in the lists and on the disk; leave at most one future log of each partition.

    A directory that fails at this is offline.
    """
    current = {log.topic_partition: each.directory for each in found for log in each.logs}
    replaced = {path.name for each in found for path in each.deleted}
    settled: set[TopicPartition] = set()
    for each in found:
        for future in list(each.futures):
            name = future.topic_partition
            if name not in current and replaced_name(future.directory.name) in replaced:
                each.futures.remove(future)
                if _finish(disk, each, future):
                    current[name] = each.directory
            elif name in settled or current.get(name) is each.directory:
                logger.warning("%s is removed: it was left of a move that is over or was replaced", future.directory)
                each.futures.remove(future)
                each.deleted.append(future.directory)
            else:
                settled.add(name)
    if any(each.directory.failure is not None for each in found):
        _keep_what_may_be_needed(found, current)


def _finish(disk: Disk, found: FoundInDirectory, future: FoundLog) -> bool:
    """Let a complete future log be the log; whether that was possible."""
    path = future.directory.with_name(str(future.topic_partition))
    try:
        disk.rename(future.directory, path)
        disk.sync_path(path.parent)
    except OSError as error:
        found.directory.fail_at_start(error)
        return False
    logger.info("%s is complete and replaces the log it was copied from", future.directory)
    found.logs.append(future._replace(directory=path))
    return True


def _keep_what_may_be_needed(found: Sequence[FoundInDirectory], current: dict[TopicPartition, LogDirectory]) -> None:
    """Do not remove a log that its complete copy was to replace, while the directory of the copy is out of reach."""
    for each in found:
        for path in list(each.deleted):
            as_future = path.name.removesuffix(DirectoryKind.DELETE.value) + DirectoryKind.FUTURE.value
            partition = parse_future(as_future)
            if partition is not None and partition not in current:
                logger.warning("%s stays until all log directories work: its copy may be in one that does not", path)
                each.deleted.remove(path)
