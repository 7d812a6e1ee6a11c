"""What Spark's tasks are planned to read: no offset is left out or read twice, no filter drops a row that matches."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualNullSafe, EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from regency.model.ids import TopicPartition
from regency.pipeline.reading.batch_reader import bounds_of
from regency.pipeline.reading.planning import OffsetRange, cut
from regency.pipeline.reading.stream_reader import limited

COMPARE: dict[type, Callable[[int, int], bool]] = {
    EqualTo: int.__eq__,
    EqualNullSafe: int.__eq__,
    GreaterThan: int.__gt__,
    GreaterThanOrEqual: int.__ge__,
    LessThan: int.__lt__,
    LessThanOrEqual: int.__le__,
}


@given(
    st.lists(st.integers(-5, 3000), max_size=8),
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(1, 500)),
)
def test_cutting_keeps_every_offset_once(sizes: list[int], at_least: int | None, max_size: int | None) -> None:
    whole = [OffsetRange(TopicPartition("t", number), 100, 100 + size) for number, size in enumerate(sizes)]
    found = cut(whole, at_least=at_least, max_size=max_size)
    for each in whole:
        edges = [(part.start, part.end) for part in found if part.partition == each.partition]
        assert [start for start, _ in edges] == [each.start, *[end for _, end in edges]][: len(edges)]
        assert (edges[-1][1] if edges else each.start) == max(each.end, each.start)
    assert all(each.size > 0 and (max_size is None or each.size <= max_size) for each in found)


@given(st.integers(1, 2000), st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=6))
def test_a_limited_batch_moves_on_and_stays_below_limit_and_end(limit: int, pairs: list[tuple[int, int]]) -> None:
    start = {TopicPartition("t", number): first for number, (first, _) in enumerate(pairs)}
    latest = {TopicPartition("t", number): first + more for number, (first, more) in enumerate(pairs)}
    end = limited(limit, start, latest)
    taken = sum(end[name] - start[name] for name in start)
    assert all(start[name] <= end[name] <= latest[name] for name in start)
    assert taken <= limit + len(pairs), "one more for each partition whose share is below one"
    assert taken > 0 or start == latest


@given(st.lists(st.tuples(st.sampled_from(list(COMPARE)), st.integers(-3, 30)), max_size=4), st.integers(0, 29))
def test_bounds_of_offsets_hold_what_matches_and_nothing_else(filters: list[tuple[type, int]], offset: int) -> None:
    bounds = bounds_of([kind(("offset",), value) for kind, value in filters])
    (left,) = bounds.narrowed([OffsetRange(TopicPartition("t", 0), 0, 30)])
    matches = all(COMPARE[kind](offset, value) for kind, value in filters)
    assert matches == (left.start <= offset < left.end)
