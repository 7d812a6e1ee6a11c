"""Cutting a log back: what is dropped, what follows from it, and what is on the disk when the call returns."""

from __future__ import annotations

import pytest

from regency.broker_agent.log.errors import CutNotPrepared
from regency.broker_agent.steps import at_once
from regency.kafka.logfiles.checkpoints import read_epochs, read_offsets
from regency.kafka.record_batch import iter_batches
from regency.model.settings.log_config import LogConfig
from regency.runtime.disk import OsDisk

NOW = 1_700_000_000_000


def fill(log, batch, *epochs, count=2):
    for number, epoch in enumerate(epochs):
        log.append_as_leader(batch(*[1000 + number] * count), epoch, NOW)
    return log


def all_offsets(log):
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        records = log.read(offset, 1 << 20, max_offset=log.log_end_offset, min_one_batch=True).records
        headers = [header for _, header in iter_batches(records)]
        found += [(header.base_offset, header.last_offset) for header in headers]
        offset = headers[-1].next_offset
    return found


def test_batches_from_the_offset_on_are_dropped(disk, batch):
    log = fill(disk.log(), batch, 0, 0, 0)
    log.set_high_watermark(6)
    assert log.truncate_to(4)
    assert (log.log_end_offset, log.high_watermark, all_offsets(log)) == (4, 4, [(0, 1), (2, 3)])
    assert log.size_bytes == (log.directory / f"{0:020d}.log").stat().st_size
    fill(log, batch, 0)
    assert all_offsets(log) == [(0, 1), (2, 3), (4, 5)]


def test_a_batch_that_straddles_the_offset_goes_too(disk, batch):
    log = fill(disk.log(), batch, 0, 0, 0)
    assert log.truncate_to(3)
    assert (log.log_end_offset, all_offsets(log)) == (2, [(0, 1)])


@pytest.mark.parametrize("offset", [6, 7])
def test_at_or_beyond_the_end_only_epochs_without_records_go(disk, batch, offset):
    log = fill(disk.log(), batch, 0, 0, 2)
    log.assign_epoch(5, 6)
    assert not log.truncate_to(offset)
    assert (log.log_end_offset, log.epoch_entries) == (6, ((0, 0), (2, 4)))


def test_epochs_of_dropped_batches_are_forgotten(disk, batch):
    log = fill(disk.log(), batch, 0, 1, 2)
    log.truncate_to(4)
    assert log.epoch_entries == ((0, 0), (1, 2))
    log.truncate_to(0)
    assert (log.epoch_entries, log.last_batch_epoch) == ((), -1)
    disk.manager.settle([log.topic_partition], lambda: None)
    assert read_epochs(OsDisk(), log.directory / "leader-epoch-checkpoint") == []


def test_later_segments_are_dropped_whole_and_removed_later(disk, batch):
    disk.config = LogConfig(segment_bytes=len(batch(1, 1)))
    log = fill(disk.log(), batch, 0, 0, 0, 0)
    assert log.segment_base_offsets == (0, 2, 4, 6)

    disk.cut(log, 3)

    assert (log.segment_base_offsets, log.log_end_offset) == ((0, 2), 2)
    deleted = sorted(path.name for path in log.directory.glob("*.deleted"))
    assert [name for name in deleted if ".log." in name] == [f"{4:020d}.log.deleted", f"{6:020d}.log.deleted"]
    disk.manager.remove_deleted_files()
    assert len(list(log.directory.glob("*.deleted"))) == len(deleted)
    disk.clock.advance(disk.config.file_delete_delay_ms)
    disk.manager.remove_deleted_files()
    assert list(log.directory.glob("*.deleted")) == []
    fill(log, batch, 0)
    assert all_offsets(log) == [(0, 1), (2, 3)]


def test_below_the_first_segment_the_log_begins_anew(disk, batch):
    log = disk.log()
    log.truncate_fully_and_start_at(10)
    fill(log, batch, 3)
    assert log.truncate_to(4)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset, log.epoch_entries) == (4, 4, 4, ())
    assert log.segment_base_offsets == (4,)


def test_starting_over_drops_everything(disk, batch):
    log = fill(disk.log(), batch, 0, 1, 2)
    log.set_high_watermark(6)
    log.roll()
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (100, 100, 100)
    assert (log.segment_base_offsets, log.epoch_entries, log.size_bytes) == ((100,), (), 0)
    assert not list(log.directory.glob("*.snapshot"))
    assert log.append_as_leader(batch(1), 5, NOW).base_offset == 100


def test_starting_over_at_the_same_offset_keeps_nothing(disk, batch):
    log = fill(disk.log(), batch, 0)
    log.truncate_fully_and_start_at(0)
    assert (log.log_end_offset, log.size_bytes, all_offsets(log)) == (0, 0, [])
    fill(log, batch, 1)
    assert all_offsets(log) == [(0, 1)]


def test_below_the_log_start_the_log_start_follows(disk, batch):
    log = fill(disk.log(), batch, 0, 0, 0)
    log.set_high_watermark(6)
    log.maybe_increment_log_start(5)
    assert log.truncate_to(2)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (2, 2, 2)


def test_a_lowered_recovery_point_is_on_the_disk_before_anything_is_appended(disk, batch):
    log = fill(disk.log(), batch, 0, 0, 0)
    log.flush()
    list(disk.manager.checkpoint_recovery_points())
    path = disk.dirs[0] / "recovery-point-offset-checkpoint"
    assert read_offsets(OsDisk(), path) == {("flights", 3): 6}
    with pytest.raises(CutNotPrepared, match="of flights-3 above 4"):
        log.truncate_to(4)
    assert log.log_end_offset == 6
    disk.cut(log, 4)
    assert (log.recovery_point, read_offsets(OsDisk(), path)) == (4, {("flights", 3): 4})
    log.truncate_fully_and_start_at(1)
    fill(log, batch, 0)
    assert read_offsets(OsDisk(), path) == {("flights", 3): 1}


def test_a_recovery_point_rises_to_where_a_log_begins_anew_when_nothing_of_it_can_come_back(disk, batch):
    log = fill(disk.log(), batch, 0)
    log.truncate_fully_and_start_at(100)
    assert log.recovery_point == 0
    disk.manager.settle([log.topic_partition], lambda: None)
    assert (log.recovery_point, log.is_settled) == (100, True)


def test_a_lowered_log_start_is_on_the_disk_too(disk, batch):
    log = fill(disk.log(), batch, 0, 0, 0)
    log.set_high_watermark(6)
    log.maybe_increment_log_start(5)
    disk.manager.checkpoint_log_start_offsets()
    path = disk.dirs[0] / "log-start-offset-checkpoint"
    assert read_offsets(OsDisk(), path) == {("flights", 3): 5}
    log.truncate_to(2)
    assert log.log_start_offset == 2
    fill(log, batch, 0)
    assert read_offsets(OsDisk(), path) == {}  # it is where the first segment begins


def test_producers_are_as_before_the_dropped_batches(disk, batch):
    log = disk.log()
    for sequence in range(4):
        log.append_as_leader(batch(1, producer=(9, 0, sequence)), 0, NOW)
    log.truncate_to(2)
    again = log.append_as_leader(batch(1, producer=(9, 0, 1)), 0, NOW)
    assert (again.base_offset, again.duplicate) == (1, True)
    assert log.append_as_leader(batch(1, producer=(9, 0, 2)), 0, NOW).base_offset == 2


def test_producers_of_which_nothing_is_in_memory_are_read_from_the_batches(disk, batch):
    log = disk.log()
    log.append_as_leader(batch(1, producer=(9, 0, 0)), 0, NOW)
    log.roll()
    log.append_as_leader(batch(1, producer=(9, 1, 0)), 0, NOW)
    log.append_as_leader(batch(1, producer=(8, 0, 0)), 0, NOW)
    log.truncate_to(1)
    again = log.append_as_leader(batch(1, producer=(9, 0, 0)), 0, NOW)
    assert (again.base_offset, again.duplicate) == (0, True)
    assert log.append_as_leader(batch(1, producer=(8, 0, 5)), 0, NOW).base_offset == 1


def test_where_nothing_is_left_producers_are_forgotten(disk, batch):
    log = disk.log()
    for sequence in range(4):
        log.append_as_leader(batch(1, producer=(9, 2, sequence)), 0, NOW)
    log.set_high_watermark(4)
    log.maybe_increment_log_start(2)
    assert log.truncate_to(2)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    followed = batch(1, base=2, epoch=1, producer=(9, 1, 7))
    log.append_as_follower(followed)
    assert log.append_as_leader(batch(1, producer=(9, 1, 8)), 0, NOW).base_offset == 3


def test_index_and_time_lookups_hold_after_a_cut(disk, batch):
    disk.config = LogConfig(index_interval_bytes=100)
    log = disk.log()
    for timestamp in range(100, 150):
        log.append_as_leader(batch(timestamp), 0, NOW)
    log.truncate_to(20)
    for timestamp in range(200, 240):
        log.append_as_leader(batch(timestamp), 0, NOW)
    end = log.log_end_offset
    assert [
        header.base_offset for _, header in iter_batches(log.read(30, 1, max_offset=end, min_one_batch=True).records)
    ] == [30]
    assert [at_once(log.offset_for_timestamp(at, end))[:2] for at in (110, 119, 120, 205)] == [
        (110, 10),
        (119, 19),
        (200, 20),
        (205, 25),
    ]
    assert at_once(log.offset_for_timestamp(240, end)) is None
