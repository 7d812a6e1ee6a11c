"""A log on the disk against a log in a list: whatever is done to both, they agree, also after crashes and cuts."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from unittest import mock
from uuid import UUID

from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.log.errors import LogDamaged
from regency.broker_agent.log.leader_epoch_cache import LeaderEpochCache
from regency.kafka.record_batch import crc_matches, iter_batches, read_header
from regency.model.clock import ManualClock
from regency.model.ids import TopicPartition
from regency.model.settings.log_config import LogConfig
from regency.runtime.disk import OsDisk

TP = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, segment_index_bytes=120)
FEW = settings(max_examples=40, deadline=None)


def make_batch(count: int, *, base: int = 0, epoch: int = -1, timestamp: int = 5, producer=(-1, -1, -1), body: int = 0):
    """A batch of `count` records whose bytes are not looked at, written out by hand."""
    tail = struct.pack(">hiqqqhii", 0, count - 1, timestamp, timestamp, *producer, count) + b"r" * body
    return struct.pack(">qiibI", base, len(tail) + 9, epoch, 2, crc32c(tail)) + tail


class InlineWorker:
    def submit(self, work: Callable, done: Callable) -> None:
        done(work())


class Disk:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.open()

    def open(self) -> None:
        self.manager = LogManager.open(
            [self.root], CONFIG, broker_id=1, cluster_id="c", clock=ManualClock(), worker=InlineWorker(),
            recovery_threads=1, on_dir_failure=lambda path, why: None,
        )  # fmt: skip
        self.log = self.manager.create(TP, UUID(int=7), CONFIG, is_new=True)

    def crash(self) -> None:
        self.manager._services.files.close_all()
        for directory in self.manager._directories:
            directory.unlock()


@contextmanager
def a_disk():
    with tempfile.TemporaryDirectory() as root, mock.patch("os.fsync"):
        disk = Disk(Path(root))
        try:
            yield disk
        finally:
            disk.crash()


def read_all(log, *, max_bytes=1 << 20):
    found, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        records = log.read(offset, max_bytes, max_offset=log.log_end_offset, min_one_batch=True).records
        found += records
        offset = [header for _, header in iter_batches(records)][-1].next_offset
    return found


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4), st.integers(0, 60)),
        st.tuples(st.just("fetch"), st.integers(1, 4), st.integers(0, 60)),
        st.tuples(st.just("epoch"), st.integers(1, 2), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(0, 12), st.just(0)),
        st.tuples(st.just("restart"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("roll"), st.just(0), st.just(0)),
        st.tuples(st.just("start over"), st.integers(0, 30), st.just(0)),
    ),
    max_size=30,
)


class Model:
    """The same log as a list of batches."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, int, bytes]] = []
        self.start = self.end = 0
        self.epoch = 0

    def append(self, base: int, count: int, batch: bytes) -> None:
        self.batches.append((base, base + count, self.epoch, batch))
        self.end = base + count

    def truncate(self, offset: int) -> None:
        if offset >= self.end:
            return
        if offset < self.start:
            self.batches, self.start, self.end = [], offset, offset
            return
        gone = [batch for batch in self.batches if batch[1] > offset]
        self.batches = [batch for batch in self.batches if batch[1] <= offset]
        self.end = min([offset, *(batch[0] for batch in gone)])

    @property
    def epochs(self):
        entries: list[tuple[int, int]] = []
        for base, _, epoch, _ in self.batches:
            if not entries or entries[-1][0] != epoch:
                entries.append((epoch, base))
        return tuple(entries)


def apply(disk: Disk, model: Model, operation) -> None:
    name, number, body = operation
    log = disk.log
    if name == "append":
        log.append_as_leader(make_batch(number, body=body), model.epoch, 0)
        model.append(model.end, number, make_batch(number, base=model.end, epoch=model.epoch, body=body))
    elif name == "fetch":
        batches, base = [], model.end
        for count in (number, 1):
            batches.append(make_batch(count, base=base, epoch=model.epoch, body=body))
            model.append(base, count, batches[-1])
            base += count
        log.append_as_follower(b"".join(batches) + batches[0][:-1])
    elif name == "epoch":
        model.epoch += number
    elif name == "truncate":
        offset = max(model.end - number, 0)
        if not log.prepare_cut(offset):
            disk.manager.settle([TP], lambda: None)
        log.truncate_to(offset)
        model.truncate(offset)
    elif name == "roll":
        log.roll()
    elif name == "start over":
        log.truncate_fully_and_start_at(number)
        model.batches, model.start, model.end = [], number, number
    elif number:
        disk.manager.close()
        disk.open()
    else:
        disk.crash()
        disk.open()


@FEW
@given(OPERATIONS)
def test_a_log_is_the_list_of_its_batches(operations):
    with a_disk() as disk:
        model = Model()
        for operation in operations:
            apply(disk, model, operation)
            log = disk.log
            assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
            assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
            assert log.recovery_point <= log.log_end_offset
            assert log.epoch_entries == model.epochs
        assert read_all(disk.log) == b"".join(batch for *_, batch in model.batches)
        assert read_all(disk.log, max_bytes=150) == b"".join(batch for *_, batch in model.batches)
        for base, after, epoch, batch in model.batches:
            for offset in (base, after - 1):
                records = disk.log.read(offset, 1, max_offset=model.end, min_one_batch=True).records
                assert records == batch
                assert disk.log.epoch_at(offset) == epoch


@FEW
@given(
    appends=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 90)), min_size=1, max_size=15),
    damage=st.sampled_from(["cut", "flip", "append"]),
    where=st.floats(0, 1, exclude_max=True),
)
@example(appends=[(1, 0), (1, 0), (1, 9)], damage="flip", where=0.0625)
def test_after_a_crash_the_log_is_a_prefix_of_whole_batches(appends, damage, where):
    with a_disk() as disk:
        for epoch, (count, body) in enumerate(appends):
            disk.log.append_as_leader(make_batch(count, body=body), epoch // 3, 0)
        before = read_all(disk.log)
        directory = disk.log.directory
        disk.crash()
        last = max(directory.glob("*.log"))
        content = bytearray(last.read_bytes())
        at = int(where * len(content))
        hits_epoch = damage == "flip" and any(12 <= at - start < 16 for start, _ in iter_batches(bytes(content)))
        if damage == "cut":
            del content[at:]
        elif damage == "flip":
            content[at] ^= 0x41
        else:
            content += b"\x07" * at
        last.write_bytes(content)

        disk.open()
        try:
            after = read_all(disk.log)
        except LogDamaged:
            assert hits_epoch, "no checksum covers it: the batches that follow tell, when they are read"
            return
        headers = [header for _, header in iter_batches(after)]
        assert all(crc_matches(after, header, at) for at, header in iter_batches(after))
        assert [header.base_offset for header in headers] == [0, *(header.next_offset for header in headers[:-1])][
            : len(headers)
        ]
        if not (damage == "flip" and content_outside_checksum(before, after)):
            assert before.startswith(after)
        assert disk.log.log_end_offset == (headers[-1].next_offset if headers else disk.log.log_start_offset)

        disk.crash()
        disk.open()
        assert read_all(disk.log) == after
        disk.log.append_as_leader(make_batch(2), 99, 0)


def content_outside_checksum(before: bytes, after: bytes) -> bool:
    """Whether the first difference is in the leader epoch, which no checksum covers."""
    for (at, old), (_, new) in zip(iter_batches(before), iter_batches(after), strict=False):
        if before[at : at + old.size] != after[at : at + old.size]:
            return old.leader_epoch != new.leader_epoch
    return False


@FEW
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 200)), max_size=20), st.integers(1, 900))
def test_a_follower_that_fetches_any_number_of_bytes_ends_up_equal(appends, max_bytes):
    with a_disk() as leader, a_disk() as follower:
        for number, (count, body) in enumerate(appends):
            leader.log.append_as_leader(make_batch(count, body=body), number // 4, 0)
        while follower.log.log_end_offset < leader.log.log_end_offset:
            offset = follower.log.log_end_offset
            info = leader.log.read(offset, max_bytes, max_offset=leader.log.log_end_offset, min_one_batch=True)
            assert len(info.records) <= max(max_bytes, read_header(info.records).size)
            follower.log.append_as_follower(info.records)
        assert read_all(follower.log) == read_all(leader.log)
        assert follower.log.epoch_entries == leader.log.epoch_entries


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("asn"), st.integers(0, 9), st.integers(0, 30)), max_size=25))
def test_epoch_entries_always_rise_in_both_columns(operations):
    with tempfile.TemporaryDirectory() as root:
        cache = LeaderEpochCache(OsDisk(), Path(root) / "leader-epoch-checkpoint")
        for name, epoch, offset in operations:
            if name == "a":
                cache.assign(epoch, offset)
                assert cache.latest is not None
                assert cache.latest == epoch
            elif name == "s":
                cache.truncate_from_start(offset)
                assert all(start >= offset for _, start in cache.entries)
            else:
                cache.truncate_from_end(offset)
                assert all(start < offset for _, start in cache.entries)
            for (epoch_before, start_before), (epoch_after, start_after) in zip(
                cache.entries, cache.entries[1:], strict=False
            ):
                assert epoch_before < epoch_after
                assert start_before < start_after


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(-1, 90))
def test_an_epochs_end_is_where_its_last_record_is(increments, asked):
    """Against a scan: the greatest epoch not above the one asked for, and the offset after its last record."""
    epochs, current = [], 0
    for increment in increments:
        current += increment
        epochs.append(current)
    with tempfile.TemporaryDirectory() as root:
        cache = LeaderEpochCache(OsDisk(), Path(root) / "leader-epoch-checkpoint")
        for offset, epoch in enumerate(epochs):
            cache.assign(epoch, offset)
        answer = cache.end_offset_for(asked, len(epochs))
    if asked < 0 or asked > epochs[-1]:
        expected = (-1, -1)
    elif asked < epochs[0]:
        expected = (asked, 0)
    else:
        found = max(epoch for epoch in epochs if epoch <= asked)
        expected = (found, max(offset for offset, epoch in enumerate(epochs) if epoch == found) + 1)
    assert (answer.leader_epoch, answer.end_offset) == expected
