"""Logs that were compacted elsewhere: offsets missing between batches and in them, batches without records."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from regency.broker_agent.log.errors import RecordsRejected
from regency.kafka.record_batch import HEADER_BYTES, compute_crc, iter_batches, read_header
from regency.model.ids import TopicPartition
from regency.model.settings.log_config import LogConfig

TP = TopicPartition("flights", 3)
NOW = 1_000_000


def log_file(log, base=0) -> Path:
    return log.directory / f"{base:020d}.log"


def served(log, offset) -> bytes:
    """Everything from `offset` on."""
    return log.read(offset, 1 << 20, max_offset=log.log_end_offset, min_one_batch=True).records


def thinned(batch: bytes, last_delta: int) -> bytes:
    """The batch with a wider span, as one is whose last records were compacted away."""
    changed = bytearray(batch)
    struct.pack_into(">i", changed, 23, last_delta)
    struct.pack_into(">I", changed, 17, compute_crc(changed, read_header(changed)))
    return bytes(changed)


def emptied(batch: bytes) -> bytes:
    """What compaction leaves of the last batch of a producer: its 61 bytes of header (DefaultRecordBatch of Kafka)."""
    changed = bytearray(batch[:HEADER_BYTES])
    struct.pack_into(">i", changed, 8, HEADER_BYTES - 12)
    struct.pack_into(">i", changed, 57, 0)
    struct.pack_into(">I", changed, 17, compute_crc(changed, read_header(changed)))
    return bytes(changed)


@pytest.fixture
def kept(batch):
    """Offsets 0, 4 (of 4 to 6), 7 without its record, 12 and 30; epochs 0, 0, 0, 2, 3."""
    return [
        batch(NOW, base=0, epoch=0),
        thinned(batch(NOW + 4, base=4, epoch=0, producer=(7, 0, 0)), 2),
        emptied(batch(NOW + 7, base=7, epoch=0, producer=(7, 0, 3))),
        batch(NOW + 5, base=12, epoch=2),
        batch(NOW + 6, base=30, epoch=3),
    ]


@pytest.fixture
def log(disk, kept):
    """A follower that has fetched them two at a time."""
    log = disk.log()
    log.append_as_follower(b"".join(kept[:2]))
    log.append_as_follower(b"".join(kept[2:4]))
    log.append_as_follower(kept[4])
    log.set_high_watermark(31)
    return log


def found(log) -> list[int]:
    records = served(log, 0)
    return [header.base_offset for _, header in iter_batches(records)]


def test_a_follower_takes_what_compaction_left(log, kept):
    assert (log.log_end_offset, served(log, 0)) == (31, b"".join(kept))
    for offset, first in ((1, 1), (4, 1), (6, 1), (7, 2), (8, 3), (12, 3), (13, 4), (29, 4), (30, 4)):
        assert served(log, offset) == b"".join(kept[first:]), offset


def test_a_follower_takes_nothing_below_its_end(log, batch):
    with pytest.raises(RecordsRejected, match="ends at 31; records from 30 on do not fit"):
        log.append_as_follower(batch(base=30, epoch=3))
    with pytest.raises(RecordsRejected, match="offsets must rise"):
        log.append_as_follower(batch(base=40, epoch=3) + batch(base=35, epoch=3))
    assert log.log_end_offset == 31


def test_an_epoch_whose_first_records_are_gone_begins_where_the_one_before_has_its_last(log):
    """At 12, a replica with records 8 to 11 of epoch 0, which an epoch in between replaced, would keep them."""
    assert log.epoch_entries == ((0, 0), (2, 8), (3, 13))


def test_producers_are_known_by_batches_that_are_empty(log, batch, disk):
    known = log._producers.check(read_header(batch(base=0, producer=(7, 0, 3))))
    assert (known.first_offset, known.last_offset) == (7, 7)
    assert log._producers.check(read_header(batch(base=0, producer=(7, 0, 4)))) is None
    reopened = disk.reopen(clean=False)
    assert reopened._producers.check(read_header(batch(base=0, producer=(7, 0, 3)))) == known


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_it_is_the_same_after_a_restart(disk, log, kept, clean):
    disk.manager.continuity.note_registered()
    epochs = log.epoch_entries
    log = disk.reopen(clean=clean)
    assert (log.log_end_offset, served(log, 0), log.epoch_entries) == (31, b"".join(kept), epochs)


def test_without_its_epoch_file_too(disk, log, kept):
    disk.manager.continuity.note_registered()
    epochs = log.epoch_entries
    (log.directory / "leader-epoch-checkpoint").unlink()
    assert disk.reopen(clean=False).epoch_entries == epochs


def test_a_batch_above_a_hole_outlives_power_cuts_though_no_checkpoint_knows_that_it_was_synced(disk, log, kept):
    for _ in range(2):
        log = disk.reopen(clean=False)
        assert (log.log_end_offset, served(log, 0)) == (31, b"".join(kept))


def test_a_batch_that_claims_an_offset_too_high_is_damage_and_not_a_hole(disk, log, kept):
    """The batch at 4 says 12: the next one, at 7, contradicts."""
    disk.manager.continuity.note_registered()
    path = log_file(log)
    content = bytearray(path.read_bytes())
    content[len(kept[0]) + 7] = 12
    disk.crash()
    path.write_bytes(content)
    assert disk.open().get(TP).log_end_offset == 1


def test_a_hole_between_segments_is_believed_where_only_the_process_ended(disk, batch):
    size = len(batch(1))
    disk.config = LogConfig(segment_bytes=4 * size, index_interval_bytes=size)
    log = disk.log()
    disk.manager.continuity.note_registered()
    log.append_as_follower(b"".join(batch(NOW, base=base, epoch=0) for base in (0, 3, 5, 6)))
    log.append_as_follower(batch(NOW, base=9, epoch=0) + batch(NOW, base=11, epoch=0))
    assert log.segment_base_offsets == (0, 7)
    path = log_file(log, 0)
    shorter = path.read_bytes()[:-size]
    disk.crash()
    path.write_bytes(shorter)
    log = disk.open().get(TP)
    assert (log.log_end_offset, found(log), log.recovery_point) == (12, [0, 3, 5], 12)
    (disk.dirs[0] / "boot").unlink()
    log = disk.reopen(clean=False)
    assert (log.log_end_offset, found(log)) == (12, [0, 3, 5]), "once believed, always believed"


def test_a_log_is_cut_off_in_a_hole_or_where_a_batch_begins_that_straddles_the_place(disk, log, kept):
    assert disk.cut(log, 20)
    assert (log.log_end_offset, served(log, 0)) == (20, b"".join(kept[:4]))
    assert log.epoch_entries == ((0, 0), (2, 8), (3, 13))
    assert disk.cut(log, 13)
    assert (log.log_end_offset, log.epoch_entries) == (13, ((0, 0), (2, 8)))
    assert disk.cut(log, 5)
    assert (log.log_end_offset, served(log, 0)) == (4, kept[0])
    log.append_as_follower(kept[1])
    assert log.log_end_offset == 7


def test_a_log_that_was_cut_off_in_a_hole_goes_on_above_it(disk, log, kept):
    disk.cut(log, 20)
    log.append_as_follower(kept[4])
    assert (log.log_end_offset, served(log, 0)) == (31, b"".join(kept))


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_a_log_that_was_cut_off_in_a_hole_ends_after_its_last_batch_later(disk, log, kept, clean):
    disk.manager.continuity.note_registered()
    disk.cut(log, 20)
    log = disk.reopen(clean=clean)
    assert (log.log_end_offset, served(log, 0)) == (13, b"".join(kept[:4]))
    log.append_as_follower(kept[4])
    assert log.log_end_offset == 31


def test_a_segment_that_begins_in_a_hole_begins_where_the_last_batch_ends(disk, log, kept):
    disk.cut(log, 20)
    log.roll()
    assert (log.log_end_offset, log.segment_base_offsets) == (20, (0, 13))
    log.append_as_follower(kept[4])
    log = disk.reopen(clean=False)
    assert (log.log_end_offset, log.segment_base_offsets) == (31, (0, 13))
    assert served(log, 0) + served(log, 13) == b"".join(kept)
    disk.cut(log, 20)
    assert (log.log_end_offset, log.segment_base_offsets, log.size_bytes) == (20, (0, 13), len(b"".join(kept[:4])))


def test_the_name_of_a_segment_that_begins_below_what_was_synced_is_synced(disk, log, kept, monkeypatch):
    log.flush()
    disk.cut(log, 20)
    log.flush()
    disk.worker.inline = False
    log.roll()
    assert log.recovery_point == 20
    log.append_as_follower(kept[4])
    synced = []
    monkeypatch.setattr(log._services.disk, "sync_path", synced.append)
    log.flush()
    assert log.directory in synced


def test_offsets_further_apart_than_an_index_entry_reaches_are_in_two_segments(disk, batch):
    log = disk.log()
    far = 5 * 2**31
    log.append_as_follower(batch(NOW, base=far, epoch=4) + batch(NOW, base=far + 1, epoch=4))
    log.append_as_follower(batch(NOW, base=3 * far, epoch=5))
    assert (log.log_end_offset, log.segment_base_offsets) == (3 * far + 1, (0, far, 3 * far))
    assert log.epoch_entries == ((4, 0), (5, far + 2))
    assert disk.reopen(clean=False).log_end_offset == 3 * far + 1
    log = disk.manager.get(TP)
    disk.manager.continuity.note_registered()
    log = disk.reopen(clean=False)
    assert (log.log_end_offset, log.epoch_entries) == (3 * far + 1, ((4, 0), (5, far + 2)))
    log.set_high_watermark(3 * far)
    log.maybe_increment_log_start(3 * far)
    assert log.delete_old_segments(NOW) == 2


def search(steps):
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def test_timestamps_are_of_records_and_not_of_batches_that_lost_them(log):
    """The empty batch still has the greatest timestamp, NOW + 7; the records above have NOW + 5 and NOW + 6."""
    assert search(log.greatest_timestamp(31)) == (NOW + 6, 30, 3)
    assert search(log.offset_for_timestamp(NOW + 7, 31)) is None
    assert search(log.offset_for_timestamp(NOW + 5, 31)) == (NOW + 5, 12, 2)


def test_the_first_record_of_a_batch_need_not_be_at_its_first_offset(disk, batch):
    """Two records at offsets 6 and 7 of a batch from 5 on, whose first timestamp is a delete horizon (KIP-534)."""
    log = disk.log()
    whole = bytearray(batch(NOW + 10, NOW + 20, base=5, epoch=0))
    struct.pack_into(">i", whole, 23, 2)
    first = whole.index(bytes([0, 0, 0]), HEADER_BYTES)  # attributes, timestamp delta 0, offset delta 0
    whole[first + 2] = 2
    second = whole.index(bytes([0, 20, 2]), HEADER_BYTES)
    whole[second + 2] = 4
    struct.pack_into(">h", whole, 21, 0x40)
    struct.pack_into(">I", whole, 17, compute_crc(whole, read_header(whole)))
    log.append_as_follower(bytes(whole))
    assert search(log.offset_for_timestamp(NOW, 8)) == (NOW + 10, 6, 0)
    assert search(log.offset_for_timestamp(NOW + 11, 8)) == (NOW + 20, 7, 0)


def test_an_unknown_producer_may_go_on_anywhere_where_its_batches_may_be_compacted_away(disk, batch):
    disk.config = LogConfig(cleanup_policy=("compact",))
    log = disk.log()
    log.append_as_leader(batch(NOW, producer=(9, 0, 5)), 0, NOW)
    assert log.log_end_offset == 1


def test_a_log_that_begins_in_a_hole_is_read_whatever_leader_epoch_stands_before(disk, batch):
    log = disk.log()
    log.append_as_follower(batch(NOW, base=0, epoch=1) + batch(NOW, base=5, epoch=2))
    log.set_high_watermark(6)
    log.maybe_increment_log_start(3)
    assert log.epoch_entries == ((2, 3),)
    log = disk.reopen(clean=True)
    assert [header.base_offset for _, header in iter_batches(served(log, 3))] == [5]
