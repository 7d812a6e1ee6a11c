"""Old segments go by time, size and log start, never above the high watermark; lookups by time; flushing."""

from __future__ import annotations

from pathlib import Path

import pytest

from regency.broker_agent.log.errors import OffsetOutOfRange
from regency.broker_agent.log.retention import SegmentFacts, expired_segments
from regency.broker_agent.steps import at_once
from regency.model.ids import TopicPartition
from regency.model.settings.log_config import LogConfig
from regency.runtime.disk import OsDisk

NOW = 1_700_000_000_000


def segments(*facts):
    return [SegmentFacts(size, timestamp, upper) for size, timestamp, upper in facts]


def expired(facts, config, *, start=0, hw=100, now=NOW):
    return expired_segments(segments(*facts), config, log_start=start, high_watermark=hw, now_ms=now)


THREE = [(5, NOW - 300, 5), (5, NOW - 200, 10), (5, NOW - 100, 15)]


@pytest.mark.parametrize(
    ("config", "options", "count"),
    [
        (LogConfig(retention_ms=-1), {}, 0),
        (LogConfig(retention_ms=300), {}, 0),
        (LogConfig(retention_ms=299), {}, 1),
        (LogConfig(retention_ms=150), {}, 2),
        (LogConfig(retention_ms=0), {}, 3),
        (LogConfig(retention_ms=0), {"hw": 9}, 1),
        (LogConfig(retention_ms=0), {"hw": 0}, 0),
        (LogConfig(retention_ms=-1, retention_bytes=15), {}, 0),
        (LogConfig(retention_ms=-1, retention_bytes=11), {}, 0),
        (LogConfig(retention_ms=-1, retention_bytes=10), {}, 1),
        (LogConfig(retention_ms=-1, retention_bytes=0), {}, 3),
        (LogConfig(retention_ms=-1), {"start": 10}, 2),
        (LogConfig(retention_ms=0, retention_bytes=0, cleanup_policy=("compact",)), {}, 0),
        (LogConfig(cleanup_policy=("compact",)), {"start": 5}, 1),
        (LogConfig(retention_ms=0, cleanup_policy=("compact", "delete")), {}, 3),
    ],
)
def test_how_many_segments_expire(config, options, count):
    assert expired(THREE, config, **options).segments == count


def test_an_empty_segment_is_not_deleted_and_the_first_that_stays_ends_the_run():
    assert expired([(5, 0, 5), (0, 0, 5)], LogConfig(retention_ms=0)).segments == 1
    assert expired([(5, 0, 5), (5, NOW, 10), (5, 0, 15)], LogConfig(retention_ms=1)).segments == 1
    assert expired(THREE, LogConfig(retention_ms=250, retention_bytes=5)).why == "retention.bytes 5"


@pytest.fixture
def log(disk, batch):
    disk.config = LogConfig(segment_bytes=2 * len(batch(1)), retention_ms=1000, file_delete_delay_ms=60_000)
    log = disk.log()
    for number in range(6):
        log.append_as_leader(batch(NOW + number), number // 2, NOW)
    return log


def test_expired_segments_go_and_the_log_start_follows(disk, log):
    log.set_high_watermark(5)
    list(disk.manager.run_retention(NOW + 1004))
    assert (log.segment_base_offsets, log.log_start_offset, log.epoch_entries) == ((4,), 4, ((2, 4),))
    with pytest.raises(OffsetOutOfRange):
        log.read(3, 100, max_offset=6, min_one_batch=True)
    assert list(log.directory.glob("*.deleted"))
    disk.clock.advance(60_000)
    disk.manager.remove_deleted_files()
    assert not list(log.directory.glob("*.deleted"))


def test_when_all_expire_an_empty_segment_remains_at_the_end(disk, log):
    log.set_high_watermark(6)
    list(disk.manager.run_retention(NOW + 99_999))
    assert (log.segment_base_offsets, log.log_start_offset, log.log_end_offset) == ((6,), 6, 6)
    assert log.epoch_entries == ((2, 6),)
    list(disk.manager.run_retention(NOW + 999_999))
    assert log.segment_base_offsets == (6,)


def test_nothing_above_the_high_watermark_expires(disk, log):
    list(disk.manager.run_retention(NOW + 99_999))
    assert (log.log_start_offset, len(log.segment_base_offsets)) == (0, 3)


def test_records_below_the_high_watermark_expire_segment_by_segment(disk, log):
    for high_watermark in range(7):
        log.set_high_watermark(high_watermark)
        list(disk.manager.run_retention(NOW + 99_999))
        first, *others = log.segment_base_offsets
        assert first <= log.log_start_offset <= high_watermark
        assert all(base > high_watermark for base in others) or high_watermark == 6
    assert (log.log_start_offset, log.log_end_offset, log.segment_base_offsets) == (6, 6, (6,))


def test_the_recovery_point_follows_a_background_flush_only_when_it_is_done(disk, batch):
    disk.worker.inline = False
    log = disk.log()
    log.append_as_leader(batch(1), 0, NOW)
    log.flush_in_background()
    assert log.recovery_point == 0
    log.append_as_leader(batch(1), 0, NOW)
    disk.worker.run()
    assert log.recovery_point == 1


def test_a_background_flush_of_what_was_cut_off_meanwhile_counts_for_nothing(disk, batch):
    disk.worker.inline = False
    log = disk.log()
    log.append_as_leader(batch(1), 0, NOW)
    log.append_as_leader(batch(1), 0, NOW)
    log.flush_in_background()
    log.truncate_to(1)
    log.append_as_leader(batch(1), 1, NOW)
    disk.worker.run()
    assert log.recovery_point == 0


def test_a_background_flush_takes_no_descriptor_before_it_begins(disk, batch):
    disk.worker.inline = False
    log = disk.log()
    log.append_as_leader(batch(1), 0, NOW)
    taken = len(list(Path("/proc/self/fd").iterdir())) - len(disk.manager._services.files)
    log.roll()
    log.flush_in_background()
    assert len(list(Path("/proc/self/fd").iterdir())) - len(disk.manager._services.files) == taken


@pytest.mark.parametrize("delay_ms", [0, 1])
def test_a_background_flush_syncs_what_expires_while_it_runs(disk, batch, monkeypatch, delay_ms):
    disk.worker.inline = False
    log = disk.log()
    log.append_as_leader(batch(1), 0, NOW)
    disk.worker.run()
    log.roll()
    log.set_high_watermark(1)
    log.config = LogConfig(retention_ms=1, file_delete_delay_ms=delay_ms)
    synced = []

    def sync_path(_, path):
        if path.suffix == ".index":
            list(disk.manager.run_retention(NOW))
        path.stat()
        synced.append(path.name)

    monkeypatch.setattr(OsDisk, "sync_path", sync_path)
    disk.worker.queue.pop(0)()
    assert log.recovery_point == 0, "a power cut could bring the segment back without its index"
    assert {f"{0:020d}.log", f"{0:020d}.timeindex.deleted"} < set(synced)
    assert all(".index" not in name for name in synced)
    synced.clear()
    disk.worker.run()
    assert (log.recovery_point, synced[-1]) == (1, log.directory.name)
    assert (f"{0:020d}.index.deleted" in synced) == bool(delay_ms)


def test_rolling_flushes_what_is_rolled(disk, batch):
    log = disk.log()
    log.append_as_leader(batch(1), 0, NOW)
    log.roll()
    log.append_as_leader(batch(1), 0, NOW)
    assert (log.recovery_point, log.segment_base_offsets) == (1, (0, 1))
    log.roll()
    log.roll()
    assert log.segment_base_offsets == (0, 1, 2)


def test_the_name_of_a_new_segment_is_synced_before_the_recovery_point_passes_it(disk, batch, monkeypatch):
    synced: list[Path] = []
    sync_path = OsDisk.sync_path

    def note(self: OsDisk, path: Path) -> None:
        if path.is_dir():
            synced.append(path)
        sync_path(self, path)

    monkeypatch.setattr(OsDisk, "sync_path", note)
    disk.config = LogConfig(segment_bytes=len(batch(1)))
    log = disk.log()
    synced.clear()
    log.append_as_leader(batch(1), 0, NOW)
    log.flush()
    assert (synced, log.recovery_point) == ([log.directory, disk.dirs[0]], 1)  # the log itself is new, too
    log.append_as_leader(batch(2), 0, NOW)
    assert (log.segment_base_offsets, log.recovery_point) == ((0, 1), 1)
    assert synced[2:] == [log.directory]  # for the snapshot of producers
    synced.clear()
    log.flush_in_background()
    assert (synced, log.recovery_point) == ([log.directory], 2)
    log.append_as_leader(batch(3), 0, NOW)
    log.flush()
    log.flush()
    assert (synced, log.recovery_point) == ([log.directory] * 3, 3)


def test_flush_ms_syncs_when_it_has_passed(disk, batch):
    disk.config = LogConfig(flush_ms=1000)
    log = disk.log()
    disk.clock.advance(5000)
    list(disk.manager.flush_dirty_logs())
    log.append_as_leader(batch(1), 0, NOW)
    list(disk.manager.flush_dirty_logs())
    assert log.recovery_point == 1
    log.append_as_leader(batch(1), 0, NOW)
    disk.clock.advance(999)
    list(disk.manager.flush_dirty_logs())
    assert log.recovery_point == 1
    disk.clock.advance(1)
    list(disk.manager.flush_dirty_logs())
    assert log.recovery_point == 2


@pytest.mark.parametrize("codec", [0, 1])
def test_a_timestamp_finds_the_first_record_not_older(disk, batch, codec):
    disk.config = LogConfig(index_interval_bytes=150, segment_bytes=600)
    log = disk.log()
    for first in range(100, 200, 10):
        log.append_as_leader(batch(first, first + 2, first + 1, codec=codec), first // 50, NOW)
    end = log.log_end_offset
    assert len(log.segment_base_offsets) > 1
    for asked, timestamp, offset, epoch in (
        (0, 100, 0, 2),
        (100, 100, 0, 2),
        (101, 102, 1, 2),
        (103, 110, 3, 2),
        (150, 150, 15, 3),
        (192, 192, 28, 3),
    ):
        assert at_once(log.offset_for_timestamp(asked, end)) == (timestamp, offset, epoch)
    assert at_once(log.offset_for_timestamp(193, end)) is None
    assert at_once(log.offset_for_timestamp(192, 28)) is None
    assert at_once(log.greatest_timestamp(end)) == (192, 28, 3)
    assert at_once(log.greatest_timestamp(15)) == (142, 13, 2)
    assert at_once(log.greatest_timestamp(0)) is None


def test_records_below_the_log_start_are_not_found_by_time(disk, batch):
    log = disk.log()
    log.append_as_leader(batch(10, 20, 30), 0, NOW)
    log.set_high_watermark(3)
    log.maybe_increment_log_start(1)
    assert at_once(log.offset_for_timestamp(5, 3)) == (20, 1, 0)


def test_an_opaque_batch_stands_for_its_records(disk, batch, patched):
    log = disk.log()
    lz4 = patched(batch(10, 20, 30), 21, b"\x00\x03")
    nonsense = patched(batch(40, 50), 61, b"\xff" * 8)
    log.append_as_leader(lz4, 0, NOW)
    log.append_as_leader(nonsense, 0, NOW)
    assert at_once(log.offset_for_timestamp(10, 9)) == (10, 0, 0)
    assert at_once(log.offset_for_timestamp(15, 9)) == (30, 0, 0)
    assert at_once(log.offset_for_timestamp(45, 9)) == (50, 3, 0)


@pytest.mark.parametrize("length", [0, -1, -5, 2**31 - 1])
def test_records_that_contradict_themselves_cost_no_time(disk, batch, patched, length):
    """A producer may claim two billion records of no or negative length in a hundred bytes."""
    body = bytearray()
    rest = (length << 1) ^ (length >> 63)
    while rest > 0x7F:
        body.append(rest & 0x7F | 0x80)
        rest >>= 7
    body.append(rest)
    many = (2**31 - 2).to_bytes(4, "big") + (2**31 - 1).to_bytes(4, "big")
    hostile = patched(patched(patched(batch(1000, 2000), 61, bytes(body)), 23, many[:4]), 57, many[4:])
    log = disk.log()
    log.append_as_leader(hostile, 0, NOW)
    assert at_once(log.offset_for_timestamp(1500, log.log_end_offset)) == (2000, 0, 0)


def test_log_append_time_is_the_timestamp_of_every_record(disk, batch):
    disk.config = LogConfig(message_timestamp_type="LogAppendTime")
    log = disk.log()
    log.append_as_leader(batch(1, 2), 0, NOW)
    assert at_once(log.offset_for_timestamp(NOW - 5, 2)) == (NOW, 0, 0)


def test_logs_whose_indexes_are_built_anew_hold_up_no_others_and_all_are_at_once(disk, batch):
    disk.config = LogConfig(index_interval_bytes=5 * len(batch(NOW)))
    names = [TopicPartition("flights", number) for number in range(3)]
    for name in names:
        log = disk.log(name)
        for number in range(90):
            if number in (30, 60):
                log.roll()
            log.append_as_leader(batch(NOW + number), 0, NOW)
    directories = [disk.manager.get(name).directory for name in names[:2]]
    disk.manager.close()
    for directory in directories:
        for base in (0, 30):
            path = directory / f"{base:020d}.timeindex"
            content = bytearray(path.read_bytes())
            content[-12 + 7] ^= 1  # of a clean log, the last entries are not looked at when it is opened
            path.write_bytes(content)
    logs = disk.open()
    disk.worker.inline = False
    for name in names:
        log = logs.get(name)
        log.set_high_watermark(log.log_end_offset)
        log.config = LogConfig(retention_ms=1)

    def starts_after_a_round():
        disk.clock.advance(300_000)
        at_once(logs.run_retention(NOW + 10**10))
        return [logs.get(name).log_start_offset for name in names]

    assert starts_after_a_round() == [0, 0, 90]
    disk.worker.run()
    assert starts_after_a_round() == [90, 90, 90]
