"""flush.messages: what is appended is synced before it counts, also where descriptors are short at any step."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from itertools import chain, count, repeat

import pytest

from regency.broker_agent.log.errors import LogBusy, LogStorageError
from regency.kafka.record_batch import iter_batches
from regency.model.ids import TopicPartition
from regency.model.settings.log_config import LogConfig
from regency.runtime.disk import OsDisk

NOW = 1_700_000_000_000


class ScarceDisk(OsDisk):
    """The operating system's files of a process that gets a descriptor, or not, as `gets` has it; None: always."""

    def __init__(self) -> None:
        super().__init__()
        self.gets: Iterator[bool] | None = None
        self.refusals = 0

    def _taken(self, take):
        if self.gets is not None and not next(self.gets):
            self.refusals += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super()._taken(take)


@pytest.fixture
def synced(monkeypatch):
    """Bytes of each file, by inode, that were synced; for the sake of time they are not."""
    sizes: dict[int, int] = {}

    def sync(fd):
        found = os.fstat(fd)
        sizes[found.st_ino] = found.st_size

    monkeypatch.setattr(os, "fsync", sync)
    return sizes


def stored(log, synced):
    """Base offset and sequence of every batch in the files, whatever the log end: all are synced."""
    paths = [segment.log.path for segment in log._segments]
    stats = [path.stat() for path in paths]
    # an empty file may have the inode of one that was synced and is gone
    assert all(synced.get(stat.st_ino) == stat.st_size for stat in stats if stat.st_size)
    return [
        (header.base_offset, header.base_sequence) for path in paths for _, header in iter_batches(path.read_bytes())
    ]


def test_flush_messages_syncs_within_the_append(disk, batch):
    disk.config = LogConfig(flush_messages=3)
    log = disk.log()
    points = []
    for _ in range(4):
        log.append_as_leader(batch(1), 0, NOW)
        points.append(log.recovery_point)
    assert points == [0, 0, 3, 3]


def logs_without_descriptors(disk, batch, held):
    """Logs of `held` batches in segments of four; each runs short of descriptors one step of the next append later.

    At once, or after four times as many as it closed to make room.
    """
    scarce = ScarceDisk()
    disk.config = LogConfig(flush_messages=1, segment_bytes=4 * len(batch(NOW)))
    disk.worker.inline = False
    manager = disk.open(disk=scarce)
    for made_room in (0, 4):
        for step in count():
            log = disk.log(TopicPartition(f"flights{made_room}", step))
            for number in range(held):
                log.append_as_leader(batch(NOW, producer=(9, 0, number)), 0, NOW)
            disk.worker.run()
            manager._services.files.close_all()
            scarce.gets, scarce.refusals = chain(repeat(True, step), (False, True) * made_room, repeat(False)), 0
            yield scarce, log
            if not scarce.refusals:
                assert step >= 3, "a segment and its indexes took none"
                break


def until_done(scarce, append):
    """Repeat an append, three times without descriptors; yields after each try in vain."""
    for tries in count(1):
        try:
            append()
        except LogBusy:
            yield
        else:
            scarce.gets = None
            return
        if tries == 3:
            scarce.gets = None


@pytest.mark.parametrize(("held", "epoch"), [(3, 0), (3, 1), (4, 1)])
def test_a_leader_short_of_descriptors_appends_nothing_and_the_repeat_is_synced_and_there_once(
    disk, batch, synced, held, epoch
):
    """In a known leader epoch, in a new one, and where the log rolls, too."""
    one = batch(NOW, producer=(9, 0, held))
    before = [(number, number) for number in range(held)]
    for scarce, log in logs_without_descriptors(disk, batch, held):
        for _ in until_done(scarce, lambda log=log: log.append_as_leader(one, epoch, NOW)):
            assert (log.log_end_offset, stored(log, synced)) == (held, before)
        assert (log.log_end_offset, log.recovery_point) == (held + 1, held + 1)
        assert log.append_as_leader(one, epoch, NOW).duplicate
        assert stored(log, synced) == [*before, (held, held)]


def test_a_follower_short_of_descriptors_has_synced_all_that_it_says_it_holds(disk, batch, synced):
    """Of batches for three segments."""
    for scarce, log in logs_without_descriptors(disk, batch, 3):

        def append(log=log):
            fetched = range(log.log_end_offset, 11)
            log.append_as_follower(b"".join(batch(NOW, base=n, epoch=1, producer=(9, 0, n)) for n in fetched))

        for _ in until_done(scarce, append):
            assert log.recovery_point == log.log_end_offset
            assert stored(log, synced) == [(number, number) for number in range(log.log_end_offset)]
        assert (log.log_end_offset, log.recovery_point) == (11, 11)
        assert stored(log, synced) == [(number, number) for number in range(11)]


def test_a_sync_that_lacks_memory_takes_the_directory_offline_and_its_batch_does_not_count(disk, batch, monkeypatch):
    """It cannot be repeated: the next would succeed without what the kernel has dropped."""
    disk.config = LogConfig(flush_messages=1)
    log = disk.log()
    log.append_as_leader(batch(NOW), 0, NOW)

    def no_memory(_):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(os, "fsync", no_memory)
    for _ in range(2):
        with pytest.raises(LogStorageError) as refused:
            log.append_as_leader(batch(NOW), 0, NOW)
        assert not isinstance(refused.value, LogBusy)
        assert (log.log_end_offset, log.recovery_point) == (1, 1)
    assert [path for path, _ in disk.failures] == disk.dirs
