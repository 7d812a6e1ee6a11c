"""`format("watched")`: the source and the sink as they are, whose tasks note how far they are.

Each record tells which attempt of its task sent it: its number stands in the bits of the header's flags that the sink
leaves at 0. So whoever finds a record twice knows who wrote it again, and what that one could have known.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from regency.clients.settings import ClientSettings
from regency.pipeline.sink import tasks as sink_tasks
from regency.pipeline.sink import writer as sink
from regency.pipeline.sink.floors import Floors, WritePlan
from regency.pipeline.sink.identity import WriteId, row_header
from regency.pipeline.sink.options import WriteOptions
from regency.pipeline.sink.tail import Tail, read_tail
from regency.pipeline.sink.tasks import TaskPlace, TaskWrote, write_once
from regency.pipeline.source import RegencyDataSource
from spark_kills.notes import FOLDER, AttemptNotes, TaskName, counted

MOST_ATTEMPTS = 127
"""Of one task: what the flags have room for."""


class Watched(RegencyDataSource):
    """What `RegencyDataSource` is, watched."""

    @classmethod
    def name(cls) -> str:
        return "watched"

    def reader(self, schema: Any) -> DataSourceReader:
        return _BatchReader(super().reader(schema))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return _StreamReader(super().streamReader(schema))

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return _BatchWriter(super().writer(schema, overwrite))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return _StreamWriter(super().streamWriter(schema, overwrite))


class _BatchReader(DataSourceReader):
    def __init__(self, inner: DataSourceReader) -> None:
        self._inner = inner

    def partitions(self) -> Any:
        return self._inner.partitions()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return counted(self._inner.read(partition))


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def initialOffset(self) -> Any:  # noqa: N802
        return self._inner.initialOffset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit: ReadLimit = self._inner.getDefaultReadLimit()
        return limit

    def latestOffset(self, start: Any, limit: ReadLimit) -> Any:  # noqa: N802
        return self._inner.latestOffset(start, limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._inner.prepareForTriggerAvailableNow()

    def partitions(self, start: Any, end: Any) -> Any:
        return self._inner.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return counted(self._inner.read(partition))

    def commit(self, end: Any) -> None:
        self._inner.commit(end)

    def stop(self) -> None:
        self._inner.stop()


class _BatchWriter(DataSourceArrowWriter):
    def __init__(self, inner: DataSourceArrowWriter) -> None:
        self._inner = inner

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        vars(sink)["write_once"] = noted_write_once
        return self._inner.write(counted(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._inner.commit(messages)


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, inner: DataSourceStreamArrowWriter) -> None:
        self._inner = inner

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        vars(sink)["write_once"] = noted_write_once
        return self._inner.write(counted(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._inner.commit(messages, batchId)


def noted_write_once(
    batches: Iterable[pa.RecordBatch], options: WriteOptions, plan: WritePlan, write: WriteId, place: TaskPlace
) -> TaskWrote:
    """`write_once`, which leaves notes and signs its records."""
    notes = AttemptNotes(Path(os.environ[FOLDER]), TaskName(write.query, write.batch, place.task))
    if notes.number > MOST_ATTEMPTS:
        raise RuntimeError(f"attempt {notes.number} of a task: its records cannot tell so many apart")

    def signed(prefix: bytes, position: int, *, explicit_partition: bool) -> bytes:
        value = row_header(prefix, position, explicit_partition=explicit_partition)
        return value[:-1] + bytes([value[-1] | notes.number << 1])

    def find(settings: ClientSettings, floors: Floors, write: WriteId, task: int) -> Tail:
        notes.reads_back()
        return read_tail(settings, floors, write, task)

    vars(sink_tasks)["row_header"] = signed
    wrote = write_once(batches, options, plan, write, place, find=find)
    notes.ends()
    return wrote
