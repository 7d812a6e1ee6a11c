"""Builders for tests of the log: batches of a client library, a worker run by hand, directories that crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar
from uuid import UUID

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.log.partition_log import PartitionLog
from regency.kafka.record_batch import compute_crc, read_header, stamp
from regency.model.clock import ManualClock
from regency.model.ids import BrokerId, Offset, TopicId, TopicPartition
from regency.model.settings.log_config import LogConfig

T = TypeVar("T")

TP = TopicPartition("flights", 3)
TOPIC_ID = TopicId(UUID("00112233-4455-6677-8899-aabbccddeeff"))
CLUSTER_ID = "q5uOQi2bQFOuDqYkzT1kXg"


class QueuedWorker:
    """A worker pool that does its work when told to; `inline` does it at once."""

    def __init__(self, *, inline: bool = True) -> None:
        self.inline = inline
        self.queue: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        def job() -> None:
            outcome: T | BaseException
            try:
                outcome = work()
            except OSError as error:
                outcome = error
            done(outcome)

        if self.inline:
            job()
        else:
            self.queue.append(job)

    def run(self) -> None:
        while self.queue:
            self.queue.pop(0)()


class MakeBatch(Protocol):
    def __call__(
        self,
        *timestamps: int,
        base: int = 0,
        epoch: int = -1,
        producer: tuple[int, int, int] = (-1, -1, -1),
        codec: int = 0,
        value: bytes = b"v",
        transactional: bool = False,
    ) -> bytes: ...


def make_batch(
    *timestamps: int,
    base: int = 0,
    epoch: int = -1,
    producer: tuple[int, int, int] = (-1, -1, -1),
    codec: int = 0,
    value: bytes = b"v",
    transactional: bool = False,
) -> bytes:
    """A batch with one record per timestamp, built by aiokafka, at offset `base` and leader epoch `epoch`."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=int(transactional),
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        batch_size=1 << 24,
    )
    for number, timestamp in enumerate(timestamps or (1000,)):
        assert builder.append(number, timestamp=timestamp, key=None, value=value, headers=[])
    batch = bytearray(builder.build())
    stamp(batch, base, epoch)
    return bytes(batch)


def with_header(batch: bytes, at: int, content: bytes) -> bytes:
    """`batch` with some header bytes replaced and the checksum renewed."""
    changed = bytearray(batch)
    changed[at : at + len(content)] = content
    changed[17:21] = compute_crc(changed, read_header(changed)).to_bytes(4, "big")
    return bytes(changed)


class Disk:
    """Log directories of one broker, which can be opened, crashed and opened again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock()
        self.worker = QueuedWorker()
        self.config = LogConfig()
        self.failures: list[tuple[Path, str]] = []
        self.dirs = [root / "a"]
        self.manager: LogManager | None = None

    def open(self, **overrides: object) -> LogManager:
        options = {"broker_id": BrokerId(1), "cluster_id": CLUSTER_ID, "recovery_threads": 2, **overrides}
        self.manager = LogManager.open(
            self.dirs,
            self.config,
            clock=self.clock,
            worker=self.worker,
            on_dir_failure=lambda path, reason: self.failures.append((path, reason)),
            **options,
        )
        return self.manager

    def crash(self) -> None:
        """The process dies: descriptors and locks are gone, nothing is flushed or marked."""
        assert self.manager is not None
        self.manager._services.files.close_all()
        for directory in self.manager._directories:
            directory.unlock()
        self.manager = None

    def log(self, partition: TopicPartition = TP) -> PartitionLog:
        """The log of `partition`, created if need be, in an open manager."""
        manager = self.manager or self.open()
        return manager.create(partition, TOPIC_ID, self.config, is_new=True)

    def cut(self, log: PartitionLog, offset: int) -> bool:
        """Truncate as a follower does: a log that has to be settled first is."""
        assert self.manager is not None
        if not log.prepare_cut(Offset(offset)):
            self.manager.settle([log.topic_partition], lambda: None)
            if not self.worker.inline:
                self.worker.queue.pop()()
        return log.truncate_to(Offset(offset))

    def reopen(self, *, clean: bool, partition: TopicPartition = TP) -> PartitionLog:
        """Close or crash, open again, and return the log."""
        if clean:
            assert self.manager is not None
            self.manager.close()
            self.manager = None
        else:
            self.crash()
        found = self.open().get(partition)
        assert found is not None
        return found


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    yield disk
    if disk.manager is not None:
        disk.crash()


@pytest.fixture
def batch() -> MakeBatch:
    return make_batch


@pytest.fixture
def patched() -> Callable[[bytes, int, bytes], bytes]:
    return with_header


@pytest.fixture
def small(disk, batch):
    """A disk whose segments hold four single-record batches and whose indexes hold every second one."""
    size = len(batch(1))
    disk.config = LogConfig(segment_bytes=4 * size, index_interval_bytes=size)
    return disk
