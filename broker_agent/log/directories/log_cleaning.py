"""Which log is compacted next, and what becomes of it: one at a time, the one with the largest dirty share first.

Data loop only. The cleaner is a port: a process of its own, or steps of the simulation.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from regency.broker_agent.log.cleaning.job import Cleaned, CleaningJob, CleaningLimits
from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.log.errors import CleanerDied, LogStorageError, Uncleanable
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.log.selection import Dirty, is_compacted
from regency.broker_agent.steps import Steps
from regency.model.clock import Clock
from regency.model.ids import TopicPartition
from regency.model.settings import BrokerSettings

logger = logging.getLogger(__name__)

MOST_DEATHS = 3
"""A log that costs the cleaner its life so often in a row is not cleaned any more."""


class Cleaner(Protocol):
    """Does one cleaning at a time."""

    def clean(self, job: CleaningJob, done: Callable[[Cleaned | BaseException], None]) -> None:
        """Do it. `done` is called once, later, on the data loop: with an OSError where files could not be read or
        written, Uncleanable, CleanerDied.
        """
        ...


class UncleanableIn(NamedTuple):
    """Logs of a directory that are not cleaned any more, and the dirty bytes in them."""

    partitions: int
    size_bytes: int


class CleaningCounts:
    """What the last cleanings were like. Percent and milliseconds, as Kafka counts."""

    def __init__(self) -> None:
        self.cleanings = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.map_percent = 0
        self.recopied_percent = 0
        self.seconds = 0
        self.delay_seconds = 0
        self.dirty_percent = 0
        """The largest dirty share of a log at the last look."""
        self.looked_ms = 0
        """Monotonic time of the last look."""
        self.deaths = 0
        """Since the cleaner last ended a cleaning."""
        self.uncleanable: Mapping[Path, UncleanableIn] = {}
        """By log directory, as of the last look."""


class _Running(NamedTuple):
    log: PartitionLog
    job: CleaningJob
    dirty: Dirty
    began_ms: int


class LogCleaning:
    """Chooses, sends to the cleaner, takes in. `wake` is called where it should look again at once."""

    def __init__(self, logs: LogManager, cleaner: Cleaner, clock: Clock, settings: BrokerSettings) -> None:
        self.counts = CleaningCounts()
        self.counts.looked_ms = clock.monotonic_ms()
        self.wake: Callable[[], None] = lambda: None
        self._logs = logs
        self._cleaner = cleaner
        self._clock = clock
        self._limits = CleaningLimits(
            settings.log_cleaner_dedupe_buffer_size,
            settings.log_cleaner_io_buffer_load_factor,
            settings.log_cleaner_io_buffer_size,
            settings.log_cleaner_io_max_bytes_per_second,
        )
        self._is_enabled = settings.log_cleaner_enable
        self._running: _Running | None = None
        self._taken_in: _Running | None = None
        """What of that has come back, and takes its place in the log."""
        self._uncleanable: dict[PartitionLog, str] = {}
        self._deaths: dict[PartitionLog, int] = {}

    @property
    def running(self) -> TopicPartition | None:
        """The log that is being cleaned."""
        return self._running.log.topic_partition if self._running else None

    def _count_uncleanable(self, now_ms: int) -> dict[Path, UncleanableIn]:
        found = {logs.directory.path: UncleanableIn(0, 0) for logs in self._logs.directories}
        for log in self._uncleanable:
            if self._is_held(log):
                dirty = log.dirty_part(now_ms)
                before = found[log.home.path]
                size = before.size_bytes + (dirty.dirty_bytes if dirty else 0)
                found[log.home.path] = UncleanableIn(before.partitions + 1, size)
        return found

    def look(self, _now_ms: int) -> Steps[None]:
        """Look at all compacted logs, and begin with the dirtiest whose time has come; in steps, a log each."""
        self.counts.looked_ms = self._clock.monotonic_ms()
        self._uncleanable = {log: why for log, why in self._uncleanable.items() if self._is_held(log)}
        if self._taken_in is not None and self._taken_in.log.cleaning is not self._taken_in.job:
            self._running = self._taken_in = None  # the log was cut off or lost
        if not self._is_enabled or self._running is not None:
            return
        now_ms = self._clock.wall_ms()
        self.counts.uncleanable = self._count_uncleanable(now_ms)
        best: tuple[Dirty, PartitionLog] | None = None
        most, delay_ms = 0.0, 0
        for log in self._compacted():
            dirty = log.dirty_part(now_ms) if self._may_be_cleaned(log) else None
            if dirty is not None:
                most, delay_ms = max(most, dirty.ratio), max(delay_ms, dirty.delay_ms)
                if dirty.is_due and (best is None or dirty.ratio > best[0].ratio):
                    best = dirty, log
            yield
        self.counts.dirty_percent = int(100 * most)
        self.counts.delay_seconds = delay_ms // 1000
        if best is not None and self._may_be_cleaned(best[1]) and self._running is None:
            self._begin(best[1], now_ms)

    def _compacted(self) -> Iterator[PartitionLog]:
        return (log for log in list(self._logs.all().values()) if is_compacted(log.config) and self._may_try(log))

    def _may_try(self, log: PartitionLog) -> bool:
        return log not in self._uncleanable and log.home.failure is None

    def _is_held(self, log: PartitionLog) -> bool:
        return self._logs.get(log.topic_partition) is log

    def _may_be_cleaned(self, log: PartitionLog) -> bool:
        """Whether that has not changed since the look began: between two steps anything may."""
        is_copied = self._logs.futures.get(log.topic_partition) is not None
        return self._is_held(log) and is_compacted(log.config) and not is_copied

    def _begin(self, log: PartitionLog, now_ms: int) -> None:
        dirty = log.dirty_part(now_ms)  # it may have been cut off between two steps
        job = log.begin_cleaning(dirty, now_ms, self._limits) if dirty is not None else None
        if dirty is None or job is None:
            return
        self._running = running = _Running(log, job, dirty, self._clock.monotonic_ms())
        self._cleaner.clean(job, lambda outcome: self._answered(running, outcome))

    def _answered(self, running: _Running, outcome: Cleaned | BaseException) -> None:
        self._running = None
        log = running.log
        if isinstance(outcome, CleanerDied):
            self.counts.deaths += 1
            self._count_death(log, outcome)
            return
        self._deaths.clear()
        self.counts.deaths = 0
        if log.cleaning is not running.job or not self._is_held(log):
            self.wake()
        elif isinstance(outcome, Cleaned):
            self._take_in(running, outcome)
        else:
            log.cleaning = None
            self._failed(log, outcome)

    def _take_in(self, running: _Running, cleaned: Cleaned) -> None:
        """Have the disk know first up to where the log was synced: a start takes holes above that for damage."""
        self._running = self._taken_in = running
        logs = self._logs.directory(running.log.home.path)
        if logs is not None:
            logs.write_recovery_points_later(lambda: self._swap_in(running, cleaned))

    def _swap_in(self, running: _Running, cleaned: Cleaned) -> None:
        log = running.log

        def over() -> None:
            if self._running is running:
                self._running = self._taken_in = None
            if log.cleaned_to == cleaned.end:
                self._count(running, cleaned)
                logs = self._logs.directory(log.home.path)
                if logs is not None and logs.is_working:
                    logs.write_cleaned_later()
            self.wake()

        try:
            log.end_cleaning(running.job, cleaned, over)
        except LogStorageError as error:
            self._running = self._taken_in = None
            logger.warning("%s: its compaction is not taken in: %s", log.topic_partition, error)

    def _failed(self, log: PartitionLog, error: BaseException) -> None:
        if isinstance(error, Uncleanable):
            self._give_up(log, str(error))
        elif isinstance(error, FileNotFoundError):
            logger.info("%s: its compaction found a file gone, and is begun again: %s", log.topic_partition, error)
        elif isinstance(error, OSError) and error.errno not in (errno.ENOSPC, errno.EDQUOT):
            log.home.fail(error)
        elif isinstance(error, OSError):
            logger.warning("%s: not compacted for want of space: %s", log.topic_partition, error)
        else:
            self._give_up(log, repr(error))

    def _count_death(self, log: PartitionLog, died: CleanerDied) -> None:
        self._deaths[log] = self._deaths.get(log, 0) + 1
        logger.warning("%s: the cleaner died at it (%s); it is begun again", log.topic_partition, died)
        if self._deaths[log] >= MOST_DEATHS:
            self._give_up(log, f"the cleaner died at it {MOST_DEATHS} times")

    def _give_up(self, log: PartitionLog, why: str) -> None:
        """Not before the next start: nothing in the log changes by itself."""
        self._uncleanable[log] = why
        logger.error("%s is not compacted any more until the broker is started again: %s", log.topic_partition, why)

    def _count(self, running: _Running, cleaned: Cleaned) -> None:
        counts, log = self.counts, running.log
        took_ms = self._clock.monotonic_ms() - running.began_ms
        counts.cleanings += 1
        counts.bytes_read += cleaned.bytes_read
        counts.bytes_written += cleaned.bytes_written
        counts.map_percent = int(100 * cleaned.map_fill)
        counts.seconds = took_ms // 1000
        whole = running.dirty.clean_bytes + running.dirty.dirty_bytes
        counts.recopied_percent = int(100 * cleaned.bytes_written / whole)
        logger.info(
            "%s: compacted up to %d in %d ms: %d of %d records stay, %d segments are replaced by %d, "
            "%d records had no key; offset map %d %% full",
            log.topic_partition,
            cleaned.end,
            took_ms,
            cleaned.records_kept,
            cleaned.records_read,
            sum(len(each.sources) for each in cleaned.segments),
            len(cleaned.segments),
            cleaned.without_key,
            counts.map_percent,
        )
