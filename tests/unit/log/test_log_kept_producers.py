"""Who produced what is known for as long as it counts: after its records expired, after crashes, until it expires."""

from __future__ import annotations

from pathlib import Path

import pytest

from regency.broker_agent.log import partition_log
from regency.broker_agent.log.errors import RecordsRejected
from regency.model.settings.log_config import LogConfig
from regency.runtime.disk import OsDisk

NOW = 1_700_000_000_000


def test_only_snapshots_that_a_recovery_may_need_are_kept(disk, batch):
    disk.config = LogConfig(segment_bytes=2 * len(batch(NOW)))
    log = disk.log()
    for _ in range(6):
        log.append_as_leader(batch(NOW), 0, NOW)

    def snapshots():
        return [int(path.name[:20]) for path in sorted(log.directory.glob("*.snapshot"))]

    log.set_high_watermark(6)
    assert snapshots() == [2, 4]
    for _ in range(2):
        list(disk.manager.checkpoint_recovery_points())
        assert snapshots() == [2, 4]
    log.roll()
    log.flush()
    list(disk.manager.checkpoint_recovery_points())
    assert snapshots() == [4, 6]


@pytest.mark.parametrize("harm", ["killed", "cut back"])
def test_no_snapshot_goes_that_may_have_to_tell_of_what_has_expired(disk, batch, harm):
    """Killed before the newer recovery point is on the disk, or cut back to the high watermark."""
    disk.config = LogConfig(segment_bytes=len(batch(NOW)), retention_ms=1000)
    log = disk.log()
    sent = batch(NOW, producer=(9, 0, 0))
    log.append_as_leader(sent, 0, NOW)
    log.set_high_watermark(1)
    list(disk.manager.run_retention(NOW + 2_000))
    for number in range(4):
        log.append_as_leader(batch(NOW, producer=(8, 0, number)), 0, NOW)
    if harm == "killed":
        log.set_high_watermark(5)
        disk.worker.inline = False
        list(disk.manager.checkpoint_recovery_points())
        log = disk.reopen(clean=False)
    else:
        for _ in range(3):
            list(disk.manager.checkpoint_recovery_points())
        disk.cut(log, 2)
    assert log.append_as_leader(sent, 0, NOW).duplicate


def test_a_producer_outlives_its_records(disk, batch):
    """KAFKA-7190: what it sends next is still told from a repetition and from a gap."""
    disk.config = LogConfig(segment_bytes=len(batch(NOW)), retention_ms=1000)
    log = disk.log()
    sent = batch(NOW, producer=(9, 0, 0))
    log.append_as_leader(sent, 0, NOW)
    log.append_as_leader(batch(NOW), 0, NOW)
    log.set_high_watermark(2)
    list(disk.manager.run_retention(NOW + 2_000))
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    assert log.append_as_leader(sent, 0, NOW).duplicate
    with pytest.raises(RecordsRejected, match="sequence"):
        log.append_as_leader(batch(NOW, producer=(9, 0, 2)), 0, NOW)
    assert log.append_as_leader(batch(NOW, producer=(9, 0, 1)), 0, NOW).base_offset == 2


@pytest.mark.parametrize("clean", [None, True, False], ids=["running", "stopped", "killed"])
def test_a_log_that_begins_anew_knows_the_producers_whose_records_have_expired_at_the_leader(disk, batch, clean):
    disk.config = LogConfig(segment_bytes=len(batch(NOW)), retention_ms=1000)
    log = disk.log()
    sent = [batch(NOW, producer=(9, 0, number)) for number in range(3)]
    for each in sent:
        log.append_as_leader(each, 0, NOW)
    log.maybe_increment_high_watermark(2)
    log.maybe_increment_log_start(2)
    told = log.producers_below_start()
    log.truncate_fully_and_start_at(2, told)
    if clean is not None:
        log = disk.reopen(clean=clean)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    for each in sent[:2]:
        assert log.append_as_leader(each, 0, NOW).duplicate
    assert log.append_as_leader(sent[2], 0, NOW).base_offset == 2


def test_a_log_does_not_begin_anew_with_producers_that_cannot_be_read(disk, batch):
    log = disk.log()
    log.append_as_leader(batch(NOW), 0, NOW)
    with pytest.raises(RecordsRejected, match="unrecognized version"):
        log.truncate_fully_and_start_at(7, b"what is this")
    assert (log.log_start_offset, log.log_end_offset) == (0, 1)


def test_a_leader_says_of_whom_it_does_not_tell(disk, batch, monkeypatch, caplog):
    monkeypatch.setattr(partition_log, "MOST_TOLD", 1)
    log = disk.log()
    for number in range(2):
        log.append_as_leader(batch(NOW, producer=(number, 0, 0)), 0, NOW)
    log.maybe_increment_high_watermark(2)
    log.maybe_increment_log_start(2)
    assert log.producers_below_start()
    assert "does not get 1 batches" in caplog.text


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_producer_outlives_its_records_and_a_crash(disk, batch, checkpointed):
    """Nothing but the snapshot at the beginning of the first segment tells of it, wherever recovery begins."""
    disk.config = LogConfig(segment_bytes=len(batch(NOW)), retention_ms=1000)
    log = disk.log()
    sent = batch(NOW, producer=(9, 0, 0))
    log.append_as_leader(sent, 0, NOW)
    log.set_high_watermark(1)
    if checkpointed:
        list(disk.manager.checkpoint_recovery_points())
    list(disk.manager.run_retention(NOW + 2_000))
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)
    log = disk.reopen(clean=False)
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)
    assert log.append_as_leader(sent, 0, NOW).duplicate


@pytest.fixture
def synced(monkeypatch):
    """Names of the files and directories that are synced from now on."""
    names: list[str] = []
    sync_path = OsDisk.sync_path

    def note(self: OsDisk, path: Path) -> None:
        names.append(path.name)
        sync_path(self, path)

    monkeypatch.setattr(OsDisk, "sync_path", note)
    return names


def test_who_produced_a_segment_is_on_the_disk_soon_after_it_is_full(disk, batch, synced):
    disk.config = LogConfig(segment_bytes=len(batch(NOW)))
    log = disk.log()
    log.append_as_leader(batch(NOW, producer=(9, 0, 0)), 0, NOW)
    del synced[:]
    log.roll()
    name = f"{1:020d}.snapshot"
    assert name in synced
    assert log.directory.name in synced[synced.index(name) :]


def test_who_produced_what_has_expired_is_on_the_disk_before_a_stop_counts_as_clean(disk, batch, synced):
    disk.config = LogConfig(segment_bytes=len(batch(NOW)), retention_ms=1000)
    log = disk.log()
    sent = batch(NOW, producer=(9, 0, 0))
    log.append_as_leader(sent, 0, NOW)
    log.append_as_leader(batch(NOW, producer=(9, 0, 1)), 0, NOW)
    log.set_high_watermark(2)
    list(disk.manager.run_retention(NOW + 2_000))
    snapshot = log.directory / f"{2:020d}.snapshot"
    del synced[:]
    log = disk.reopen(clean=True)
    assert {snapshot.name, log.directory.name} <= set(synced)
    before = snapshot.stat().st_ino
    log = disk.reopen(clean=True)
    assert snapshot.stat().st_ino == before, "one that is on the disk was replaced by one that may not be"
    assert log.append_as_leader(sent, 0, NOW).duplicate


def test_idle_producers_are_forgotten(disk, batch):
    log = disk.log()
    log.append_as_leader(batch(NOW, producer=(9, 0, 0)), 0, NOW)
    list(disk.manager.expire_producers(NOW + 86_399_999))
    with pytest.raises(RecordsRejected):
        log.append_as_leader(batch(NOW, producer=(9, 0, 77)), 0, NOW)
    list(disk.manager.expire_producers(NOW + 86_400_000))
    assert log.append_as_leader(batch(NOW, producer=(9, 0, 77)), 0, NOW).base_offset == 1
    assert log.append_as_leader(batch(NOW, producer=(9, 0, 77)), 0, NOW).duplicate


def test_a_first_batch_that_claims_to_be_of_the_future_keeps_nobody_from_expiring(disk, batch):
    log = disk.log()
    for producer, timestamp in ((8, NOW * 1000), (9, NOW)):  # the one takes microseconds for milliseconds
        log.append_as_leader(batch(timestamp, producer=(producer, 0, 0)), 0, NOW)
    later = NOW + 86_400_000
    list(disk.manager.expire_producers(later))
    assert log.append_as_leader(batch(later, producer=(9, 0, 77)), 0, later).base_offset == 2


@pytest.mark.parametrize("clean", [True, False])
def test_producers_expire_after_the_time_that_is_set_also_over_a_restart(disk, batch, clean):
    disk.open(producer_expiration_ms=10_000)
    log = disk.log()
    idle, busy = batch(NOW, producer=(8, 0, 0)), batch(NOW + 9_000, producer=(9, 0, 0))
    for produced in (idle, busy):
        log.append_as_leader(produced, 0, NOW)
    disk.clock.advance(12_000)
    if clean:
        disk.manager.close()
    else:
        disk.crash()
    log = disk.open(producer_expiration_ms=10_000).get(log.topic_partition)
    now = NOW + 12_000
    assert log.append_as_leader(idle, 1, now).duplicate, "whoever repeats at once after a restart is known"
    list(disk.manager.expire_producers(now))
    assert log.append_as_leader(busy, 1, now).duplicate
    assert not log.append_as_leader(idle, 1, now).duplicate, "nobody remembers that it is written already"
    assert log.append_as_leader(batch(now, producer=(10, 0, 5)), 1, now).base_offset == 3


def test_a_producer_that_goes_on_writing_does_not_expire(disk, batch):
    disk.open(producer_expiration_ms=10_000)
    log = disk.log()
    for sequence in range(5):
        now = NOW + sequence * 9_000
        list(disk.manager.expire_producers(now))
        log.append_as_leader(batch(now, producer=(9, 0, sequence)), 0, now)
    assert log.append_as_leader(batch(NOW, producer=(9, 0, 0)), 0, now).duplicate
