"""Directories of logs: whose they are, what opens, what is created where, what is deleted and what stays known."""

from __future__ import annotations

import os
import shutil
import struct
from uuid import UUID

import pytest

from regency.broker_agent.log.directories.log_manager import PREFERENCES, LogManager
from regency.broker_agent.log.errors import LogDirInvalid
from regency.kafka.logfiles.checkpoints import read_offsets
from regency.model.ids import BrokerId, TopicId, TopicPartition
from regency.model.settings.log_config import LogConfig
from regency.runtime.disk import OsDisk

NOW = 1_700_000_000_000
TP = TopicPartition("flights", 3)
OTHER_ID = TopicId(UUID(int=2))


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_a_new_directory_is_claimed_for_broker_and_cluster(disk):
    disk.open()
    text = (disk.dirs[0] / "meta.properties").read_text()
    assert sorted(text.split()) == ["#", "broker.id=1", "cluster.id=q5uOQi2bQFOuDqYkzT1kXg", "version=0"]


@pytest.mark.parametrize(("option", "value"), [("broker_id", BrokerId(2)), ("cluster_id", "another")])
def test_a_directory_of_another_broker_or_cluster_is_refused_and_not_kept_locked(disk, option, value):
    disk.open().close()
    with pytest.raises(LogDirInvalid, match=r"meta.properties says"):
        disk.open(**{option: value})
    disk.open()


def test_a_directory_in_use_is_refused(disk):
    disk.open()
    with pytest.raises(LogDirInvalid, match="in use by another process"):
        LogManager.open(
            disk.dirs, disk.config, broker_id=1, cluster_id="x", clock=disk.clock, worker=disk.worker,
            recovery_threads=1, on_dir_failure=lambda path, why: None,
        )  # fmt: skip


def test_the_clean_marker_is_there_only_between_a_clean_close_and_the_next_start(disk):
    marker = disk.dirs[0] / ".kafka_cleanshutdown"
    disk.log()
    assert not marker.exists()
    disk.manager.close()
    assert marker.exists()
    disk.open()
    assert not marker.exists()
    disk.crash()
    assert not marker.exists()


def test_a_log_has_kafkas_files(disk):
    log = disk.log()
    assert log.directory == disk.dirs[0] / "flights-3"
    assert names(log.directory) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "partition.metadata",
    ]
    log.assign_epoch(0, 0)
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    assert (log.directory / "partition.metadata").read_text().startswith("version: 0\ntopic_id: ")
    assert disk.log() is log
    assert dict(disk.manager.all()) == {TP: log}
    assert disk.reopen(clean=True).topic_id == log.topic_id


def test_a_topic_id_can_be_given_later(disk):
    disk.log()
    topic_id = TopicId(UUID(int=5))
    disk.manager.get(TP).set_topic_id(topic_id)
    assert disk.reopen(clean=False).topic_id == topic_id


def test_new_logs_go_where_the_fewest_are(disk):
    disk.dirs = [disk.root / "a", disk.root / "b"]
    homes = [disk.log(TopicPartition("t", number)).directory.parent.name for number in range(4)]
    assert homes == ["a", "b", "a", "b"]


@pytest.mark.parametrize("older", ["a", "b"])
@pytest.mark.parametrize("more", ["older", "newer"])
def test_an_older_copy_in_a_directory_that_was_offline_is_set_aside(disk, batch, caplog, older, more):
    newer = "b" if older == "a" else "a"
    disk.dirs = [disk.root / older]
    log = disk.log()
    for _ in range(5 if more == "older" else 1):
        log.append_as_leader(batch(1), 0, 0)
    disk.manager.close()
    disk.dirs = [disk.root / newer]
    log = disk.open().create(TP, OTHER_ID, disk.config, is_new=True)
    for _ in range(3):
        log.append_as_leader(batch(1), 0, 0)
    disk.manager.close()
    for name, seconds in (older, 1_000), (newer, 2_000):
        os.utime(disk.root / name / "flights-3" / "partition.metadata", (seconds, seconds))
    disk.dirs = [disk.root / "a", disk.root / "b"]
    disk.open()
    log = disk.manager.get(TP)
    assert (log.topic_id, log.log_end_offset, log.directory.parent.name) == (OTHER_ID, 3, newer)
    (aside,) = [name for name in names(disk.root / older) if name.startswith("flights-3")]
    assert aside.endswith("-stray") and f"is set aside as {aside}" in caplog.text
    assert (disk.root / older / aside / f"{0:020d}.log").stat().st_size > 0
    disk.reopen(clean=True)


def test_a_directory_that_fails_while_a_copy_is_set_aside_is_offline(disk, batch, monkeypatch):
    disk.dirs = [disk.root / "a", disk.root / "b"]
    disk.log().append_as_leader(batch(1), 0, 0)
    disk.manager.close()
    shutil.copytree(disk.root / "a" / "flights-3", disk.root / "b" / "flights-3")
    os.utime(disk.root / "b" / "flights-3" / "partition.metadata", (1, 1))

    rename = OsDisk.rename

    def fails(self, source, target):
        if source.name == "flights-3":
            raise OSError("broken")
        rename(self, source, target)

    with monkeypatch.context() as patched:
        patched.setattr(OsDisk, "rename", fails)
        disk.open()
    assert disk.manager.get(TP).directory.parent.name == "a"
    assert disk.manager.offline_dirs == (disk.root / "b",)


def test_a_log_without_records_is_removed_although_its_topic_id_was_written(disk, batch):
    disk.dirs = [disk.root / "a"]
    disk.log()
    disk.manager.close()
    disk.dirs = [disk.root / "b"]
    disk.open().create(TP, OTHER_ID, disk.config, is_new=True).append_as_leader(batch(1), 0, 0)
    disk.manager.close()
    disk.dirs = [disk.root / "a", disk.root / "b"]
    disk.open()
    assert disk.manager.get(TP).log_end_offset == 1
    assert not (disk.root / "a" / "flights-3").exists()


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_log_that_was_made_elsewhere_after_its_directory_had_failed_is_removed_there(disk, batch, first):
    disk.dirs = [disk.root / "a", disk.root / "b"]
    disk.log().append_as_leader(batch(1), 0, 0)
    disk.manager.close()
    disk.dirs = [disk.root / first, disk.root / ("b" if first == "a" else "a")]
    left = disk.root / "b" / "flights-3"
    left.mkdir()
    (left / f"{0:020d}.log").touch()
    disk.open()
    assert disk.manager.get(TP).log_end_offset == 1
    assert not left.exists()


def test_of_two_logs_made_in_vain_one_stays(disk):
    disk.dirs = [disk.root / "a", disk.root / "b"]
    disk.open().close()
    for directory in disk.dirs:
        (directory / "flights-3").mkdir()
    disk.open()
    assert disk.manager.get(TP).log_end_offset == 0
    assert not (disk.root / "b" / "flights-3").exists()


def test_foreign_entries_are_left_alone(disk, caplog):
    disk.log()
    disk.manager.close()
    stray = "old-1.00112233445566778899aabbccddeeff-stray"
    for name in ("lost+found", stray):
        (disk.dirs[0] / name).mkdir()
    (disk.dirs[0] / "notes.txt").write_text("x")
    disk.open()
    assert list(disk.manager.all()) == [TP]
    assert {"lost+found", stray, "notes.txt"} <= set(names(disk.dirs[0]))
    assert "lost+found is left alone" in caplog.text
    assert "stray" not in caplog.text


def test_a_deleted_log_is_renamed_at_once_and_removed_later(disk, batch):
    log = disk.log()
    log.append_as_leader(batch(1), 0, NOW)
    disk.manager.checkpoint_high_watermarks({TP: 1})
    disk.manager.delete_async(TP)
    disk.manager.delete_async(TP)

    assert disk.manager.get(TP) is None
    assert [name.endswith("-delete") for name in names(disk.dirs[0]) if name.startswith("flights")] == [True]
    again = disk.log()
    assert (again.log_end_offset, disk.manager.high_watermark_checkpoint(TP)) == (0, 0)
    disk.clock.advance(60_000)
    list(disk.manager.run_retention(NOW))
    assert [name for name in names(disk.dirs[0]) if name.startswith("flights")] == ["flights-3"]


def test_a_deletion_that_was_interrupted_is_finished_after_the_next_start(disk):
    disk.log()
    disk.manager.delete_async(TP)
    disk.crash()
    manager = disk.open()
    assert manager.get(TP) is None
    disk.clock.advance(60_000)
    manager.remove_deleted_files()
    assert not [name for name in names(disk.dirs[0]) if name.startswith("flights")]


def test_stray_logs_are_put_aside_and_kept(disk):
    disk.log()
    disk.manager.mark_stray([TP, TopicPartition("unknown", 0)])
    disk.clock.advance(10**9)
    list(disk.manager.run_retention(NOW))
    assert disk.manager.get(TP) is None
    assert [name.endswith("-stray") for name in names(disk.dirs[0]) if name.startswith("flights")] == [True]


def test_high_watermarks_of_logs_not_named_stay_checkpointed(disk):
    other = TopicPartition("other", 0)
    disk.log(), disk.log(other)
    manager = disk.manager
    manager.checkpoint_high_watermarks({TP: 5, other: 7})
    manager.checkpoint_high_watermarks({TP: 6, TopicPartition("gone", 0): 1})
    path = disk.dirs[0] / "replication-offset-checkpoint"
    assert read_offsets(OsDisk(), path) == {TP: 6, other: 7}
    disk.crash()
    manager = disk.open()
    assert [manager.high_watermark_checkpoint(partition) for partition in (TP, other)] == [6, 7]
    assert manager.high_watermark_checkpoint(TopicPartition("gone", 0)) == 0


def found_and_go_on(disk, batch):
    """A log that recovery has found, which may have cut it off, and a worker that waits to be told."""
    log = disk.log()
    for _ in range(3):
        log.append_as_leader(batch(NOW), 0, NOW)
    disk.worker.inline = False
    return disk.reopen(clean=False)


def test_a_log_that_was_cut_off_waits_until_the_disk_knows(disk, batch):
    log = disk.log()
    for _ in range(3):
        log.append_as_leader(batch(NOW), 0, NOW)
    disk.worker.inline = False
    log.truncate_to(1)
    assert log.unsettled.tail
    disk.manager.checkpoint_high_watermarks({TP: 1})
    disk.worker.run()
    assert disk.manager.high_watermark_checkpoint(TP) == 0

    told = []
    disk.manager.settle([TP], lambda: told.append(log.is_settled))
    disk.worker.run()
    disk.manager.checkpoint_high_watermarks({TP: 1})
    disk.worker.run()

    assert (told, disk.manager.high_watermark_checkpoint(TP)) == ([True], 1)


def test_what_is_appended_where_a_log_was_cut_off_waits_for_the_disk_itself(disk, batch, monkeypatch):
    log = disk.log()
    for _ in range(3):
        log.append_as_leader(batch(NOW), 0, NOW)
    disk.worker.inline = False
    log.truncate_to(1)
    synced = []
    monkeypatch.setattr(OsDisk, "sync_path", lambda _, path: synced.append((path.suffix, log.log_end_offset)))

    log.append_as_leader(batch(NOW), 1, NOW)

    assert synced == [(".log", 1)]
    assert log.is_settled


def test_a_high_watermark_is_checkpointed_once_the_disk_knows_where_its_log_was_cut_off(disk, batch):
    found_and_go_on(disk, batch)
    for high_watermark in (1, 2):
        disk.manager.checkpoint_high_watermarks({TP: high_watermark})
    assert disk.manager.high_watermark_checkpoint(TP) == 0
    disk.worker.run()
    assert read_offsets(OsDisk(), disk.dirs[0] / "replication-offset-checkpoint") == {TP: 2}


def test_a_high_watermark_that_waits_is_checkpointed_by_a_clean_close(disk, batch):
    found_and_go_on(disk, batch)
    disk.manager.checkpoint_high_watermarks({TP: 2})
    disk.reopen(clean=True)
    assert disk.manager.high_watermark_checkpoint(TP) == 2


def test_a_high_watermark_that_waits_is_not_that_of_a_log_made_again(disk, batch):
    found_and_go_on(disk, batch)
    disk.manager.checkpoint_high_watermarks({TP: 2})
    disk.manager.delete_async(TP)
    disk.log()
    disk.worker.run()
    assert disk.manager.high_watermark_checkpoint(TP) == 0


def test_high_watermarks_of_recovered_logs_wait_for_what_may_have_been_cut_off_before(disk, batch):
    disk.log().append_as_leader(batch(NOW), 0, NOW)
    disk.reopen(clean=False)
    disk.worker.inline = False
    disk.manager.checkpoint_high_watermarks({TP: 1})
    assert disk.manager.high_watermark_checkpoint(TP) == 0
    disk.worker.run()
    assert disk.manager.high_watermark_checkpoint(TP) == 1


CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")


def fill_and_checkpoint(disk, batch):
    """A log with records, whose every offset is in a checkpoint."""
    log = disk.log()
    for number in range(3):
        log.append_as_leader(batch(NOW + number), 0, NOW)
    log.set_high_watermark(3)
    log.maybe_increment_log_start(2)
    log.flush()
    list(disk.manager.checkpoint_recovery_points())
    disk.manager.checkpoint_log_start_offsets()
    disk.manager.checkpoint_high_watermarks({TP: 3})
    return log


def test_a_log_made_again_under_a_deleted_ones_name_has_none_of_its_offsets(disk, batch):
    fill_and_checkpoint(disk, batch)
    disk.manager.delete_async(TP)
    disk.log().append_as_leader(batch(NOW), 0, NOW)
    again = disk.reopen(clean=False)
    assert (again.log_start_offset, again.log_end_offset, again.recovery_point) == (0, 1, 0)
    assert disk.manager.high_watermark_checkpoint(TP) == 0


def test_a_start_forgets_the_offsets_of_logs_that_are_gone(disk, batch):
    fill_and_checkpoint(disk, batch)
    disk.manager.delete_async(TP)
    disk.crash()
    disk.open()
    assert [read_offsets(OsDisk(), disk.dirs[0] / name) for name in CHECKPOINTS] == [{}, {}, {}]
    assert disk.manager.high_watermark_checkpoint(TP) == 0


def test_a_checkpoint_written_late_does_not_undo_a_later_one(disk):
    disk.worker.inline = False
    disk.log()
    disk.manager.checkpoint_high_watermarks({TP: 1})
    disk.manager.checkpoint_high_watermarks({TP: 2})
    disk.worker.queue.reverse()
    disk.worker.run()
    assert read_offsets(OsDisk(), disk.dirs[0] / "replication-offset-checkpoint") == {TP: 2}


def test_a_checkpoint_that_comes_too_late_leaves_nothing_beside(disk):
    disk.worker.inline = False
    disk.log()
    disk.manager.checkpoint_high_watermarks({TP: 1})
    disk.manager.checkpoint_high_watermarks({TP: 2})
    disk.worker.queue.reverse()
    disk.worker.run()
    assert not [name for name in names(disk.dirs[0]) if name.endswith(".tmp")]


def test_what_a_crash_left_of_a_checkpoint_is_removed_at_the_next_start(disk):
    disk.log()
    disk.crash()
    (disk.dirs[0] / "replication-offset-checkpoint.7.tmp").write_text("0\n1\nflig")
    disk.open()
    assert not [name for name in names(disk.dirs[0]) if name.endswith(".tmp")]


def test_an_unreadable_checkpoint_costs_time_not_data(disk, batch, caplog):
    disk.log().append_as_leader(batch(1), 0, NOW)
    disk.manager.close()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"):
        (disk.dirs[0] / name).write_text("rubbish")
    assert disk.open().get(TP).log_end_offset == 1
    assert caplog.text.count("ignored a checkpoint") == 3


def test_opening_tells_its_progress(disk):
    for number in range(3):
        disk.log(TopicPartition("t", number))
    disk.manager.close()
    told = []
    disk.open(progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_more_logs_than_open_files_work(disk, batch, monkeypatch):
    manager = disk.open()
    manager._services.files._limit = 8
    logs = [disk.log(TopicPartition("many", number)) for number in range(20)]
    for round_number in range(3):
        for log in logs:
            log.append_as_leader(batch(round_number), 0, NOW)
    assert len(manager._services.files) <= 8
    assert {log.log_end_offset for log in logs} == {3}
    assert all(len(log.read(0, 1000, max_offset=3, min_one_batch=True).records) == 3 * len(batch(1)) for log in logs)


def test_background_syncs_go_in_batches_and_skip_what_is_gone(disk):
    disk.worker.inline = False
    for number in range(3):
        disk.log(TopicPartition("t", number))
    disk.manager.delete_async(TopicPartition("t", 1))
    assert len(disk.worker.queue) == 1
    disk.worker.run()
    assert disk.failures == []


def test_files_without_timestamps_are_as_old_as_they_were_written(disk, batch, patched):
    disk.config = LogConfig(retention_ms=1000)
    log = disk.log()
    log.append_as_leader(patched(batch(1), 27, struct.pack(">qq", -1, -1)), 0, NOW)
    log.set_high_watermark(1)
    os.utime(log.directory / f"{0:020d}.log", (NOW / 1000, NOW / 1000))
    list(disk.manager.run_retention(NOW + 1000))
    assert log.log_start_offset == 0
    list(disk.manager.run_retention(NOW + 1001))
    assert log.log_start_offset == 1


def test_wishes_for_logs_that_are_never_made_are_kept_within_bounds(disk, caplog):
    manager = disk.open()
    for number in range(PREFERENCES + 5):
        manager.prefer(TopicPartition("any name", number), disk.dirs[0])
    assert len(manager._preferred) == PREFERENCES
    assert TopicPartition("any name", 4) not in manager._preferred
    assert f"where the log of any name-4 was to be made: there are {PREFERENCES} later wishes" in caplog.text
