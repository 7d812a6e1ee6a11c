"""The disk fills up at any byte of appends, rolls and checkpoints: what was acknowledged is there after a restart."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from regency.broker_agent.log.errors import LogStorageError
from regency.kafka.record_batch import iter_batches
from regency.model.ids import BrokerId
from regency.model.settings.log_config import LogConfig
from regency.runtime.disk import OsDisk

NOW = 1_700_000_000_000


class FullDisk(OsDisk):
    """The operating system's files on a device with room for so many more bytes; None: for any number."""

    def __init__(self) -> None:
        super().__init__()
        self.free: int | None = None
        self.refused: Path | None = None
        self.paths: dict[int, Path] = {}

    def write(self, fd: int, data: bytes, position: int) -> int:
        room = len(data)
        growth = position + len(data) - os.fstat(fd).st_size
        if self.free is not None and growth > 0:
            room -= max(0, growth - self.free)
            if room <= 0:
                self.refused = self.paths[fd]
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.free -= min(growth, self.free)
        return super().write(fd, data[:room], position)

    def open(self, path: Path) -> int:
        self._need_a_name(path)
        fd = super().open(path)
        self.paths[fd] = path
        return fd

    def open_empty(self, path: Path, size: int = 0) -> int:
        self._need_a_name(path)
        if self.free is not None and size > 0:
            if size > self.free:
                self.refused = path
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            self.free -= size
        fd = super().open_empty(path, size)
        self.paths[fd] = path
        return fd

    def sync(self, fd: int) -> None:
        """No power is cut here."""

    def sync_path(self, path: Path) -> None:
        """As above."""

    def _need_a_name(self, path: Path) -> None:
        if self.free is None or path.exists():
            return
        if self.free <= 0:
            self.refused = path
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@pytest.fixture
def full() -> FullDisk:
    return FullDisk()


@pytest.fixture
def log(disk, full, batch):
    """An open log that rolls after four batches, on a disk that is not full yet."""
    disk.config = LogConfig(segment_bytes=4 * len(batch(1)), index_interval_bytes=1)
    disk.open(disk=full, broker_id=BrokerId(1))
    return disk.log()


def work(disk, log, batch):
    """Append and checkpoint until the disk is full; offsets that were acknowledged, and whether it got full."""
    acknowledged = []
    for number in range(9):
        try:
            log.append_as_leader(batch(NOW, producer=(9, 0, number)), 0, NOW)
        except LogStorageError:
            return acknowledged, True
        acknowledged.append(number)
        if number % 3 == 2:
            log.set_high_watermark(len(acknowledged))
            disk.manager.checkpoint_high_watermarks({log.topic_partition: len(acknowledged)})
            list(disk.manager.checkpoint_recovery_points())
    return acknowledged, bool(disk.failures)


def offsets_in(log):
    found, offset = [], 0
    while offset < log.log_end_offset:
        records = log.read(offset, 1 << 20, max_offset=log.log_end_offset, min_one_batch=True).records
        found += [header.base_offset for _, header in iter_batches(records)]
        offset = found[-1] + 1
    return found


@pytest.mark.parametrize("part", range(12))
def test_wherever_the_disk_fills_up_what_was_acknowledged_is_there_after_a_restart(disk, full, log, batch, part):
    needed = 0
    while True:
        number = 17 * part + 204 * needed
        needed += 1
        name = f"{'ab'[needed % 2]}-{number}"
        disk.dirs, disk.failures = [disk.root / name], []
        if disk.manager is not None:
            disk.crash()
        full.free = None
        disk.open(disk=full)
        log = disk.log()
        full.free = number
        acknowledged, was_full = work(disk, log, batch)
        assert bool(disk.failures) == was_full
        if was_full:
            assert disk.manager.offline_dirs == (disk.root / name,)
            with pytest.raises(LogStorageError, match=r"No space left|as where a disk is full"):
                log.append_as_leader(batch(NOW), 0, NOW)
        full.free = None
        disk.crash()
        disk.open(disk=full)
        log = disk.manager.get(log.topic_partition)
        assert offsets_in(log) == list(range(log.log_end_offset))
        assert log.log_end_offset >= len(acknowledged), f"{number} bytes were free"
        again = log.log_end_offset
        assert log.append_as_leader(batch(NOW, producer=(9, 0, again)), 0, NOW).base_offset == again
        disk.manager.close()
        disk.manager = None
        if not was_full:
            break
    assert needed > 5


def filled_while(disk, full, log, doing):
    """Fill the disk, do something, and say which file found no room."""
    full.free = 0
    doing()
    assert full.refused is not None
    assert [path for path, _ in disk.failures] == [disk.root / "a"]
    assert f"/{full.refused.name}" in disk.failures[0][1]
    return full.refused.name


def test_a_disk_that_is_full_at_an_append(disk, full, log, batch):
    log.append_as_leader(batch(NOW), 0, NOW)

    def append():
        with pytest.raises(LogStorageError, match="No space left"):
            log.append_as_leader(batch(NOW), 0, NOW)

    assert filled_while(disk, full, log, append) == f"{0:020d}.log"
    full.free = None
    assert offsets_in(disk.reopen(clean=False)) == [0]


def test_a_disk_that_is_full_at_a_roll(disk, full, log, batch):
    for _ in range(4):
        log.append_as_leader(batch(NOW), 0, NOW)

    def roll():
        with pytest.raises(LogStorageError, match="No space left"):
            log.append_as_leader(batch(NOW), 0, NOW)

    assert filled_while(disk, full, log, roll) == f"{4:020d}.snapshot.tmp"
    full.free = None
    assert offsets_in(disk.reopen(clean=False)) == [0, 1, 2, 3]


@pytest.mark.parametrize("what", ["replication-offset", "recovery-point-offset", "log-start-offset"])
def test_a_disk_that_is_full_at_a_checkpoint(disk, full, log, batch, what):
    log.append_as_leader(batch(NOW), 0, NOW)
    log.set_high_watermark(1)
    write = {
        "replication-offset": lambda: disk.manager.checkpoint_high_watermarks({log.topic_partition: 1}),
        "recovery-point-offset": lambda: list(disk.manager.checkpoint_recovery_points()),
        "log-start-offset": disk.manager.checkpoint_log_start_offsets,
    }[what]
    assert filled_while(disk, full, log, write).startswith(f"{what}-checkpoint.")
    with pytest.raises(LogStorageError):
        log.append_as_leader(batch(NOW), 0, NOW)
    full.free = None
    assert offsets_in(disk.reopen(clean=False)) == [0]


def test_a_disk_that_is_full_at_a_new_leader_epoch(disk, full, log, batch):
    log.append_as_leader(batch(NOW), 0, NOW)

    def lead():
        with pytest.raises(LogStorageError, match="No space left"):
            log.assign_epoch(1, 1)

    assert filled_while(disk, full, log, lead) == "leader-epoch-checkpoint.tmp"
    full.free = None
    assert disk.reopen(clean=False).epoch_entries == ((0, 0),)
