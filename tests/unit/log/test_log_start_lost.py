"""A log start that was raised, and whose checkpoint is missing, stale or damaged at the next start."""

from __future__ import annotations

import pytest

from regency.broker_agent.steps import at_once
from regency.kafka.record_batch import iter_batches
from regency.model.settings.log_config import LogConfig

NOW = 1_700_000_000_000
END = 24
LOST = {
    "missing": None,
    "empty": b"",
    "torn": b"0\n1\nflights 3",
    "zeros": bytes(32),
    "not text": b"\xff\xfe\x80",
    "of another version": b"7\n0\n",
    "without the log": b"0\n0\n",
    "older": b"0\n1\nflights 3 1\n",
}


@pytest.fixture
def log(disk, batch):
    """24 records in three leader epochs and three segments."""
    size = len(batch(1))
    disk.config = LogConfig(segment_bytes=10 * size, index_interval_bytes=size, retention_bytes=14 * size)
    log = disk.log()
    for number in range(END):
        epoch = 1 if number < 3 else 2 if number < 15 else 3
        log.append_as_leader(batch(NOW + number, producer=(9, 0, number)), epoch, NOW)
    log.set_high_watermark(END)
    disk.manager.checkpoint_high_watermarks({log.topic_partition: END})
    list(disk.manager.checkpoint_recovery_points())
    return log


def lose(disk, how, *, clean):
    """End the process, in order or not, and spoil the checkpoint."""
    disk.manager.checkpoint_log_start_offsets()
    if clean:
        disk.manager.close()
        disk.manager = None
    else:
        disk.crash()
    path = disk.dirs[0] / "log-start-offset-checkpoint"
    if LOST[how] is None:
        path.unlink()
    else:
        path.write_bytes(LOST[how])


def assert_complete_from(log, start, batch):
    """Every record from there on is found by offset and by time, epochs and producers are known, the log goes on."""
    assert (log.log_start_offset, log.log_end_offset) == (start, END)
    known = ((1, 0), (2, 3), (3, 15))
    in_force = max(each for each in known if each[1] <= start)
    assert log.epoch_entries == ((in_force[0], start), *(each for each in known if each[1] > start))
    for offset in range(start, END):
        records = log.read(offset, 1 << 20, max_offset=END, min_one_batch=True).records
        assert next(iter_batches(records))[1].base_offset == offset
        assert at_once(log.offset_for_timestamp(NOW + offset, END)).offset == offset
    assert log.append_as_leader(batch(NOW, producer=(9, 0, END - 1)), 3, NOW).duplicate
    assert log.append_as_leader(batch(NOW, producer=(9, 0, END)), 3, NOW).base_offset == END


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("how", LOST)
def test_a_log_that_retention_cut_short_begins_where_its_first_segment_does(disk, log, batch, how, clean):
    assert log.delete_old_segments(NOW) == 1
    lose(disk, how, clean=clean)
    assert_complete_from(disk.open().get(log.topic_partition), 10, batch)
    assert not [path for path in log.directory.iterdir() if path.name.startswith(f"{0:020d}")]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("how", LOST)
def test_a_start_within_a_segment_goes_back_and_all_that_is_there_is_offered_again(disk, log, batch, how, clean):
    log.maybe_increment_log_start(7)
    lose(disk, how, clean=clean)
    found = disk.open().get(log.topic_partition)
    assert_complete_from(found, 1 if how == "older" else 0, batch)
    found.set_high_watermark(END)
    assert found.maybe_increment_log_start(7)
    again = disk.reopen(clean=True)
    assert (again.log_start_offset, again.epoch_entries) == (7, ((2, 7), (3, 15)))


def test_a_start_beyond_the_end_of_a_log_that_was_closed_in_order_is_a_mistake_and_named(disk, log, batch, caplog):
    disk.manager.close()
    disk.manager = None
    path = disk.dirs[0] / "log-start-offset-checkpoint"
    path.write_text(f"0\n1\nflights 3 {END + 1}\n")
    assert_complete_from(disk.open().get(log.topic_partition), 0, batch)
    assert f"{path} says {END + 1}" in caplog.text
    assert path.read_text() == "0\n0\n"


@pytest.mark.parametrize("wrong", [9, 12, END, END + 1])
def test_a_start_that_is_too_high_costs_nothing_after_a_clean_shutdown(disk, log, batch, caplog, wrong):
    """The leader epochs begin where the log does. Believed, it would be every replica's as soon as this one leads."""
    log.maybe_increment_log_start(7)
    disk.manager.close()
    disk.manager = None
    path = disk.dirs[0] / "log-start-offset-checkpoint"
    path.write_text(f"0\n1\nflights 3 {wrong}\n")
    assert_complete_from(disk.open().get(log.topic_partition), 7, batch)
    assert f"{path} says {wrong}" in caplog.text
    assert path.read_text() == "0\n1\nflights 3 7\n"


@pytest.mark.parametrize("start", [7, END])
@pytest.mark.parametrize("epochs", [None, "0\n0\n", "0\n1\nflig"])
def test_a_start_is_believed_where_nothing_speaks_against_it(disk, log, caplog, start, epochs):
    log.maybe_increment_log_start(start)
    disk.manager.close()
    disk.manager = None
    path = log.directory / "leader-epoch-checkpoint"
    path.unlink()
    if epochs is not None:
        path.write_text(epochs)
    assert disk.open().get(log.topic_partition).log_start_offset == start
    assert "says" not in caplog.text


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_that_points_below_the_first_segment_is_not_believed(disk, log, batch, clean):
    log.delete_old_segments(NOW)
    lose(disk, "older", clean=clean)
    found = disk.open().get(log.topic_partition)
    assert found.log_start_offset == found.first_base_offset == 10
    assert "flights" not in (disk.dirs[0] / "log-start-offset-checkpoint").read_text()
