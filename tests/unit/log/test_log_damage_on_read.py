"""A byte that flips in a segment while the log is open: it is found by whoever reads it, and never served as good."""

from __future__ import annotations

import logging

import pytest

from regency.broker_agent.log.errors import LogDamaged
from regency.broker_agent.steps import at_once
from regency.kafka.record_batch import iter_batches
from regency.model.ids import TopicPartition
from regency.model.settings.log_config import LogConfig

NOW = 1_700_000_000_000
END = 14
ROLLED = 5
LAST_OF_FIRST = 4
"""Batches of the log below: two records each, five batches to a segment, leader epochs 3 and 4."""


@pytest.fixture
def log(disk, batch):
    size = len(batch(1, 2))
    disk.config = LogConfig(segment_bytes=ROLLED * size, index_interval_bytes=2 * size)
    log = disk.log()
    for number in range(END // 2):
        log.append_as_leader(batch(NOW + 10 * number, NOW + 10 * number + 1), 3 if number < 2 else 4, NOW)
    return log


def log_file(log, base=0):
    return log.directory / f"{base:020d}.log"


def original(log):
    """Every batch as it is on the disk, with the offsets it holds."""
    return [
        (range(header.base_offset, header.next_offset), content[at : at + header.size])
        for base in log.segment_base_offsets
        for content in (log_file(log, base).read_bytes(),)
        for at, header in iter_batches(content)
    ]


def flip(path, at, bit=0):
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes((byte ^ 1 << bit,)))


def read(log, offset, *, max_bytes=1 << 20, bound=None):
    return log.read(offset, max_bytes, max_offset=log.log_end_offset if bound is None else bound, min_one_batch=True)


def served(log, offset, **how):
    """Records of a read, or None where it says that they are damaged."""
    try:
        return bytes(read(log, offset, **how).records)
    except LogDamaged:
        return None


def is_served_well(batches, offset, records, bound):
    """Whether these are whole batches of the log from `offset` on, below `bound`, and none left out."""
    for offsets, content in batches:
        if offsets.stop <= offset:
            continue
        if not records:
            return True
        if offsets.stop > bound or not records.startswith(content):
            return False
        records = records[len(content) :]
    return not records


@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("base", [0, 10])
def test_whatever_byte_flips_nothing_but_what_was_written_is_served(log, base, part):
    batches = original(log)
    path = log_file(log, base)
    size = path.stat().st_size
    for at in range(part, size, 8):
        bit = (at * 5) % 8
        flip(path, at, bit)
        hit = base // 2 + at // (len(batches[0][1]))
        refused = 0
        for offset in range(END):
            for how in ({}, {"max_bytes": len(batches[0][1]) + 7}, {"bound": max(offset + 1, END - 2)}):
                records = served(log, offset, **how)
                if records is None:
                    refused += 1
                    continue
                bound = how.get("bound", END)
                assert is_served_well(batches, offset, records, bound), (at, bit, offset, how)
                assert records or bound < END, f"byte {at}, bit {bit}: nothing at {offset}, and no word why"
        assert refused, f"byte {at} of {path.name}, bit {bit}: nobody noticed"
        assert served(log, batches[hit][0].start) is None
        flip(path, at, bit)
    for offset in range(END):
        assert is_served_well(batches, offset, served(log, offset), END)
    assert log.damage == ""


def test_batches_before_and_after_a_damaged_one_are_served(log):
    batches = original(log)
    size = len(batches[0][1])
    flip(log_file(log), 2 * size + 65)
    assert read(log, 0).records == batches[0][1] + batches[1][1]
    for offset in (4, 5):
        with pytest.raises(LogDamaged, match=rf"0\.log holds no sound batch for offset {offset} at byte {2 * size}"):
            read(log, offset)
    assert read(log, 6).records == batches[3][1] + batches[4][1]


def test_damage_is_told_once_with_file_and_position(log, caplog):
    flip(log_file(log), len(original(log)[0][1]) + 64)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert served(log, 2) is None
            read(log, 0)
    told = (
        f"flights-3 is damaged on this broker; nothing bad is handed out: {log_file(log)} holds no sound batch for "
        f"offset 2 at byte {len(original(log)[0][1])}: its checksum is wrong"
    )
    assert [record.getMessage() for record in caplog.records] == [told]
    assert log.damage.startswith(str(log_file(log)))


def test_damage_that_retention_or_truncation_removes_is_forgotten(log):
    flip(log_file(log, 10), 64)
    assert served(log, 10) is None
    assert log.damage
    log.truncate_to(10)
    assert log.damage == ""


def test_one_damaged_log_harms_no_other_and_fails_no_directory(disk, log, batch):
    other = disk.manager.create(TopicPartition("other", 0), log.topic_id, disk.config, is_new=True)
    other.append_as_leader(batch(1), 0, NOW)
    flip(log_file(log), 64)
    assert served(log, 0) is None
    log.append_as_leader(batch(1, 2), 4, NOW)
    assert read(other, 0).records
    list(disk.manager.run_retention(NOW))
    assert disk.failures == []
    assert disk.manager.offline_dirs == ()


def test_a_flipped_leader_epoch_is_not_passed_on(log):
    flip(log_file(log), 3 * len(original(log)[0][1]) + 15)
    with pytest.raises(LogDamaged, match="its leader epoch is 5, and leader-epoch-checkpoint has 4 at offset 6"):
        read(log, 6)


def test_a_time_that_a_damaged_batch_would_answer_is_damage_too(log):
    flip(log_file(log), len(original(log)[0][1]) + 64)
    with pytest.raises(LogDamaged, match="its checksum is wrong"):
        at_once(log.offset_for_timestamp(NOW + 11, END))


def test_a_batch_whose_length_stands_for_half_the_file_is_not_read_to_find_that_out(disk, batch, monkeypatch):
    log = disk.log()
    for number in range(600):
        log.append_as_leader(batch(NOW + number, value=b"v" * 1000), 0, NOW)
    flip(log_file(log), 9, bit=2)
    most = 0
    os_read = type(log._services.disk).read

    def measured(self, fd, size, position):
        nonlocal most
        most = max(most, size)
        return os_read(self, fd, size, position)

    monkeypatch.setattr(type(log._services.disk), "read", measured)
    assert served(log, 0, max_bytes=1000) is None
    assert most < 10_000


def test_holes_that_compaction_left_are_no_damage(log, batch):
    """As Kafka leaves them: what is missing between two batches is not missed."""
    log.truncate_fully_and_start_at(0)
    kept = [batch(NOW, base=base, epoch=4) for base in (0, 7, 8, 30)]
    for one in kept:
        log.append_as_follower(one) if one is kept[0] else log._write(one, list(iter_batches(one)), NOW)
    assert log.log_end_offset == 31
    assert [served(log, offset) for offset in (0, 3, 8, 9)] == [
        b"".join(kept), b"".join(kept[1:]), b"".join(kept[2:]), kept[3]
    ]  # fmt: skip


def test_a_file_that_was_cut_off_under_an_open_log_is_damage(log):
    batches = original(log)
    with log_file(log).open("r+b") as file:
        file.truncate(3 * len(batches[0][1]) + 20)
    assert read(log, 0).records == b"".join(content for _, content in batches[:3])
    assert served(log, 6) is None
    assert served(log, 8) is None
    assert read(log, 10).records == batches[5][1] + batches[6][1]
