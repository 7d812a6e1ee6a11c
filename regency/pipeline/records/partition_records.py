"""What a Spark task does: one range of one partition as Arrow batches, in the schema of Spark's Kafka source."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from regency.clients.batch_scan import Batches
from regency.clients.errors import CorruptRecords
from regency.clients.partition_reader import PartitionReader, Range, Skipped
from regency.clients.settings import ClientSettings
from regency.kafka.record_batch import HEADER_BYTES, BatchHeader
from regency.model.ids import Offset, TopicId, TopicPartition
from regency.pipeline.records.arrow import numbers, repeated
from regency.pipeline.records.compression import NONE, Undecodable, decompress
from regency.pipeline.records.decoding import BatchMalformed, Columns, Span, decode
from regency.pipeline.records.headers import HEADERS

MOST_ROWS: Final = 100_000
"""In one Arrow batch: Spark holds a batch of each task in memory, three times over."""
ENOUGH_BYTES: Final = 8 << 20
"""Of records in one Arrow batch; smaller answers are put together, what compression made small is taken apart."""

SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
)
"""What Spark wants to the letter, or it refuses the batch."""
SCHEMA_WITH_HEADERS: Final = SCHEMA.append(pa.field("headers", HEADERS))

_log = logging.getLogger(__name__)

OnSkip = Callable[[Skipped], object]


class ReadTask(msgspec.Struct, frozen=True):
    """One range of one partition, with everything it takes to read it elsewhere. Can be pickled."""

    client: ClientSettings
    """From `client_settings`: bootstrap servers and kafka.* options, refused or taken where the read is planned."""
    topic: str
    topic_id: TopicId | None
    """The topic the offsets belong to; None: whichever has the name."""
    partition: int
    start: Offset
    end: Offset
    """Exclusive."""
    include_headers: bool = False
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = 120_000
    """kafkaConsumer.pollTimeoutMs: how long nothing may come"""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


def record_batches(task: ReadTask, *, on_skip: OnSkip | None = None) -> Iterator[pa.RecordBatch]:
    """The records of the range, in order, in as few batches as suits Spark; none for an empty range.

    Raises what PartitionReader raises. Where data may be lost `on_skip` gets each loss, else it is logged.
    """
    skip = None if task.fail_on_data_loss else on_skip or _warn
    wanted = Range(task.topic_partition, task.topic_id, task.start, task.end)
    reader = PartitionReader(task.client, wanted, poll_timeout_ms=task.poll_timeout_ms, on_skip=skip)
    with closing(read_ahead(iter(reader), stop=reader.close)) as answers:
        yield from assembled(task, answers, skip)


def assembled(task: ReadTask, answers: Iterable[Batches], on_skip: OnSkip | None = None) -> Iterator[pa.RecordBatch]:
    """What came of a range, as Arrow batches. Without `on_skip` a batch that is malformed is an error.

    Raises CorruptRecords.
    """
    assembly = _Assembly(task, on_skip)
    for data, spans in assembly.groups(answers):
        columns = assembly.columns(data, spans)
        if columns is not None:
            yield from _arrow(task, columns)


class _Assembly:
    """What came, put together to what is decoded at a time."""

    def __init__(self, task: ReadTask, skip: OnSkip | None) -> None:
        self._task = task
        self._skip = skip
        self._bodies: list[tuple[BatchHeader, memoryview]] = []
        self._size = 0

    def groups(self, answers: Iterable[Batches]) -> Iterator[tuple[memoryview, Sequence[Span]]]:
        """Bytes, and batches in them. A large answer is taken as it is, its bytes are not copied."""
        for answer in answers:
            if 2 * answer.size >= ENOUGH_BYTES and all(header.codec == NONE for _, header in answer.headers):
                if self._bodies:
                    yield self._joined()
                yield answer.data, [Span(header, at + HEADER_BYTES, at + header.size) for at, header in answer.headers]
                continue
            for at, header in answer.headers:
                body = self._body(header, answer.data[at + HEADER_BYTES : at + header.size])
                if body is None:
                    continue
                if self._bodies and self._size + len(body) > ENOUGH_BYTES:
                    yield self._joined()
                self._bodies.append((header, body))
                self._size += len(body)
        if self._bodies:
            yield self._joined()

    def columns(self, data: memoryview, spans: Sequence[Span]) -> Columns | None:
        """The records of a group, without batches that may be and must be skipped; None where none is left."""
        task = self._task
        while spans:
            try:
                return decode(data, spans, task.start, task.end, with_headers=task.include_headers)
            except BatchMalformed as error:
                self._malformed(spans[error.span].header, error.reason, error)
                spans = [*spans[: error.span], *spans[error.span + 1 :]]
        return None

    def _body(self, header: BatchHeader, data: memoryview) -> memoryview | None:
        try:
            return memoryview(decompress(header.codec, data))
        except Undecodable as error:
            self._malformed(header, error.message, error)
            return None

    def _joined(self) -> tuple[memoryview, Sequence[Span]]:
        bodies, self._bodies, self._size = self._bodies, [], 0
        spans: list[Span] = []
        at = 0
        for header, body in bodies:
            spans.append(Span(header, at, at + len(body)))
            at += len(body)
        return memoryview(bodies[0][1] if len(bodies) == 1 else b"".join(body for _, body in bodies)), spans

    def _malformed(self, header: BatchHeader, reason: str, error: Exception) -> None:
        """A batch whose checksum is right, but that no producer should have made."""
        partition, first = self._task.topic_partition, max(header.base_offset, self._task.start)
        if self._skip is None:
            raise CorruptRecords(partition, first, reason) from error
        self._skip(Skipped(partition, first, min(header.next_offset, self._task.end), reason))


def _arrow(task: ReadTask, columns: Columns) -> Iterator[pa.RecordBatch]:
    rows = len(columns.offset)
    for start in range(0, rows, MOST_ROWS):
        piece = slice(start, min(start + MOST_ROWS, rows))
        count = piece.stop - start
        arrays = [
            columns.key.slice(start, count),
            columns.value.slice(start, count),
            repeated(task.topic, count),
            numbers(np.full(count, task.partition, np.int32), pa.int32()),
            numbers(columns.offset[piece], pa.int64()),
            numbers(columns.timestamp_us[piece], SCHEMA.field("timestamp").type),
            numbers(columns.timestamp_type[piece], pa.int32()),
        ]
        if columns.headers is None:
            yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
        else:
            arrays.append(columns.headers.slice(start, count))
            yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA_WITH_HEADERS)


def _warn(skipped: Skipped) -> None:
    _log.warning("%s", skipped)


T = TypeVar("T")


def read_ahead(items: Iterator[T], *, stop: Callable[[], object]) -> Generator[T]:
    """The same items and errors. `stop` ends a step that is under way; it is called from here, also at the end.

    `items` is never advanced by two threads at once, nor after this has ended.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")
    try:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item
    finally:
        stop()
        pool.shutdown()
