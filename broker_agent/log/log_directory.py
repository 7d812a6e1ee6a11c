"""One log directory: its lock, identity, clean-shutdown marker and checkpoints, and whether it still works.

An I/O error makes the whole directory fail, once; from then on everything in it raises LogStorageError until the next
start. Lack of descriptors or memory is no such error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from regency.broker_agent.log.errors import LogBusy, LogDirInvalid, LogStorageError
from regency.kafka.logfiles.checkpoints import CheckpointMalformed, OffsetCheckpoint, replace_file
from regency.kafka.logfiles.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOCK,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    RECOVERY_POINTS,
)
from regency.model.crash_points import crash_point
from regency.model.ids import BrokerId, Offset, TopicPartition
from regency.model.settings.properties import parse_properties
from regency.model.settings.values import SettingsInvalid
from regency.runtime.descriptors import is_shortage
from regency.runtime.disk import Disk
from regency.runtime.logging import is_power_of_ten

logger = logging.getLogger(__name__)

_META_VERSION = "0"
_REMOVE_IDENTITY = "If the directory is this broker's, remove that file: it is written again."


class LogDirectory:
    """A directory that is locked for this agent. I/O errors of its own methods are OSErrors."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.path = path
        self.disk = disk
        self.on_failure: Callable[[LogDirectory], None] = _ignore
        """Called once, inside the call that failed."""
        self.failure: str | None = None
        """Why it is offline; None while it works."""
        self.recovery_points = OffsetCheckpoint(disk, path / RECOVERY_POINTS)
        self.log_start_offsets = OffsetCheckpoint(disk, path / LOG_START_OFFSETS)
        self.high_watermarks = OffsetCheckpoint(disk, path / HIGH_WATERMARKS)
        self.cleaner_offsets = OffsetCheckpoint(disk, path / CLEANER_OFFSETS)
        self.shortages = 0
        """Operations that were put off for want of descriptors or memory."""
        self._lock_fd = -1

    def lock(self) -> None:
        """Create the directory where it is missing, and keep other agents and Kafka out until `unlock`.

        Raises LogDirInvalid where another has it.
        """
        self._make()
        try:
            self._lock_fd = self.disk.lock(self.path / LOCK)
        except BlockingIOError as error:
            raise LogDirInvalid(
                self.path, "it is in use by another process", hint="Stop that agent, or choose another of log.dirs."
            ) from error

    def _make(self) -> None:
        """Make the directory, and what is missing above it, so that a power cut does not take it with all its logs."""
        missing = [path for path in (self.path, *self.path.parents) if not self.disk.exists(path)]
        self.disk.make_directory(self.path, parents=True)
        crash_point("log.directory.before_sync")
        for path in missing:
            self.disk.sync_path(path.parent)

    def unlock(self) -> None:
        """Let others have it."""
        if self._lock_fd >= 0:
            self.disk.close(self._lock_fd)
            self._lock_fd = -1

    def claim(self, broker_id: BrokerId, cluster_id: str) -> None:
        """Check that the directory belongs to this broker and cluster, or mark a new one as theirs.

        Raises LogDirInvalid where meta.properties says otherwise, or does not say.
        """
        path = self.path / META_PROPERTIES
        try:
            found = parse_properties(self.disk.read_file(path).decode(errors="replace"), str(path))
        except SettingsInvalid as error:
            raise LogDirInvalid(self.path, f"{META_PROPERTIES} is damaged: {error}", hint=_REMOVE_IDENTITY) from error
        except FileNotFoundError:
            content = f"#\nbroker.id={broker_id}\nversion={_META_VERSION}\ncluster.id={cluster_id}\n"
            crash_point("log.identity.before_write")
            replace_file(self.disk, path, content.encode(), sync=True)
            return
        for key in ("version", "broker.id"):
            if key not in found:
                what = f"{META_PROPERTIES} is damaged: it has no {key}"
                raise LogDirInvalid(self.path, what, hint=_REMOVE_IDENTITY)
        expected = {"version": _META_VERSION, "broker.id": str(broker_id), "cluster.id": cluster_id}
        for key, value in expected.items():
            if found.get(key, value) != value:
                raise LogDirInvalid(
                    self.path,
                    f"{META_PROPERTIES} says {key}={found[key]}, this agent has {key}={value}",
                    hint="Start the broker it belongs to, or empty the directory if its data is not needed.",
                )

    def take_clean_marker(self) -> bool:
        """Whether the last shutdown was clean. The marker is gone, for good, before any log is touched."""
        marker = self.path / CLEAN_SHUTDOWN
        try:
            crash_point("log.clean_marker.before_remove")
            self.disk.remove(marker)
            crash_point("log.clean_marker.before_sync")
        except FileNotFoundError:
            return False
        self.disk.sync_path(self.path)
        return True

    def leave_clean_marker(self) -> None:
        """Say that every log was flushed and closed."""
        replace_file(self.disk, self.path / CLEAN_SHUTDOWN, b"", sync=True)

    def read_checkpoint(self, checkpoint: OffsetCheckpoint) -> dict[TopicPartition, Offset]:
        """Content of one of its checkpoints; an unreadable one counts as empty, which only costs time."""
        try:
            return checkpoint.read()
        except CheckpointMalformed as error:
            logger.warning("ignored a checkpoint: %s", error)
            return {}

    def check(self) -> None:
        """Raise LogStorageError if the directory has failed."""
        if self.failure is not None:
            raise LogStorageError(self.path, self.failure)

    def fail(self, error: OSError) -> LogStorageError:
        """Take the directory offline, and tell once, but for a shortage; returns what to raise."""
        if is_shortage(error):
            self.shortages += 1
            if is_power_of_ten(self.shortages):
                logger.warning(
                    "%s: put off for want of descriptors or memory, %d times so far: %s",
                    self.path,
                    self.shortages,
                    error,
                )
            return LogBusy(self.path, str(error), hint="The process or its machine has too few: see ulimit -n, free.")
        if self.failure is None:
            self.failure = f"offline since an I/O error: {error}"
            logger.error("log directory %s is offline, with all its replicas: %s", self.path, error)
            self.on_failure(self)
        return LogStorageError(self.path, self.failure)

    def fail_at_start(self, error: OSError) -> None:
        """As `fail`, where the directory is opened. Raises LogBusy: without all that is in it, it must not be used."""
        refused = self.fail(error)
        if isinstance(refused, LogBusy):
            raise refused from error

    def failed(self, error: BaseException) -> None:
        """Work in the background could not be done; of what it met, I/O errors take the directory offline."""
        if isinstance(error, OSError):
            self.fail(error)
        else:
            logger.warning("work in %s was not done: %s", self.path, error)


def _ignore(_directory: LogDirectory) -> None:
    pass
