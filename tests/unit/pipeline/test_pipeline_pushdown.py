from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from regency.model.ids import TopicPartition
from regency.pipeline.reading.batch_reader import Bounds, bounds_of
from regency.pipeline.reading.planning import OffsetRange

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def test_filters_bound_topics_partitions_and_offsets() -> None:
    bounds = bounds_of(
        [
            IsNotNull(("offset",)),
            In(("partition",), (1, 2, 3, None)),
            In(("Partition",), (2, 3, 4)),
            EqualTo(("topic",), "t"),
            GreaterThan(("offset",), 9),
            LessThanOrEqual(("offset",), 20),
            LessThan(("offset",), 20),
        ]
    )
    assert bounds == Bounds(partitions=frozenset({2, 3}), start=10, end=20, topics=frozenset({"t"}))
    whole = [OffsetRange(TopicPartition(topic, number), 0, 100) for topic in "st" for number in range(5)]
    assert bounds.narrowed(whole) == [
        OffsetRange(TopicPartition("t", 2), 10, 20),
        OffsetRange(TopicPartition("t", 3), 10, 20),
    ]


def test_timestamps_bound_the_start_alone_and_are_rounded_outwards() -> None:
    micro = timedelta(microseconds=1)
    assert bounds_of([GreaterThanOrEqual(("timestamp",), NOON)]).since == NOON_MS
    assert bounds_of([GreaterThanOrEqual(("timestamp",), NOON + micro)]).since == NOON_MS + 1
    assert bounds_of([GreaterThan(("timestamp",), NOON)]).since == NOON_MS + 1
    assert bounds_of([GreaterThan(("timestamp",), NOON - micro)]).since == NOON_MS
    assert bounds_of([EqualTo(("timestamp",), NOON)]).since == NOON_MS
    assert bounds_of([In(("timestamp",), (NOON + timedelta(hours=1), NOON))]).since == NOON_MS
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert bounds_of([GreaterThanOrEqual(("timestamp",), elsewhere)]).since == NOON_MS
    for late in (LessThan(("timestamp",), NOON), LessThanOrEqual(("timestamp",), NOON)):
        assert bounds_of([late]) == Bounds(), "a record behind one that is too late may match"


def test_what_bounds_nothing() -> None:
    others: list[Filter] = [
        Not(EqualTo(("partition",), 1)),
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "key"), "x"),
        EqualNullSafe(("partition",), None),
        GreaterThan(("offset",), 1.5),
        GreaterThan(("timestamp",), datetime(2024, 5, 1)),  # noqa: DTZ001  (a time without a zone is the case)
        GreaterThan(("timestamp",), datetime(1960, 1, 1, tzinfo=UTC)),
        In(("offset",), ()),
    ]
    assert bounds_of(others) == Bounds()


def test_filters_that_nothing_matches_leave_nothing() -> None:
    whole = [OffsetRange(TopicPartition("t", 0), 0, 100)]
    assert all(each.size <= 0 for each in bounds_of([LessThan(("offset",), -4)]).narrowed(whole))
    assert bounds_of([In(("partition",), (None,))]).narrowed(whole) == []
