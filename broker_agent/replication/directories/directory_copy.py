"""One future log on its way to be equal to the log it is copied from. Passive; data loop only."""

from __future__ import annotations

from regency.broker_agent.log.errors import CutNotPrepared, OffsetOutOfRange
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.replication.fetcher.follower import truncation_point
from regency.model.crash_points import crash_point


class DirectoryCopy:
    """Makes a future log a prefix of the current one, whatever was appended to that, cut off it or deleted from it.

    Both are compared before every slice, as a follower's log is with its leader's (KIP-279): nothing has to be
    remembered of what happened to the current log meanwhile, or before the last restart.
    """

    def __init__(self, current: PartitionLog, future: PartitionLog) -> None:
        self.current = current
        self.future = future
        self.waits = False
        """Whether what was copied is on its way to the disk; the sender says when that is over."""
        self.busy_until_ms = 0
        """When to go on where a log was busy; monotonic."""
        self.is_prepared = False
        """Whether it was on the disk, all of it, when it was level the last time."""

    @property
    def is_level(self) -> bool:
        """Whether both logs have the same end."""
        return self.future.log_end_offset == self.current.log_end_offset

    @property
    def may_be_swapped(self) -> bool:
        """Whether nothing that the current log has on the disk would be lost with it, if the power were cut."""
        return self.is_level and self.is_prepared and self.future.recovery_point >= self.current.recovery_point

    def advance(self, max_bytes: int) -> int:
        """Copy up to `max_bytes` of whole batches, but at least one; returns how many bytes.

        Raises LogStorageError, RecordsRejected or OffsetOutOfRange where the current log cannot be copied, and
        CutNotPrepared where the future log has to be settled first.
        """
        self._align()
        if not self.future.is_settled:
            raise CutNotPrepared(f"The disk does not know yet where the copy of {self.current.topic_partition} ends.")
        size = self._copy(max_bytes)
        self.future.set_high_watermark(self.current.high_watermark)
        start = self.current.log_start_offset
        if self.future.log_start_offset < start <= self.future.high_watermark:
            self.is_prepared = False  # a crash after the swap would offer again what lies below
            self.future.maybe_increment_log_start(start)
        return size

    def _align(self) -> None:
        """Cut off what the current log does not have, or has otherwise."""
        current, future = self.current, self.future
        while future.log_end_offset > future.log_start_offset:
            known, ours = current.latest_epoch, future.latest_epoch
            if known is None or ours is None:
                break
            agreed = truncation_point(future, current.end_offset_for_epoch(min(known, ours)))
            if agreed is None or agreed >= future.log_end_offset:
                break
            self.is_prepared = False
            future.truncate_to(agreed)
        # A start that a crash has set back may lie before the copy's: then the copy lacks what the log has again.
        # One that has risen to the copy's end leaves nothing in common: the copy's records may be others (KIP-101).
        start = current.log_start_offset
        lacks_beginning = future.log_start_offset > start
        has_nothing_of_it = future.log_start_offset < start and future.log_end_offset <= start
        if lacks_beginning or has_nothing_of_it or not start <= future.log_end_offset <= current.log_end_offset:
            self.is_prepared = False
            future.truncate_fully_and_start_at(current.log_start_offset)

    def _copy(self, max_bytes: int) -> int:
        current, future = self.current, self.future
        offset = future.log_end_offset
        if offset == current.log_end_offset:
            return 0
        read = current.read(offset, max_bytes, max_offset=current.log_end_offset, min_one_batch=True)
        if not read.records:
            raise OffsetOutOfRange(current.topic_partition, offset, current.log_start_offset, current.log_end_offset)
        crash_point("replication.move.before_append")
        future.append_as_follower(read.records)
        return len(read.records)
