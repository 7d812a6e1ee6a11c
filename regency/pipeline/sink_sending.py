"""How rows reach the producer: many at once where nothing speaks against it, one by one where a row has headers."""

from __future__ import annotations

from typing import Any, Final

from regency.pipeline.sink_identity import HEADER, Headers, row_header, without_own
from regency.pipeline.sink_producer import ANY_PARTITION, TopicProducer
from regency.pipeline.sink_rows import Rows

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
