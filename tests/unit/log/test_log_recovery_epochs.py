"""Which leader epochs a log has after a restart, whatever became of the file that has them."""

from __future__ import annotations

import pytest

NOW = 1_700_000_000_000


def fill(log, batch, count, *, epoch=0, timestamp=1000):
    for number in range(count):
        log.append_as_leader(batch(timestamp + number), epoch, NOW)
    return log


def log_file(log, base=0):
    return log.directory / f"{base:020d}.log"


def test_leader_epochs_are_rebuilt_from_the_batches(small, batch, caplog):
    log = fill(small.log(), batch, 5, epoch=1)
    fill(log, batch, 1, epoch=4)
    for spoil in (lambda path: path.write_bytes(b"\0\0"), lambda path: path.unlink()):
        small.manager.close()
        small.manager = None
        spoil(log.directory / "leader-epoch-checkpoint")
        log = small.open().get(log.topic_partition)
        assert log.epoch_entries == ((1, 0), (4, 5))
        assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n2\n1 0\n4 5\n"
    assert "read from the batches" in caplog.text


def test_an_older_epoch_file_is_corrected_by_the_batches(small, batch):
    log = fill(small.log(), batch, 3, epoch=1)
    fill(log, batch, 2, epoch=5)
    small.crash()
    for older in ("0\n3\n1 0\n3 4\n9 99\n", "0\n2\n1 0\n3 3\n", "0\n0\n"):
        (log.directory / "leader-epoch-checkpoint").write_text(older)
        assert small.open().get(log.topic_partition).epoch_entries == ((1, 0), (5, 3))
        small.crash()


@pytest.mark.parametrize("lost_index", ["", f"{0:020d}.index", f"{4:020d}.timeindex"])
def test_segments_that_came_back_have_their_epochs_whether_they_were_checked_or_not(small, batch, lost_index):
    log = fill(small.log(), batch, 3, epoch=0)
    fill(log, batch, 3, epoch=1)
    fill(log, batch, 5, epoch=5)
    assert log.segment_base_offsets == (0, 4, 8)
    log.flush()
    list(small.manager.checkpoint_recovery_points())
    small.crash()
    if lost_index:
        (log.directory / lost_index).unlink()
    (log.directory / "leader-epoch-checkpoint").write_text("0\n1\n5 8\n")
    assert small.open().get(log.topic_partition).epoch_entries == ((0, 0), (1, 3), (5, 6))
