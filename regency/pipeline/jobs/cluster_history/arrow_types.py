"""Arrow's types for rows that are described in Spark's words. No Spark."""

from __future__ import annotations

import pyarrow as pa

_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "array<long>": pa.list_(pa.int64()),
    "array<array<string>>": pa.list_(pa.list_(pa.string())),
}


def fields(described: str) -> list[pa.Field]:
    """A field for each `name type` with commas between."""
    pairs = (each.split(" ") for each in described.split(", "))
    return [pa.field(name.strip("`"), _TYPES[kind]) for name, kind in pairs]
