"""Defects of what the disk knows and when: what is synced before what, and what outlives its owner."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from regency.broker_agent.log import background
from regency.broker_agent.log.directories import log_manager
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
from simulation.defects.patching import Defect, Patch

# Syncs


def _names_not_synced(patch: Patch) -> None:
    patch.edit(log_manager, "make_log", ("for created in (path, home.path):", "for created in ():"))

    def none(self: LogFlusher, segments: list[Segment]) -> list[Path]:
        del self, segments
        return []

    patch.set(LogFlusher, "_unsynced_names", none)


def _epochs_not_synced(patch: Patch) -> None:
    patch.edit(LogFlusher, "flush", ("if self._epochs_unsynced:", "if False:"))
    patch.edit(LogFlusher, "unsynced", ("self._epochs_unsynced and self._disk", "False and self._disk"))
    patch.edit(
        LogFlusher, "flush_in_background", ("[self._epochs.path, *also] if self._epochs_unsynced else also", "also")
    )
    patch.edit(LogFlusher, "_unsynced_names", ("if made or self._epochs_unsynced", "if made"))
    patch.edit(LogFlusher, "_epochs_written", ("self._syncs.later(self._epochs.path, self._home.failed)", "pass"))


def _marks_before_cuts(patch: Patch) -> None:
    patch.edit(
        LogManager,
        "checkpoint_high_watermarks",
        ("self._services.cuts.when_done(self._checkpoint_held_back)", "self._checkpoint_held_back()"),
    )


def _shortage_is_success(patch: Patch) -> None:
    others = "failed = {path: each for path, each in failed.items() if not is_shortage(each)}"
    patch.edit(background, "_sync_all", ("raise_shortage(failed)", others))


def _seal_not_synced(patch: Patch) -> None:
    patch.edit(LogCore, "_roll", ("self._flusher.sealed(active, self._log_end)", "pass"))


def _marker_in_spite(patch: Patch) -> None:
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


def _removed_by_name(patch: Patch) -> None:
    def keep_names(self: Segment) -> list[Path]:
        paths = []
        for file in self.files:
            file.close()
            if file.exists():
                paths.append(file.path)
        return paths

    patch.set(Segment, "mark_deleted", keep_names)


def _start_after_drop(patch: Patch) -> None:
    raised = "self.maybe_increment_log_start(start)\n"
    drop = "removed = self._segments.drop_first(expired.segments)\n"
    patch.edit(PartitionLog, "delete_old_segments", (raised, "pass\n"), (drop, f"{drop}    {raised}"))


def _watermark_not_restarted(patch: Patch) -> None:
    patch.edit(LogCore, "_restart_at", ("self._log_start = self._high_watermark = offset", "self._log_start = offset"))


# Producers


def _producers_expire_with_records(patch: Patch) -> None:
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


DEFECTS: tuple[Defect, ...] = (
    Defect("names-not-synced", "the names of new segments and logs are not synced", "KAFKA-3968", _names_not_synced),
    Defect(
        "epochs-not-synced",
        "the recovery point passes epochs whose file is not on the disk",
        "KAFKA-15046",
        _epochs_not_synced,
    ),
    Defect(
        "marks-before-cuts",
        "high watermarks are checkpointed before the disk knows where logs were cut off",
        "own rule",
        _marks_before_cuts,
    ),
    Defect(
        "shortage-is-success",
        "what could not be synced for want of a descriptor counts as synced",
        "own rule",
        _shortage_is_success,
    ),
    Defect(
        "seal-not-synced",
        "the last time index entry of a segment that was flushed before is not synced",
        "own rule",
        _seal_not_synced,
    ),
    Defect(
        "marker-in-spite-of-failure",
        "a directory is marked as clean although one of its logs could not be closed",
        "KAFKA-10723, KAFKA-15375",
        _marker_in_spite,
    ),
    Defect(
        "removed-by-name",
        "files of dropped segments keep their names until they are removed",
        "KAFKA-12964",
        _removed_by_name,
    ),
    Defect(
        "start-after-drop",
        "the log start is raised only when the segments below are gone",
        "KAFKA-16073",
        _start_after_drop,
    ),
    Defect(
        "watermark-not-restarted",
        "a log that begins anew elsewhere keeps its high watermark",
        "KAFKA-9491",
        _watermark_not_restarted,
    ),
    Defect(
        "producers-expire-with-records",
        "producers are forgotten with the last of their records",
        "KAFKA-7190",
        _producers_expire_with_records,
    ),
)
