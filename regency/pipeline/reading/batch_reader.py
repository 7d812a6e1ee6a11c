"""`spark.read.format("regency")`: the offsets of now, in tasks; filters narrow them by partition, offset and timestamp.

Nothing that is pushed down is taken off Spark's hands: it applies every filter again. So a bound may keep rows that do
not match, but never drops one that does. That is why timestamps bound the start alone: records need not be in the order
of their timestamps, and one behind the first that is too late may be early enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from regency.pipeline.reading.cluster_view import ClusterView, log
from regency.pipeline.reading.options import ReadOptions, read_options
from regency.pipeline.reading.planning import OffsetRange, ReadPartition, batches_of, check_schema, planned, speak_up

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARISONS = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual)


class Bounds(msgspec.Struct, frozen=True):
    """What rows can match: partitions (None: all), offsets from `start` up to but without `end` (None: no end)."""

    partitions: frozenset[int] | None = None
    start: int = 0
    end: int | None = None
    since: int | None = None
    """No row that matches has an earlier timestamp, in wall milliseconds; above 0."""
    topics: frozenset[str] | None = None

    def narrowed(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """The parts of the ranges in which rows may match, but for their timestamps; ranges may become empty."""
        return [
            OffsetRange(each.partition, max(each.start, self.start), self._end(each.end))
            for each in ranges
            if (self.partitions is None or each.partition.partition in self.partitions)
            and (self.topics is None or each.partition.topic in self.topics)
        ]

    def _end(self, end: int) -> int:
        return end if self.end is None else min(end, self.end)


def bounds_of(filters: Iterable[Filter]) -> Bounds:
    """Bounds of rows that match all filters; those on other columns, and of other kinds, bound nothing."""
    bounds = Bounds()
    for each in filters:
        if isinstance(each, _COMPARISONS) and len(each.attribute) == 1:
            narrow = _BY_COLUMN.get(each.attribute[0].lower())
            if narrow is not None:
                bounds = narrow(bounds, each)
    return bounds


def _by_partition(bounds: Bounds, each: Any) -> Bounds:
    wanted = _values(each, int)
    if wanted is None:
        return bounds
    both = wanted if bounds.partitions is None else bounds.partitions & wanted
    return msgspec.structs.replace(bounds, partitions=frozenset(both))


def _by_topic(bounds: Bounds, each: Any) -> Bounds:
    wanted = _values(each, str)
    if wanted is None:
        return bounds
    both = wanted if bounds.topics is None else bounds.topics & wanted
    return msgspec.structs.replace(bounds, topics=frozenset(both))


def _by_offset(bounds: Bounds, each: Any) -> Bounds:
    low, high = _interval(each, int)
    start = bounds.start if low is None else max(bounds.start, low)
    if high is None:
        return msgspec.structs.replace(bounds, start=start)
    end = max(high + 1, 0)
    return msgspec.structs.replace(bounds, start=start, end=end if bounds.end is None else min(bounds.end, end))


def _by_timestamp(bounds: Bounds, each: Any) -> Bounds:
    low, _ = _interval(each, datetime)
    if low is None or low <= 0:
        return bounds  # 0 and below: ListOffsets has other meanings for negative times, and nothing would be gained
    return msgspec.structs.replace(bounds, since=low if bounds.since is None else max(bounds.since, low))


_BY_COLUMN: dict[str, Callable[[Bounds, Any], Bounds]] = {
    "topic": _by_topic,
    "partition": _by_partition,
    "offset": _by_offset,
    "timestamp": _by_timestamp,
}


def _values(each: Any, kind: type) -> frozenset[Any] | None:
    """The values a column may have by a filter of equality; None where it is none, or not about such values."""
    if isinstance(each, EqualTo | EqualNullSafe):
        values: tuple[Any, ...] = (each.value,)
    elif isinstance(each, In):
        values = tuple(value for value in each.value if value is not None)
    else:
        return None
    return frozenset(values) if all(isinstance(value, kind) for value in values) else None


def _interval(each: Any, kind: type) -> tuple[int | None, int | None]:
    """Lowest and highest number a column may have by a filter, as offset or wall milliseconds."""
    equal: frozenset[Any] | None = _values(each, kind)
    if equal is not None:
        numbers = [(_at_least(value), _at_most(value)) for value in equal]
        if not numbers or any(None in pair for pair in numbers):
            return None, None
        return min(low for low, _ in numbers if low is not None), max(high for _, high in numbers if high is not None)
    if isinstance(each, In) or not isinstance(each.value, kind):
        return None, None
    value: Any = each.value
    low, high = _at_least(value), _at_most(value)
    if low is None or high is None:
        return None, None
    if isinstance(each, GreaterThan):
        return high + 1, None
    if isinstance(each, GreaterThanOrEqual):
        return low, None
    return None, low - 1 if isinstance(each, LessThan) else high


def _at_least(value: int | datetime) -> int | None:
    """The lowest whole number that is not below the value; None for a time without a zone."""
    return value if isinstance(value, int) else _milliseconds(value, up=True)


def _at_most(value: int | datetime) -> int | None:
    """The highest whole number that is not above the value."""
    return value if isinstance(value, int) else _milliseconds(value, up=False)


def _milliseconds(time: datetime, *, up: bool) -> int | None:
    if time.tzinfo is None:
        return None
    microseconds = (time - _EPOCH) // timedelta(microseconds=1)
    return -(-microseconds // 1000) if up else microseconds // 1000


class BatchReader(DataSourceReader):
    """A batch read: plans on the driver, reads in tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._bounds = Bounds()

    def partitions(self) -> list[ReadPartition]:
        """Tasks for what is there now.

        Raises PipelineOptionInvalid, TopicUnknown, DataLost and ClusterUnavailable.
        """
        speak_up()
        for warning in self._options.warnings:
            log.warning("%s", warning)
        view = ClusterView(self._options)
        try:
            return planned(self._options, self._ranges(view), view.topic_ids)
        finally:
            view.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        return batches_of(partition)

    def _ranges(self, view: ClusterView) -> list[OffsetRange]:
        partitions = view.partitions_of_a_new_query()
        starts = view.resolved(self._options.starting, partitions, option="starting")
        ends = view.resolved(self._options.ending, partitions, option="ending")
        gone = partitions - (starts.keys() & ends.keys())
        view.lost(f"{name} is gone" for name in sorted(gone))
        ranges = self._bounds.narrowed(
            OffsetRange(name, starts[name], ends[name]) for name in sorted(partitions - gone)
        )
        return ranges if self._bounds.since is None else _later(view, ranges, self._bounds.since)


class FilteringBatchReader(BatchReader):
    """A batch read that gets the filters of the query first."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Narrow what is planned. All filters are returned: Spark applies each of them again."""
        self._bounds = bounds_of(filters)
        return filters


def batch_reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    """The reader for options of Spark. Raises PipelineOptionInvalid.

    One that takes filters only where filterPushdown asks for it. Spark refuses it without its own setting of that name;
    and with both it keeps the plan with its filters for the next query of the same frame (PythonDataSourceV2 has one),
    which may then lack rows: its user has to load the frame again for each query.
    """
    chosen = read_options(options, stream=False)
    check_schema(schema, chosen)
    return FilteringBatchReader(chosen) if chosen.takes_filters else BatchReader(chosen)


def _later(view: ClusterView, ranges: list[OffsetRange], since: int) -> list[OffsetRange]:
    """The ranges without the records before the first that is not older than `since`: all of these are older.

    The ends were known before this is asked, so a partition without such a record has none in its range.
    """
    left = [each for each in ranges if each.size > 0]
    first = view.since({each.partition: since for each in left})
    later: list[OffsetRange] = []
    for each in left:
        found = first.get(each.partition, each.start)  # left out when it vanished: its task says so
        later.append(OffsetRange(each.partition, max(each.start, each.end if found is None else found), each.end))
    return later
