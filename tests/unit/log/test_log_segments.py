"""When a log begins a new segment, and what it writes into the indexes of one."""

from __future__ import annotations

import struct

import pytest

from regency.model.ids import TopicPartition
from regency.model.settings.log_config import LogConfig

NOW = 1_700_000_000_000


def append(log, batch, timestamp):
    return log.append_as_leader(batch(timestamp), 0, NOW)


def test_segments_roll_by_size(disk, batch):
    disk.config = LogConfig(segment_bytes=2 * len(batch(1)) + 10)
    log = disk.log()
    for _ in range(5):
        append(log, batch, 1)
    assert log.segment_base_offsets == (0, 2, 4)
    assert sorted(path.name for path in log.directory.glob("*.snapshot")) == [
        "00000000000000000002.snapshot",
        "00000000000000000004.snapshot",
    ]


def test_segments_roll_by_the_age_of_their_records_else_by_the_clock(disk, batch):
    disk.config = LogConfig(segment_ms=1000)
    log = disk.log()
    created = disk.clock.wall_ms()
    log.append_as_leader(batch(5000), 0, created)
    log.append_as_leader(batch(6000), 0, created + 99_999)
    assert log.segment_base_offsets == (0,)
    log.append_as_leader(batch(6001), 0, created)
    assert log.segment_base_offsets == (0, 2)


def test_records_without_timestamps_age_by_the_clock(disk, batch, patched):
    disk.config = LogConfig(segment_ms=1000)
    log = disk.log()
    timeless = patched(batch(1), 27, struct.pack(">qq", -1, -1))
    created = disk.clock.wall_ms()
    log.append_as_leader(timeless, 0, created)
    log.append_as_leader(timeless, 0, created + 1000)
    log.append_as_leader(timeless, 0, created + 1001)
    assert log.segment_base_offsets == (0, 2)


def test_jitter_rolls_earlier_and_always_at_the_same_age(disk, batch):
    disk.config = LogConfig(segment_ms=1000, segment_jitter_ms=900)
    logs = [disk.log(TopicPartition("jitter", number)) for number in range(4)]
    ages = []
    for log in logs:
        log.append_as_leader(batch(0), 0, 0)
        ages.append(next(age for age in range(1001) if len(rolled_at(log, batch, age)) == 2))
    assert all(100 <= age <= 1001 for age in ages)
    assert len(set(ages)) > 1


def rolled_at(log, batch, age):
    log.append_as_leader(batch(age), 0, 0)
    return log.segment_base_offsets


def test_segments_roll_when_an_index_is_full(disk, batch):
    disk.config = LogConfig(index_interval_bytes=0, segment_index_bytes=12 * 3)
    log = disk.log()
    for timestamp in range(8):
        append(log, batch, 1000 + timestamp)
    assert log.segment_base_offsets == (0, 3, 6)


def test_an_offset_too_far_from_the_base_begins_a_segment(disk, batch, patched):
    log = disk.log()
    log.append_as_follower(batch(1, base=0))
    log.append_as_follower(patched(batch(1, base=1), 23, struct.pack(">i", 2**31 - 2)))
    assert (log.segment_base_offsets, log.log_end_offset) == ((0,), 2**31)
    log.append_as_follower(batch(1, base=2**31))
    assert log.segment_base_offsets == (0, 2**31)


def test_index_entries_are_those_worked_out_by_hand(disk, batch):
    size = len(batch(1))
    disk.config = LogConfig(index_interval_bytes=2 * size)
    log = disk.log()
    for timestamp in (10, 11, 12, 5, 6, 7, 20, 8, 9):
        append(log, batch, timestamp)
    # counted before each append: an entry at the first batch that comes after more than 2 sizes
    assert (log.directory / f"{0:020d}.index").read_bytes() == struct.pack(">4I", 3, 3 * size, 6, 6 * size)
    assert (log.directory / f"{0:020d}.timeindex").read_bytes() == struct.pack(">qIqI", 12, 2, 20, 6)


@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_last_segment_needs_no_index(disk, batch, clean):
    """KAFKA-13603."""
    log = disk.log()
    append(log, batch, 1)
    log.roll()
    log = disk.reopen(clean=clean)
    if clean:
        disk.manager.close()
        disk.manager = None
    else:
        disk.crash()
    for suffix in (".index", ".timeindex"):
        (log.directory / f"{1:020d}{suffix}").unlink()
    log = disk.open().get(log.topic_partition)
    assert (log.segment_base_offsets, log.log_end_offset) == ((0, 1), 1)
    append(log, batch, 2)
    assert (log.log_end_offset, disk.failures) == (2, [])
