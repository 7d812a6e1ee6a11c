"""Defects of the log: what survives a crash, what a truncation takes with it, who is known to have produced what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from regency.broker_agent.log import flusher, partition_log, recovery
from regency.broker_agent.log.directories.directory_logs import DirectoryLogs
from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.log.flusher import LogFlusher
from regency.broker_agent.log.log_directory import LogDirectory
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.log.producer_state import ProducerStates
from regency.broker_agent.log.recovery import EpochEntry, ReadRange, merge_epochs
from regency.broker_agent.log.segments.segments import AppendInfo, Segments
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.kafka.record_batch import Buffer
from regency.model.ids import Offset
from regency.runtime.disk import Disk
from simulation.defects.patching import Defect, Patch

# Leader epochs


def _epoch_at_end_kept(patch: Patch) -> None:
    patch.edit(PartitionLog, "truncate_to", ("    self._drop_epochs()\n        return False", "    return False"))


def _epochs_not_cut(patch: Patch) -> None:
    patch.edit(PartitionLog, "truncate_to", ("self._drop_epochs()\n    return True", "return True"))


def _epochs_not_read(patch: Patch) -> None:
    original = merge_epochs

    def merge(on_file: Sequence[EpochEntry], read: Sequence[ReadRange]) -> list[EpochEntry]:
        return list(on_file) or original(on_file, read)

    patch.set(recovery, "merge_epochs", merge)


# High watermarks on the disk


def _watermarks_lost(patch: Patch) -> None:
    patch.edit(LogManager, "high_watermark_checkpoint", ("marks.get(topic_partition, Offset(0))", "Offset(0)"))


def _watermarks_early(patch: Patch) -> None:
    patch.edit(ReplicaManager, "_checkpoint_high_watermarks", ("if not self._complete:", "if False:"))
    kept = "self.high_watermarks = dict(changed)"
    patch.edit(DirectoryLogs, "write_high_watermarks_later", ("self.high_watermarks.update(changed)", kept))


# Crashes and failures


def _shortages_fail(patch: Patch) -> None:
    patch.edit(LogDirectory, "fail", ("if is_shortage(error):", "if False:"))


def _never_synced(patch: Patch) -> None:
    older, newest = "in _files(segments[:-1]):\n        ", "in _files(segments[-1:]):\n        "
    patch.edit(LogFlusher, "flush", *((f"{files}file.sync()", f"{files}pass") for files in (older, newest)))
    patch.edit(flusher, "_sync", ("disk.sync_path(file.path)", "pass"))


def _clean_marker_kept(patch: Patch) -> None:
    patch.edit(LogDirectory, "take_clean_marker", ("self.disk.remove(marker)", "self.disk.read_file(marker)"))


def _always_clean(patch: Patch) -> None:
    patch.edit(LogDirectory, "take_clean_marker", ("return False", "return True"))


def _checksums_unread(patch: Patch) -> None:
    patch.edit(recovery, "_checked_batches", ("not crc_matches(chunk, header, at)", "False"))


def _cut_not_checkpointed(patch: Patch) -> None:
    lowered = "self._flusher.ends_at(self._segments.find_cut(offset).end)"
    patch.edit(PartitionLog, "prepare_cut", (f"self._unsettle(point={lowered})", lowered))


def _settled_too_early(patch: Patch) -> None:
    def settle(self: DirectoryLogs, logs: Iterable[PartitionLog], then: Callable[[], None]) -> None:
        for log in logs:
            log.settled()
        then()

    patch.set(DirectoryLogs, "settle", settle)


def _failure_ignored(patch: Patch) -> None:
    patch.edit(
        LogDirectory,
        "fail",
        ("if self.failure is None:", "if False:"),
        ("LogStorageError(self.path, self.failure)", "LogStorageError(self.path, str(error))"),
    )


# Retention


def _expired_by_creation(patch: Patch) -> None:
    patch.edit(PartitionLog, "delete_old_segments", ("segment.largest_timestamp()", "segment.created_ms"))


def _expired_by_file_time(patch: Patch) -> None:
    patch.edit(PartitionLog, "delete_old_segments", ("segment.largest_timestamp()", "segment.log.modified_ms()"))


def _expired_by_first(patch: Patch) -> None:
    patch.edit(PartitionLog, "delete_old_segments", ("segment.largest_timestamp()", "segment.first_timestamp"))


def _expired_uncommitted(patch: Patch) -> None:
    patch.edit(partition_log, "expired_segments", ("segment.upper_bound > high_watermark or ", ""))
    raised = "self._high_watermark = max(self._high_watermark, start)\n    self.maybe_increment_log_start(start)"
    patch.edit(PartitionLog, "delete_old_segments", ("self.maybe_increment_log_start(start)", raised))


def _expired_by_uptime(patch: Patch) -> None:
    patch.edit(
        ReplicaManager,
        "_make_schedule",
        ("logs.run_retention(clock.wall_ms())", "logs.run_retention(clock.monotonic_ms())"),
    )


# Producers


def _duplicates_written(patch: Patch) -> None:
    lookup = "producer = self._producers.get(header.producer_id)"
    patch.edit(ProducerStates, "check", (lookup, f"return None\n    {lookup}"))


def _producers_lost(patch: Patch) -> None:
    def restore(disk: Disk, directory: Path, segments: Segments, *, trusted: Offset, log_end: Offset) -> ProducerStates:
        producers = ProducerStates()
        producers.end_offset = log_end
        return producers

    patch.set(recovery, "restore", restore)


def _producers_not_cut(patch: Patch) -> None:
    patch.edit(PartitionLog, "truncate_to", ("not producers.truncate_to(end)", "False"))


def _producers_not_told(patch: Patch) -> None:
    patch.edit(PartitionLog, "truncate_fully_and_start_at", ("if producers:", "if False:"))


def _producers_not_followed(patch: Patch) -> None:
    original = PartitionLog.append_as_follower

    def append_as_follower(self: PartitionLog, records: Buffer) -> AppendInfo:
        known, self._producers = self._producers, ProducerStates()
        try:
            return original(self, records)
        finally:
            known.end_offset = self._producers.end_offset
            self._producers = known

    patch.set(PartitionLog, "append_as_follower", append_as_follower)


def _strangers_begin_anywhere(patch: Patch) -> None:
    patch.edit(ProducerStates, "check", ("all_known and header.base_sequence != 0", "False"))


DEFECTS: tuple[Defect, ...] = (
    Defect(
        "epoch-at-end-kept",
        "a truncation that drops no record keeps the epoch that begins at the end",
        "KAFKA-10706",
        _epoch_at_end_kept,
    ),
    Defect("epochs-not-cut", "a truncation leaves the epochs of the records it drops", "KIP-101", _epochs_not_cut),
    Defect(
        "epochs-not-read",
        "after a crash the epoch file is believed, whatever the batches say",
        "KAFKA-16541",
        _epochs_not_read,
    ),
    Defect("never-synced", "the recovery point rises without a sync", "KAFKA-10101", _never_synced),
    Defect(
        "shortages-fail",
        "a log directory goes offline where the process has no descriptor left",
        "own rule",
        _shortages_fail,
    ),
    Defect("clean-marker-kept", "the clean-shutdown marker outlives the start", "KAFKA-10471", _clean_marker_kept),
    Defect("always-clean", "every shutdown is taken for a clean one", "KAFKA-10471", _always_clean),
    Defect("checksums-unread", "recovery does not look at checksums", "own rule", _checksums_unread),
    Defect("failure-ignored", "a log goes on after a write to it has failed", "KAFKA-10778, KIP-112", _failure_ignored),
    Defect(
        "expired-by-creation",
        "records expire by when their segment was begun or opened",
        "KIP-33",
        _expired_by_creation,
    ),
    Defect("expired-by-file-time", "records expire by when their file was written", "KIP-33", _expired_by_file_time),
    Defect("expired-by-first", "records expire with the first of their segment", "KIP-33", _expired_by_first),
    Defect("expired-by-uptime", "records expire by a clock that nobody sets", "KIP-33", _expired_by_uptime),
    Defect(
        "expired-uncommitted",
        "records above the high watermark expire, too, and the high watermark is raised over them",
        "Kafka 2.4",
        _expired_uncommitted,
    ),
    Defect("duplicates-written", "sequence numbers are not looked at", "KIP-98", _duplicates_written),
    Defect("producers-lost", "producers are forgotten at a restart", "own rule", _producers_lost),
    Defect("producers-not-cut", "producers keep batches that were truncated", "KAFKA-12153", _producers_not_cut),
    Defect("producers-not-followed", "followers do not learn who produced", "KIP-98", _producers_not_followed),
    Defect(
        "producers-not-told",
        "a log that begins anew does not know the producers whose records have expired",
        "KIP-405",
        _producers_not_told,
    ),
    Defect(
        "cut-not-checkpointed",
        "the lowered recovery point of a truncated log is not written before new appends",
        "own rule",
        _cut_not_checkpointed,
    ),
    Defect(
        "settled-too-early",
        "a log that was cut off is taken for settled before the disk knows anything of it",
        "own rule",
        _settled_too_early,
    ),
    Defect(
        "strangers-begin-anywhere",
        "a producer that never wrote to a log may begin with any sequence number",
        "own rule",
        _strangers_begin_anywhere,
    ),
    Defect("watermarks-lost", "high watermarks begin at 0 after a restart", "KAFKA-7235", _watermarks_lost),
    Defect(
        "watermarks-early",
        "high watermarks are checkpointed before all partitions are known, and those of the others are lost",
        "KAFKA-1647",
        _watermarks_early,
    ),
)
