"""Partitions of which two log directories have a log, at start: one stays, and nothing that was written is deleted.

A log is made in another directory where its first one has failed, be it in the middle of making it there. When that
directory works again, what is left in it is either empty, and removed, or an older copy, and set aside as a stray.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from regency.broker_agent.log.log_directory import LogDirectory
from regency.broker_agent.log.recovery import FoundLog
from regency.kafka.logfiles.file_names import (
    LOG,
    PARTITION_METADATA,
    DirectoryKind,
    aside_name,
    offset_file,
    parse_offset_file,
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
