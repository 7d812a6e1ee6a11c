"""Indexes that do not fit are built again beside the data loop, whatever becomes of their segment meanwhile."""

from __future__ import annotations

import errno
import os
from array import array
from time import thread_time

import pytest

from regency.broker_agent.log.errors import LogBusy, LogDamaged, LogStorageError
from regency.broker_agent.steps import at_once
from regency.kafka.record_batch import iter_batches, stamp
from regency.model.settings.log_config import LogConfig

NOW = 1_700_000_000_000
LONGEST_STEP_S = 0.05


def fill(log, one, count):
    """Append a batch so many times, in requests of a thousand."""
    for start in range(0, count, 1000):
        records = bytearray(one * min(1000, count - start))
        for at in range(0, len(records), len(one)):
            piece = bytearray(one)
            stamp(piece, log.log_end_offset + at // len(one), 0)
            records[at : at + len(one)] = piece
        log.append_as_follower(bytes(records))


def index_of(log, base=0):
    return log.directory / f"{base:020d}.index"


def with_a_wrong_entry(disk, log, offset):
    """The log after a clean start, and its index as it was; the entry at or below `offset` points beside a batch."""
    path = index_of(log)
    whole = path.read_bytes()
    entry = max(at for at in range(0, len(whole), 8) if int.from_bytes(whole[at : at + 4]) <= offset)
    disk.manager.close()
    path.write_bytes(whole[: entry + 7] + bytes([whole[entry + 7] ^ 1]) + whole[entry + 8 :])
    disk.worker.inline = False
    return disk.open().get(log.topic_partition), whole


def first_offset(log, offset):
    records = log.read(offset, 1, max_offset=log.log_end_offset, min_one_batch=True).records
    return next(iter_batches(records))[1].base_offset


def test_a_large_segment_is_walked_over_beside_the_data_loop(disk, batch, monkeypatch):
    log = disk.log()
    fill(log, batch(NOW), 100_000)
    log, whole = with_a_wrong_entry(disk, log, 50_000)
    jobs = []
    monkeypatch.setattr(disk.worker, "submit", lambda *job: jobs.append(job))
    began, steps = thread_time(), []

    def step_is_over():
        nonlocal began
        steps.append(thread_time() - began)
        began = thread_time()

    for _ in range(2):
        with pytest.raises(LogBusy, match="log are built again: nothing at or below offset 50000 begins at byte"):
            first_offset(log, 50_000)
        step_is_over()
    assert first_offset(log, 70_000) == 70_000, "the other entries are good"
    step_is_over()
    [(work, done)] = jobs
    outcome = work()
    began = thread_time()
    done(outcome)
    step_is_over()
    assert first_offset(log, 50_000) == 50_000
    step_is_over()
    assert max(steps) < LONGEST_STEP_S
    assert index_of(log).read_bytes() == whole


@pytest.fixture
def doubted(disk, batch):
    """A log that has begun to build its index anew."""
    one = batch(NOW)
    disk.config = LogConfig(index_interval_bytes=5 * len(one))
    log = disk.log()
    for timestamp, count in ((NOW, 50), (NOW + 7, 1), (NOW + 9, 48), (NOW + 11, 1)):
        fill(log, batch(timestamp), count)
    log, _ = with_a_wrong_entry(disk, log, 50)
    with pytest.raises(LogBusy):
        first_offset(log, 50)
    return log


def assert_sound(disk, log):
    """Every batch is found, and the index is the one that a recovery makes of the batches."""
    assert [first_offset(log, offset) for offset in range(log.log_end_offset)] == list(range(log.log_end_offset))
    built = index_of(log).read_bytes()
    index_of(log).unlink()
    again = disk.reopen(clean=False)
    assert (again.log_end_offset, index_of(again).read_bytes()) == (log.log_end_offset, built)


@pytest.mark.parametrize("count", [3, 2000])
def test_what_is_appended_meanwhile_is_indexed(disk, batch, doubted, count):
    fill(doubted, batch(NOW), count)
    disk.worker.queue.pop(0)()
    fill(doubted, batch(NOW), count)
    disk.worker.run()
    assert_sound(disk, doubted)


def test_a_segment_that_was_sealed_meanwhile_has_its_index(disk, doubted):
    doubted.roll()
    disk.worker.run()
    assert_sound(disk, doubted)


@pytest.mark.parametrize("offset", [20, 80])
def test_of_a_segment_that_was_cut_meanwhile_it_is_begun_again(disk, batch, doubted, offset):
    disk.cut(doubted, offset)
    fill(doubted, batch(NOW), 100)
    disk.worker.run()
    if offset > 50:
        with pytest.raises(LogBusy):
            first_offset(doubted, 50)
        disk.worker.run()
    assert_sound(disk, doubted)


def test_no_cut_is_made_where_the_index_does_not_say_where(disk, doubted):
    with pytest.raises(LogBusy):
        doubted.truncate_to(50)
    assert doubted.log_end_offset == 100
    disk.worker.run()
    disk.cut(doubted, 50)
    assert_sound(disk, doubted)


def test_a_cut_that_leaves_a_wrong_entry_last_has_it_found_once_more(disk, batch, doubted):
    disk.worker.run()
    segment = doubted._segments.active
    segment.offsets._numbers[segment.offsets._numbers.index(segment.offsets.lookup(50))] += 1
    segment.remember(51, 51 * len(batch(NOW)))  # as a reader's last place
    disk.cut(doubted, 51)
    fill(doubted, batch(NOW), 20)
    with pytest.raises(LogBusy):
        at_once(doubted.offset_for_timestamp(NOW + 5, 71))
    disk.worker.run()
    assert at_once(doubted.offset_for_timestamp(NOW + 5, 71)) == (NOW + 7, 50, 0)
    assert_sound(disk, doubted)


def test_a_log_that_is_gone_when_its_index_is_built_harms_nobody(disk, batch, doubted):
    disk.manager.delete_async(doubted.topic_partition)
    other = disk.log()
    fill(other, batch(NOW), 30)
    kept = index_of(other).read_bytes()
    disk.worker.run()
    assert index_of(other).read_bytes() == kept
    assert disk.failures == []


def test_a_segment_that_expired_meanwhile_stays_gone(disk, doubted):
    doubted.roll()
    doubted.set_high_watermark(100)
    doubted.config = LogConfig(retention_bytes=0)
    assert doubted.delete_old_segments(NOW) == 1
    building = disk.worker.queue.pop(0)
    disk.clock.advance(60_000)
    disk.manager.remove_deleted_files()
    disk.worker.run()
    building()
    assert [path.name for path in doubted.directory.glob(f"{0:020d}*")] == []
    assert disk.failures == []


def test_a_disk_that_cannot_be_read_meanwhile_fails(disk, doubted, monkeypatch):
    monkeypatch.setattr(type(doubted._services.disk), "read", lambda *_: (_ for _ in ()).throw(OSError(5, "I/O error")))
    disk.worker.run()
    assert [path for path, _ in disk.failures] == disk.dirs


@pytest.fixture
def grown(disk, batch):
    """A log that has an index entry for every sixth batch."""
    disk.config = LogConfig(index_interval_bytes=5 * len(batch(NOW)))
    log = disk.log()
    for number in range(50):
        log.append_as_leader(batch(NOW + number), 0, NOW)
    return log


@pytest.mark.parametrize(("suffix", "at"), [("index", -7), ("timeindex", -3)])
@pytest.mark.parametrize("ending", ["built", "rolled", "closed"])
def test_a_batch_counts_although_an_index_cannot_take_it(disk, batch, grown, suffix, at, ending):
    disk.worker.inline = False
    path = index_of(grown).with_suffix(f".{suffix}")
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    grown._segments.active.close()  # as the pool does with what was not used for long
    path.write_bytes(content)
    appended = [grown.append_as_leader(batch(NOW + number), 0, NOW).base_offset for number in range(50, 80)]
    assert appended == list(range(50, 80))
    assert len(disk.worker.queue) == 1
    if ending == "rolled":
        grown.roll()
    if ending == "closed":
        disk.worker.queue.clear()
        grown = disk.reopen(clean=True)
    disk.worker.run()
    assert_sound(disk, grown)


def test_a_seal_that_does_not_fit_keeps_no_log_from_being_rolled(disk, batch, grown):
    path = index_of(grown).with_suffix(".timeindex")
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    grown._segments.active.close()
    path.write_bytes(content)
    grown.roll()
    assert grown.append_as_leader(batch(NOW + 50), 0, NOW).base_offset == 50
    assert disk.reopen(clean=True).segment_base_offsets == (0, 50)


class Short(array):
    """Numbers for which there is no memory."""

    def append(self, number):
        raise MemoryError


@pytest.mark.parametrize(
    ("index", "name"),
    [("offsets", "_keys"), ("offsets", "_numbers"), ("times", "_keys"), ("times", "_numbers")],
)
def test_a_batch_counts_although_there_is_no_memory_for_its_entry(disk, batch, grown, index, name):
    torn = getattr(grown._segments.active, index)
    numbers = getattr(torn, name)
    setattr(torn, name, Short(numbers.typecode, numbers))
    for number in range(50, 80):
        assert grown.append_as_leader(batch(NOW + number), 0, NOW).base_offset == number
    assert [first_offset(grown, offset) for offset in range(80)] == list(range(80))
    content = index_of(grown).with_suffix(".timeindex").read_bytes()
    offsets = [int.from_bytes(content[at + 8 : at + 12]) for at in range(0, len(content), 12)]
    assert len(offsets) >= 12
    assert sorted(set(offsets)) == offsets


@pytest.mark.parametrize("what", [MemoryError(), RuntimeError("a mistake")])
def test_nothing_is_appended_behind_a_batch_that_was_not_counted(disk, batch, grown, monkeypatch, what):
    def fail(_header):
        raise what

    monkeypatch.setattr(grown._producers, "update", fail)
    for _ in range(2):
        with pytest.raises(LogStorageError, match="a change is half done"):
            grown.append_as_leader(batch(NOW + 50), 0, NOW)
    assert [path for path, _ in disk.failures] == disk.dirs
    found = disk.reopen(clean=False)
    assert [first_offset(found, offset) for offset in range(51)] == list(range(51))


def test_nothing_is_appended_behind_a_batch_that_was_not_synced_for_want_of_memory(disk, batch, grown, monkeypatch):
    grown.config = LogConfig(flush_messages=1)

    def fail(_fd):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(grown._services.disk, "sync", fail)
    for _ in range(2):
        with pytest.raises(LogStorageError, match="a batch is half appended"):
            grown.append_as_leader(batch(NOW + 50), 0, NOW)
    assert [path for path, _ in disk.failures] == disk.dirs


def test_without_memory_before_the_write_an_append_may_be_repeated(disk, batch, grown, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(grown._epochs, "on_written", lambda: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(LogBusy, match="Cannot allocate memory"):
            grown.append_as_leader(batch(NOW + 50), 1, NOW)
    assert (grown.log_end_offset, grown.latest_epoch, disk.failures) == (50, 0, [])
    assert grown.append_as_leader(batch(NOW + 50), 1, NOW).base_offset == 50
    assert disk.reopen(clean=False).epoch_entries == ((0, 0), (1, 50))


def test_a_wrong_index_of_a_damaged_segment_is_built_of_what_is_sound(disk, batch, grown, monkeypatch):
    one = len(batch(NOW))
    fill(grown, batch(NOW + 50), 250)
    disk.manager.close()
    content = bytearray(index_of(grown).read_bytes())
    for entry in range(40, len(content) - 24, 8):
        content[entry + 7] ^= 1
    index_of(grown).write_bytes(content)
    with index_of(grown).with_suffix(".log").open("r+b") as file:
        file.seek(200 * one + 16)
        file.write(b"\x07")  # the format of the batch
    log = disk.open().get(grown.topic_partition)
    with pytest.raises(LogDamaged):
        first_offset(log, 200)
    reads, really_read = [], os.pread
    monkeypatch.setattr(os, "pread", lambda *where: reads.append(where) or really_read(*where))
    for offset in reversed((*range(199), *range(285, 300))):  # in order, places are remembered
        reads.clear()
        assert first_offset(log, offset) == offset
        assert len(reads) <= 6
