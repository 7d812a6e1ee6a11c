"""A broker's log directories, and what is done with them; every step is told before it is taken, and when it is done.

What was told on stdout, one JSON object per line, outlives the process: a pipe's content is the kernel's.
"""

from __future__ import annotations

import json
import os
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import msgspec

from killing.batches import make_batch, make_keyed_batch
from regency.broker_agent.log.cleaning.cleaner import Cleaning, clean
from regency.broker_agent.log.cleaning.job import Cleaned, CleaningLimits
from regency.broker_agent.log.directories.directory_logs import DirectoryLogs
from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.log.errors import CutNotPrepared
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.replication.directory_moves import DirectoryCopy
from regency.model.clock import ManualClock
from regency.model.ids import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from regency.model.settings.log_config import LogConfig
from regency.runtime.disk import OsDisk

T = TypeVar("T")

CONFIG = LogConfig(
    segment_bytes=700, index_interval_bytes=100, segment_index_bytes=120, flush_messages=9, file_delete_delay_ms=1000
)
COMPACTED = msgspec.structs.replace(
    CONFIG, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, delete_retention_ms=0
)
TOPIC_ID = TopicId(UUID(int=7))


def tell(**what: object) -> None:
    """One line on stdout, at once and whole."""
    os.write(1, json.dumps(what).encode() + b"\n")


def all_steps(cleaning: Cleaning) -> Cleaned:
    """What comes of a cleaning that nothing else goes on beside."""
    try:
        while True:
            next(cleaning)
    except StopIteration as end:
        cleaned: Cleaned = end.value
        return cleaned


class LaterWorker:
    """Does its work between two operations, as the worker pool and the data loop do."""

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], None]] = deque()
        self.is_slow = False
        """Whether it gets to nothing at all."""

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        self._jobs.append(lambda: done(work()))

    def work_off(self, jobs: int | None = None) -> None:
        """Do so many of its jobs, or all."""
        while self._jobs and not self.is_slow and jobs != 0:
            self._jobs.popleft()()
            jobs = None if jobs is None else jobs - 1


class Broker:
    """Log directories and what is done with them. Every operation says first what it is, and then that it is done."""

    def __init__(self, root: Path) -> None:
        self._dirs = [root / "a", root / "b"]
        self._uuids = count(1)
        self.clock = ManualClock()
        self.sequences: Counter[TopicPartition] = Counter()
        self.start()

    def start(self) -> None:
        self.worker = LaterWorker()
        self.manager = LogManager.open(
            self._dirs,
            CONFIG,
            broker_id=BrokerId(1),
            cluster_id="c",
            clock=self.clock,
            worker=self.worker,
            recovery_threads=1,
            on_dir_failure=lambda path, why: tell(failed=[str(path), why]),
            new_uuid=lambda: UUID(int=next(self._uuids)),
        )
        self.worker.work_off()
        for partition, log in self.manager.all().items():
            log.set_high_watermark(self.manager.high_watermark_checkpoint(partition))

    def stop(self) -> None:
        self.worker.work_off()
        self.manager.close()

    def lose_power(self) -> None:
        """As if the process had died: nothing is closed in order."""
        self.manager._services.files.close_all()
        for logs in self.manager.directories:
            logs.directory.unlock()

    def log(self, partition: TopicPartition) -> PartitionLog:
        log = self.manager.get(partition)
        assert log is not None
        return log

    def create(self, partition: TopicPartition, directory: str = "a") -> None:
        with self._doing("create", partition):
            self.manager.prefer(partition, self._dirs["ab".index(directory)].absolute())
            self.manager.create(partition, TOPIC_ID, CONFIG, is_new=True)

    def produce(self, partition: TopicPartition, epoch: int, batches: int, records: int = 2) -> None:
        """Append as the leader does, batch by batch."""
        for _ in range(batches):
            batch = self._next(partition, epoch, records, 0)
            sent = bytearray(batch)
            sent[:8], sent[12:16] = bytes(8), b"\xff" * 4  # the leader says where it is to stand, and in which epoch
            with self._doing("append", partition, batches=[batch.hex()]):
                self.log(partition).append_as_leader(sent, LeaderEpoch(epoch), self.clock.wall_ms())

    def produce_keyed(self, partition: TopicPartition, epoch: int, *batches: str) -> None:
        """Append as the leader does, a batch for each, with a record for each of its words; one with - is deleted."""
        for words in batches:
            keys = words.encode().split()
            batch = self._keyed(partition, epoch, keys)
            sent = bytearray(batch)
            sent[:8], sent[12:16] = bytes(8), b"\xff" * 4
            with self._doing("append", partition, batches=[batch.hex()]):
                self.log(partition).append_as_leader(sent, LeaderEpoch(epoch), self.clock.wall_ms())

    def _keyed(self, partition: TopicPartition, epoch: int, keys: list[bytes]) -> bytes:
        producer = self.log(partition)._producers._producers.get(9)
        known = producer.batches[-1].last_sequence if producer and producer.batches else -1  # it may have been cut off
        self.sequences[partition] = known + 1 + len(keys)
        sequence = known + 1
        self.clock.advance(10)
        base = self.log(partition).log_end_offset
        return make_keyed_batch(keys, base, epoch, 9, sequence, self.clock.wall_ms())

    def compact(self, partition: TopicPartition, jobs: int | None = None, cut: int | None = None) -> None:
        """Clean the log and swap what was cleaned: to the end, or as far as so many jobs of the worker get, which does
        nothing more then. The log may be cut off at `cut` after that.
        """
        log = self.log(partition)
        self.manager.set_configs({partition.topic: COMPACTED})
        self.commit(partition)
        log.flush()
        now_ms = self.clock.wall_ms()
        dirty = log.dirty_part(now_ms)
        assert dirty is not None
        over: list[bool] = []
        with self._doing("compact", partition):
            job = log.begin_cleaning(dirty, now_ms, CleaningLimits(1 << 20, 0.9, 4096, 1 << 40))
            assert job is not None
            cleaned = all_steps(clean(job, OsDisk()))
            assert cleaned.segments
            if cut is not None and not log.prepare_cut(Offset(cut)):
                self.settle(partition)
                self.worker.work_off()
            log.end_cleaning(job, cleaned, lambda: over.append(True))
            self.worker.work_off(jobs)
            self.worker.is_slow = jobs is not None
        if cut is not None:
            with self._doing("cut", partition, offset=cut):
                log.truncate_to(Offset(cut))
            self.worker.is_slow = False
        if jobs is None:
            assert over, "the swap came to its end"
            home = self.manager.directory(log.home.path)
            assert home is not None
            home.write_cleaned_later()
            self.worker.work_off()

    def copy(self, partition: TopicPartition, epoch: int, batches: int, records: int = 2) -> None:
        """Append several batches at once, as a follower does."""
        new: list[bytes] = []
        for _ in range(batches):
            new.append(self._next(partition, epoch, records, len(new) * records))
        with self._doing("append", partition, batches=[batch.hex() for batch in new]):
            self.log(partition).append_as_follower(b"".join(new))

    def lead(self, partition: TopicPartition, epoch: int) -> None:
        log = self.log(partition)
        with self._doing("epoch", partition):
            log.assign_epoch(LeaderEpoch(epoch), log.log_end_offset)

    def cut(self, partition: TopicPartition, offset: int) -> None:
        with self._doing("cut", partition, offset=offset):
            if not self.log(partition).prepare_cut(Offset(offset)):
                self.settle(partition)
                self.worker.work_off()
            self.log(partition).truncate_to(Offset(offset))

    def start_over(self, partition: TopicPartition, offset: int) -> None:
        with self._doing("start over", partition, offset=offset):
            self.log(partition).truncate_fully_and_start_at(Offset(offset))

    def settle(self, partition: TopicPartition) -> None:
        """Have the disk know where the log was cut, or where it begins."""
        self.manager.settle([partition], lambda: None)
        self.worker.work_off()

    def commit(self, partition: TopicPartition, offset: int | None = None) -> None:
        """Let the high watermark rise to `offset`, or to the end."""
        log = self.log(partition)
        log.set_high_watermark(log.log_end_offset if offset is None else Offset(offset))

    def raise_start(self, partition: TopicPartition, offset: int) -> None:
        """Offer nothing below `offset`, which need not be where a segment begins."""
        self.commit(partition)
        with self._doing("raise start", partition, offset=offset):
            self.log(partition).maybe_increment_log_start(Offset(offset))

    def expire(self, partition: TopicPartition, kept_bytes: int) -> None:
        log = self.log(partition)
        self.commit(partition)
        self.manager.set_configs({partition.topic: msgspec.structs.replace(CONFIG, retention_bytes=kept_bytes)})
        with self._doing("expire", partition, offset=int(log.log_end_offset)) as done:
            list(self.manager.run_retention(self.clock.wall_ms()))
            done["offset"] = int(log.log_start_offset)
        self.manager.set_configs({partition.topic: CONFIG})

    def minute(self) -> None:
        """What the data loop does every minute: checkpoints, and what was deleted is removed."""
        self.clock.advance(60_000)
        logs = self.manager.all()
        marks = {partition: log.high_watermark for partition, log in logs.items()}
        starts = {str(partition): int(log.log_start_offset) for partition, log in logs.items()}
        told = {str(partition): int(mark) for partition, mark in marks.items()}
        with self._doing("checkpoint", None, marks=told, starts=starts):
            list(self.manager.checkpoint_recovery_points())
            self.manager.checkpoint_log_start_offsets()
            self.manager.checkpoint_high_watermarks(marks)
        self.manager.remove_deleted_files()
        self.worker.work_off()

    def delete(self, partition: TopicPartition) -> None:
        with self._doing("delete", partition):
            self.manager.delete_async(partition)
        self.sequences.pop(partition)

    def stray(self, partition: TopicPartition) -> None:
        """Put a log aside that the cluster does not know."""
        with self._doing("stray", partition):
            self.manager.mark_stray([partition])
        self.sequences.pop(partition)

    def begin_move(self, partition: TopicPartition, directory: str) -> None:
        self.manager.futures.create(self.log(partition), self._directory(directory))
        self.worker.work_off()

    def copy_moved(self, partition: TopicPartition, batches: int = 100) -> None:
        """Let the copy have so many batches more, one by one, or all there are."""
        future = self.manager.futures.get(partition)
        assert future is not None
        copy = DirectoryCopy(self.log(partition), future)
        while batches and not copy.is_level:
            with suppress(CutNotPrepared):
                copy.advance(1)
            if not future.is_settled:
                self.manager.futures.settle(partition, lambda: None)
            self.worker.work_off()
            batches -= 1

    def finish_move(self, partition: TopicPartition) -> None:
        told: list[bool] = []
        self.manager.futures.prepare(partition, told.append)
        self.worker.work_off()
        assert told == [True]
        self.manager.futures.swap(partition)
        self.worker.work_off()

    def tear(self, partition: TopicPartition, content: bytes) -> None:
        """Something that is no batch stands behind the last one, as after a write that was torn."""
        log = self.log(partition)
        path = log.directory / f"{log.segment_base_offsets[-1]:020d}.log"
        self.lose_power()
        tell(torn=str(partition))
        with path.open("ab") as file:
            file.write(content)

    def lose_page(self, partition: TopicPartition) -> None:
        """The second segment from the end lost its last bytes, which were not synced."""
        log = self.log(partition)
        base = log.segment_base_offsets[-2]
        path = log.directory / f"{base:020d}.log"
        assert log.recovery_point <= base, "what was synced is not lost"
        self.lose_power()
        with self._doing("lose", partition, offset=int(base)):
            os.truncate(path, path.stat().st_size - 10)

    def _directory(self, name: str) -> DirectoryLogs:
        found = self.manager.directory(self._dirs["ab".index(name)].absolute())
        assert found is not None
        return found

    def _next(self, partition: TopicPartition, epoch: int, records: int, ahead: int) -> bytes:
        base = self.log(partition).log_end_offset + ahead
        sequence = self.sequences[partition]
        self.sequences[partition] += records
        self.clock.advance(10)
        return make_batch(records, base, epoch, 9, sequence, self.clock.wall_ms())

    def _doing(self, what: str, partition: TopicPartition | None, **more: object) -> _Operation:
        return _Operation(self, {"op": what, "log": str(partition), **more})


class _Operation:
    """Tells of an operation before, and that it is done after; then the worker pool gets to its work."""

    def __init__(self, broker: Broker, what: dict[str, object]) -> None:
        self._broker = broker
        self._what = what
        self._done: dict[str, object] = {"done": True}

    def __enter__(self) -> dict[str, object]:
        tell(**self._what)
        return self._done

    def __exit__(self, *_: object) -> None:
        if self._what["op"] == "checkpoint":
            self._broker.worker.work_off()
        tell(**self._done)
        self._broker.worker.work_off()
