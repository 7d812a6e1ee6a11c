"""Moving replicas between the log directories of this broker while they are served (AlterReplicaLogDirs, KIP-113).

A future log is filled from the replica's own log, by the same reads and appends that serve followers, and swapped for
it when it is complete and on the disk. Kafka has threads for this, whose source is the broker itself; here logs belong
to the data loop, so it is done there: a slice of bytes, then a pause in which clients are served. Passive.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from regency.broker_agent.log.directories.future_logs import NameTooLong
from regency.broker_agent.log.errors import CutNotPrepared, LogBusy, LogStorageError, OffsetOutOfRange, RecordsRejected
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.log.selection import is_compacted
from regency.broker_agent.replication.api import Role
from regency.broker_agent.replication.fetcher.follow_state import truncation_point
from regency.broker_agent.replication.hosting import HostedPartitions
from regency.broker_agent.replication.partition import Partition
from regency.kafka.logfiles.file_names import DirectoryKind
from regency.model.crash_points import crash_point
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode

logger = logging.getLogger(__name__)

_SLICE_BYTES = 256 * 1024
"""Copied in one go, unless one batch is larger: a millisecond or less of the data loop's time from the page cache."""
_PAUSE_MS = 1
_BUSY_MS = 100
"""Before a log that was busy is asked again."""


class DirectoryMoves:
    """Future logs and what they are copied from. Callers hold `hosting.completions`."""

    def __init__(self, hosting: HostedPartitions, bytes_per_second: Callable[[], int]) -> None:
        """`bytes_per_second` tells what replica.alter.log.dirs.io.max.bytes.per.second is now.

        A change of it wakes: what was copied last is paid for at the rate that is in force by then, so a raised
        one releases at once.
        """
        self._hosting = hosting
        self._logs = hosting.logs
        self._bytes_per_second = bytes_per_second
        self._copies: dict[TopicPartition, DirectoryCopy] = {}
        self._copied: TopicPartition | None = None
        """The one that is copied now: one at a time, so that each is done as soon as possible."""
        self._began_ms = 0
        self._size = 0
        """When the last slice was begun, and how many bytes it had."""
        self.failed: dict[TopicPartition, str] = {}
        """Moves given up until they are asked for again, and why."""

    def alter(self, name: TopicPartition, target: Path) -> ErrorCode:
        """Have the replica moved to the directory, or made there if it is not here yet (REPLICA_NOT_AVAILABLE then).

        One that is stopped is not available either: its topic may be gone, and the move would never end. The
        directory it is in already: whatever move is under way is cancelled. LOG_DIR_NOT_FOUND for a directory that is
        not in log.dirs, KAFKA_STORAGE_ERROR where it or the replica's own is offline.
        """
        logs = self._logs.directory(target)
        if logs is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        partition = self._hosting.partitions.get(name)
        offline = partition is not None and partition.role is Role.OFFLINE
        if not logs.is_working or offline or name in self._hosting.homeless:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if partition is None or partition.role is Role.NONE:
            if partition is None:
                self._logs.prefer(name, target)
            is_known = self._hosting.rules.peers.has_partition(name)
            return ErrorCode.REPLICA_NOT_AVAILABLE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            self._redirect(partition, target)
        except NameTooLong:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        except LogStorageError as error:
            logger.error("%s cannot be moved to %s: %s", name, target, error)  # noqa: TRY400 (expected, without a stack)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _redirect(self, partition: Partition, target: Path) -> None:
        name = partition.topic_partition
        self.failed.pop(name, None)
        future = self._logs.futures.get(name)
        if future is not None and future.home.path == target:
            self.wake()
            return
        if future is not None:
            logger.info("%s is not moved to %s any more", name, future.home.path)
            self._forget(name)
            self._logs.futures.put_aside(name, DirectoryKind.DELETE)
        if partition.log.home.path == target:
            return
        logs = self._logs.directory(target)
        assert logs is not None
        self._logs.futures.create(partition.log, logs)
        logger.info("%s is moved from %s to %s", name, partition.log.home.path, target)
        crash_point("replication.move.after_creation")
        self.wake()

    def wake(self) -> None:
        """There may be something to copy: a move was asked for, or a partition with a future log is hosted now."""
        if self._logs.futures.all():
            self._hosting.wake_by(max(self._hosting.clock.monotonic_ms(), self._due_ms()))

    def _due_ms(self) -> int:
        """When the next slice may be begun: never earlier than the rate allows."""
        return self._began_ms + max(_PAUSE_MS, -(-self._size * 1000 // self._bytes_per_second()))

    def drop_orphans(self) -> None:
        """All replicas have been named: set future logs aside that are no copy of any log.

        Not while a directory is offline, which may hold the source.
        """
        if self._logs.offline_dirs:
            return
        for name in [name for name in self._logs.futures.all() if self._logs.get(name) is None]:
            try:
                self._logs.futures.put_aside(name, DirectoryKind.STRAY)
            except LogStorageError as error:
                logger.warning("the future log of %s stays in place: %s", name, error)

    def continue_moves(self, now_ms: int) -> None:
        """Copy the next slice, or swap what is complete, and ask to be woken for the one after it."""
        futures = self._logs.futures.all()
        for gone in [name for name, copy in self._copies.items() if not self._is_under_way(name, copy)]:
            self._forget(gone)
        if not futures:
            return
        due_ms = self._due_ms()
        if now_ms < due_ms:
            self._hosting.wake_by(due_ms)
            return
        name = self._next()
        if name is not None:
            self._began_ms, self._size = now_ms, self._advance(name)
        if name is not None and self._next() is not None:
            self._hosting.wake_by(self._due_ms())
        elif busy := [copy.busy_until_ms for copy in self._copies.values() if copy.busy_until_ms > now_ms]:
            self._hosting.wake_by(min(busy))

    def _next(self) -> TopicPartition | None:
        """Whom to copy: one to be swapped, the one begun, or the first by name; none while all wait for something."""
        prepared = next(
            (name for name, copy in self._copies.items() if copy.is_prepared and self._is_ready(name)), None
        )
        if prepared is not None:
            return prepared
        if self._copied is not None and self._is_ready(self._copied):
            return self._copied
        self._copied = min(filter(self._is_ready, self._logs.futures.all()), default=None)
        return self._copied

    def _is_ready(self, name: TopicPartition) -> bool:
        partition = self._hosting.partitions.get(name)
        copy = self._copies.get(name)
        return (
            partition is not None
            and partition.role in (Role.LEADER, Role.FOLLOWER)
            and self._logs.get(name) is partition.log
            and name in self._logs.futures.all()
            and name not in self.failed
            and (copy is None or not (copy.waits or copy.busy_until_ms > self._hosting.clock.monotonic_ms()))
        )

    def _is_under_way(self, name: TopicPartition, copy: DirectoryCopy) -> bool:
        return self._logs.futures.get(name) is copy.future and self._logs.get(name) is copy.current

    def _advance(self, name: TopicPartition) -> int:
        """The next slice of one partition; how many bytes were copied."""
        partition, future = self._hosting.partitions[name], self._logs.futures.get(name)
        assert future is not None
        copy = self._copies.get(name)
        if copy is None:
            copy = self._copies[name] = DirectoryCopy(partition.log, future)
        try:
            size = copy.advance(max(1, min(_SLICE_BYTES, self._bytes_per_second())))
            if copy.is_level:
                self._finish(partition, copy)
        except CutNotPrepared:
            copy.waits = True
            self._logs.futures.settle(name, partial(self._prepared, copy, holds=False))
        except (RecordsRejected, OffsetOutOfRange) as error:
            self._give_up(name, str(error))
        except LogBusy:  # by chance for seconds, and others may be copied meanwhile
            copy.waits, copy.busy_until_ms = False, self._hosting.clock.monotonic_ms() + _BUSY_MS
        except LogStorageError as error:
            if self._is_under_way(name, copy):  # else a directory failed, which is reported
                self._give_up(name, str(error))
        else:
            self._hosting.deletes.check(name)
            return size
        return 0

    def _finish(self, partition: Partition, copy: DirectoryCopy) -> None:
        """Swap, or first get onto the disk what was copied."""
        name = partition.topic_partition
        if not copy.may_be_swapped:
            copy.waits = True
            self._logs.futures.prepare(name, partial(self._prepared, copy))
            return
        crash_point("replication.move.before_swap")
        before = copy.current.home.path
        partition.log = self._logs.futures.swap(name)
        self._forget(name)
        logger.info("%s is in %s now, not in %s", name, partition.log.home.path, before)

    def _prepared(self, copy: DirectoryCopy, holds: bool) -> None:
        copy.waits, copy.is_prepared = False, holds
        self.wake()

    def _give_up(self, name: TopicPartition, why: str) -> None:
        logger.warning("%s is not moved any further until that is asked for again: %s", name, why)
        self._forget(name)
        self.failed[name] = why

    def _forget(self, name: TopicPartition) -> None:
        self._hosting.deletes.check(name)
        self._copies.pop(name, None)
        if self._copied == name:
            self._copied = None


class DirectoryCopy:
    """Makes a future log a prefix of the current one, whatever was appended to that, cut off it or deleted from it.

    Both are compared before every slice, as a follower's log is with its leader's (KIP-279): nothing has to be
    remembered of what happened to the current log meanwhile, or before the last restart: unless that may be compacted.
    Then a copy that is found begins again.
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
        was_compacted = is_compacted(current.config) or current.cleaned_to is not None
        self._is_doubtful = was_compacted and future.size_bytes > 0
        """Whether its directory may have been offline while the log was compacted. The copy would have records then
        whose deletions are gone from the log.
        """

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
        is_within = start <= future.log_end_offset <= current.log_end_offset
        if lacks_beginning or has_nothing_of_it or not is_within or self._is_doubtful:
            self.is_prepared = self._is_doubtful = False
            future.truncate_fully_and_start_at(current.log_start_offset)

    def _copy(self, max_bytes: int) -> int:
        current, future = self.current, self.future
        offset = future.log_end_offset
        if offset == current.log_end_offset:
            return 0
        read = current.read(offset, max_bytes, max_offset=current.log_end_offset, min_one_batch=True)
        crash_point("replication.move.before_append")
        if not read.records:
            if current.bytes_between(offset, current.log_end_offset):
                raise OffsetOutOfRange(
                    current.topic_partition, offset, current.log_start_offset, current.log_end_offset
                )
            future.end_above_hole(current.log_end_offset)
            return 0
        future.append_as_follower(read.records)
        return len(read.records)
