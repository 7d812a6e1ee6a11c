"""ListOffsets and OffsetsForLeaderEpoch: questions about offsets, answered by leaders; reads of what is led here.

Only a debugging consumer is answered by every replica, about its own log.
"""

from __future__ import annotations

from typing import NamedTuple

from regency.broker_agent.log.errors import LogDamaged, LogStorageError
from regency.broker_agent.replication.hosting import HostedPartitions
from regency.broker_agent.replication.partition import Partition
from regency.broker_agent.steps import Steps
from regency.kafka.fetching.values import DEBUGGING, EpochEndOffset, ListedOffset
from regency.kafka.record_batch import Buffer
from regency.model.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

LATEST = -1
"""Timestamp that asks for the end: LEO for replicas, high watermark for consumers."""
EARLIEST = -2
"""Timestamp that asks for the log start."""
GREATEST_TIMESTAMP = -3
"""Timestamp that asks for the record with the greatest one (KIP-734)."""


class LedRead(NamedTuple):
    """Whole batches of a partition that this broker leads, where its log begins and ends, and how far it is committed.

    None: nothing is left, though the log may end above the offset that was asked for.
    """

    records: Buffer
    log_start: Offset
    log_end: Offset
    high_watermark: Offset


class OffsetQueries:
    """Reads of offsets. Changes nothing."""

    def __init__(self, hosting: HostedPartitions) -> None:
        self._hosting = hosting

    def list_offset(
        self, topic_partition: TopicPartition, timestamp: int, current: LeaderEpoch, replica_id: BrokerId
    ) -> Steps[ListedOffset]:
        """The offset for a timestamp (wall milliseconds, -1 latest, -2 earliest, -3 the one with the largest).

        A new leader whose high watermark has not reached its epoch's start answers a consumer OFFSET_NOT_AVAILABLE
        where the answer might go backwards (KIP-207). A search by timestamp takes steps, and is begun again where the
        partition is led in another epoch, or is in another directory, after one of them.
        """
        find = self._hosting.find_replica if replica_id == DEBUGGING else self._hosting.find_led
        partition = find(topic_partition, current)
        if isinstance(partition, ErrorCode):
            return ListedOffset(partition)
        if timestamp == EARLIEST:
            start = partition.log.log_start_offset
            producers = partition.log.producers_below_start() if replica_id >= 0 else b""
            return ListedOffset(ErrorCode.NONE, -1, start, partition.log.epoch_at(start), producers)
        from_consumer = replica_id < 0 and replica_id != DEBUGGING
        end = partition.log.high_watermark if from_consumer else partition.log.log_end_offset
        settled = not from_consumer or end >= partition.epoch_start
        if timestamp == LATEST:
            if not settled:
                return ListedOffset(ErrorCode.OFFSET_NOT_AVAILABLE)
            return ListedOffset(ErrorCode.NONE, -1, end, partition.leader_epoch)
        if timestamp < GREATEST_TIMESTAMP:
            return ListedOffset(ErrorCode.UNSUPPORTED_VERSION)
        held, epoch = partition.log, partition.leader_epoch
        search = self._by_timestamp(partition, timestamp, end, settled=settled)
        while True:
            try:
                next(search)
            except StopIteration as end_of_search:
                answer: ListedOffset = end_of_search.value
                return answer
            yield
            again = find(topic_partition, current)
            if again is not partition or partition.log is not held or partition.leader_epoch != epoch:
                return (yield from self.list_offset(topic_partition, timestamp, current, replica_id))

    def read_led(self, topic_partition: TopicPartition, offset: Offset, max_bytes: int) -> LedRead | ErrorCode:
        """Whole batches from `offset` or the log start on, at least one: up to the log end, not the high watermark."""
        partition = self._hosting.find_led(topic_partition)
        if isinstance(partition, ErrorCode):
            return partition
        log = partition.log
        end = log.log_end_offset
        try:
            read = log.read(max(offset, log.log_start_offset), max_bytes, max_offset=end, min_one_batch=True)
        except LogDamaged:
            return ErrorCode.CORRUPT_MESSAGE
        except LogStorageError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return LedRead(read.records, log.log_start_offset, end, log.high_watermark)

    def end_offset_for_epoch(
        self, topic_partition: TopicPartition, current: LeaderEpoch, epoch: LeaderEpoch
    ) -> tuple[ErrorCode, EpochEndOffset]:
        """Largest epoch not above `epoch` in the leader's log, and where it ends."""
        partition = self._hosting.find_led(topic_partition, current)
        if isinstance(partition, ErrorCode):
            return partition, EpochEndOffset()
        return ErrorCode.NONE, partition.log.end_offset_for_epoch(epoch)

    def _by_timestamp(self, partition: Partition, timestamp: int, end: Offset, *, settled: bool) -> Steps[ListedOffset]:
        try:
            if timestamp == GREATEST_TIMESTAMP:
                found = yield from partition.log.greatest_timestamp(end)
            else:
                bound = end if settled else partition.log.log_end_offset
                found = yield from partition.log.offset_for_timestamp(timestamp, bound)
        except LogDamaged:
            return ListedOffset(ErrorCode.CORRUPT_MESSAGE)
        except LogStorageError:
            return ListedOffset(ErrorCode.KAFKA_STORAGE_ERROR)
        if not settled and (found is None or found.offset >= end):
            return ListedOffset(ErrorCode.OFFSET_NOT_AVAILABLE)
        if found is None:
            return ListedOffset(ErrorCode.NONE)
        return ListedOffset(ErrorCode.NONE, found.timestamp, found.offset, found.leader_epoch)
