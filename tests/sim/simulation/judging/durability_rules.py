"""What a log called synced is there after every crash, and nothing is checkpointed that a crash could belie."""

from __future__ import annotations

from itertools import pairwise

from regency.broker_agent.log.directories.directory_logs import DirectoryLogs
from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.log.log_directory import LogDirectory
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.log.selection import is_compacted
from regency.kafka.logfiles.file_names import CLEAN_SHUTDOWN
from regency.model.ids import BrokerId, Offset, TopicId, TopicPartition
from simulation.cluster.agent import SimAgent
from simulation.disk_files import File, Tree
from simulation.judging.invariants import broken

Key = tuple[TopicId, int]
"""A partition, by the topic's identity."""


class DurabilityRules:
    """Remembers the log that every broker had last: a dead process changes nothing more. Raises InvariantBroken."""

    def __init__(self) -> None:
        self._logs: dict[tuple[BrokerId, Key], PartitionLog] = {}
        self._deleted: dict[tuple[BrokerId, Key], Offset] = {}
        """Below which offset a client was told that this leader offers nothing any more."""
        self._present: dict[BrokerId, tuple[LogManager, list[PartitionLog]]] = {}

    def look(self, broker: BrokerId, logs: LogManager | None) -> None:
        """A step of a process is over: a log that it had and has no more was deleted or set aside, and is let go."""
        if logs is None:
            return
        manager, before = self._present.get(broker, (None, []))
        now = list(logs._logs.values())
        if manager is logs and before == now:
            return
        self._present[broker] = logs, now
        if manager is logs:
            gone = {log.topic_partition for log in before if log not in now}
            for each in [each for each, log in self._logs.items() if each[0] == broker and log.topic_partition in gone]:
                del self._logs[each]
                self._deleted.pop(each, None)  # the leader that told it has no log any more

    def deleted(self, broker: BrokerId, key: Key, offset: Offset) -> None:
        """A leader tells a client that what is below an offset is deleted."""
        self._deleted[broker, key] = max(self._deleted.get((broker, key), Offset(0)), offset)

    def opened(self, broker: BrokerId, key: Key, log: PartitionLog, mark: Offset | None) -> None:
        """A process hosts a log, and has not changed it since it was opened, but for records added.

        `mark` is the high watermark that it has checkpointed, or found in the checkpoint.
        """
        if mark is not None and log.high_watermark < min(mark, log.log_end_offset):
            raise broken(
                "marks-kept",
                f"broker {broker}, {log.topic_partition}: its high watermark is {log.high_watermark}, checkpointed was "
                f"{mark}",
            )
        before = self._logs.get((broker, key))
        self._logs[broker, key] = log
        if before is None or before is log or before.directory != log.directory or before.home.failure is not None:
            return
        deleted = min(self._deleted.get((broker, key), Offset(0)), before.log_start_offset)  # or it began anew since
        if log.log_start_offset < deleted:
            raise broken(
                "deleted-for-good",
                f"broker {broker}, {log.topic_partition}: begins at {log.log_start_offset} after a restart; a client "
                f"was told that what is below {deleted} is deleted",
            )
        synced = _synced_to(before)
        where = f"broker {broker}, {log.topic_partition}"
        if log.log_end_offset < synced:
            raise broken(
                "synced-kept", f"{where}: ends at {log.log_end_offset} after a restart, was synced to {synced} before"
            )
        if is_compacted(log.config):
            return  # a start may have put other segments in their place
        held = {segment.base_offset: segment.max_timestamp for segment in log._segments}
        for segment, following in pairwise(before._segments):
            base, newest = segment.base_offset, segment.max_timestamp
            if following.base_offset <= synced and held.get(base, newest) != newest:
                raise broken(
                    "synced-kept",
                    f"{where}: the newest record of the segment at {base} is of {held[base]} after a restart, was of "
                    f"{newest} before",
                )


def _synced_to(log: PartitionLog) -> int:
    """The recovery point; 0 where the process died while it emptied the log, which moves that last."""
    below = [segment for segment in log._segments if segment.base_offset < log.recovery_point]
    return log.recovery_point if below and below[-1].size else 0


class CheckpointRules:
    """What one agent process checkpoints and marks as clean, and when. Raises InvariantBroken."""

    def __init__(self, agent: SimAgent, tree: Tree) -> None:
        self._agent = agent
        self._tree = tree
        self._decided: dict[LogDirectory, int] = {}
        self._marks: dict[LogDirectory, dict[TopicPartition, Offset]] = {}
        self._logs: dict[LogDirectory, dict[TopicPartition, PartitionLog]] = {}
        self._untouched: set[LogDirectory] = set()
        """Offline from the start, marked by the process before: what that closed is still as it was."""
        self._too_early: dict[LogDirectory, set[TopicPartition]] = {}
        """Whose high watermarks were decided since the last look, of logs whose cuts the disk does not know."""

    def look(self) -> None:
        logs = self._agent.logs
        if logs is None or not logs._logs:
            self.over()
            return
        for directory, held in logs._directories.items():
            decided, known = directory.high_watermarks._decided, self._decided.get(directory)
            if decided == known:
                continue
            if known is None:
                self._watch(directory, logs)
            self._decided[directory] = decided
            before, marks = self._marks.get(directory), dict(held.high_watermarks)
            self._marks[directory] = marks
            self._check_kept(directory, before or {}, held)
            if before is not None:
                self._check_not_raised(before, marks, self._too_early.get(directory, set()))
        self._too_early.clear()

    def _watch(self, directory: LogDirectory, logs: LogManager) -> None:
        """What counts is the moment of the decision: later in the same step a cut may begin that is none of its."""
        if directory.failure is not None and self._is_marked(directory):
            self._untouched.add(directory)
        decide = directory.high_watermarks.decide

        def deciding() -> int:
            is_syncing = bool(logs._services.cuts._running)
            self._too_early[directory] = {
                name
                for name, log in logs._logs.items()
                # one that is closed is synced by that, and no cut that still runs counts
                if log.home is directory
                and ((is_syncing and log.recovery_point < log.log_end_offset) or self._is_cut(log))
            }
            return decide()

        directory.high_watermarks.decide = deciding  # type: ignore[method-assign]

    def _is_cut(self, log: PartitionLog) -> bool:
        newest = self._tree.look(str(log._segments.active.log.path))
        return isinstance(newest, File) and newest.is_cut

    def over(self) -> None:
        """The process has no logs open any more, or it died in the step that is over."""
        logs = self._agent.logs
        if logs is not None and self._decided and not logs._logs:
            self._check_marked(logs)

    def _check_marked(self, logs: LogManager) -> None:
        """The logs were closed in the step that is over. What fails later has nothing to do with them any more."""
        self._decided.clear()
        for directory, held in logs._directories.items():
            if directory in self._untouched or not self._is_marked(directory):
                continue
            where = f"broker {self._agent.broker_id}: {directory.path} is marked as clean"
            if directory.failure is not None:
                raise broken("marked-when-closed", f"{where}, and {directory.failure}")
            for partition, log in held.logs.items():
                if log.recovery_point < log.log_end_offset:
                    raise broken(
                        "marked-when-closed",
                        f"{where}, {partition} ends at {log.log_end_offset} and is synced to {log.recovery_point}",
                    )

    def _is_marked(self, directory: LogDirectory) -> bool:
        return self._tree.look(str(directory.path / CLEAN_SHUTDOWN)) is not None

    def _check_kept(self, directory: LogDirectory, before: dict[TopicPartition, Offset], held: DirectoryLogs) -> None:
        """Whoever had a mark, and is the same log as before, has one."""
        known, self._logs[directory] = self._logs.get(directory, {}), dict(held.logs)
        for partition, mark in before.items():
            log = held.logs.get(partition)
            if partition not in held.high_watermarks and log is not None and log is known.get(partition):
                raise broken(
                    "marks-kept",
                    f"broker {self._agent.broker_id}, {partition}: the high watermark {mark} is not in the checkpoint "
                    "any more",
                )

    def _check_not_raised(
        self, before: dict[TopicPartition, Offset], marks: dict[TopicPartition, Offset], too_early: set[TopicPartition]
    ) -> None:
        """A future log is checkpointed when it is synced itself, whatever others are."""
        for partition in sorted(too_early):
            mark = marks.get(partition, 0)
            if mark > before.get(partition, 0):
                raise broken(
                    "marks-after-cuts",
                    f"broker {self._agent.broker_id}, {partition}: the high watermark {mark} is checkpointed, and the "
                    "disk does not know where the log was cut off",
                )
