"""Appends to led partitions, of clients and of this broker's coordinators; for acks=all the wait until the high
watermark has passed them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from regency.broker_agent.log.append_rules import Origin
from regency.broker_agent.log.errors import LogStorageError, RecordsRejected
from regency.broker_agent.replication.api import ProduceResult
from regency.broker_agent.replication.hosting import HostedPartitions
from regency.broker_agent.replication.purgatory import DelayedOperation
from regency.model.crash_points import crash_point
from regency.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

ALL = -1
"""acks=all: answer when every in-sync replica has the records."""

_VALID_ACKS = (ALL, 0, 1)

Respond = Callable[[dict[TopicPartition, ProduceResult]], None]
_Results = dict[TopicPartition, ProduceResult]


class ProducePath:
    """Appends. Callers hold `hosting.completions`."""

    def __init__(self, hosting: HostedPartitions) -> None:
        self._hosting = hosting

    def append(
        self,
        acks: int,
        timeout_ms: int,
        batches: Mapping[TopicPartition, bytes | bytearray | memoryview],
        respond: Respond,
    ) -> None:
        """Append one record set per partition; `respond` is called once, with an outcome for each."""
        hosting = self._hosting
        if acks not in _VALID_ACKS:
            refused = ProduceResult(ErrorCode.INVALID_REQUIRED_ACKS, message=f"acks {acks}: use 0, 1 or -1 (all)")
            hosting.completions.add(lambda: respond(dict.fromkeys(batches, refused)))
            return
        results: _Results = {}
        required: dict[TopicPartition, Offset] = {}
        for topic_partition, records in batches.items():
            result, end = self._append_one(topic_partition, records, acks)
            results[topic_partition] = result
            if end is not None:
                required[topic_partition] = end
        crash_point("replication.append.after_log")
        if acks == ALL:
            self._answer_when_replicated(timeout_ms, results, required, respond)
        else:
            hosting.completions.add(lambda: respond(results))

    def append_own(
        self,
        topic_partition: TopicPartition,
        leader_epoch: LeaderEpoch,
        timeout_ms: int,
        batch: bytes | bytearray,
        respond: Callable[[ProduceResult], None],
    ) -> None:
        """Append what a coordinator of this broker writes while it leads in `leader_epoch`, with acks=all.

        FENCED_LEADER_EPOCH and nothing appended where the epoch is over. Where it ends before the replicas have the
        batch, the transition itself looks at what waits for the partition (`HostedPartitions.changed`), however soon
        this broker may lead again.
        """
        result, end = self._append_one(topic_partition, batch, ALL, Origin.COORDINATOR, leader_epoch)
        crash_point("replication.append_own.after_log")
        required = {} if end is None else {topic_partition: end}
        self._answer_when_replicated(
            timeout_ms, {topic_partition: result}, required, lambda results: respond(results[topic_partition])
        )

    def _answer_when_replicated(
        self, timeout_ms: int, results: _Results, required: Mapping[TopicPartition, Offset], respond: Respond
    ) -> None:
        hosting = self._hosting
        waiting = _DelayedProduce(self, hosting.clock.monotonic_ms() + timeout_ms, results, required, respond)
        if waiting.progress_all():
            hosting.completions.add(lambda: respond(results))
        else:
            hosting.wait(hosting.produces, waiting)

    def outcome(self, topic_partition: TopicPartition, required: Offset) -> ErrorCode | None:
        """What became of records that end before `required`: an error, NONE once acknowledged, None while open."""
        partition = self._hosting.find_led(topic_partition)
        if isinstance(partition, ErrorCode):
            return partition
        if partition.log.high_watermark < required:
            return None
        if len(partition.isr.maximal) < self._hosting.min_insync(topic_partition.topic):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def _append_one(
        self,
        topic_partition: TopicPartition,
        records: bytes | bytearray | memoryview,
        acks: int,
        origin: Origin = Origin.CLIENT,
        leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    ) -> tuple[ProduceResult, Offset | None]:
        """The result, and the offset the high watermark must reach where something was appended."""
        hosting = self._hosting
        partition = hosting.find_led(topic_partition, leader_epoch)
        if isinstance(partition, ErrorCode):
            return ProduceResult(partition), None
        if acks == ALL:
            in_sync = len(partition.isr.committed)
            least = hosting.min_insync(topic_partition.topic)
            if in_sync < least:
                message = f"{topic_partition} has {in_sync} in-sync replicas, min.insync.replicas is {least}"
                return ProduceResult(ErrorCode.NOT_ENOUGH_REPLICAS, message=message), None
        log = partition.log
        try:
            info = log.append_as_leader(records, partition.leader_epoch, hosting.clock.wall_ms(), origin)
        except RecordsRejected as error:
            return ProduceResult(error.error, log_start_offset=log.log_start_offset, message=error.message), None
        except LogStorageError as error:
            return ProduceResult(ErrorCode.KAFKA_STORAGE_ERROR, message=str(error)), None
        if partition.maybe_advance_high_watermark(hosting.clock.monotonic_ms()):
            hosting.changed(topic_partition)
        else:
            hosting.records_added(topic_partition)
        result = ProduceResult(ErrorCode.NONE, info.base_offset, info.log_append_time_ms, info.log_start_offset)
        return result, Offset(info.last_offset + 1)


class _DelayedProduce(DelayedOperation):
    """A produce with acks=all. Completes by the high watermark, or when the leadership, its time or the broker ends."""

    def __init__(
        self,
        path: ProducePath,
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

    def partitions(self) -> Iterable[TopicPartition]:
        return self._required

    def progress_all(self) -> bool:
        """Look at every partition; whether nothing is left to wait for."""
        for topic_partition in self._required:
            self.progress(topic_partition)
        return not self._open

    def progress(self, partition: TopicPartition) -> bool:
        if partition in self._open:
            outcome = self._path.outcome(partition, self._required[partition])
            if outcome is not None:
                self._settle(partition, outcome)
        return not self._open

    def finish(self) -> None:
        for partition in sorted(self._open):
            self._settle(partition, ErrorCode.REQUEST_TIMED_OUT)
        crash_point("replication.append.before_answer")
        self._respond(self._results)

    def _settle(self, partition: TopicPartition, outcome: ErrorCode) -> None:
        self._open.discard(partition)
        if outcome is not ErrorCode.NONE:
            appended = self._results[partition]
            self._results[partition] = ProduceResult(
                outcome, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
            )
