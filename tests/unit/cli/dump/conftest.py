"""A log directory as a broker leaves it: three segments of one partition, written by the log itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import msgspec
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from regency.broker_agent.log.directories.log_manager import LogManager
from regency.kafka.record_batch import stamp
from regency.model.clock import ManualClock
from regency.model.ids import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from regency.model.settings.log_config import LogConfig

T = TypeVar("T")
TP = TopicPartition("flights", 3)
TOPIC_ID = TopicId(UUID("00112233-4455-6677-8899-aabbccddeeff"))
BATCHES = 300


class Inline:
    """Does its work at once."""

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        done(work())


def a_batch(number: int, *, codec: int = 0) -> bytearray:
    """Two records of an idempotent producer, the second 1 ms younger; compressed by kafka-python."""
    builder = (KafkaPythonBuilder if codec else DefaultRecordBatchBuilder)(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=7,
        producer_epoch=0,
        base_sequence=2 * number,
        batch_size=1 << 20,
    )
    for index in range(2):
        value = (b"value %d" % (2 * number + index)) * (100 if codec else 1)  # what does not shrink is not compressed
        headers = [("trace", b"%d" % number)]
        assert builder.append(index, timestamp=1_000 + 2 * number + index, key=b"k", value=value, headers=headers)
    return bytearray(builder.build())


@pytest.fixture
def two_batches() -> Callable[..., bytes]:
    """Content of a segment with two batches from offset `base` on, by their numbers."""

    def content(base: int, *numbers: int) -> bytes:
        batches = [a_batch(number) for number in numbers]
        for index, batch in enumerate(batches):
            stamp(batch, Offset(base + 2 * index), LeaderEpoch(0))
        return b"".join(batches)

    return content


@pytest.fixture
def compressed() -> Callable[[int], bytes]:
    """A batch at offset 900 in the codec of that number."""

    def batch(codec: int) -> bytes:
        made = a_batch(0, codec=codec)
        stamp(made, Offset(900), LeaderEpoch(0))
        return bytes(made)

    return batch


class Stored:
    """A log directory, its partition's directory, and the files of its first segment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "flights-3"

    def file(self, suffix: str, base: int = 0) -> Path:
        return self.directory / f"{base:020d}{suffix}"

    @property
    def bases(self) -> list[int]:
        return sorted(int(path.stem) for path in self.directory.glob("*.log"))

    def flip(self, path: Path, at: int) -> None:
        content = bytearray(path.read_bytes())
        content[at] ^= 0x40
        path.write_bytes(content)


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    clock, config = ManualClock(), msgspec.structs.replace(LogConfig(), segment_bytes=16_384, index_interval_bytes=500)
    root = tmp_path / "data"
    manager = LogManager.open(
        [root],
        config,
        broker_id=BrokerId(1),
        cluster_id="q5uOQi2bQFOuDqYkzT1kXg",
        clock=clock,
        worker=Inline(),
        recovery_threads=1,
        on_dir_failure=lambda path, reason: pytest.fail(f"{path}: {reason}"),
    )
    log = manager.create(TP, TOPIC_ID, config, is_new=True)
    for number in range(BATCHES):
        epoch = LeaderEpoch(number // 100)
        log.assign_epoch(epoch, log.log_end_offset)
        log.append_as_leader(memoryview(a_batch(number)), epoch, clock.wall_ms())
    manager.checkpoint_high_watermarks({TP: log.log_end_offset})
    manager.close()
    return Stored(root)
