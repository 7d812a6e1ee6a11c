"""From ranges of offsets to tasks, the one thing a task does, and the columns that come of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from regency.model.ids import Offset, TopicId, TopicPartition
from regency.pipeline.errors import PipelineOptionInvalid
from regency.pipeline.reading.options import ReadOptions
from regency.pipeline.records.partition_records import ReadTask, record_batches

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


CREATE_TIME, LOG_APPEND_TIME = 0, 1
"""Values of the column timestampType: who set the timestamp, the producer or the broker."""


def source_schema(include_headers: bool) -> StructType:
    """Columns of `format("regency")`; `headers` only when they were asked for, as for `format("kafka")`."""
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if include_headers:
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(header)))
    return StructType(fields)


class OffsetRange(msgspec.Struct, frozen=True):
    """Offsets of one partition from `start` up to but without `end`."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets there are; records may be fewer."""
        return self.end - self.start


def cut(ranges: Iterable[OffsetRange], *, at_least: int | None, max_size: int | None) -> list[OffsetRange]:
    """The ranges with something in them: none larger than `max_size`, about `at_least` of them.

    As Spark's Kafka source does: what is too large is cut into equal parts first; if these are still fewer than
    `at_least`, the large ones are cut by their share of all offsets, those whose share is one part left as they are.
    """
    whole = [each for each in ranges if each.size > 0]
    if max_size is not None:
        whole = [part for each in whole for part in _parts(each, -(-each.size // max_size))]
    if at_least is None or len(whole) >= at_least:
        return whole
    total = sum(each.size for each in whole)
    large = [each for each in whole if _share(each.size, total, at_least) > 1]
    total_of_large = sum(each.size for each in large)
    parts_of_large = max(at_least - (len(whole) - len(large)), 1)
    found: list[OffsetRange] = []
    for each in whole:
        is_large = _share(each.size, total, at_least) > 1
        found += _parts(each, _share(each.size, total_of_large, parts_of_large)) if is_large else [each]
    return found


def _share(size: int, total: int, parts: int) -> int:
    """How many of `parts` fall to a range, to the nearest, at least one."""
    return max((2 * size * parts + total) // (2 * total), 1)


def _parts(whole: OffsetRange, count: int) -> Iterator[OffsetRange]:
    """A range in `count` parts whose sizes differ by one at most; fewer where it has fewer offsets."""
    start, left = whole.start, whole.size
    for number in range(count):
        size = left // (count - number)
        if size:
            yield OffsetRange(whole.partition, start, start + size)
        start, left = start + size, left - size


_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def speak_up() -> None:
    """Have Regency's warnings written to stderr, which Spark shows on the driver and keeps in an executor's log.

    Does nothing where there is a listener already: a handler of the user, or that of Spark's own worker logging.
    """
    regency = logging.getLogger("regency")
    listening = (*regency.handlers, *logging.getLogger().handlers)
    if all(isinstance(handler, logging.NullHandler) for handler in listening):
        handler = logging.StreamHandler()
        handler.setLevel(logging.WARNING)
        handler.setFormatter(logging.Formatter(_FORMAT))
        regency.addHandler(handler)


class ReadPartition(InputPartition):
    """What one task of Spark reads."""

    def __init__(self, task: ReadTask) -> None:
        super().__init__(f"{task.topic_partition} {task.start}-{task.end}")
        self.task = task


def planned(
    options: ReadOptions, ranges: Iterable[OffsetRange], topic_ids: Mapping[str, TopicId]
) -> list[ReadPartition]:
    """The ranges as tasks, in order; cut as minPartitions and maxRecordsPerPartition ask for, empty ones left out."""
    ordered = sorted(ranges, key=lambda each: each.partition)
    return [
        ReadPartition(
            ReadTask(
                client=options.client,
                topic=each.partition.topic,
                topic_id=topic_ids.get(each.partition.topic),
                partition=each.partition.partition,
                start=Offset(each.start),
                end=Offset(each.end),
                include_headers=options.include_headers,
                fail_on_data_loss=options.fail_on_data_loss,
                poll_timeout_ms=options.poll_timeout_ms,
            )
        )
        for each in cut(ordered, at_least=options.min_partitions, max_size=options.max_records)
    ]


def batches_of(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The records of a task; none for the empty partition that Spark makes up where nothing was planned."""
    speak_up()
    return record_batches(partition.task) if isinstance(partition, ReadPartition) else iter(())


def check_schema(schema: StructType, options: ReadOptions) -> None:
    """A read has the columns it has. Raises PipelineOptionInvalid for a given schema."""
    if schema != source_schema(options.include_headers):
        raise PipelineOptionInvalid(
            "schema",
            "the columns of a read are fixed",
            hint="Leave .schema(...) out and choose columns with select; headers come with includeHeaders=true.",
        )
