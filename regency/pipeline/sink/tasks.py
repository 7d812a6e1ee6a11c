"""What one Spark task does: its rows to the topics, and for a task that was repeated only those not there yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from regency.clients.settings import ClientSettings
from regency.pipeline.errors import RowRefused, RowsDiffer, SinkStateUnusable
from regency.pipeline.sink.floors import Floors, WritePlan
from regency.pipeline.sink.identity import HEADER, Headers, WriteId, digest, row_header, without_own
from regency.pipeline.sink.options import ONCE_TOPICS, WriteOptions
from regency.pipeline.sink.producer import ANY_PARTITION, TopicProducer
from regency.pipeline.sink.rows import Rows, pieces, rows_of
from regency.pipeline.sink.tail import Settled, Tail, read_tail

HELD_BYTES: Final = 64 << 20
"""Rows kept back in a repeated task while records are not matched yet: what changes between attempts is found out
before it is written, as far as that goes."""


_settled = Settled()
"""Of this process, which runs one task after another."""

Wait = Callable[[ClientSettings, Iterable[str], int | None], None]
FindTail = Callable[[ClientSettings, Floors, WriteId, int], Tail]


class TaskPlace(NamedTuple):
    """Which attempt of which task this is."""

    task: int
    attempt: int


@dataclass
class TaskWrote(WriterCommitMessage):
    """What a task tells the driver. Every one of its rows is acknowledged."""

    rows: int
    query: UUID | None = None
    repeated: int = 0
    """Of `rows`, those that were there already."""
    changed: int = 0
    """Records of earlier attempts that are none of `rows`."""
    doubled: int = 0
    """Records that are there more often than they should be."""
    highest_task: int = -1
    """Highest Spark partition that earlier attempts of the batch had, -1 if none was looked for."""


def write_at_least_once(batches: Iterable[pa.RecordBatch], options: WriteOptions) -> TaskWrote:
    """Write every row. Raises RowRefused, DeliveryFailed."""
    rows = 0
    with TopicProducer(options.producer) as producer:
        for batch in batches:
            for piece in pieces(batch):
                send(producer, rows_of(piece, options.topic))
                rows += piece.num_rows
        producer.finish()
    return TaskWrote(rows)


def write_once(
    batches: Iterable[pa.RecordBatch],
    options: WriteOptions,
    plan: WritePlan,
    write: WriteId,
    place: TaskPlace,
    *,
    wait: Wait = _settled.wait,
    find: FindTail = read_tail,
) -> TaskWrote:
    """Write every row that no earlier attempt of the task has written. `wait` lets these settle, `find` reads back.

    Raises RowRefused, DeliveryFailed, RowsDiffer, BatchBehindSink, SinkStateUnusable for a topic without a floor, and
    what reading back raises (read_tail).
    """
    known, begun = plan.for_write(write)
    floors = _floors_of(options.once_topics, known)
    prefix = write.task_prefix(place.task)
    if not begun and place.attempt == 0:
        return _write_first(batches, options, prefix, write)
    wait(options.producer.client, floors, None if place.attempt else plan.planned_ms)
    tail = find(options.producer.client, floors, write, place.task)
    with TopicProducer(options.producer) as producer:
        repetition = _Repetition(producer, options, prefix, tail)
        for batch in batches:
            for piece in pieces(batch):
                repetition.take(piece)
        repetition.end(f"Spark partition {place.task} of batch {write.batch} of query {write.query}")
        producer.finish()
    return TaskWrote(
        repetition.position,
        query=write.query,
        repeated=repetition.repeated,
        changed=tail.written.changed(),
        doubled=tail.written.doubled(),
        highest_task=tail.highest_task,
    )


def _floors_of(topics: Iterable[str], known: Floors) -> Floors:
    """Raise SinkStateUnusable where a topic has none: what an attempt writes to it could not be found again."""
    found = {topic: known[topic] for topic in topics if topic in known}
    absent = [topic for topic in topics if topic not in found]
    if absent:
        raise SinkStateUnusable(
            f"The state of the sink does not say where topic {absent[0]} ended when the batch began.",
            hint="Nothing was written. Start the query again; if it says so again, remove sinks/regency from the"
            " checkpoint: the batch is written whole, and readers may see rows twice.",
        )
    return found


def _write_first(batches: Iterable[pa.RecordBatch], options: WriteOptions, prefix: bytes, write: WriteId) -> TaskWrote:
    position = 0
    with TopicProducer(options.producer) as producer:
        for batch in batches:
            for piece in pieces(batch):
                rows = _checked(rows_of(piece, options.topic), options)
                send_named(producer, rows, prefix, position, None)
                position += len(rows)
        producer.finish()
    return TaskWrote(position, query=write.query)


class _Repetition:
    """A task that was attempted before. Rows not found are held until every record found has met its row."""

    def __init__(self, producer: TopicProducer, options: WriteOptions, prefix: bytes, tail: Tail) -> None:
        self._producer = producer
        self._options = options
        self._prefix = prefix
        self._written = tail.written
        self._held: list[tuple[Rows, int, list[int]]] = []
        self._held_bytes = 0
        self._released = not tail.written.left
        self.position = 0
        self.repeated = 0

    def take(self, piece: pa.RecordBatch) -> None:
        """Write, hold or pass over the rows of a piece."""
        rows = _checked(rows_of(piece, self._options.topic), self._options)
        missing = self._written.missing(_digests(rows))
        self.repeated += len(rows) - len(missing)
        if missing:
            self._held.append((rows, self.position, missing))
            self._held_bytes += rows.size
        self.position += len(rows)
        if self._released or not self._written.left or self._held_bytes > HELD_BYTES:
            self._release()

    def end(self, where: str) -> None:
        """After the last row. Raises RowsDiffer."""
        changed = self._written.changed()
        if changed and self._options.fail_on_changed_rows:
            raise RowsDiffer(
                f"{where}: {changed} of the {self._written.records} records an earlier attempt wrote are none of the"
                f" {self.position} rows it has now: the query does not give the same rows twice.",
                hint="Take out what changes, such as rand(), uuid() or current_timestamp(), and keep the number of"
                " partitions; failOnChangedRows=false writes the rows there are now beside those that were written.",
            )
        self._release()

    def _release(self) -> None:
        """Write what was held, and hold nothing from now on: what changes after that is reported at the end."""
        self._released = True
        for rows, first, wanted in self._held:
            send_named(self._producer, rows, self._prefix, first, wanted)
        self._held.clear()
        self._held_bytes = 0


def _digests(rows: Rows) -> list[bytes]:
    return [
        digest(
            rows.topic(row),
            None if rows.partition(row) == ANY_PARTITION else rows.partition(row),
            rows.key(row),
            rows.values[row],
            rows.headers_of(row),
        )
        for row in range(len(rows))
    ]


def _checked(rows: Rows, options: WriteOptions) -> Rows:
    """Raise RowRefused for a topic that was not announced: it would not be known where to read back from."""
    names = {rows.topics} if isinstance(rows.topics, str) else set(rows.topics)
    stray = sorted(names.difference(options.once_topics))
    if stray:
        raise RowRefused(
            f"A row goes to topic {stray[0]}, which option {ONCE_TOPICS} does not name.",
            hint=f"It names {', '.join(options.once_topics)}; add what is missing before the batch begins.",
        )
    return rows


HEADER_ROOM: Final = 64
"""Bytes of the header `regency.sink` in the producer's queue."""


def send(producer: TopicProducer, rows: Rows) -> None:
    """Write rows as they are, in their order. Raises DeliveryFailed."""
    if rows.headers is not None or _mixes_partitions(rows):
        producer.make_room(rows.size, len(rows))
        for row in range(len(rows)):
            producer.send(
                rows.topic(row), rows.partition(row), rows.key(row), rows.values[row], list(rows.headers_of(row) or ())
            )
        return
    if isinstance(rows.topics, str) and rows.partitions is None:
        producer.send_all(rows.topics, ANY_PARTITION, _records(rows), rows.size)
        return
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row, record in enumerate(_records(rows)):
        groups.setdefault((rows.topic(row), rows.partition(row)), []).append(record)
    for (topic, partition), records in groups.items():
        producer.send_all(topic, partition, records, rows.size * len(records) // len(rows))


def send_named(producer: TopicProducer, rows: Rows, task_prefix: bytes, first: int, wanted: list[int] | None) -> None:
    """Write rows with the header that tells them apart. `first` is the position of the first row in its task.

    `wanted`: which rows, None for all. Raises DeliveryFailed.
    """
    producer.make_room(rows.size + len(rows) * HEADER_ROOM, len(rows))
    for row in range(len(rows)) if wanted is None else wanted:
        partition = rows.partition(row)
        own = (HEADER, row_header(task_prefix, first + row, explicit_partition=partition != ANY_PARTITION))
        headers: Headers = [own] if rows.headers is None else [*without_own(rows.headers[row]), own]
        producer.send(rows.topic(row), partition, rows.key(row), rows.values[row], headers)


def _records(rows: Rows) -> list[dict[str, Any]]:
    if rows.keys is None:
        return [{"value": value} for value in rows.values]
    return [{"key": key, "value": value} for key, value in zip(rows.keys, rows.values, strict=True)]


def _mixes_partitions(rows: Rows) -> bool:
    """Whether some rows name their partition and others leave it to the key: both may go to the same one, in order."""
    return rows.partitions is not None and ANY_PARTITION in rows.partitions
