"""Files beside the batches that are missing, stale or damaged at a start: nothing is lost, nothing is made up."""

from __future__ import annotations

import logging

import pytest

from regency.broker_agent.log.errors import LogDamaged, LogDirInvalid
from regency.broker_agent.steps import at_once
from regency.kafka.record_batch import iter_batches
from regency.model.settings.log_config import LogConfig

NOW = 1_700_000_000_000
END = 24


@pytest.fixture
def log(disk, batch):
    """24 records of an idempotent producer in two leader epochs and three segments, closed cleanly."""
    size = len(batch(1))
    disk.config = LogConfig(segment_bytes=10 * size, index_interval_bytes=size)
    log = disk.log()
    for number in range(END):
        log.append_as_leader(batch(NOW + number, producer=(9, 0, number)), 1 if number < 15 else 2, NOW)
    disk.manager.checkpoint_high_watermarks({log.topic_partition: 20})
    disk.manager.close()
    disk.manager = None
    return log


def start(disk, log, *, clean=True):
    """The log after a start."""
    if not clean:
        (disk.dirs[0] / ".kafka_cleanshutdown").unlink(missing_ok=True)
    opened = disk.open().get(log.topic_partition)
    opened.set_high_watermark(disk.manager.high_watermark_checkpoint(log.topic_partition))
    return opened


def first_offsets(log, offset):
    records = log.read(offset, 1 << 20, max_offset=log.log_end_offset, min_one_batch=True).records
    return [header.base_offset for _, header in iter_batches(records)]


def assert_whole(log, batch, *, again=5):
    """Every record is found by offset and by time, every producer is known, and the log goes on."""
    assert (log.log_start_offset, log.log_end_offset) == (0, END)
    assert log.epoch_entries == ((1, 0), (2, 15))
    for offset in range(END):
        assert first_offsets(log, offset)[0] == offset
        assert at_once(log.offset_for_timestamp(NOW + offset, END)).offset == offset
    assert at_once(log.greatest_timestamp(END)).offset == END - 1
    for number in range(END - again, END):
        known = log.append_as_leader(batch(NOW + number, producer=(9, 0, number)), 2, NOW)
        assert (known.duplicate, known.base_offset) == (True, number)
    added = log.append_as_leader(batch(NOW + END, producer=(9, 0, END)), 2, NOW)
    assert (added.duplicate, added.base_offset) == (False, END)
    log.truncate_to(END)


CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "leader-epoch-checkpoint",
)
SPOILED = {
    "missing": None,
    "empty": b"",
    "torn": b"0\n3\nflights 3",
    "zeros": bytes(64),
    "not text": b"\xff\xfe\x80",
    "of another version": b"7\n0\n",
}


def spoil(path, how):
    if SPOILED[how] is None:
        path.unlink()
    else:
        path.write_bytes(SPOILED[how])


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_that_is_missing_or_unreadable_costs_no_record(disk, log, batch, name, how, clean, caplog):
    path = (log.directory if name == "leader-epoch-checkpoint" else disk.dirs[0]) / name
    spoil(path, how)
    found = start(disk, log, clean=clean)
    assert found.high_watermark == (0 if name == "replication-offset-checkpoint" else 20)
    assert_whole(found, batch)
    if how != "missing":
        assert name in caplog.text


@pytest.mark.parametrize("clean", [True, False])
def test_a_recovery_point_beyond_the_log_is_not_believed(disk, log, batch, clean):
    path = disk.dirs[0] / "recovery-point-offset-checkpoint"
    path.write_text(f"0\n1\nflights 3 {END + 100}\n")
    found = start(disk, log, clean=clean)
    assert found.recovery_point <= END
    assert_whole(found, batch)


def test_a_high_watermark_beyond_the_log_stays_within_it(disk, log, batch):
    (disk.dirs[0] / "replication-offset-checkpoint").write_text(f"0\n1\nflights 3 {END + 100}\n")
    found = start(disk, log)
    assert found.high_watermark == END
    assert_whole(found, batch)


@pytest.mark.parametrize("stale", ["0\n1\n1 0\n", "0\n2\n0 0\n1 7\n", "0\n0\n"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_stale_epoch_checkpoint_is_corrected_by_the_batches(disk, log, batch, stale, clean):
    (log.directory / "leader-epoch-checkpoint").write_text(stale)
    assert_whole(start(disk, log, clean=clean), batch)


def test_an_epoch_that_only_the_last_batch_has_is_not_believed_against_the_checkpoint(disk, log):
    path = log.directory / f"{20:020d}.log"
    content = bytearray(path.read_bytes())
    last = [at for at, _ in iter_batches(content)][-1]
    content[last + 12] ^= 0x20
    path.write_bytes(content)
    found = start(disk, log)
    assert found.epoch_entries == ((1, 0), (2, 15))
    with pytest.raises(LogDamaged, match="its leader epoch is 536870914, and leader-epoch-checkpoint has 2"):
        found.read(END - 1, 1 << 20, max_offset=END, min_one_batch=True)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("how", SPOILED)
def test_producer_snapshots_that_are_missing_or_damaged_forget_nobody(disk, log, batch, how, clean):
    snapshots = sorted(log.directory.glob("*.snapshot"))
    assert snapshots
    for path in snapshots:
        spoil(path, how)
    assert_whole(start(disk, log, clean=clean), batch)


@pytest.mark.parametrize("part", range(4))
def test_a_flipped_bit_anywhere_in_the_newest_snapshot_is_noticed(disk, log, batch, part):
    path = max(log.directory.glob("*.snapshot"))
    content = path.read_bytes()
    for at in range(part * 11, len(content), 44):
        changed = bytearray(content)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        found = start(disk, log)
        assert found.append_as_leader(batch(NOW, producer=(9, 0, END - 5)), 2, NOW).duplicate
        disk.manager.close()
        disk.manager = None
        path.write_bytes(content)


def test_a_stale_snapshot_is_brought_up_to_date_by_the_batches(disk, log, batch):
    newest = max(log.directory.glob("*.snapshot"))
    newest.unlink()
    assert_whole(start(disk, log), batch)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("how", ["missing", "empty", "zeros", "cut", "of another segment"])
def test_an_index_that_is_missing_stale_or_damaged_is_built_anew(disk, log, batch, suffix, how, clean):
    for base in (0, 10, 20):
        path = log.directory / f"{base:020d}{suffix}"
        content = path.read_bytes()
        if how == "cut":
            path.write_bytes(content[: len(content) // 2 - 3])
        elif how == "of another segment":
            path.write_bytes((log.directory / f"{10:020d}{suffix}").read_bytes() * 2)
        else:
            spoil(path, how)
    assert_whole(start(disk, log, clean=clean), batch)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("base", [0, 20])
def test_a_flipped_bit_in_an_index_misleads_nobody(disk, log, batch, suffix, base, part):
    path = log.directory / f"{base:020d}{suffix}"
    content = path.read_bytes()
    for at in range(part, len(content), 12):
        changed = bytearray(content)
        changed[at] ^= 1 << (at * 3) % 8
        path.write_bytes(changed)
        assert_whole(start(disk, log), batch, again=1)
        disk.manager.close()
        disk.manager = None
        path.write_bytes(content)


def test_an_index_found_wrong_at_run_time_is_built_anew_once(disk, log, batch, caplog):
    path = log.directory / f"{0:020d}.index"
    content = path.read_bytes()
    changed = bytearray(content)
    changed[6] ^= 1
    path.write_bytes(changed)
    found = start(disk, log)
    with caplog.at_level(logging.WARNING):
        for offset in (*range(END), *range(END)):
            assert first_offsets(found, offset)[0] == offset
    assert caplog.text.count("its indexes are built again") == 1
    assert path.read_bytes() == content
    assert found.damage == ""


def test_a_segment_whose_time_index_says_it_is_old_does_not_expire_before_its_time(disk, log, batch):
    path = log.directory / f"{0:020d}.timeindex"
    content = bytearray(path.read_bytes())
    content[-11] ^= 1
    path.write_bytes(content)
    disk.config = LogConfig(
        segment_bytes=10 * len(batch(1)), index_interval_bytes=len(batch(1)), retention_ms=86_400_000
    )
    found = start(disk, log)
    found.set_high_watermark(END)
    assert found.delete_old_segments(NOW + 1000) == 0
    assert found.log_start_offset == 0
    assert found.delete_old_segments(NOW + 2 * 86_400_000) == 3


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "it has no version"),
        (bytes(40), "it has no version"),
        (b"version=0\n", "it has no broker.id"),
        (b"version=0\nbroker.id=\\u00\n", "line 2"),
        (b"version=0\nbroker.id=7\n", "says broker.id=7, this agent has broker.id=1"),
        (b"version=1\nbroker.id=1\n", "says version=1"),
    ],
)
def test_a_damaged_identity_ends_the_start_and_says_what_to_do(disk, log, content, what):
    (disk.dirs[0] / "meta.properties").write_bytes(content)
    with pytest.raises(LogDirInvalid, match=what) as refused:
        disk.open()
    assert refused.value.hint


def test_a_missing_identity_is_written_anew(disk, log, batch):
    path = disk.dirs[0] / "meta.properties"
    content = path.read_bytes()
    path.unlink()
    assert_whole(start(disk, log), batch)
    assert path.read_bytes() == content


def test_a_missing_clean_marker_costs_only_time(disk, log, batch):
    assert_whole(start(disk, log, clean=False), batch)


@pytest.mark.parametrize("content", [None, b"", b"\xff\xff", b"version: 0\n"])
def test_a_damaged_topic_id_is_unknown_until_the_controller_says_it(disk, log, batch, content):
    path = log.directory / "partition.metadata"
    whole = path.read_bytes()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    found = start(disk, log)
    assert found.topic_id.int == 0
    found.set_topic_id(log.topic_id)
    assert path.read_bytes() == whole
    assert_whole(found, batch)
