"""Fetch: reads of consumers and followers, what a follower's fetch tells its leader, and the wait for data.

Records are never looked into. A follower's fetch says that it has everything below its fetch offset; that may move the
high watermark and let it join the ISR.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from regency.broker_agent.log.errors import LogDamaged, LogStorageError, OffsetOutOfRange
from regency.broker_agent.replication.fetcher.throttle import ReplicationThrottle
from regency.broker_agent.replication.hosting import HostedPartitions
from regency.broker_agent.replication.isr_maintenance import IsrMaintenance
from regency.broker_agent.replication.partition import Partition
from regency.broker_agent.replication.purgatory import DelayedOperation
from regency.broker_agent.steps import Steps
from regency.kafka.fetching.values import NO_RECORDS, FetchedPartition, FetchParams, FetchPartition
from regency.model.crash_points import crash_point
from regency.model.ids import NO_BROKER_EPOCH, NO_LEADER_EPOCH, UNKNOWN_OFFSET, BrokerId, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.log_config import COMPACT

PARTITIONS_PER_STEP = 500
"""Read before others have their turn."""

Respond = Callable[[dict[TopicPartition, FetchedPartition]], None]
Cancel = Callable[[], None]


class FetchPath:
    """Reads. Callers hold `hosting.completions`."""

    def __init__(self, hosting: HostedPartitions, isr: IsrMaintenance, throttle: ReplicationThrottle) -> None:
        self._hosting = hosting
        self._isr = isr
        self._throttle = throttle
        self.sent_to_adding = 0
        """Bytes of record batches answered to replicas that a reassignment adds elsewhere."""
        self._under_way: deque[tuple[_DelayedFetch, Steps[None]]] = deque()
        """Fetches of which more is to be read."""

    def fetch(self, params: FetchParams, partitions: Sequence[FetchPartition], respond: Respond) -> Cancel:
        """Read; answer if there is enough, an error or nothing to wait for, else when there is or time is up.

        Of many partitions some are read now and the others in steps. The returned call withdraws a fetch whose client
        is gone.
        """
        now_ms = self._hosting.clock.monotonic_ms()
        waiting = _DelayedFetch(self, now_ms + params.max_wait_ms, self._begin(params, now_ms), partitions, respond)
        self._work(waiting, self._read_all(waiting))
        return lambda: self.withdraw(waiting)

    def go_on(self) -> None:
        """The next step of the fetch that is under way."""
        if self._under_way:
            waiting, steps = self._under_way.popleft()
            self._hosting.completions.add(lambda: waiting.guard(lambda: self._work(waiting, steps)))

    def read_again(self, waiting: _DelayedFetch) -> None:
        """Answer what was read before, with what changed meanwhile as it is now."""
        self._work(waiting, self._read_outdated(waiting))

    def _work(self, waiting: _DelayedFetch, steps: Steps[None]) -> None:
        """Take one step, and have the others taken before any other fetch's: one at a time holds what is half read."""
        for _ in steps:
            self._under_way.appendleft((waiting, steps))
            break
        if self._under_way:
            self._hosting.wake_by(self._hosting.clock.monotonic_ms())

    def _read_all(self, waiting: _DelayedFetch) -> Steps[None]:
        """What is read is waited for from then on: nothing that happens between two steps is missed."""
        hosting, reading, params, partitions = self._hosting, waiting.reading, waiting.reading.params, waiting.asked
        for start in range(0, len(partitions), PARTITIONS_PER_STEP):
            if start:
                yield
            if waiting.done:
                return
            some = partitions[start : start + PARTITIONS_PER_STEP]
            if params.from_follower:
                self._read_for_follower(reading, some, hosting.clock.monotonic_ms())
            else:
                for wanted in some:
                    self._read(reading, wanted, None)
            if params.max_wait_ms > 0 and not reading.is_answer:
                hosting.fetches.attend(waiting, waiting.take(some))
        crash_point("replication.fetch.after_high_watermark")
        if params.max_wait_ms <= 0 or not partitions or reading.is_answer or waiting.has_enough:
            hosting.fetches.leave(waiting)
            self._count_sent(reading)
            hosting.completions.add(lambda: waiting.respond(reading.results))
        elif waiting.was_completed:
            hosting.fetches.leave(waiting)
            yield from self._read_outdated(waiting)
        else:
            waiting.begin_to_wait()
            hosting.fetches.expect(waiting)
            hosting.wake_by(waiting.deadline_ms)

    def _read_outdated(self, waiting: _DelayedFetch) -> Steps[None]:
        """A follower counts when it asks, not again."""
        reading, again = self._begin(waiting.reading.params, self._hosting.clock.monotonic_ms()), waiting.outdated()
        reading.results = waiting.reading.results
        for start in range(0, len(again), PARTITIONS_PER_STEP):
            if start:
                yield
            for wanted in again[start : start + PARTITIONS_PER_STEP]:
                self._read(reading, wanted, None)
        self._count_sent(reading)
        crash_point("replication.fetch.before_answer")
        waiting.respond(reading.results)

    def withdraw(self, waiting: _DelayedFetch) -> None:
        """Harmless when it is complete."""
        if not waiting.is_reading:
            self._hosting.fetches.cancel(waiting)
        elif not waiting.done:
            self._hosting.fetches.leave(waiting)

    def _read_for_follower(self, reading: _Reading, partitions: Sequence[FetchPartition], now_ms: int) -> None:
        broker, broker_epoch = reading.params.replica_id, reading.params.replica_epoch
        known_epoch = self._hosting.rules.peers.broker_epoch(broker)
        hosted = self._hosting.partitions
        for wanted in partitions:
            partition = hosted.get(wanted.topic_partition)
            if (
                partition is not None
                and known_epoch == broker_epoch
                and partition.counts_as_before(broker, broker_epoch, wanted, now_ms)
            ):
                reading.results[wanted.topic_partition] = partition.nothing_to_read()
            else:
                self._read(reading, wanted, now_ms)
        if broker_epoch not in (known_epoch, NO_BROKER_EPOCH) and any(
            reading.results[wanted.topic_partition].error is ErrorCode.NONE for wanted in partitions
        ):
            self._hosting.rules.peers.confirm(broker, broker_epoch)

    def _begin(self, params: FetchParams, now_ms: int) -> _Reading:
        """Nothing read yet. How things stand with the throttle holds for the whole pass, however much it reads."""
        return _Reading(params, self._throttle.exceeded_until(now_ms) if params.from_follower else None)

    def _count_sent(self, reading: _Reading) -> None:
        if not reading.params.from_follower:
            return
        now_ms = self._hosting.clock.monotonic_ms()
        for name, size in reading.sizes.items():
            self._throttle.record(name, size, now_ms)
            partition = self._hosting.partitions.get(name)
            if partition is not None and reading.params.replica_id in partition.assignment.adding:
                self.sent_to_adding += size

    def _is_held_back(self, partition: Partition, follower: BrokerId) -> bool:
        is_exceeded = self._throttle.exceeded_until(self._hosting.clock.monotonic_ms()) is not None
        return is_exceeded and self._is_throttled(partition, follower)

    def _is_throttled(self, partition: Partition, follower: BrokerId) -> bool:
        """Whether a follower is to be held back while the rate is exceeded: not one whom the high watermark awaits."""
        return follower not in partition.isr.maximal and self._throttle.covers(partition.topic_partition)

    def available(self, params: FetchParams, wanted: FetchPartition) -> int | None:
        """Bytes that could be answered for one partition now; None where an error or a truncated log is to be told."""
        partition = self._find(params, wanted)
        if isinstance(partition, ErrorCode):
            return None
        if params.from_follower and self._is_held_back(partition, params.replica_id):
            return 0
        log = partition.log
        end = log.log_end_offset if params.from_follower else log.high_watermark
        offset = wanted.fetch_offset
        if offset >= end:
            return None if offset > log.log_end_offset else 0
        if params.max_bytes == NO_RECORDS:
            return 0
        if params.min_bytes <= 1 and COMPACT not in log.config.cleanup_policy:
            return 1  # as no record was compacted away, there is one
        try:
            distance = log.bytes_between(offset, end)
        except LogStorageError:
            return None
        return None if distance is None else min(distance, wanted.max_bytes)

    def _read(self, reading: _Reading, wanted: FetchPartition, counted_ms: int | None) -> None:
        """Read one partition; a follower's fetch is counted as of `counted_ms`, unless that is None."""
        params = reading.params
        found = self._find(params, wanted)
        if isinstance(found, ErrorCode):
            reading.add(wanted, self._refusal(found, wanted.topic_partition))
            return
        if params.from_follower:
            error = found.admit_follower(params.replica_id, params.replica_epoch, wanted.current_leader_epoch)
            if error is not ErrorCode.NONE:
                reading.add(wanted, FetchedPartition(error))
                return
        leader_end = found.log.log_end_offset
        is_held_back = reading.exceeded_until is not None and self._is_throttled(found, params.replica_id)
        fetched = _read_log(found, reading, wanted, is_held_back=is_held_back)
        reading.add(wanted, fetched)
        if counted_ms is not None and fetched.error is ErrorCode.NONE and fetched.diverging is None:
            self._count(reading, found, wanted, leader_end, counted_ms)

    def _find(self, params: FetchParams, wanted: FetchPartition) -> Partition | ErrorCode:
        find = self._hosting.find_replica if params.from_debugger else self._hosting.find_led
        return find(wanted.topic_partition, wanted.current_leader_epoch, wanted.topic_id)

    def _count(
        self, reading: _Reading, partition: Partition, wanted: FetchPartition, leader_end: Offset, now_ms: int
    ) -> None:
        params = reading.params
        if partition.count_fetch(params.replica_id, params.replica_epoch, wanted, leader_end, now_ms):
            reading.outdated[partition.topic_partition] = None
            self._hosting.changed(partition.topic_partition)
        else:
            self._hosting.deletes.check(partition.topic_partition)  # its log start may have risen
        if params.replica_id not in partition.isr.maximal:
            self._isr.expand(partition, now_ms)

    def _refusal(self, error: ErrorCode, topic_partition: TopicPartition) -> FetchedPartition:
        partition = self._hosting.partitions.get(topic_partition)
        if partition is None or error not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            return FetchedPartition(error)
        return FetchedPartition(error, leader=partition.leader, leader_epoch=partition.leader_epoch)


class _Reading:
    """One pass over the partitions of a fetch, in their order, within its byte limit."""

    __slots__ = (
        "exceeded_until",
        "held_until",
        "is_answer",
        "outdated",
        "params",
        "remaining",
        "results",
        "size",
        "sizes",
    )

    def __init__(self, params: FetchParams, exceeded_until: int | None) -> None:
        self.params = params
        self.exceeded_until = exceeded_until
        """Until when throttled replicas are held back; None: they are not."""
        self.held_until: int | None = None
        """The same, once there was something to read for one."""
        self.remaining = params.max_bytes
        self.size = 0
        self.sizes: dict[TopicPartition, int] = {}
        self.is_answer = False
        """Whether there is reason to answer at once."""
        self.results: dict[TopicPartition, FetchedPartition] = {}
        self.outdated: dict[TopicPartition, None] = {}
        """Partitions that changed since they were read."""

    def add(self, wanted: FetchPartition, fetched: FetchedPartition) -> None:
        self.results[wanted.topic_partition] = fetched
        size = len(fetched.records)
        if size:
            self.size += size
            self.sizes[wanted.topic_partition] = size
            self.remaining = max(0, self.remaining - size)
        if fetched.error is not ErrorCode.NONE or fetched.diverging is not None or self.size >= self.params.min_bytes:
            self.is_answer = True

    def hold_back(self, wanted: FetchPartition) -> None:
        """Leave a partition out that has something to read: it is looked at again when the rate allows."""
        self.held_until = self.exceeded_until
        self.outdated[wanted.topic_partition] = None


class _DelayedFetch(DelayedOperation):
    """A long poll. Counts the bytes each partition offers, and answers when they are enough.

    Only what changed meanwhile is read again: most fetches of followers name thousands of partitions, of which few did.
    """

    def __init__(
        self, path: FetchPath, deadline_ms: int, reading: _Reading, asked: Sequence[FetchPartition], respond: Respond
    ) -> None:
        super().__init__(deadline_ms)
        self._path = path
        self.reading = reading
        self.asked = asked
        self.respond = respond
        self.is_reading = True
        """It is not complete before all is read."""
        self.was_completed = False
        """By what happened while it was read."""
        self.has_enough = False
        """Offered where it was read."""
        self._wanted: dict[TopicPartition, FetchPartition] = {}
        self._offered: dict[TopicPartition, int] = {}
        self._total = 0

    def take(self, partitions: Iterable[FetchPartition]) -> list[TopicPartition]:
        """Wait for these, too, which have just been read; their names. What was read counts as offered."""
        names = []
        for wanted in partitions:
            name = wanted.topic_partition
            self._wanted[name] = wanted
            names.append(name)
            if len(self.reading.results[name].records):
                self.has_enough = self._offers_enough(name) or self.has_enough
        return names

    def begin_to_wait(self) -> None:
        """All is read."""
        self.is_reading = False
        if self.reading.held_until is not None:
            self.deadline_ms = min(self.deadline_ms, self.reading.held_until)
        if self.reading.size:
            self.reading.results.clear()  # all is read again, and until then it must not take memory

    def outdated(self) -> list[FetchPartition]:
        """What to read again. A follower's log grows without telling anybody who waits."""
        if self.reading.size or self.reading.params.from_debugger:
            return list(self._wanted.values())
        return [self._wanted[name] for name in self.reading.outdated]

    def partitions(self) -> Iterable[TopicPartition]:
        return self._wanted

    def progress(self, partition: TopicPartition) -> bool:
        self.reading.outdated[partition] = None
        is_complete = self._offers_enough(partition)
        self.was_completed = self.was_completed or is_complete
        return is_complete and not self.is_reading

    def finish(self) -> None:
        self.guard(lambda: self._path.read_again(self))

    def guard(self, work: Callable[[], None]) -> None:
        """Do it; where something unforeseen happens, the waiting client gets an answer. The caller logs it."""
        try:
            work()
        except Exception:
            self._path.withdraw(self)
            failed = FetchedPartition(ErrorCode.UNKNOWN_SERVER_ERROR)
            self.respond({wanted.topic_partition: failed for wanted in self.asked})
            raise

    def _offers_enough(self, name: TopicPartition) -> bool:
        params = self.reading.params
        offered = self._path.available(params, self._wanted[name])
        if offered is None:
            return True
        self._total += offered - self._offered.get(name, 0)
        self._offered[name] = offered
        return 0 < self._total >= params.min_bytes


def _read_log(
    partition: Partition, reading: _Reading, wanted: FetchPartition, *, is_held_back: bool
) -> FetchedPartition:
    """Whole batches from the fetch offset to the LEO (followers) or this replica's high watermark (all others).

    Below the log start is out of range whatever the epochs say (KAFKA-12996); then diverging epochs, then beyond the
    end.
    """
    log = partition.log
    offset, start, end = wanted.fetch_offset, log.log_start_offset, log.log_end_offset
    high_watermark = log.high_watermark
    if offset < start:
        return FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE)
    if wanted.last_fetched_epoch != NO_LEADER_EPOCH:
        diverging = partition.diverging_epoch(offset, wanted.last_fetched_epoch)
        if diverging is None:
            diverging = partition.forgotten_epoch(reading.params, wanted)
        if diverging is not None:
            if diverging.end_offset == UNKNOWN_OFFSET:
                return FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE)
            return FetchedPartition(ErrorCode.NONE, high_watermark, start, diverging=diverging)
    if offset > end:
        return FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE)
    bound = end if reading.params.from_follower else high_watermark
    limit = min(wanted.max_bytes, reading.remaining)
    first = reading.size == 0
    if offset >= bound or reading.params.max_bytes == NO_RECORDS or (limit <= 0 and not first):
        return partition.nothing_to_read()
    if is_held_back:
        reading.hold_back(wanted)
        return partition.nothing_to_read()
    try:
        read = log.read(offset, limit, max_offset=bound, min_one_batch=first)
    except OffsetOutOfRange:
        return FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE)
    except LogDamaged:
        return FetchedPartition(ErrorCode.CORRUPT_MESSAGE)
    except LogStorageError:
        return FetchedPartition(ErrorCode.KAFKA_STORAGE_ERROR)
    return FetchedPartition(ErrorCode.NONE, high_watermark, start, read.records)
