"""Rows packed as bytes of Arrow's: to stage them column by column takes Spark longer than to compute them.

Rows are described in Spark's words, such as `topic string, partition int`. No Spark.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.ipc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Rows = Sequence[Sequence[object]]
_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "long": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "array<long>": pa.list_(pa.int64()),
    "array<array<string>>": pa.list_(pa.list_(pa.string())),
}


STAGED = {
    "compression": "none",
    "parquet.enable.dictionary": "false",
    "parquet.block.size": str(8 << 20),
    "parquet.page.size.check.estimate": "false",
    "parquet.page.size.row.check.min": "1",
}
"""Options for Parquet that has packed rows: it would take hundreds of them for one page, which no heap has."""
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


def batch_of(described: str, rows: Rows) -> pa.RecordBatch:
    """The rows, column by column."""
    pairs = [each.split(" ")[:2] for each in described.split(", ")]
    columns = zip(*rows, strict=True) if rows else [()] * len(pairs)
    arrays = [pa.array(column, _TYPES[kind]) for column, (_, kind) in zip(columns, pairs, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, [name.strip("`") for name, _ in pairs])


def packed(described: str, rows: Rows) -> bytes:
    """The rows as bytes."""
    batch = batch_of(described, rows)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_LZ4) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def unpacked(frame: DataFrame, column: str, described: str) -> DataFrame:
    """The rows that are packed in a column."""

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for each in batch.column(0):
                yield from pa.ipc.open_stream(each.as_buffer())

    return frame.select(column).where(f"{column} IS NOT NULL").mapInArrow(unpack, described)


@contextmanager
def uncollected() -> Iterator[None]:
    """Inside, Python looks for no cycles: ten thousands of rows have none, and to look takes longer than all else."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
