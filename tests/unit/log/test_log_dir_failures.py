"""Directories of logs that fail: what a failure takes away, and what works on."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from uuid import UUID

import pytest

from regency.broker_agent.log.errors import LogDamaged, LogDirInvalid, LogStorageError
from regency.broker_agent.log.segments.open_files import LogFile
from regency.broker_agent.log.segments.segment import Segment
from regency.broker_agent.steps import at_once
from regency.model.ids import TopicId, TopicPartition
from regency.model.settings.log_config import LogConfig
from regency.runtime.disk import OsDisk

NOW = 1_700_000_000_000
TP = TopicPartition("flights", 3)


def test_a_directory_that_cannot_be_read_is_offline_and_the_others_work(disk):
    (disk.root / "a").write_text("not a directory")
    disk.dirs = [disk.root / "a", disk.root / "b"]
    manager = disk.open()
    assert [path for path, _ in disk.failures] == [disk.root / "a"]
    assert manager.offline_dirs == (disk.root / "a",)
    with pytest.raises(LogStorageError, match="may hold flights-3"):
        manager.create(TP, TopicId(UUID(int=1)), LogConfig(), is_new=False)
    assert disk.log().directory.parent == disk.root / "b"


def test_a_directory_whose_high_watermarks_cannot_be_read_is_offline(disk):
    disk.dirs = [disk.root / "a", disk.root / "b"]
    (disk.root / "a" / "replication-offset-checkpoint").mkdir(parents=True)
    assert disk.open().offline_dirs == (disk.root / "a",)
    assert [path for path, _ in disk.failures] == [disk.root / "a"]


def test_without_any_working_directory_there_is_no_start(disk):
    (disk.root / "a").write_text("not a directory")
    with pytest.raises(LogDirInvalid, match="No log directory works"):
        disk.open()


def test_a_directory_may_fail_when_everything_has_been_closed(disk):
    log = disk.log()
    disk.manager.close()
    log.home.fail(OSError(errno.EIO, "Input/output error"))
    assert [path for path, _ in disk.failures] == [log.home.path]


def test_a_recovered_log_whose_directory_fails_while_it_is_begun_anew_holds_no_checkpoint_up(disk, batch, monkeypatch):
    disk.dirs = [disk.root / "a", disk.root / "b"]
    disk.log().append_as_leader(batch(NOW), 0, NOW)
    log = disk.reopen(clean=False)

    def fail(_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Segment, "create", fail)
    with pytest.raises(LogStorageError):
        log.truncate_fully_and_start_at(7)
    disk.manager.checkpoint_high_watermarks({TP: 1})
    disk.worker.run()
    assert [path for path, _ in disk.failures] == [log.home.path]


@pytest.fixture
def no_space(monkeypatch):
    def write_nothing(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(LogFile, "write", write_nothing)


def test_a_write_error_takes_the_directory_offline_once_for_all_its_logs(disk, batch, no_space):
    disk.dirs = [disk.root / "a", disk.root / "b"]
    logs = [disk.log(TopicPartition("t", number)) for number in range(4)]

    for log in (logs[0], logs[0], logs[2]):
        with pytest.raises(LogStorageError, match="No space left"):
            log.append_as_leader(batch(1), 0, NOW)

    assert [path for path, _ in disk.failures] == [disk.root / "a"]
    assert disk.manager.offline_dirs == (disk.root / "a",)
    assert sorted(disk.manager.all()) == [("t", 1), ("t", 3)]
    for use in (
        lambda: logs[2].read(0, 100, max_offset=0, min_one_batch=True),
        lambda: logs[2].truncate_to(0),
        lambda: logs[2].assign_epoch(1, 0),
        logs[2].flush,
    ):
        with pytest.raises(LogStorageError):
            use()


def test_nothing_is_appended_after_a_torn_write(disk, batch, monkeypatch):
    log = disk.log()
    log.append_as_leader(batch(1), 0, NOW)
    really_write = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda fd, data, at: really_write(fd, bytes(data)[:-5], at))
        with pytest.raises(LogStorageError, match="were written"):
            log.append_as_leader(batch(2), 0, NOW)
    with pytest.raises(LogStorageError):
        log.append_as_leader(batch(3), 0, NOW)
    assert disk.reopen(clean=False).log_end_offset == 1


def test_a_failed_directory_is_not_marked_clean_and_the_others_are(disk, batch, no_space):
    disk.dirs = [disk.root / "a", disk.root / "b"]
    first, _ = disk.log(TopicPartition("t", 0)), disk.log(TopicPartition("t", 1))
    with pytest.raises(LogStorageError):
        first.append_as_leader(batch(1), 0, NOW)
    disk.manager.close()
    disk.manager = None
    assert [(disk.root / name / ".kafka_cleanshutdown").exists() for name in ("a", "b")] == [False, True]


def test_a_log_that_does_not_close_leaves_no_marker(disk, batch, no_space, caplog):
    log = disk.log()
    log._segments.active.max_timestamp = 5
    disk.manager.close()
    disk.manager = None
    assert not (disk.dirs[0] / ".kafka_cleanshutdown").exists()
    assert "is not closed cleanly" in caplog.text


def test_a_mistake_in_one_directory_keeps_no_other_from_being_closed(disk, monkeypatch):
    disk.dirs = [disk.root / "a", disk.root / "b"]
    first, _ = disk.log(TopicPartition("t", 0)), disk.log(TopicPartition("t", 1))
    monkeypatch.setattr(first, "finish_files", lambda: int("a mistake"))
    disk.manager.close()
    disk.manager = None
    assert [(disk.root / name / ".kafka_cleanshutdown").exists() for name in ("a", "b")] == [False, True]


def no_sync(fd):
    raise OSError(errno.EIO, "Input/output error")


def test_an_error_in_the_background_takes_the_directory_offline(disk, monkeypatch):
    disk.worker.inline = False
    disk.log()
    monkeypatch.setattr(os, "fsync", no_sync)
    disk.worker.run()
    assert [path for path, _ in disk.failures] == disk.dirs
    assert dict(disk.manager.all()) == {}


def test_a_failing_checkpoint_takes_the_directory_offline(disk, monkeypatch):
    disk.log()
    monkeypatch.setattr(os, "fsync", no_sync)
    disk.manager.checkpoint_high_watermarks({TP: 1})
    assert [path for path, _ in disk.failures] == disk.dirs
    list(disk.manager.checkpoint_recovery_points())
    disk.manager.checkpoint_log_start_offsets()
    list(disk.manager.run_retention(NOW))
    list(disk.manager.flush_dirty_logs())


def remove(path: Path) -> None:
    shutil.rmtree(path)


def replace(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def empty(path: Path) -> None:
    for each in path.iterdir():
        if each.is_dir():
            shutil.rmtree(each)


@pytest.mark.parametrize("harm", [remove, replace, empty])
def test_a_directory_whose_logs_are_gone_is_offline_once_somebody_looks(disk, batch, harm):
    """Files that are open would take records all the same."""
    disk.dirs = [disk.root / "a", disk.root / "b"]
    gone, other = disk.log(), disk.log(TopicPartition("other", 0))
    gone.append_as_leader(batch(1), 0, NOW)
    harm(gone.home.path)
    for directory in disk.manager.directories:
        directory.look_later()
    assert [path for path, _ in disk.failures] == [gone.home.path]
    assert dict(disk.manager.all()) == {other.topic_partition: other}


def test_a_log_that_is_put_aside_or_made_while_somebody_looks_is_not_missed(disk):
    disk.log()
    disk.worker.inline = False
    (logs,) = disk.manager.directories
    logs.look_later()
    disk.manager.delete_async(TP)
    disk.worker.run()
    logs.look_later()
    look = disk.worker.queue.pop()
    disk.log()
    look()
    assert disk.failures == []


def test_a_log_that_is_away_for_the_moment_of_a_look_is_not_missed(disk):
    """As one that gives way to its copy in another directory, and has to come back."""
    log = disk.log()
    disk.worker.inline = False
    (logs,) = disk.manager.directories
    logs.look_later()
    away = log.directory.with_name("away")
    log.directory.rename(away)
    look, back = disk.worker.queue.pop(), log.directory

    def listed(self: OsDisk, directory: Path) -> list[str]:
        found = names_in(self, directory)
        away.rename(back)
        return found

    names_in = OsDisk.names_in
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OsDisk, "names_in", listed)
        look()
    assert disk.failures == []


def test_looks_do_not_pile_up(disk):
    disk.log()
    disk.worker.inline = False
    (logs,) = disk.manager.directories
    queued = len(disk.worker.queue)
    for _ in range(3):
        logs.look_later()
    assert len(disk.worker.queue) == queued + 1
    disk.worker.run()
    logs.look_later()
    assert len(disk.worker.queue) == 1


def test_a_new_log_goes_elsewhere_when_a_directory_fails_under_it(disk, monkeypatch):
    disk.dirs = [disk.root / "a", disk.root / "b"]
    disk.open()
    (disk.root / "a" / "flights-3").write_text("in the way")
    assert disk.log().directory.parent == disk.root / "b"
    assert [path for path, _ in disk.failures] == [disk.root / "a"]


def test_a_new_log_goes_elsewhere_when_its_topic_id_cannot_be_kept(disk, monkeypatch):
    disk.dirs = [disk.root / "a", disk.root / "b"]
    disk.open()

    def replace(_disk: OsDisk, path: Path, content: bytes, *, sync: bool) -> None:
        if disk.root / "a" in path.parents:
            raise OSError(errno.ENOSPC, "no space left on device")
        path.write_bytes(content)

    monkeypatch.setattr("regency.broker_agent.log.partition_log.replace_file", replace)
    assert disk.log().directory.parent == disk.root / "b"
    assert [path for path, _ in disk.failures] == [disk.root / "a"]


def test_damage_found_while_reading_harms_only_that_log(disk, batch):
    log = disk.log()
    for _ in range(2):
        log.append_as_leader(batch(1), 0, NOW)
    with (log.directory / f"{0:020d}.log").open("r+b") as file:
        file.seek(8)
        file.write(b"\0\0\0\7")
    log.roll()
    for use in (
        lambda: log.read(1, 100, max_offset=2, min_one_batch=True),
        lambda: log.position_of(0),
        lambda: at_once(log.offset_for_timestamp(0, 2)),
        lambda: log.truncate_to(1),
    ):
        with pytest.raises(LogDamaged, match=r"000\.log holds no sound batch .*its length 7"):
            use()
    assert log.log_end_offset == 2
    assert disk.failures == []


def test_without_a_working_directory_nothing_can_be_created(disk, batch, no_space):
    with pytest.raises(LogStorageError):
        disk.log().append_as_leader(batch(1), 0, NOW)
    with pytest.raises(LogStorageError, match="all are offline"):
        disk.manager.create(TP, TopicId(UUID(int=1)), LogConfig(), is_new=True)


def test_a_log_that_cannot_be_read_at_the_start_takes_its_directory_offline(disk):
    disk.dirs = [disk.root / "a", disk.root / "b"]
    for number in range(4):
        disk.log(TopicPartition("t", number))
    disk.manager.close()
    log_file = disk.root / "a" / "t-0" / f"{0:020d}.log"
    log_file.unlink()
    log_file.mkdir()
    manager = disk.open()
    assert ([path for path, _ in disk.failures], manager.offline_dirs) == ([disk.root / "a"], (disk.root / "a",))
    assert sorted(manager.all()) == [("t", 1), ("t", 3)]


@pytest.fixture
def no_rename(monkeypatch):
    def refuse(disk: OsDisk, source: Path, target: Path) -> None:
        if source.suffix != ".tmp":
            raise OSError(errno.EROFS, "Read-only file system")
        source.rename(target)

    monkeypatch.setattr(OsDisk, "rename", refuse)


def test_a_log_that_cannot_be_put_aside_takes_its_directory_offline(disk, no_rename):
    disk.log()
    with pytest.raises(LogStorageError, match="Read-only"):
        disk.manager.delete_async(TP)
    assert [path for path, _ in disk.failures] == disk.dirs


def test_retention_that_cannot_rename_fails_the_directory_once(disk, batch, no_rename):
    for number in range(3):
        log = disk.log(TopicPartition("t", number))
        log.append_as_leader(batch(5), 0, NOW)
        log.set_high_watermark(1)
    list(disk.manager.run_retention(NOW))
    assert [path for path, _ in disk.failures] == disk.dirs
    assert dict(disk.manager.all()) == {}


def test_what_cannot_be_removed_stays_and_is_named(disk, caplog, monkeypatch):
    disk.log()
    disk.manager.delete_async(TP)
    disk.clock.advance(60_000)

    def refuse(path):
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(shutil, "rmtree", refuse)
    disk.manager.remove_deleted_files()
    assert "stays on the disk until the next start" in caplog.text
    assert disk.failures == []
