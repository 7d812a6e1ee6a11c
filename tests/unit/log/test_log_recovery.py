"""What is on the disk after a crash, and what becomes of it."""

from __future__ import annotations

import shutil
import struct

import pytest
from crc32c import crc32c

from regency.broker_agent.log.errors import RecordsRejected
from regency.kafka.logfiles.checkpoints import read_offsets
from regency.kafka.record_batch import iter_batches
from regency.model.ids import ZERO_TOPIC_ID, TopicPartition
from regency.model.settings.log_config import LogConfig
from regency.runtime.disk import OsDisk

NOW = 1_700_000_000_000


def fill(log, batch, count, *, epoch=0, timestamp=1000):
    for number in range(count):
        log.append_as_leader(batch(timestamp + number), epoch, NOW)
    return log


def content(log):
    return {
        path.name: path.read_bytes()
        for path in log.directory.iterdir()
        if path.suffix in (".log", ".index", ".timeindex")
    }


def log_file(log, base=0):
    return log.directory / f"{base:020d}.log"


def read_all(log):
    found, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        records = log.read(offset, 1 << 20, max_offset=log.log_end_offset, min_one_batch=True).records
        found += records
        offset = [header for _, header in iter_batches(records)][-1].next_offset
    return found


def test_a_clean_restart_finds_everything_and_reads_nothing_again(small, batch):
    log = fill(small.log(), batch, 10, epoch=3)
    log.append_as_leader(batch(1, producer=(9, 0, 0)), 4, NOW)
    log.set_high_watermark(11)
    small.manager.checkpoint_high_watermarks({log.topic_partition: log.high_watermark})

    log = small.reopen(clean=True)

    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 11, 11)
    assert (log.epoch_entries, log.last_batch_epoch) == (((3, 0), (4, 10)), 4)
    assert small.manager.high_watermark_checkpoint(log.topic_partition) == 11
    again = log.append_as_leader(batch(1, producer=(9, 0, 0)), 4, NOW)
    assert (again.base_offset, again.duplicate) == (10, True)
    assert log.segment_base_offsets == (0, 4, 8)


def test_indexes_are_the_same_whether_recovered_or_not(small, batch):
    log = fill(small.log(), batch, 11)
    log = small.reopen(clean=True)
    before = content(log)
    for name in list(before):
        if not name.endswith(".log"):
            (log.directory / name).unlink()
    (log.directory.parent / "recovery-point-offset-checkpoint").unlink()
    log = small.reopen(clean=False)
    assert content(log) == before


def test_a_crash_loses_nothing_that_was_written(small, batch):
    log = fill(small.log(), batch, 10, epoch=2)
    log.append_as_leader(batch(1, producer=(9, 0, 0)), 5, NOW)
    before = read_all(log)
    list(small.manager.checkpoint_recovery_points())

    log = small.reopen(clean=False)

    assert (read_all(log), log.epoch_entries) == (before, ((2, 0), (5, 10)))
    assert log.append_as_leader(batch(1, producer=(9, 0, 0)), 5, NOW).duplicate
    assert log.recovery_point == 8


@pytest.mark.parametrize("garbage", [b"\0", b"\0" * 300, b"\xff" * 300, b"nonsense" * 20])
def test_what_follows_the_last_whole_batch_is_cut_off(small, batch, garbage):
    log = fill(small.log(), batch, 6)
    path, size = log_file(log, 4), log_file(log, 4).stat().st_size
    small.crash()
    path.write_bytes(path.read_bytes() + garbage)

    log = small.open().get(log.topic_partition)

    assert (log.log_end_offset, path.stat().st_size) == (6, size)
    assert fill(log, batch, 1).log_end_offset == 7
    assert small.reopen(clean=False).log_end_offset == 7


def test_a_damaged_batch_ends_the_log_and_later_segments_go(small, batch):
    log = fill(small.log(), batch, 12)
    size = len(batch(1))
    small.crash()
    (log.directory.parent / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    damaged = bytearray(log_file(log, 4).read_bytes())
    damaged[2 * size - 1] ^= 1
    log_file(log, 4).write_bytes(damaged)

    log = small.open().get(log.topic_partition)

    assert (log.log_end_offset, log.segment_base_offsets) == (5, (0, 4))
    assert sorted(path.name for path in log.directory.glob("*.log")) == [f"{0:020d}.log", f"{4:020d}.log"]
    assert log_file(log, 4).stat().st_size == size
    assert not [path for path in log.directory.glob("*.snapshot") if int(path.name[:20]) > 5]


def test_damage_below_the_recovery_point_is_not_looked_for(small, batch):
    log = fill(small.log(), batch, 12)
    list(small.manager.checkpoint_recovery_points())
    assert log.recovery_point == 8
    small.crash()
    damaged = bytearray(log_file(log).read_bytes())
    damaged[-1] ^= 1
    log_file(log).write_bytes(damaged)
    assert small.open().get(log.topic_partition).log_end_offset == 12


def test_a_recovery_point_that_recovery_lowered_is_on_the_disk_before_anything_is_appended(small, batch):
    log = fill(small.log(), batch, 3)
    log.flush()
    list(small.manager.checkpoint_recovery_points())
    small.crash()
    damaged = bytearray(log_file(log).read_bytes())
    damaged[2 * len(batch(1)) - 1] ^= 1
    log_file(log).write_bytes(damaged)
    assert small.open().get(log.topic_partition).log_end_offset == 1
    assert read_offsets(OsDisk(), small.dirs[0] / "recovery-point-offset-checkpoint") == {log.topic_partition: 1}


def test_a_hole_between_segments_ends_the_log(small, batch):
    log = fill(small.log(), batch, 12)
    small.crash()
    path = log_file(log, 4)
    path.write_bytes(path.read_bytes()[: -len(batch(1))])
    log = small.open().get(log.topic_partition)
    assert (log.log_end_offset, log.segment_base_offsets) == (7, (0, 4))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["gone", "odd size", "zeros"])
@pytest.mark.parametrize("base", [0, 8])
def test_a_lost_or_damaged_index_is_rebuilt_even_after_a_clean_shutdown(small, batch, suffix, damage, base):
    log = fill(small.log(), batch, 11)
    log = small.reopen(clean=True)
    before = content(log)
    small.manager.close()
    path = log.directory / f"{base:020d}{suffix}"
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() + (b"\0" if damage == "odd size" else b"\0" * 24))
    small.manager = None
    log = small.open().get(log.topic_partition)
    assert (content(log), log.log_end_offset) == (before, 11)


def test_a_torn_tail_is_cut_off_even_if_the_marker_says_clean(small, batch):
    log = fill(small.log(), batch, 3)
    small.manager.close()
    small.manager = None
    path = log_file(log)
    path.write_bytes(path.read_bytes()[:-1])
    assert small.open().get(log.topic_partition).log_end_offset == 2


def test_a_log_that_lost_more_than_its_start_begins_empty_at_its_start(small, batch):
    log = fill(small.log(), batch, 4)
    log.set_high_watermark(4)
    log.maybe_increment_log_start(3)
    small.manager.checkpoint_log_start_offsets()
    small.crash()
    log_file(log).write_bytes(b"")
    log = small.open().get(log.topic_partition)
    assert (log.log_start_offset, log.log_end_offset, log.segment_base_offsets) == (3, 3, (3,))
    assert fill(log, batch, 1).log_end_offset == 4


def test_the_log_start_outlives_restarts(small, batch):
    log = fill(small.log(), batch, 4)
    log.set_high_watermark(4)
    log.maybe_increment_log_start(3)
    log = small.reopen(clean=True)
    assert (log.log_start_offset, log.high_watermark, log.first_base_offset) == (3, 3, 0)


def test_an_empty_directory_becomes_an_empty_log(small):
    (small.dirs[0] / "flights-3").mkdir(parents=True)
    log = small.open().get(TopicPartition("flights", 3))
    assert (log.log_start_offset, log.log_end_offset, log.topic_id) == (0, 0, ZERO_TOPIC_ID)


def test_leftovers_of_deletions_and_interrupted_writes_are_removed(small, batch):
    log = fill(small.log(), batch, 1)
    small.crash()
    for name in (f"{7:020d}.log.deleted", f"{9:020d}.index", f"{9:020d}.log.cleaned", "leader-epoch-checkpoint.tmp"):
        (log.directory / name).write_bytes(b"x")
    small.open()
    assert sorted(path.suffix for path in log.directory.iterdir() if path.name.startswith("0")) == [
        ".index",
        ".log",
        ".timeindex",
    ]
    assert not (log.directory / "leader-epoch-checkpoint.tmp").exists()


@pytest.mark.parametrize("clean", [False, True])
def test_a_swap_of_cleaned_segments_that_was_left_half_done_is_finished(small, batch, clean):
    log = fill(small.log(), batch, 13)
    bases = list(log.segment_base_offsets)
    assert len(bases) >= 4
    if clean:
        small.manager.close()
        small.manager = None
    else:
        small.crash()
    end = bases[2]
    whole = log.directory / f"{0:020d}.log.swap"
    whole.write_bytes(batch(NOW, base=end - 1, epoch=0))  # nothing else is left of the first two
    (log.directory / f"{bases[1]:020d}.log").rename(log.directory / f"{bases[1]:020d}.log.deleted")

    log = small.open().get(log.topic_partition)

    assert list(log.segment_base_offsets) == [0, *bases[2:]]
    read = log.read(0, 1, max_offset=log.log_end_offset, min_one_batch=True).records
    assert [header.base_offset for _, header in iter_batches(read)] == [end - 1]
    assert log.log_end_offset == 13
    assert not [path for path in log.directory.iterdir() if path.suffix in (".swap", ".deleted", ".cleaned")]


def test_a_swap_whose_segments_were_not_all_there_yet_is_undone(small, batch):
    log = fill(small.log(), batch, 9)
    bases = log.segment_base_offsets
    small.crash()
    (log.directory / f"{bases[1]:020d}.log.swap").write_bytes(batch(NOW, base=bases[1]))
    (log.directory / f"{0:020d}.log.cleaned").write_bytes(batch(NOW))

    log = small.open().get(log.topic_partition)

    assert log.segment_base_offsets == bases
    assert log.log_end_offset == 9
    assert not [path for path in log.directory.iterdir() if path.suffix in (".swap", ".cleaned")]


def test_a_damaged_producer_snapshot_is_replaced_by_reading_the_batches(small, batch):
    log = small.log()
    for sequence in range(6):
        log.append_as_leader(batch(1, producer=(9, 0, sequence)), 0, NOW)
    small.manager.close()
    small.manager = None
    for path in log.directory.glob("*.snapshot"):
        path.write_bytes(b"\0\1 garbage of some length")
    log = small.open().get(log.topic_partition)
    for sequence in (1, 5):
        again = log.append_as_leader(batch(1, producer=(9, 0, sequence)), 0, NOW)
        assert (again.base_offset, again.duplicate) == (sequence, True)


@pytest.mark.parametrize("clean", [True, False])
def test_every_batch_that_a_producer_may_repeat_is_recognized_after_a_restart(small, batch, clean):
    log = small.log()
    sent = [batch(1000, producer=(7, 0, number)) for number in range(6)]
    for produced in sent:
        log.append_as_leader(produced, 0, NOW)
    log = small.reopen(clean=clean)
    repeated = [log.append_as_leader(produced, 1, NOW) for produced in sent[1:]]
    assert [(info.base_offset, info.duplicate) for info in repeated] == [(number, True) for number in range(1, 6)]


@pytest.mark.parametrize("clean", [True, False])
def test_a_producer_of_old_events_in_a_young_log_goes_on_after_a_restart_and_no_other_begins_late(small, batch, clean):
    long_ago = NOW - 10 * 86_400_000
    log = small.log()
    log.append_as_leader(batch(NOW, producer=(8, 0, 0)), 0, NOW)
    log.append_as_leader(batch(long_ago, producer=(9, 0, 0)), 0, NOW)
    list(small.manager.expire_producers(NOW))
    log = small.reopen(clean=clean)
    assert log.append_as_leader(batch(long_ago, producer=(9, 0, 0)), 1, NOW).duplicate
    assert log.append_as_leader(batch(long_ago, producer=(9, 0, 1)), 1, NOW).base_offset == 2
    with pytest.raises(RecordsRejected):
        log.append_as_leader(batch(NOW, producer=(10, 0, 1)), 1, NOW)


def test_a_snapshot_above_the_recovery_point_is_not_believed(small, batch):
    log = small.log()
    log.append_as_leader(batch(1, producer=(9, 0, 0)), 0, NOW)
    small.crash()
    body = struct.pack(">i", 0)
    (log.directory / f"{1:020d}.snapshot").write_bytes(struct.pack(">hI", 1, crc32c(body)) + body)
    log = small.open().get(log.topic_partition)
    assert log.append_as_leader(batch(1, producer=(9, 0, 0)), 0, NOW).duplicate


def test_damage_found_outside_the_last_segment_recovers_the_whole_log(small, batch):
    log = fill(small.log(), batch, 12)
    small.manager.close()
    small.manager = None
    (log.directory / "leader-epoch-checkpoint").unlink()
    damaged = bytearray(log_file(log, 4).read_bytes())
    damaged[len(batch(1)) + 16] = 7
    log_file(log, 4).write_bytes(damaged)
    log = small.open().get(log.topic_partition)
    assert (log.log_end_offset, log.segment_base_offsets, log.epoch_entries) == (5, (0, 4), ((0, 0),))


def test_the_zeros_of_a_preallocated_file_are_cut_off(small, batch):
    log = fill(small.log(), batch, 2)
    size = log_file(log).stat().st_size
    small.crash()
    with log_file(log).open("r+b") as file:
        file.truncate(1 << 20)
    log = small.open().get(log.topic_partition)
    assert (log.log_end_offset, log_file(log).stat().st_size) == (2, size)


def test_a_copied_directory_opens_elsewhere(small, batch, tmp_path):
    log = fill(small.log(), batch, 6)
    before = read_all(log)
    small.manager.close()
    small.manager = None
    shutil.copytree(log.directory, tmp_path / "b" / "flights-9")
    small.dirs = [tmp_path / "b"]
    log = small.open().get(TopicPartition("flights", 9))
    assert read_all(log) == before


def test_an_offset_that_leaves_a_hole_is_damage_where_the_next_one_contradicts(small, batch):
    log = fill(small.log(), batch, 3)
    small.crash()
    content_with_hole = bytearray(log_file(log).read_bytes())
    content_with_hole[len(batch(1)) + 7] = 9
    log_file(log).write_bytes(content_with_hole)
    assert small.open().get(log.topic_partition).log_end_offset == 1


def test_holes_in_what_was_synced_are_kafkas_compaction(small, batch):
    directory = small.dirs[0] / "flights-3"
    directory.mkdir(parents=True)
    compacted = batch(1, base=4) + batch(2, base=9)
    (directory / f"{0:020d}.log").write_bytes(compacted)
    (small.dirs[0] / "recovery-point-offset-checkpoint").write_text("0\n1\nflights 3 10\n")
    log = small.open().get(TopicPartition("flights", 3))
    assert (log.log_end_offset, read_all(log)) == (10, compacted)
    records = log.read(5, 1000, max_offset=10, min_one_batch=True).records
    assert [header.base_offset for _, header in iter_batches(records)] == [9]


def test_a_read_goes_on_in_the_next_segment_where_one_ends_early(small, batch):
    directory = small.dirs[0] / "flights-3"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}.log").write_bytes(batch(1, base=0))
    (directory / f"{6:020d}.log").write_bytes(batch(1, base=7))
    (small.dirs[0] / "recovery-point-offset-checkpoint").write_text("0\n1\nflights 3 8\n")
    log = small.open().get(TopicPartition("flights", 3))
    for offset in (1, 5, 6, 7):
        info = log.read(offset, 1000, max_offset=8, min_one_batch=True)
        assert (info.records, info.position) == (batch(1, base=7), (6, 0))
        assert log.position_of(offset) == (6, 0)
    assert small.cut(log, 3)
    assert (log.log_end_offset, log.segment_base_offsets) == (3, (0,))


def test_batches_larger_than_one_read_are_checked_too(small, batch):
    small.config = LogConfig()
    log = small.log()
    big = batch(1, value=b"x" * (3 << 20))
    log.append_as_follower(big + batch(1, base=1))
    assert small.reopen(clean=False).log_end_offset == 2
    small.crash()
    log_file(log).write_bytes(big[:-1])
    assert small.open().get(log.topic_partition).log_end_offset == 0


def test_an_unreadable_topic_id_is_asked_for_again(small, batch, caplog):
    log = fill(small.log(), batch, 1)
    small.crash()
    (log.directory / "partition.metadata").write_text("rubbish")
    assert small.open().get(log.topic_partition).topic_id == ZERO_TOPIC_ID
    assert "until the controller says it" in caplog.text
