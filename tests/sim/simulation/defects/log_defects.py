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
from simulation.defects.patching import Defects, Patch

DEFECTS = Defects()

# Leader epochs


@DEFECTS.of("KAFKA-10706")
def epoch_at_end_kept(patch: Patch) -> None:
    """a truncation that drops no record keeps the epoch that begins at the end"""
    patch.edit(PartitionLog, "truncate_to", ("    self._drop_epochs()\n        return False", "    return False"))


@DEFECTS.of("KIP-101")
def epochs_not_cut(patch: Patch) -> None:
    """a truncation leaves the epochs of the records it drops"""
    patch.edit(PartitionLog, "truncate_to", ("self._drop_epochs()\n    return True", "return True"))


@DEFECTS.of("KAFKA-16541")
def epochs_not_read(patch: Patch) -> None:
    """after a crash the epoch file is believed, whatever the batches say"""
    original = merge_epochs

    def merge(on_file: Sequence[EpochEntry], read: Sequence[ReadRange]) -> list[EpochEntry]:
        return list(on_file) or original(on_file, read)

    patch.set(recovery, "merge_epochs", merge)


# High watermarks on the disk


@DEFECTS.of("KAFKA-7235")
def watermarks_lost(patch: Patch) -> None:
    """high watermarks begin at 0 after a restart"""
    patch.edit(LogManager, "high_watermark_checkpoint", ("marks.get(topic_partition, Offset(0))", "Offset(0)"))


@DEFECTS.of("KAFKA-1647")
def watermarks_early(patch: Patch) -> None:
    """high watermarks are checkpointed before all partitions are known, and those of the others are lost"""
    patch.edit(ReplicaManager, "_checkpoint_high_watermarks", ("if not self._complete:", "if False:"))
    kept = "self.high_watermarks = dict(changed)"
    patch.edit(DirectoryLogs, "write_high_watermarks_later", ("self.high_watermarks.update(changed)", kept))


# Crashes and failures


@DEFECTS.of("own rule")
def shortages_fail(patch: Patch) -> None:
    """a log directory goes offline where the process has no descriptor left"""
    patch.edit(LogDirectory, "fail", ("if is_shortage(error):", "if False:"))


@DEFECTS.of("KAFKA-10101")
def never_synced(patch: Patch) -> None:
    """the recovery point rises without a sync"""
    older, newest = "in _files(segments[:-1]):\n        ", "in _files(segments[-1:]):\n        "
    patch.edit(LogFlusher, "flush", *((f"{files}file.sync()", f"{files}pass") for files in (older, newest)))
    patch.edit(flusher, "_sync", ("disk.sync_path(file.path)", "pass"))


@DEFECTS.of("KAFKA-10471")
def clean_marker_kept(patch: Patch) -> None:
    """the clean-shutdown marker outlives the start"""
    patch.edit(LogDirectory, "take_clean_marker", ("self.disk.remove(marker)", "self.disk.read_file(marker)"))


@DEFECTS.of("KAFKA-10471")
def always_clean(patch: Patch) -> None:
    """every shutdown is taken for a clean one"""
    patch.edit(LogDirectory, "take_clean_marker", ("return False", "return True"))


@DEFECTS.of("own rule")
def checksums_unread(patch: Patch) -> None:
    """recovery does not look at checksums"""
    patch.edit(recovery, "_checked_batches", ("not crc_matches(chunk, header, at)", "False"))


@DEFECTS.of("own rule")
def cut_not_checkpointed(patch: Patch) -> None:
    """the lowered recovery point of a truncated log is not written before new appends"""
    lowered = "self._flusher.ends_at(end)"
    patch.edit(PartitionLog, "prepare_cut", (f"self._unsettle(point={lowered})", lowered))


@DEFECTS.of("own rule")
def settled_too_early(patch: Patch) -> None:
    """a log that was cut off is taken for settled before the disk knows anything of it"""

    def settle(self: DirectoryLogs, logs: Iterable[PartitionLog], then: Callable[[], None]) -> None:
        for log in logs:
            log.settled()
        then()

    patch.set(DirectoryLogs, "settle", settle)


@DEFECTS.of("KAFKA-10778, KIP-112")
def failure_ignored(patch: Patch) -> None:
    """a log goes on after a write to it has failed"""
    patch.edit(
        LogDirectory,
        "fail",
        ("if self.failure is None:", "if False:"),
        ("LogStorageError(self.path, self.failure)", "LogStorageError(self.path, str(error))"),
    )


# Retention


@DEFECTS.of("KIP-33")
def expired_by_creation(patch: Patch) -> None:
    """records expire by when their segment was begun or opened"""
    patch.edit(PartitionLog, "delete_old_segments", ("segment.largest_timestamp()", "segment.created_ms"))


@DEFECTS.of("KIP-33")
def expired_by_file_time(patch: Patch) -> None:
    """records expire by when their file was written"""
    patch.edit(PartitionLog, "delete_old_segments", ("segment.largest_timestamp()", "segment.log.modified_ms()"))


@DEFECTS.of("KIP-33")
def expired_by_first(patch: Patch) -> None:
    """records expire with the first of their segment"""
    patch.edit(PartitionLog, "delete_old_segments", ("segment.largest_timestamp()", "segment.first_timestamp"))


@DEFECTS.of("Kafka 2.4")
def expired_uncommitted(patch: Patch) -> None:
    """records above the high watermark expire, too, and the high watermark is raised over them"""
    patch.edit(partition_log, "expired_segments", ("segment.upper_bound > high_watermark or ", ""))
    raised = "self._high_watermark = max(self._high_watermark, start)\n    self.maybe_increment_log_start(start)"
    patch.edit(PartitionLog, "delete_old_segments", ("self.maybe_increment_log_start(start)", raised))


@DEFECTS.of("KIP-33")
def expired_by_uptime(patch: Patch) -> None:
    """records expire by a clock that nobody sets"""
    patch.edit(
        ReplicaManager,
        "_make_schedule",
        ("logs.run_retention(clock.wall_ms())", "logs.run_retention(clock.monotonic_ms())"),
    )


# Producers


@DEFECTS.of("KIP-98")
def duplicates_written(patch: Patch) -> None:
    """sequence numbers are not looked at"""
    lookup = "producer = self._producers.get(header.producer_id)"
    patch.edit(ProducerStates, "check", (lookup, f"return None\n    {lookup}"))


@DEFECTS.of("own rule")
def producers_lost(patch: Patch) -> None:
    """producers are forgotten at a restart"""

    def restore(disk: Disk, directory: Path, segments: Segments, *, trusted: Offset, log_end: Offset) -> ProducerStates:
        producers = ProducerStates()
        producers.end_offset = log_end
        return producers

    patch.set(recovery, "restore", restore)


@DEFECTS.of("KAFKA-12153")
def producers_not_cut(patch: Patch) -> None:
    """producers keep batches that were truncated"""
    patch.edit(PartitionLog, "truncate_to", ("not producers.truncate_to(end)", "False"))


@DEFECTS.of("KIP-405")
def producers_not_told(patch: Patch) -> None:
    """a log that begins anew does not know the producers whose records have expired"""
    patch.edit(PartitionLog, "truncate_fully_and_start_at", ("if producers:", "if False:"))


@DEFECTS.of("KIP-98")
def producers_not_followed(patch: Patch) -> None:
    """followers do not learn who produced"""
    original = PartitionLog.append_as_follower

    def append_as_follower(self: PartitionLog, records: Buffer) -> AppendInfo:
        known, self._producers = self._producers, ProducerStates()
        try:
            return original(self, records)
        finally:
            known.end_offset = self._producers.end_offset
            self._producers = known

    patch.set(PartitionLog, "append_as_follower", append_as_follower)


@DEFECTS.of("own rule")
def strangers_begin_anywhere(patch: Patch) -> None:
    """a producer that never wrote to a log may begin with any sequence number"""
    patch.edit(ProducerStates, "check", ("all_known and header.base_sequence != 0", "False"))
