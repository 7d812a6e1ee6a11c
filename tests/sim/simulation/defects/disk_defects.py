"""Defects of what the disk knows and when: what is synced before what, and what outlives its owner."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from regency.broker_agent.log import background
from regency.broker_agent.log.directories import directory_logs, log_manager
from regency.broker_agent.log.directories.directory_logs import DirectoryLogs
from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.log.errors import LogStorageError
from regency.broker_agent.log.flusher import LogFlusher
from regency.broker_agent.log.log_core import LogCore
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.log.producer_state import ProducerStates
from regency.broker_agent.log.segments.segment import Segment
from regency.model.crash_points import crash_point
from regency.model.ids import Offset
from regency.runtime.descriptors import is_shortage
from simulation.defects.patching import Defects, Patch

DEFECTS = Defects()

# Syncs


@DEFECTS.of("KAFKA-3968")
def names_not_synced(patch: Patch) -> None:
    """the names of new segments and logs are not synced"""
    patch.edit(log_manager, "make_log", ("for created in (path, home.path):", "for created in ():"))

    def none(self: LogFlusher, segments: list[Segment]) -> list[Path]:
        del self, segments
        return []

    patch.set(LogFlusher, "_unsynced_names", none)


@DEFECTS.of("KAFKA-15046")
def epochs_not_synced(patch: Patch) -> None:
    """the recovery point passes epochs whose file is not on the disk"""
    patch.edit(LogFlusher, "flush", ("if self._epochs_unsynced:", "if False:"))
    patch.edit(LogFlusher, "unsynced", ("self._epochs_unsynced and self._disk", "False and self._disk"))
    patch.edit(
        LogFlusher, "flush_in_background", ("[self._epochs.path, *also] if self._epochs_unsynced else also", "also")
    )
    patch.edit(LogFlusher, "_unsynced_names", ("if made or self._epochs_unsynced", "if made"))
    patch.edit(LogFlusher, "_epochs_written", ("self._syncs.later(self._epochs.path, self._home.failed)", "pass"))


@DEFECTS.of("own rule")
def marks_before_cuts(patch: Patch) -> None:
    """high watermarks are checkpointed before the disk knows where logs were cut off"""
    patch.edit(
        LogManager,
        "checkpoint_high_watermarks",
        ("self._services.cuts.when_done(self._checkpoint_held_back)", "self._checkpoint_held_back()"),
    )


@DEFECTS.of("own rule")
def shortage_is_success(patch: Patch) -> None:
    """what could not be synced for want of a descriptor counts as synced"""

    def overlooked(failed: dict[Path, OSError]) -> None:
        for path in [path for path, error in failed.items() if is_shortage(error)]:
            del failed[path]

    for module in (background, directory_logs):
        patch.set(module, "raise_shortage", overlooked)


@DEFECTS.of("own rule")
def cut_not_settled(patch: Patch) -> None:
    """what is appended where a log was cut off does not wait until the disk knows of the cut"""
    patch.edit(LogCore, "_cut", (", tail=True", ""))


@DEFECTS.of("own rule")
def seal_not_synced(patch: Patch) -> None:
    """the last time index entry of a segment that was flushed before is not synced"""
    patch.edit(LogCore, "_begin_segment", ("self._flusher.sealed(active, base_offset)", "pass"))


@DEFECTS.of("KAFKA-10723, KAFKA-15375")
def marker_in_spite_of_failure(patch: Patch) -> None:
    """a directory is marked as clean although one of its logs could not be closed"""

    def close(self: DirectoryLogs, unsynced: object = ()) -> None:
        for log in list(self.logs.values()):  # a directory that fails lets go of its logs
            with suppress(OSError, LogStorageError):
                paths = log.finish_files()
                crash_point("log.closing.before_flush")
                for error in self.directory.disk.sync_paths(paths).values():
                    raise error
                log.close()
        self.write_checkpoints()
        self.directory.leave_clean_marker()

    patch.set(DirectoryLogs, "close", close)


# Segments


@DEFECTS.of("KAFKA-12964")
def removed_by_name(patch: Patch) -> None:
    """files of dropped segments keep their names until they are removed"""

    def keep_names(self: Segment) -> list[Path]:
        paths = []
        for file in self.files:
            file.close()
            if file.exists():
                paths.append(file.path)
        return paths

    patch.set(Segment, "mark_deleted", keep_names)


@DEFECTS.of("KAFKA-16073")
def start_after_drop(patch: Patch) -> None:
    """the log start is raised only when the segments below are gone"""
    raised = "self.maybe_increment_log_start(start)\n"
    drop = "removed = self._segments.drop_first(expired.segments)\n"
    patch.edit(PartitionLog, "delete_old_segments", (raised, "pass\n"), (drop, f"{drop}    {raised}"))


@DEFECTS.of("KAFKA-9491")
def watermark_not_restarted(patch: Patch) -> None:
    """a log that begins anew elsewhere keeps its high watermark"""
    patch.edit(LogCore, "_restart_at", ("self._log_start = self._high_watermark = offset", "self._log_start = offset"))


# Producers


@DEFECTS.of("KAFKA-7190")
def producers_expire_with_records(patch: Patch) -> None:
    """producers are forgotten with the last of their records"""
    delete = PartitionLog.delete_old_segments

    def deleted(self: PartitionLog, now_ms: int) -> int:
        count = delete(self, now_ms)
        if count:
            _forget_below(self._producers, self.log_start_offset)
        return count

    patch.set(PartitionLog, "delete_old_segments", deleted)


def _forget_below(producers: ProducerStates, start: Offset) -> None:
    """Whoever has no batch from `start` on was never there."""
    held = producers._producers
    for number in [number for number, producer in held.items() if producer.batches[-1].last_offset < start]:
        del held[number]
