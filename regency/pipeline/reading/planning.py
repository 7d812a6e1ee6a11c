"""From ranges of offsets to tasks, and the one thing a task does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from regency.model.ids import Offset, TopicId
from regency.pipeline.errors import PipelineOptionInvalid
from regency.pipeline.reading.options import ReadOptions
from regency.pipeline.reading.ranges import OffsetRange, cut
from regency.pipeline.reading.schema import source_schema
from regency.pipeline.reading.worker_log import speak_up
from regency.pipeline.records.partition_records import ReadTask, record_batches

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


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
