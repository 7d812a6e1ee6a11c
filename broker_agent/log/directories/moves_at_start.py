"""Logs that were on their way to another directory when the process ended: what is done about them at start.

A future log grows in `T-P.UNIQUE-future`. When it is complete, the log it replaces is renamed to `T-P.UNIQUE-delete`,
with the same UNIQUE, and only when the disk knows that is the future one renamed to `T-P`. So at any time either there
is a log, or the two names tell which one becomes it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from regency.broker_agent.log.directories.continuity import NO_TRACES, Traces
from regency.broker_agent.log.log_directory import LogDirectory
from regency.broker_agent.log.recovery import FoundLog
from regency.kafka.logfiles.file_names import DirectoryKind, parse_future, replaced_name
from regency.model.ids import TopicPartition
from regency.runtime.disk import Disk

logger = logging.getLogger(__name__)


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
