"""A future log becomes a prefix of the log it is copied from, however the two differ (KIP-113, KIP-279)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace
from uuid import UUID

import msgspec
import pytest

from regency.broker_agent.log.errors import CutNotPrepared
from regency.broker_agent.replication.directory_moves import DirectoryCopy
from regency.kafka.record_batch import iter_batches, stamp
from regency.model.ids import LeaderEpoch, Offset, TopicId, TopicPartition

NAME = TopicPartition("copied", 0)
ALL = 1 << 20


@pytest.fixture
def logs(moving, batch) -> SimpleNamespace:
    """A log and an empty future log of it; `fill` appends a record for each epoch."""
    manager = moving[1].logs
    current = manager.create(NAME, TopicId(UUID(int=7)), moving.config, is_new=True)
    target = next(each for each in manager.directories if each.directory is not current.home)
    future = manager.futures.create(current, target)

    def fill(log, *epochs: int) -> None:
        for epoch in epochs:
            records = bytearray(batch(f"of {epoch}"))
            stamp(records, log.log_end_offset, LeaderEpoch(epoch))
            log.append_as_follower(bytes(records))

    def advance(max_bytes: int = ALL) -> int:
        if not future.is_settled:
            manager.futures.settle(NAME, lambda: None)
        with suppress(CutNotPrepared):
            return copy.advance(max_bytes)
        return advance(max_bytes)

    copy = DirectoryCopy(current, future)
    return SimpleNamespace(current=current, future=future, fill=fill, copy=copy, advance=advance)


def content(log) -> bytes:
    """Every batch, segment by segment."""
    offset, found = log.log_start_offset, b""
    while offset < log.log_end_offset:
        records = bytes(log.read(offset, ALL, max_offset=log.log_end_offset, min_one_batch=True).records)
        offset = [header.next_offset for _, header in iter_batches(records)][-1]
        found += records
    return found


def whole(logs) -> None:
    """Copy all of it."""
    while logs.advance():
        pass
    assert logs.copy.is_level
    assert content(logs.future) == content(logs.current)
    assert logs.future.epoch_entries == logs.current.epoch_entries


@pytest.mark.parametrize(
    ("current", "future", "kept"),
    [
        pytest.param((1, 1, 1), (1,), 1, id="it lacks the end"),
        pytest.param((1, 2, 2), (1,), 1, id="and an epoch"),
        pytest.param((1, 1), (1, 1, 1, 1), 2, id="it is longer"),
        pytest.param((1, 1), (1, 1, 2, 2), 2, id="by an epoch"),
        pytest.param((1, 1, 3), (1, 1, 2), 2, id="another epoch at the end"),
        pytest.param((1, 1), (1, 2), 1, id="an epoch that began earlier"),
        pytest.param((1, 3, 5), (0, 2, 4), 0, id="no epoch in common"),
        pytest.param((0, 1, 1, 3, 5), (0, 1, 2, 4, 4, 4), 2, id="epochs in turn"),
        pytest.param((), (1, 1), 0, id="the log has been emptied"),
    ],
)
def test_what_the_log_does_not_have_is_cut_off_and_the_rest_copied(
    logs, monkeypatch, current: Sequence[int], future: Sequence[int], kept: int
) -> None:
    logs.fill(logs.current, *current)
    logs.fill(logs.future, *future)
    ends: list[int] = []
    append = type(logs.future).append_as_follower
    monkeypatch.setattr(
        type(logs.future),
        "append_as_follower",
        lambda log, records: (ends.append(log.log_end_offset), append(log, records))[1],
    )
    whole(logs)
    assert ends == ([kept] if kept < len(current) else []), "where copying went on"


def test_a_slice_is_whole_batches_and_at_least_one(logs) -> None:
    logs.fill(logs.current, 1, 1, 1)
    sizes = [header.size for _, header in iter_batches(content(logs.current))]
    assert logs.copy.advance(1) == sizes[0]
    assert logs.copy.advance(sizes[1] + sizes[2] - 1) == sizes[1]
    assert logs.copy.advance(ALL) == sizes[2]
    assert logs.copy.advance(ALL) == 0
    whole(logs)


def test_a_log_that_begins_beyond_the_copy_makes_it_begin_anew(logs) -> None:
    logs.fill(logs.current, 1, 1)
    logs.copy.advance(1)
    logs.current.truncate_fully_and_start_at(Offset(7))
    logs.fill(logs.current, 2, 2)
    whole(logs)
    assert logs.future.log_start_offset == 7


def test_a_copy_without_the_beginning_that_a_crash_gave_back_to_the_log_is_made_anew(logs) -> None:
    """The log start rose, which the copy has, and the broker died before a checkpoint said so."""
    logs.fill(logs.current, 1, 1, 1)
    logs.future.truncate_fully_and_start_at(Offset(2))
    logs.copy.is_prepared = True
    whole(logs)
    assert (logs.future.log_start_offset, logs.copy.may_be_swapped) == (0, False)


@pytest.mark.parametrize("was", ["compacted", "compacted once", "never compacted"])
def test_a_copy_that_is_found_begins_again_where_the_log_may_have_been_compacted_meanwhile(logs, was) -> None:
    """While the copy's directory was offline: a key that the copy has may be gone from the log, its deletion too."""
    logs.fill(logs.current, 1, 1)
    assert logs.advance(1)
    if was == "compacted":
        logs.current.config = msgspec.structs.replace(logs.current.config, cleanup_policy=("compact",))
    elif was == "compacted once":
        logs.current.cleaned_to = Offset(1)
    found = DirectoryCopy(logs.current, logs.future)
    with suppress(CutNotPrepared):
        found.advance(ALL)
    assert logs.future.log_end_offset == (2 if was == "never compacted" else 0)
    whole(logs)
    assert found.advance(ALL) == 0, "it begins again once"


def test_a_log_start_that_rose_is_on_the_disk_before_the_swap(logs) -> None:
    """Its checkpoint is written when the copy is prepared: a crash after the swap would bring back what lies below."""
    logs.fill(logs.current, 1, 1, 1)
    logs.current.set_high_watermark(Offset(3))
    whole(logs)
    logs.copy.is_prepared = True
    logs.current.maybe_increment_log_start(Offset(2))
    assert logs.copy.advance(ALL) == 0
    assert (logs.future.log_start_offset, logs.copy.may_be_swapped) == (2, False)


def test_nothing_stays_of_a_copy_that_ends_where_the_log_was_begun_anew(logs) -> None:
    """The leader never had these records, and its log starts right behind them: neither may the copy have them."""
    logs.fill(logs.current, 1, 1)
    whole(logs)
    logs.copy.is_prepared = True
    logs.current.truncate_fully_and_start_at(Offset(2))
    whole(logs)
    assert (logs.future.log_start_offset, logs.future.size_bytes) == (2, 0)
    assert not logs.copy.may_be_swapped


def test_what_the_log_has_synced_since_the_copy_was_prepared_is_synced_there_before_the_swap(logs) -> None:
    logs.fill(logs.current, 1)
    whole(logs)
    logs.copy.is_prepared = True
    logs.fill(logs.current, 1)
    logs.current.flush()
    whole(logs)
    assert not logs.copy.may_be_swapped, "a power cut would take what the log had on the disk"
    logs.future.flush()
    assert logs.copy.may_be_swapped


def test_segments_of_both_need_not_begin_at_the_same_offsets(logs) -> None:
    logs.fill(logs.current, 1, 1)
    logs.copy.advance(ALL)
    logs.future.roll()
    logs.fill(logs.current, 1)
    logs.current.roll()
    logs.fill(logs.current, 2)
    whole(logs)
    bases = [sorted(path.name for path in log.directory.glob("*.log")) for log in (logs.current, logs.future)]
    assert bases[0] != bases[1]


def test_what_was_prepared_is_so_no_more_once_it_was_cut(logs) -> None:
    logs.fill(logs.current, 1, 1)
    whole(logs)
    logs.copy.is_prepared = True
    assert logs.copy.advance(ALL) == 0
    assert logs.copy.may_be_swapped
    logs.current.truncate_to(Offset(1))
    logs.fill(logs.current, 2)
    whole(logs)
    assert not logs.copy.may_be_swapped
