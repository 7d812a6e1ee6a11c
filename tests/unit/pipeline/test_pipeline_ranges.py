from __future__ import annotations

import pytest

from regency.model.ids import TopicPartition
from regency.pipeline.reading.planning import OffsetRange, cut
from regency.pipeline.reading.stream_reader import Patience, available, limited


def ranges(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange(TopicPartition("t", number), 100, 100 + size) for number, size in enumerate(sizes)]


def cuts(found: list[OffsetRange]) -> list[tuple[int, int]]:
    return [(each.partition.partition, each.size) for each in found]


def test_one_task_per_partition_without_the_empty_ones() -> None:
    assert cuts(cut(ranges(5, 0, -3, 7), at_least=None, max_size=None)) == [(0, 5), (3, 7)]


def test_partitions_that_are_enough_are_not_cut() -> None:
    assert cuts(cut(ranges(1000, 1), at_least=2, max_size=None)) == [(0, 1000), (1, 1)]


def test_one_partition_is_cut_into_equal_parts() -> None:
    found = cut(ranges(10), at_least=3, max_size=None)
    assert [(each.start, each.end) for each in found] == [(100, 103), (103, 106), (106, 110)]


def test_large_partitions_are_cut_by_their_share_and_small_ones_are_left() -> None:
    found = cut(ranges(5, 5, 1000, 2000), at_least=8, max_size=None)
    assert cuts(found) == [(0, 5), (1, 5), (2, 500), (2, 500), (3, 500), (3, 500), (3, 500), (3, 500)]


def test_no_part_is_larger_than_asked_for() -> None:
    assert cuts(cut(ranges(10, 4), at_least=None, max_size=4)) == [(0, 3), (0, 3), (0, 4), (1, 4)]


def test_cut_to_size_first_then_to_number() -> None:
    assert cuts(cut(ranges(100), at_least=4, max_size=50)) == [(0, 25)] * 4


def test_more_parts_than_offsets_leave_one_offset_each() -> None:
    assert cuts(cut(ranges(3), at_least=10, max_size=None)) == [(0, 1)] * 3


def at(*offsets: int) -> dict[TopicPartition, int]:
    return {TopicPartition("t", number): offset for number, offset in enumerate(offsets)}


def test_a_limit_is_shared_by_what_there_is() -> None:
    assert limited(100, at(0, 0, 50), at(300, 100, 50)) == at(75, 25, 50)


def test_a_small_partition_does_not_starve() -> None:
    assert limited(10, at(0, 0), at(1, 1000)) == at(1, 9)


def test_a_limit_beyond_what_there_is_takes_all() -> None:
    assert limited(5000, at(0, 10), at(7, 30)) == at(7, 30)


def test_a_log_that_went_back_ends_where_it_ends() -> None:
    assert limited(10, at(50, 0), at(20, 100)) == at(20, 10)


def test_a_stream_of_limited_batches_reaches_the_end() -> None:
    where, end, batches = at(0, 0, 0), at(1000, 600, 0), 0
    while where != end:
        previous, where = where, limited(499, where, end)
        assert 0 < sum(where.values()) - sum(previous.values()) <= 499
        batches += 1
    assert batches == 4


@pytest.mark.parametrize(("start", "expected"), [(at(0, 0), 12), (at(2, 9), 3), (at(5, 7), 0), ({}, 0)])
def test_what_is_available(start: dict[TopicPartition, int], expected: int) -> None:
    assert available(start, at(5, 7)) == expected


def test_a_batch_waits_for_enough_or_until_the_delay_is_over() -> None:
    patience = Patience(enough=100, max_delay_ms=1000)
    assert not patience.waits(1, 0), "the first batch waits for nothing"
    assert patience.waits(99, 500)
    assert not patience.waits(100, 600)
    assert patience.waits(1, 1599)
    assert not patience.waits(1, 1600)
