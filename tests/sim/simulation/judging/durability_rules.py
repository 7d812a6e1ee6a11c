"""What a log called synced is there after every crash, and nothing is checkpointed that a crash could belie."""

from __future__ import annotations

from itertools import pairwise

from regency.broker_agent.log.log_directory import LogDirectory
from regency.broker_agent.log.partition_log import PartitionLog
from regency.model.ids import BrokerId, Offset, TopicId, TopicPartition
from simulation.cluster.agent import SimAgent
from simulation.judging.invariants import broken

Key = tuple[TopicId, int]
"""A partition, by the topic's identity."""


class DurabilityRules:
    """Remembers the log that every broker had last: a dead process changes nothing more. Raises InvariantBroken."""

    def __init__(self) -> None:
        self._logs: dict[tuple[BrokerId, Key], PartitionLog] = {}

    def opened(self, broker: BrokerId, key: Key, log: PartitionLog) -> None:
        """A process hosts a log, and has not changed it since it was opened, but for records added."""
        before = self._logs.get((broker, key))
        self._logs[broker, key] = log
        if before is None or before is log or before.directory != log.directory or before.home.failure is not None:
            return
        synced = _synced_to(before)
        where = f"broker {broker}, {log.topic_partition}"
        if log.log_end_offset < synced:
            raise broken(
                "synced-kept", f"{where}: ends at {log.log_end_offset} after a restart, was synced to {synced} before"
            )
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
    """What one agent process checkpoints, and when. Raises InvariantBroken."""

    def __init__(self, agent: SimAgent) -> None:
        self._agent = agent
        self._decided: dict[LogDirectory, int] = {}
        self._marks: dict[LogDirectory, dict[TopicPartition, Offset]] = {}

    def look(self) -> None:
        """A step of the process is over."""
        logs = self._agent.logs
        if logs is None or not logs._logs:
            return
        for directory, held in logs._directories.items():
            decided = directory.high_watermarks._decided
            if decided == self._decided.get(directory):
                continue
            self._decided[directory] = decided
            before, marks = self._marks.get(directory), dict(held.high_watermarks)
            self._marks[directory] = marks
            if before is not None and logs._services.cuts._running:
                self._check_not_raised(before, marks)

    def _check_not_raised(self, before: dict[TopicPartition, Offset], marks: dict[TopicPartition, Offset]) -> None:
        for partition, mark in marks.items():
            if mark > before.get(partition, 0):
                raise broken(
                    "marks-after-cuts",
                    f"broker {self._agent.broker_id}, {partition}: the high watermark {mark} is checkpointed while "
                    "cuts are being synced",
                )
