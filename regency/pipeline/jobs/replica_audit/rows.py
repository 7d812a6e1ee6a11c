"""What a replica audit found as rows of a table, one per replica, for Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from regency.clients.replicas.damages import unread
from regency.clients.replicas.reading import PartitionResult
from regency.clients.replicas.wire import Place
from regency.model.ids import BrokerId
from regency.pipeline.files.publishing import published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = """
    topic string not null, partition int not null, broker int not null, role string not null, state string not null,
    detail string, log_start bigint, read_to bigint, log_end bigint, high_watermark bigint,
    unread bigint not null, damages array<struct<offset: bigint, to_offset: bigint, what: string>> not null,
    divergences array<struct<
        from_offset: bigint, to_offset: bigint,
        base_offset: bigint, last_offset: bigint, leader_epoch: int, crc: bigint, size: int
    >> not null
"""
"""`divergences`: where replicas differ, and what this one has there; nulls for nothing."""


def write_parquet(session: SparkSession, results: Iterable[PartitionResult], directory: str) -> None:
    """Write the rows into a directory that must not be there yet. Raises PlaceTaken, and what Spark raises."""
    with published(session, directory) as staging:
        session.createDataFrame(list(rows(results)), SCHEMA).coalesce(1).write.mode("append").parquet(staging.directory)


def rows(results: Iterable[PartitionResult]) -> Iterator[tuple[Any, ...]]:
    """A row for each replica, in the order of SCHEMA."""
    for result in results:
        partition = result.partition
        for verdict in result.replicas:
            broker = BrokerId(verdict.broker)
            place = partition.places[broker]
            end, mark = (place.log_end, place.high_watermark) if isinstance(place, Place) else (None, None)
            yield (
                partition.name.topic,
                partition.name.partition,
                verdict.broker,
                "leader" if verdict.broker == partition.leader else "follower",
                verdict.state,
                verdict.detail or None,
                verdict.log_start,
                verdict.read_to,
                end,
                mark,
                unread(result.damages, broker),
                [(each.offset, each.to_offset, each.what) for each in result.damages if each.broker == broker],
                [
                    (each.from_offset, each.to_offset, *(each.first[broker] or (None,) * 5))
                    for each in result.divergences
                    if broker in each.first
                ],
            )
