"""What is decided about a compaction while it goes on: a swap that cannot go on, a copy, other settings."""

from __future__ import annotations

import errno

import msgspec
import pytest

from regency.broker_agent.log.cleaning.cleaner import clean
from regency.broker_agent.log.directories.log_cleaning import LogCleaning
from regency.broker_agent.log.errors import LogBusy
from regency.kafka.logfiles.file_names import CLEANED, SWAP, DirectoryKind
from regency.kafka.record_batch import iter_batches
from regency.model.ids import TopicPartition
from regency.model.settings import BrokerSettings
from regency.model.settings.log_config import LogConfig
from regency.runtime.disk import OsDisk

TP = TopicPartition("flights", 3)
NOW = 1_700_000_000_000
NO_DESCRIPTORS = OSError(errno.EMFILE, "Too many open files")


class HeldCleaner:
    """Keeps the jobs it is given, and does the oldest when told to."""

    def __init__(self):
        self.jobs = []

    def clean(self, job, done):
        self.jobs.append((job, done))

    def finish(self):
        job, done = self.jobs.pop(0)
        steps = clean(job, OsDisk())
        try:
            while True:
                next(steps)
        except StopIteration as end:
            done(end.value)


@pytest.fixture
def cleaner():
    return HeldCleaner()


@pytest.fixture
def log(disk, batch):
    """One that has something to compact: records without a key, of which only the last batch's place stays."""
    disk.dirs = [disk.root / "a", disk.root / "b"]
    disk.config = LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    log = disk.log()
    for _ in range(2):
        for _ in range(3):
            log.append_as_leader(batch(NOW), 0, NOW)
        log.roll()
    log.flush()
    log.set_high_watermark(log.log_end_offset)
    return log


@pytest.fixture
def cleaning(disk, log, cleaner):
    return LogCleaning(disk.manager, cleaner, disk.clock, BrokerSettings())


def places(log):
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        records = log.read(offset, 1 << 20, max_offset=log.log_end_offset, min_one_batch=True).records
        headers = [header for _, header in iter_batches(records)]
        found += [header.base_offset for header in headers]
        offset = headers[-1].next_offset
    return found


def names(log, suffix):
    return sorted(path.name for path in log.directory.glob(f"*{suffix}"))


def look(cleaning):
    list(cleaning.look(0))


def test_a_log_is_compacted_and_the_disk_knows_first_up_to_where_it_was_synced(disk, log, cleaner, cleaning):
    disk.worker.inline = False
    look(cleaning)
    cleaner.finish()
    assert names(log, SWAP) == []
    disk.worker.queue.pop(0)()
    assert "flights 3 6\n" in (log.home.path / "recovery-point-offset-checkpoint").read_text()
    assert f"{0:020d}.log.swap" in names(log, SWAP)
    disk.worker.run()
    assert (places(log), names(log, SWAP), log.cleaned_to) == ([5], [], 6)
    assert "flights 3 6\n" in (log.home.path / "cleaner-offset-checkpoint").read_text()


def test_nothing_is_taken_in_where_the_log_is_about_to_be_cut_off_below(log, cleaner, cleaning):
    look(cleaning)
    log.prepare_cut(4)
    cleaner.finish()
    assert (places(log), log.cleaned_to, cleaning.running) == ([0, 1, 2, 3, 4, 5], None, None)


def test_a_log_is_not_compacted_while_it_is_copied_to_another_directory(disk, log, cleaner, cleaning):
    look(cleaning)
    disk.manager.futures.create(log, disk.manager.directories[1])
    cleaner.finish()
    look(cleaning)
    assert (places(log), cleaner.jobs, cleaning.running) == ([0, 1, 2, 3, 4, 5], [], None)

    disk.manager.futures.put_aside(TP, DirectoryKind.DELETE)
    look(cleaning)
    cleaner.finish()
    assert places(log) == [5]


def test_a_log_that_is_to_be_compacted_no_more_keeps_what_it_has(disk, log, cleaner, cleaning):
    look(cleaning)
    disk.manager.set_configs({TP.topic: msgspec.structs.replace(log.config, cleanup_policy=("delete",))})
    cleaner.finish()
    assert (places(log), cleaning.running) == ([0, 1, 2, 3, 4, 5], None)


def test_a_swap_for_which_descriptors_are_short_is_done_anew(disk, log, cleaner, cleaning, monkeypatch):
    look(cleaning)
    with monkeypatch.context() as patch:
        patch.setattr(OsDisk, "rename", refuse(OsDisk.rename, lambda source, *_: source.name.endswith(CLEANED)))
        cleaner.finish()
    assert (places(log), names(log, SWAP), cleaning.running) == ([0, 1, 2, 3, 4, 5], [], None)
    look(cleaning)
    cleaner.finish()
    assert (places(log), disk.failures) == ([5], [])


def test_a_cut_for_which_descriptors_are_short_leaves_the_swap_to_go_on(disk, log, cleaner, cleaning, monkeypatch):
    look(cleaning)
    disk.worker.inline = False
    cleaner.finish()
    for _ in range(2):
        disk.worker.queue.pop(0)()
    assert [file.path.suffix for file in log._segments.first.files] == [SWAP] * 3
    with monkeypatch.context() as patch:
        patch.setattr(OsDisk, "sync_path", refuse(OsDisk.sync_path, lambda path: path == log.directory))
        with pytest.raises(LogBusy):
            log.stop_cleaning()
    disk.worker.run()
    assert (places(log), names(log, SWAP), log.cleaned_to, disk.failures) == ([5], [], 6, [])


ABORTED = f"{0:020d}.txnindex"


@pytest.mark.parametrize("how", ["to its end", "broken off", "ended by the next start"])
def test_aborted_transactions_are_in_place_for_good_before_the_batches_are(disk, log, cleaner, cleaning, steps, how):
    """Else a power cut could leave the batches alone in place, and the next start remove what still is a `.swap`."""
    look(cleaning)
    disk.worker.inline = False
    cleaner.finish()
    (log.directory / f"{ABORTED}{CLEANED}").write_bytes(b"aborted")
    for _ in range(2):
        disk.worker.queue.pop(0)()
    if how == "to its end":
        disk.worker.run()
    elif how == "broken off":
        log.stop_cleaning()
    else:
        log = disk.reopen(clean=False)
    assert (places(log), (log.directory / ABORTED).read_bytes(), names(log, SWAP)) == ([5], b"aborted", [])
    aborted, batches = (steps.index(f"rename {name}{SWAP}") for name in (ABORTED, f"{0:020d}.log"))
    assert f"sync {log.directory.name}" in steps[aborted:batches]


def test_aborted_transactions_of_a_swap_that_was_broken_off_go_only_with_the_batches(disk, log, cleaner, cleaning):
    """If a power cut gave back the batches alone, the next start would put them in place."""
    look(cleaning)
    disk.worker.inline = False
    cleaner.finish()
    (log.directory / f"{ABORTED}{CLEANED}").write_bytes(b"aborted")
    disk.worker.queue.pop(0)()
    batches = log.directory / f"{0:020d}.log{SWAP}"
    content = batches.read_bytes()
    log.stop_cleaning()
    assert (names(log, SWAP), names(log, CLEANED)) == ([], [f"{ABORTED}{CLEANED}"])
    batches.write_bytes(content)
    log = disk.reopen(clean=False)
    assert (places(log), names(log, "ed"), names(log, SWAP)) == ([0, 1, 2, 3, 4, 5], [], [])


@pytest.fixture
def steps(monkeypatch):
    """What is renamed and synced on the disk, in order."""
    noted = []

    def note(name, method):
        def noting(self, path, *more):
            noted.append(f"{name} {path.name}")
            return method(self, path, *more)

        monkeypatch.setattr(OsDisk, method.__name__, noting)

    note("rename", OsDisk.rename)
    note("sync", OsDisk.sync_path)
    return noted


def refuse(method, where):
    """The method of the disk, but without a descriptor to spare at some places."""

    def refusing(self, *arguments, **options):
        if where(*arguments):
            raise NO_DESCRIPTORS
        return method(self, *arguments, **options)

    return refusing
