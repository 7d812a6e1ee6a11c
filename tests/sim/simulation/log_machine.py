"""A broker's machine with one log on a simulated disk, and a ledger of what that log may hold after the next crash."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple, TypeVar
from uuid import UUID

from crc32c import crc32c

from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.log.errors import CutNotPrepared, LogBusy, LogStorageError
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.process.data_loop import PatientWorker
from regency.kafka.record_batch import iter_batches
from regency.model.ids import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from regency.model.settings.log_config import COMPACT, LogConfig
from simulation.disk import SimDisk
from simulation.kernel.scheduler import Process, ProcessDied, Scheduler

T = TypeVar("T")

TP = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, segment_index_bytes=120)
ROOT = Path("/data/logs")
_MOST_JOBS = 100
TIMESTAMP = 1_700_000_000_000


class Batch(NamedTuple):
    """A batch of the log, and who wrote it."""

    base: int
    following: int
    epoch: int
    producer: int
    sequence: int
    data: bytes


def make_batch(records: int, base: int, epoch: int, producer: int, sequence: int, body: int) -> Batch:
    """A batch whose records nobody looks at, as it stands in the log."""
    tail = struct.pack(">hiqqqhii", 0, records - 1, TIMESTAMP, TIMESTAMP, producer, 0, sequence, records) + b"r" * body
    data = struct.pack(">qiibI", base, len(tail) + 9, epoch, 2, crc32c(tail)) + tail
    return Batch(base, base + records, epoch, producer, sequence, data)


class QueuedWorker:
    """Does its work when told to."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        def job() -> None:
            outcome: T | BaseException
            try:
                outcome = work()
            except OSError as error:
                outcome = error
            done(outcome)

        self.jobs.append(job)


class Content(NamedTuple):
    """What a log may hold."""

    start: int
    end: int
    batches: tuple[Batch, ...]

    def cut(self, offset: int) -> Content:
        if offset >= self.end:
            return self
        kept = tuple(batch for batch in self.batches if batch.following <= offset)
        gone = [batch.base for batch in self.batches[len(kept) :]]
        end = min([offset, *gone])
        return Content(min(self.start, end), end, kept)

    def is_prefix_of(self, whole: Content) -> bool:
        """Whether it holds what `whole` does from its own start to its own end, and nothing else."""
        if not self.batches:
            return self.end == self.start <= whole.end
        there = tuple(batch for batch in whole.batches if batch.following > self.start and batch.base < self.end)
        return self.batches == there and there[0].base <= self.start and there[-1].following == self.end

    @property
    def epochs(self) -> tuple[tuple[int, int], ...]:
        """Each leader epoch with the offset it begins at."""
        entries: dict[int, int] = {}
        for batch in self.batches:
            entries.setdefault(batch.epoch, max(batch.base, self.start))
        return tuple(entries.items())

    @property
    def producers(self) -> dict[int, tuple[int, int]]:
        """Last sequence number and last offset of each producer."""
        return {
            batch.producer: (batch.sequence + batch.following - batch.base - 1, batch.following - 1)
            for batch in self.batches
            if batch.producer >= 0
        }

    def plus(self, *batches: Batch) -> Content:
        return Content(self.start, batches[-1].following, (*self.batches, *batches))


class Machine:
    """A broker's machine, a log on it, and what that log may look like after the next crash."""

    config = CONFIG

    def __init__(self, seed: int) -> None:
        self.scheduler = Scheduler(seed)
        self.device = SimDisk(self.scheduler)
        self.content = Content(0, 0, ())
        self.possible = [self.content]
        """What the log held since it was last known to be on the disk; the newest last."""
        self.lasting = 0
        """Records below were flushed, and not truncated since."""
        self.begun_anew: Content | None = None
        """What it was after it began anew the last time, if it did since it was opened."""
        self.epoch = 0
        self.sequences = count(0, 10)
        self.starts = 0

    def start(self) -> None:
        self.begun_anew = None
        self.starts += 1
        self.process = Process(self.scheduler, f"agent-{self.starts}")
        self.worker = QueuedWorker()
        self.failures: list[str] = []
        self.manager = LogManager.open(
            [ROOT],
            self.config,
            broker_id=BrokerId(1),
            cluster_id="c",
            clock=self.process.clock,
            worker=PatientWorker(self.worker, lambda _, again: self.worker.jobs.append(again)),
            recovery_threads=1,
            on_dir_failure=lambda path, why: self.failures.append(why),
            disk=self.device.mount(self.process),
            new_uuid=lambda: UUID(int=self.scheduler.random.getrandbits(128)),
        )
        self.log = self._create()

    @property
    def is_empty(self) -> bool:
        return self.log.log_start_offset == self.log.log_end_offset

    # Operations: each says first what may be on the disk from then on.

    def append(self, records: int, body: int, producer: int, batches: int) -> None:
        """Append, as the leader does or as a follower."""
        new: list[Batch] = []
        base = self.content.end
        for _ in range(batches):
            new.append(self.make_batch(records, base, producer, body))
            base += records
        self._may_be(self.content.plus(*new))
        self.log.append_as_follower(b"".join(batch.data for batch in new))
        if self.begun_anew == self.content:  # and so was settled before; what is there now may come back
            self.possible = [self.content, self.possible[-1]]
        self.begun_anew = None
        self._is()

    def make_batch(self, records: int, base: int, producer: int, body: int) -> Batch:
        """The next one."""
        return make_batch(records, base, self.epoch, producer, next(self.sequences), body)

    def new_epoch(self) -> None:
        self.epoch += 1
        self.log.assign_epoch(LeaderEpoch(self.epoch), Offset(self.content.end))

    def truncate(self, records: int) -> None:
        """Drop the last records, as a follower does, and go on under another leader."""
        offset = max(self.content.end - records, 0)
        begins_anew = offset <= self.log.log_start_offset and offset < self.content.end
        self._may_be(Content(offset, offset, ()) if begins_anew else self.content.cut(offset))
        self.lasting = 0 if begins_anew else min(self.lasting, self.possible[-1].end)
        self.epoch += 1
        for _ in range(2):  # once more where what the worker did before has compacted the log
            if not self.log.prepare_cut(Offset(offset)):
                self.settle()
                self.work_off()
        self.log.truncate_to(Offset(offset))
        self._is()

    def start_over(self, offset: int) -> None:
        self._may_be(Content(offset, offset, ()))
        self.lasting = 0
        self.epoch += 1
        self.log.truncate_fully_and_start_at(Offset(offset))
        self._is()
        self.begun_anew = self.content

    def prepare_cut(self, records: int) -> None:
        """Say that the last records will be dropped, which may never happen."""
        self.log.prepare_cut(Offset(max(self.content.end - records, 0)))

    def settle(self) -> None:
        """Have the disk know soon where the log was cut off or will be."""
        self.manager.settle([TP], lambda: None)

    def delete_records(self, records: int) -> None:
        """Raise the log start, and let segments below it go."""
        start = min(self.content.start + records, self.content.end)
        self.log.set_high_watermark(Offset(self.content.end))
        self._may_be(self.content._replace(start=start))
        self.log.maybe_increment_log_start(Offset(start))
        self.log.delete_old_segments(TIMESTAMP)
        self._is()

    def flush(self) -> None:
        self.log.flush()
        self._lasts()

    def work(self, jobs: int) -> None:
        """Let the worker pool do some of its work, and of what comes of that."""
        for _ in range(jobs):
            if self.worker.jobs:
                self.worker.jobs.pop(0)()

    def work_off(self) -> None:
        """Let the worker pool do all there is to do, but not for ever what is repeated for want of descriptors."""
        self.work(_MOST_JOBS)

    def recreate(self) -> None:
        """Delete the log, and make another under its name."""
        self.lasting = 0
        self._may_be(Content(0, 0, ()))
        self.manager.delete_async(TP)
        self.log = self._create()
        self._is()
        self.possible = [self.content]

    def checkpoint(self) -> None:
        """Let a minute pass, remove what was deleted before, and ask for all checkpoints."""
        self.scheduler.run_until(self.scheduler.now_us + 61_000_000)
        list(self.manager.checkpoint_recovery_points())
        self.manager.checkpoint_log_start_offsets()
        self.manager.checkpoint_high_watermarks({TP: self.log.high_watermark})
        list(self.manager.run_retention(TIMESTAMP))

    def roll(self) -> None:
        self.log.roll()

    def flush_soon(self) -> None:
        self.log.flush_in_background()

    def restart(self, lossy: bool) -> None:
        """A clean shutdown; perhaps the power is cut after it."""
        self.manager.close()
        self._lasts()
        self.process.kill()
        self.device.crash(lossy=lossy)
        self.start()
        self.check(lossy=lossy, exact=True)

    # Crashes

    def crash(self, *, lossy: bool, during: Callable[[], object] | None = None, after: int = 0) -> None:
        """The process dies, perhaps with the power, perhaps in the middle of something. Then look at the log."""
        was_busy = during is not None and self.dies_after(after, during)
        # The disk may know an emptied log's start of before: an empty log begins there then, as in Kafka.
        is_unheard = self.log.unsettled.start and self.is_empty
        self.process.kill()
        self.device.crash(lossy=lossy)
        self.start()
        self.check(lossy=lossy, exact=not lossy and not was_busy and not (is_unheard and self.is_empty))

    def crash_twice(self, *, lossy: bool, after: int) -> None:
        """The process dies, and once more while it recovers."""
        self.process.kill()
        self.device.crash(lossy=lossy)
        if self.dies_after(after, self.start):
            self.device.crash(lossy=lossy)
            self.start()
        self.check(lossy=lossy, exact=not lossy)

    def fail(self, *, lossy: bool, full: bool, after: int, during: Callable[[], object]) -> None:
        """The disk fails or is full in the middle of something; the agent is restarted when it has been repaired."""
        if full:
            self.device.fill(after * 20)
        else:
            self.device.fail(after)
        with suppress(LogStorageError):
            during()
        self.device.heal()
        self.process.kill()
        self.device.crash(lossy=lossy)
        self.start()
        self.check(lossy=lossy, exact=False)

    def starve(self, *, after: int, during: Callable[[], object], repeats: bool) -> None:
        """The process has no descriptors left in the middle of something, and again later; the log goes on."""
        self.device.starve(after)
        with suppress(LogBusy, CutNotPrepared):
            during()
            repeats = False
        self.work(9)
        self.device.heal()
        if repeats:
            during()
        self.check(lossy=False, exact=False, alive=True)

    def dies_after(self, operations: int, work: Callable[[], object]) -> bool:
        """Do some work in a process that dies before its next disk operation after that many; whether it did."""
        left = operations

        def watch(name: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                self.process.kill()

        self.device.on_operation(watch)
        try:
            work()
        except ProcessDied:
            return True
        finally:
            self.device.on_operation(None)
        return False

    def check(self, *, lossy: bool, exact: bool, alive: bool = False) -> None:
        """The log is what it may be, and nothing is known that is not in it; `alive` it may know of empty epochs."""
        found = Content(self.log.log_start_offset, self.log.log_end_offset, tuple(read_all(self.log)))
        expected = self.possible[-1:] if exact else self.possible
        assert self.failures == []
        whole = next((each for each in reversed(expected) if found.is_prefix_of(each)), None)
        assert whole is not None, (found, expected)
        assert found.end >= (self.content.end if exact else self.lasting), (found, self.content, self.lasting)
        epochs = self.log.epoch_entries
        if alive:
            epochs = tuple(entry for entry in epochs if entry[1] < found.end)
        assert epochs == found.epochs, found
        assert known_producers(self.log, found) == found.producers, found
        assert self.log.recovery_point <= found.end
        below = tuple(batch for batch in whole.batches if batch.following <= found.end)
        self.content = found._replace(batches=below)  # those before the log start may be in its first segment still
        self.possible.append(self.content)
        if lossy:
            self._lasts()

    def note_flushed(self) -> None:
        """What the log takes for flushed has to last; of one that has begun anew and is settled nothing comes back."""
        if self.begun_anew == self.content and self.log.is_settled:
            self.possible = [self.content]
        if self.log.recovery_point > self.content.start:
            self.lasting = max(self.lasting, self.log.recovery_point)

    def _create(self) -> PartitionLog:
        return self.manager.create(TP, TopicId(UUID(int=7)), self.config, is_new=True)

    def _may_be(self, content: Content) -> None:
        self.possible.append(content)

    def _is(self) -> None:
        self.content = self.possible[-1]

    def _lasts(self) -> None:
        self.possible = [self.content]
        self.lasting = self.content.end


def read_all(log: PartitionLog) -> Iterator[Batch]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        records = log.read(offset, 1, max_offset=log.log_end_offset, min_one_batch=True).records
        if not records and COMPACT in log.config.cleanup_policy:
            return  # it ends in a hole
        assert records, f"nothing is at {offset}, and the log ends at {log.log_end_offset}"
        for at, header in iter_batches(records):
            data = bytes(records[at : at + header.size])
            offset = header.next_offset
            yield Batch(header.base_offset, offset, header.leader_epoch, header.producer_id, header.base_sequence, data)


def known_producers(log: PartitionLog, content: Content) -> dict[int, tuple[int, int]]:
    """Last sequence number and last offset of the producers a log knows, but for those before its start."""
    known = {
        id_: (producer.batches[-1].last_sequence, producer.batches[-1].last_offset)
        for id_, producer in log._producers._producers.items()
        if producer.batches
    }
    return {id_: last for id_, last in known.items() if id_ in content.producers or last[1] >= content.start}
