"""The sink of `format("regency")`: what Spark's driver asks of it, for batches and for streams.

Spark makes a writer once per batch write, and for a stream before every batch and again to commit it, each time in a
Python process that may be a new one. So a writer holds plain values, and making one twice must do no harm.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID, uuid4

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from regency.clients.cluster_client import ClusterClient, ClusterUnavailable
from regency.pipeline.errors import PipelineError, RowsDiffer, SinkModeRefused
from regency.pipeline.sink.floors import TopicFloors, WritePlan, begin, finish
from regency.pipeline.sink.identity import WriteId
from regency.pipeline.sink.options import FAIL_ON_CHANGED_ROWS, WriteOptions, write_options
from regency.pipeline.sink.producer import check_settings
from regency.pipeline.sink.rows import check_columns
from regency.pipeline.sink.state import StateStore
from regency.pipeline.sink.tail import topic_ends
from regency.pipeline.sink.tasks import TaskPlace, TaskWrote, write_at_least_once, write_once

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Properties every task of a stream has: the query's id, which its checkpoint keeps, and the batch's number."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of `df.write.format("regency").mode("append").save()`.

    Raises SinkModeRefused, SinkColumnsInvalid, PipelineOptionInvalid; effectively once also TopicGone and
    ClusterUnavailable.
    """
    if overwrite:
        raise SinkModeRefused(
            "Save mode overwrite is refused: records of a topic are only ever added to.",
            hint='Use mode("append"), or delete and create the topic first.',
        )
    return BatchWriter(_checked(options, schema, stream=False))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """The writer of one batch of `df.writeStream.format("regency")`.

    `overwrite`, for the output mode complete, changes nothing: the whole result is written each time, as Spark's Kafka
    sink does. Raises as `batch_writer`, and SinkStateUnusable.
    """
    del overwrite
    return StreamWriter(_checked(options, schema, stream=True))


class BatchWriter(DataSourceArrowWriter):
    """Writes a frame. Effectively once covers its own tasks: a write that is started again is another write."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._write = WriteId(uuid4(), 0)
        self._plan = WritePlan(_ends(options), begun=False, planned_ms=_now_ms()) if options.once else None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task. Raises what `write_at_least_once` and `write_once` raise."""
        if self._plan is None:
            return write_at_least_once(iterator, self._options)
        return write_once(iterator, self._options, self._plan, self._write, _place())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every row is acknowledged by now; says so where records are there more often than they should be."""
        _judge(_told(messages), self._options)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes one batch of a stream."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._plan: WritePlan | None = None
        if options.checkpoint is not None:
            self._plan = _begun(StateStore(options.checkpoint), options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task. Raises what `write_at_least_once` and `write_once` raise."""
        if self._plan is None:
            return write_at_least_once(iterator, self._options)
        return write_once(iterator, self._options, self._plan, _write_id(), _place())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """In the driver, when every task has finished and before Spark notes the batch as done."""
        if self._options.checkpoint is None:
            return
        told = _told(messages)
        _judge(told, self._options)
        query = next((message.query for message in told if message.query is not None), None)
        if query is None:
            return
        store = StateStore(self._options.checkpoint)
        store.save(finish(store.load().state, WriteId(query, batchId)))


def _checked(options: Mapping[str, str], schema: StructType, *, stream: bool) -> WriteOptions:
    checked = write_options(options, stream=stream)
    check_columns(schema, checked.topic)
    check_settings(checked.producer)
    for warning in checked.producer.warnings:
        _warn(warning)
    return checked


def _ends(options: WriteOptions) -> dict[str, TopicFloors]:
    """Asked of the cluster before the first row is written, so that max.block.ms bounds it."""
    producer = options.producer

    def silent(error: ClusterUnavailable) -> None:
        _warn(f"{error} Asking for {producer.max_block_ms} ms in all (kafka.max.block.ms).")

    settings = msgspec.structs.replace(producer.client, api_timeout_ms=producer.max_block_ms)
    with ClusterClient(settings, on_silence=silent) as client:
        return topic_ends(client, options.once_topics)


def _begun(store: StateStore, options: WriteOptions) -> WritePlan:
    """The plan of the batch that begins, once its floors are kept. Asked again, as to commit, it changes nothing."""
    store.check_place()
    before, doubt = store.load()
    if doubt:
        _warn(f"{doubt} Rows that are written again are looked for from the beginning of the batch before.")
    known = before.pending is not None and before.pending.keys() >= set(options.once_topics)
    state, repeated = begin(before, {} if known else _ends(options), doubtful=bool(doubt))
    if state.number != before.number:
        store.save(state)
    return WritePlan(state.pending or {}, begun=repeated, planned_ms=_now_ms(), done=state.done)


def _place() -> TaskPlace:
    context = TaskContext.get()
    if context is None:
        raise PipelineError(
            "Rows are written outside of a Spark task.", hint="Write through df.write or df.writeStream."
        )
    return TaskPlace(context.partitionId(), context.attemptNumber())


def _write_id() -> WriteId:
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    batch = None if context is None else context.getLocalProperty(BATCH_ID)
    if query is None or batch is None:
        raise PipelineError(
            f"The task is not told {QUERY_ID if query is None else BATCH_ID}: no batch can be effectively once.",
            hint="This release of Spark does not tell it; set effectivelyOnce to false.",
        )
    return WriteId(UUID(query), int(batch))


def _told(messages: Sequence[WriterCommitMessage | None]) -> list[TaskWrote]:
    return [message for message in messages if isinstance(message, TaskWrote)]


def _judge(messages: Sequence[TaskWrote], options: WriteOptions) -> None:
    """Raise RowsDiffer, or warn, where earlier attempts had more tasks; warn of what else is not as it was."""
    earlier = max((message.highest_task for message in messages), default=-1)
    if earlier >= len(messages):
        error = RowsDiffer(
            f"An earlier attempt of this batch had Spark partition {earlier}, this one has {len(messages)}: rows of the"
            " others may be there twice.",
            hint=f"Keep the number of partitions between attempts; {FAIL_ON_CHANGED_ROWS}=false goes on.",
        )
        if options.fail_on_changed_rows:
            raise error
        _warn(str(error))
    changed = sum(message.changed for message in messages)
    if changed:
        _warn(f"{changed} records of earlier attempts are none of the rows of this one, and stay.")
    doubled = sum(message.doubled for message in messages)
    if doubled:
        _warn(
            f"{doubled} records are there more often than their rows: two attempts of a task wrote at the same time."
            " Header regency.sink tells which (docs/use/spark-write.md)."
        )


def _warn(text: str) -> None:
    sys.stderr.write(f"regency sink: {text}\n")


def _now_ms() -> int:
    return int(time.time() * 1000)
