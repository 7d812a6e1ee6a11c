"""The columns of a record, as Spark's own Kafka source has them."""

from __future__ import annotations

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
