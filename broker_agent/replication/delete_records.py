"""DeleteRecords (KIP-107): raises log starts of led partitions, and waits until no live replica offers what is below.

The answer comes when the low watermark has passed, and the leader's new start is on the disk: Kafka checkpoints it up
to a minute later, and shows the records again after a crash in between. Followers hear of it with the next fetch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from regency.broker_agent.log.errors import LogStorageError, OffsetOutOfRange
from regency.broker_agent.replication.api import DeletedRecords
from regency.broker_agent.replication.hosting import HostedPartitions
from regency.broker_agent.replication.partition import Partition
from regency.broker_agent.replication.purgatory import DelayedOperation
from regency.model.crash_points import crash_point
from regency.model.ids import Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.log_config import DELETE
from regency.model.topic_names import is_internal

LEAST_WAIT_MS = 1_000
"""Of any request: one of 0 ms succeeds in Kafka where there is one replica; here the disk is asked first."""
TO_HIGH_WATERMARK = -1
"""Offset that asks to delete all that is committed."""

Respond = Callable[[dict[TopicPartition, DeletedRecords]], None]
_Results = dict[TopicPartition, DeletedRecords]


class DeletePath:
    """Deletions of clients. Callers hold `hosting.completions`."""

    def __init__(self, hosting: HostedPartitions) -> None:
        self._hosting = hosting

    def delete(self, timeout_ms: int, offsets: Mapping[TopicPartition, Offset], respond: Respond) -> None:
        """Delete what is below an offset of each partition; `respond` is called once, with an outcome for each."""
        hosting = self._hosting
        results: _Results = {}
        required: dict[TopicPartition, Offset] = {}
        for name, offset in offsets.items():
            results[name] = self._delete_one(name, offset, required)
        crash_point("replication.delete.after_log_starts")
        if not required:
            hosting.completions.add(lambda: respond(results))
            return
        deadline_ms = hosting.clock.monotonic_ms() + max(timeout_ms, LEAST_WAIT_MS)
        waiting = _DelayedDelete(self, deadline_ms, results, required, respond)
        hosting.wait(hosting.deletes, waiting)
        hosting.logs.checkpoint_log_starts_of(required, partial(self._written, waiting))

    def _written(self, waiting: _DelayedDelete, names: Iterable[TopicPartition]) -> None:
        with self._hosting.completions:
            for name in names:
                waiting.written.add(name)
                self._hosting.deletes.check(name)

    def outcome(self, name: TopicPartition, required: Offset) -> DeletedRecords | None:
        """What became of a deletion below `required`; None while some live replica may still offer what was there."""
        partition = self._hosting.find_led(name)
        if isinstance(partition, ErrorCode):
            return DeletedRecords(partition)
        low_watermark = self._low_watermark(partition)
        return DeletedRecords(ErrorCode.NONE, low_watermark) if low_watermark >= required else None

    def _delete_one(
        self, name: TopicPartition, offset: Offset, required: dict[TopicPartition, Offset]
    ) -> DeletedRecords:
        """The outcome so far, and into `required` the offset that the low watermark must reach."""
        if is_internal(name.topic):
            return DeletedRecords(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = self._hosting.find_led(name)
        if isinstance(partition, ErrorCode):
            return DeletedRecords(partition)
        log = partition.log
        if DELETE not in log.config.cleanup_policy:
            return DeletedRecords(ErrorCode.POLICY_VIOLATION)
        below = log.high_watermark if offset == TO_HIGH_WATERMARK else offset
        if below < 0:
            return DeletedRecords(ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            log.maybe_increment_log_start(below)
        except OffsetOutOfRange:
            return DeletedRecords(ErrorCode.OFFSET_OUT_OF_RANGE)
        except LogStorageError:
            return DeletedRecords(ErrorCode.KAFKA_STORAGE_ERROR)
        required[name] = below
        return DeletedRecords(ErrorCode.REQUEST_TIMED_OUT, self._low_watermark(partition))

    def _low_watermark(self, partition: Partition) -> Offset:
        """A copy that grows in another log directory is a replica, too: it will be the log."""
        future = self._hosting.logs.futures.get(partition.topic_partition)
        low_watermark = partition.low_watermark()
        return low_watermark if future is None else min(low_watermark, future.log_start_offset)


class _DelayedDelete(DelayedOperation):
    """A DeleteRecords. Completes by low watermarks and checkpoints, or when the leadership, its time or the broker
    ends.
    """

    def __init__(
        self,
        path: DeletePath,
        deadline_ms: int,
        results: _Results,
        required: Mapping[TopicPartition, Offset],
        respond: Respond,
    ) -> None:
        super().__init__(deadline_ms)
        self._path = path
        self._results = results
        self._required = required
        self._open = set(required)
        self._respond = respond
        self.written: set[TopicPartition] = set()
        """Partitions of which the disk knows the new log start."""

    def partitions(self) -> Iterable[TopicPartition]:
        return self._required

    def progress(self, partition: TopicPartition) -> bool:
        if partition in self._open:
            outcome = self._path.outcome(partition, self._required[partition])
            if outcome is not None and (outcome.error is not ErrorCode.NONE or partition in self.written):
                self._results[partition] = outcome
                self._open.discard(partition)
                if not self._open:
                    self._open = {each for each in self._required if self._is_undone(each)}
        return not self._open

    def _is_undone(self, partition: TopicPartition) -> bool:
        """Whether a follower was started anew while other partitions were waited for, and has the records again."""
        done = self._results[partition].error is ErrorCode.NONE
        return done and self._path.outcome(partition, self._required[partition]) is None

    def finish(self) -> None:
        for partition in [each for each in self._required if self._is_undone(each)]:
            self._results[partition] = DeletedRecords(
                ErrorCode.REQUEST_TIMED_OUT, self._results[partition].low_watermark
            )
        crash_point("replication.delete.before_answer")
        self._respond(self._results)
