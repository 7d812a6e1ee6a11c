"""Logs that were cut off: what the disk must know before they go on, what that costs for many, who may come between."""

from __future__ import annotations

import errno

import pytest

from regency.kafka.logfiles.checkpoints import read_epochs, read_offsets
from regency.model.ids import TopicPartition
from regency.runtime.disk import OsDisk

NOW = 1_700_000_000_000
MANY = [TopicPartition("flights", number) for number in range(12)]
POINTS = "recovery-point-offset-checkpoint"


@pytest.fixture
def synced(monkeypatch) -> list[str]:
    """Names of what is synced: directories and files by path, files that are written as they are closed."""
    names: list[str] = []
    sync, sync_path, rename = OsDisk.sync, OsDisk.sync_path, OsDisk.rename

    def noted_rename(self, source, target):
        if target.name.endswith("checkpoint"):
            names.append(f"replace {target.name}")
        rename(self, source, target)

    monkeypatch.setattr(OsDisk, "sync", lambda self, fd: (names.append("file"), sync(self, fd))[1])
    monkeypatch.setattr(OsDisk, "sync_path", lambda self, at: (names.append(at.name), sync_path(self, at))[1])
    monkeypatch.setattr(OsDisk, "rename", noted_rename)
    return names


@pytest.fixture
def logs(disk, batch, synced):
    """Logs of six records, which the disk has, as it has their recovery points. Work of the pool waits from now on."""
    logs = [disk.log(partition) for partition in MANY]
    for log in logs:
        for _ in range(3):
            log.append_as_leader(batch(1000, 1000), 0, NOW)
        log.flush()
    list(disk.manager.checkpoint_recovery_points())
    disk.worker.inline = False
    synced.clear()
    return logs


def settle(disk, logs) -> list[str]:
    done: list[str] = []
    disk.manager.settle([log.topic_partition for log in logs], lambda: done.append("settled"))
    return done


def points(disk) -> set[int]:
    return set(read_offsets(OsDisk(), disk.dirs[0] / POINTS).values())


def test_many_that_begin_anew_behind_their_end_cost_a_sync_each_and_the_loop_none(disk, logs, synced):
    for log in logs:
        log.truncate_fully_and_start_at(1000)
    done = settle(disk, logs)
    assert [name for name in synced if name != "replace leader-epoch-checkpoint"] == []
    assert (done, any(log.is_settled for log in logs), points(disk)) == ([], False, {6})
    disk.worker.queue.pop(0)()
    assert sorted(synced[:12]) == sorted(str(log.topic_partition) for log in logs)
    assert set(synced[12:]) == {"replace leader-epoch-checkpoint"}, "no checkpoint of all logs: 6 is as good as 1000"
    assert (done, all(log.is_settled for log in logs)) == (["settled"], True)
    assert {log.recovery_point for log in logs} == {1000}
    assert read_epochs(OsDisk(), logs[0].directory / "leader-epoch-checkpoint") == []


def test_many_that_are_cut_below_their_recovery_points_cost_one_write_of_the_checkpoint(disk, logs, synced):
    assert [log.prepare_cut(4) for log in logs] == [False] * 12
    done = settle(disk, logs)
    assert (synced, points(disk)) == ([], {6})
    disk.worker.queue.pop(0)()
    assert synced.count(f"replace {POINTS}") == 1
    assert (done, points(disk), all(log.prepare_cut(4) for log in logs)) == (["settled"], {4}, True)
    synced.clear()
    assert [log.truncate_to(4) for log in logs] == [True] * 12
    assert f"replace {POINTS}" not in synced
    assert "file" not in synced


def test_many_that_begin_anew_below_their_recovery_points_cost_one_write_of_the_checkpoint(disk, logs, synced):
    for log in logs:
        log.truncate_fully_and_start_at(2)
    settle(disk, logs)
    disk.worker.run()
    assert (synced.count(f"replace {POINTS}"), points(disk)) == (1, {2})


def test_what_is_appended_to_before_it_is_settled_settles_itself_first(disk, logs, batch, synced):
    log, prepared = logs[:2]
    log.truncate_fully_and_start_at(2)
    settle(disk, [log])
    log.append_as_leader(batch(1000), 1, NOW)
    assert synced[0] == str(log.topic_partition)
    assert read_offsets(OsDisk(), disk.dirs[0] / POINTS)[log.topic_partition] == 2
    assert log.is_settled
    assert not prepared.prepare_cut(4)
    prepared.append_as_leader(batch(1000), 1, NOW)
    assert read_offsets(OsDisk(), disk.dirs[0] / POINTS)[prepared.topic_partition] == 4


def test_a_leader_epoch_is_written_when_nothing_that_was_dropped_can_come_back(disk, logs, synced):
    log = logs[0]
    log.truncate_fully_and_start_at(2)
    log.assign_epoch(7, 2)
    assert synced[0] == str(log.topic_partition)
    assert read_epochs(OsDisk(), log.directory / "leader-epoch-checkpoint") == [(7, 2)]


def test_a_log_that_is_cut_again_meanwhile_is_not_settled_by_what_was_done_for_the_first_cut(disk, logs):
    log, other = logs[:2]
    for each in (log, other):
        each.truncate_fully_and_start_at(4)
    done = settle(disk, [log, other])
    log.truncate_fully_and_start_at(2)
    disk.worker.run()
    assert (done, log.is_settled, other.is_settled) == (["settled"], False, True)


def test_logs_that_are_deleted_or_renamed_meanwhile_harm_nobody(disk, logs):
    deleted, renamed, kept = logs[:3]
    for log in (deleted, renamed, kept):
        log.truncate_fully_and_start_at(4)
    done = settle(disk, [deleted, renamed, kept])
    disk.manager.delete_async(deleted.topic_partition)
    renamed.move_to(renamed.directory.with_name("elsewhere-0"))
    disk.worker.run()
    assert (done, disk.failures) == (["settled"], [])
    assert (renamed.is_settled, kept.is_settled) == (False, True)
    done = settle(disk, [deleted])
    assert not done, "a caller that is not content may ask again and again: each time it returns first"
    disk.worker.run()
    assert done == ["settled"]


def test_a_directory_in_which_logs_cannot_be_settled_fails(disk, logs, monkeypatch):
    logs[0].truncate_fully_and_start_at(4)

    def fail(_, path):
        raise OSError(errno.EIO, "Input/output error", str(path))

    done = settle(disk, logs[:1])
    monkeypatch.setattr(OsDisk, "sync_path", fail)
    disk.worker.queue.pop(0)()
    assert ([path for path, _ in disk.failures], done) == (disk.dirs, ["settled"])


def test_no_high_watermark_is_checkpointed_of_a_log_that_is_not_settled(disk, logs):
    log, other = logs[:2]
    for each in (log, other):
        each.set_high_watermark(6)
    disk.worker.inline = True
    log.truncate_fully_and_start_at(1000)
    disk.manager.checkpoint_high_watermarks({each.topic_partition: each.high_watermark for each in (log, other)})
    marks = read_offsets(OsDisk(), disk.dirs[0] / "replication-offset-checkpoint")
    assert (marks.get(log.topic_partition), marks[other.topic_partition]) == (None, 6)


def test_nothing_of_a_log_that_is_not_settled_expires(disk, logs):
    log = logs[0]
    log.set_high_watermark(6)
    assert not log.prepare_cut(2)
    assert log.delete_old_segments(NOW + 10**12) == 0


def test_logs_that_are_not_settled_are_closed_in_order(disk, logs, synced):
    log = logs[0]
    log.truncate_fully_and_start_at(2)
    settle(disk, [log])
    log = disk.reopen(clean=True)
    found = disk.manager.get(MANY[0])
    assert (found.log_start_offset, found.log_end_offset, found.recovery_point, found.epoch_entries) == (2, 2, 2, ())
    assert read_offsets(OsDisk(), disk.dirs[0] / POINTS)[MANY[0]] == 2
