"""`spark.readStream.format("regency")`: offsets of one batch after the other, and their tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from regency.pipeline.errors import PipelineOptionInvalid
from regency.pipeline.reading.cluster_view import log
from regency.pipeline.reading.offsets import offsets_dict, offsets_of_checkpoint
from regency.pipeline.reading.options import ReadOptions, read_options
from regency.pipeline.reading.planning import ReadPartition, batches_of, check_schema
from regency.pipeline.reading.stream_plan import StreamPlan
from regency.pipeline.reading.worker_log import speak_up

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream as Spark drives it: one object on the driver plans all batches of a query, copies of it read."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._plan: StreamPlan | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """To tasks go the options alone, no connection."""
        return StreamReader, (self._options,)

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802
        """Where a new query begins. Raises PipelineOptionInvalid, TopicUnknown, DataLost and ClusterUnavailable."""
        return offsets_dict(self._planner().initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of the options. Where both are given Spark hears of the larger one, and the other holds too."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, dict[str, int]], limit: ReadLimit) -> dict[str, dict[str, int]]:  # noqa: N802
        """Where the batch from `start` ends. Raises DataLost, OffsetsMalformed and ClusterUnavailable."""
        unlimited = isinstance(limit, ReadAllAvailable)
        now_ms = time.monotonic() * 1000
        return offsets_dict(self._planner().next_end(offsets_of_checkpoint(start), now_ms, unlimited=unlimited))

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802
        """The latest offsets that were seen, for progress reports: without the limits of a batch."""
        latest = self._plan.latest if self._plan is not None else {}
        return offsets_dict(latest) if latest else None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to what is there now, and no further."""
        self._planner().freeze()

    def partitions(self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> list[ReadPartition]:
        """Tasks of a batch. Raises DataLost, OffsetsMalformed and ClusterUnavailable."""
        if start == end:
            return []
        return self._planner().tasks(offsets_of_checkpoint(start), offsets_of_checkpoint(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        return batches_of(partition)

    def stop(self) -> None:
        """Close all connections."""
        if self._plan is not None:
            self._plan.close()
            self._plan = None

    def _planner(self) -> StreamPlan:
        if self._plan is None:
            speak_up()
            for warning in self._options.warnings:
                log.warning("%s", warning)
            self._plan = StreamPlan(self._options)
        return self._plan


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stands for a stream whose options are wrong, and says so when Spark asks for its first offsets.

    Spark (up to 4.3, python_streaming_source_runner) cannot bear an error of `streamReader` itself: on its way out it
    stops the reader it did not get, and an UnboundLocalError of its own is the last that is reported.
    """

    def __init__(self, error: PipelineOptionInvalid) -> None:
        self._error = error

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Raises what is wrong."""
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Raises what is wrong."""
        raise self._error

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802
        """Raises what is wrong."""
        raise self._error

    def latestOffset(self, start: dict[str, dict[str, int]], limit: ReadLimit) -> dict[str, dict[str, int]]:  # noqa: N802
        """Raises what is wrong."""
        del start, limit
        raise self._error

    def partitions(self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> list[ReadPartition]:
        """Raises what is wrong: a query that is restarted plans its last batch again first."""
        del start, end
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Never asked for, as nothing is planned. Raises what is wrong."""
        del partition
        raise self._error


def stream_reader(options: Mapping[str, str], schema: StructType) -> StreamReader | RefusedReader:
    """The reader for options of Spark; where they are wrong, one whose every answer is PipelineOptionInvalid."""
    try:
        chosen = read_options(options, stream=True)
        check_schema(schema, chosen)
    except PipelineOptionInvalid as error:
        return RefusedReader(error)
    return StreamReader(chosen)
