"""`spark.read.format("regency")`: the offsets of now, in tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from regency.pipeline.reading.cluster_view import ClusterView, log
from regency.pipeline.reading.options import ReadOptions, read_options
from regency.pipeline.reading.planning import ReadPartition, batches_of, check_schema, planned
from regency.pipeline.reading.pushdown import Bounds, bounds_of
from regency.pipeline.reading.ranges import OffsetRange
from regency.pipeline.reading.worker_log import speak_up

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


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
