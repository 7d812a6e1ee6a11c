"""The columns a row is written from, and what is refused before anything is written. Pure but for Spark's types.

Columns, types and order of preference are those of Spark's Kafka sink (KafkaWriter).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructField, StructType

from regency.pipeline.sink.errors import SinkColumnsInvalid

_TEXT: Final = (StringType(), BinaryType())
HEADERS_TYPE: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_ALLOWED: Final[dict[str, tuple[DataType, ...]]] = {
    "topic": (StringType(),),
    "key": _TEXT,
    "value": _TEXT,
    "headers": (HEADERS_TYPE,),
    "partition": (IntegerType(),),
}
OF_READING_ONLY: Final = ("offset", "timestamp", "timestampType")
"""Columns of a frame as it was read: passed over, as by Spark's Kafka sink, so that it can be written as it is."""


def check_columns(schema: StructType, topic_option: str | None) -> None:
    """Raise SinkColumnsInvalid for columns that are missing, of a wrong type, or unknown."""
    names = [field.name for field in schema.fields]
    if "value" not in names:
        raise SinkColumnsInvalid(
            f"Required column 'value' not found among {_listed(names)}.",
            hint="Name the column that is written, as in df.selectExpr('to_json(struct(*)) AS value').",
        )
    if topic_option is None and "topic" not in names:
        raise SinkColumnsInvalid(
            f"Option topic is required where there is no column 'topic'; columns are {_listed(names)}.",
            hint="Set option topic, or add a column topic of type string.",
        )
    for field in schema.fields:
        allowed = _ALLOWED.get(field.name)
        if allowed is not None and not any(_same(field.dataType, kind) for kind in allowed):
            kinds = " or ".join(kind.simpleString() for kind in allowed)
            raise SinkColumnsInvalid(
                f"Column '{field.name}' has the unsupported type {field.dataType.simpleString()}; it must be {kinds}.",
                hint=f"Cast it: CAST({field.name} AS {allowed[0].simpleString().upper()}).",
            )
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise SinkColumnsInvalid(f"Column '{doubled[0]}' is there twice.", hint="Select each column once.")
    unknown = [name for name in names if name not in _ALLOWED and name not in OF_READING_ONLY]
    if unknown:
        raise SinkColumnsInvalid(
            f"Columns {_listed(unknown)} are no part of a record.",
            hint=f"Put what belongs together into value, or drop them; columns are {_listed(list(_ALLOWED))}.",
        )


def _same(one: DataType, other: DataType) -> bool:
    """Whether the types are the same but for what may be null, and for a string's collation or length."""
    if isinstance(one, StringType) and isinstance(other, StringType):
        return True
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return _same(one.elementType, other.elementType)
    if isinstance(one, StructType) and isinstance(other, StructType):
        return [field.name for field in one.fields] == [field.name for field in other.fields] and all(
            _same(mine.dataType, theirs.dataType) for mine, theirs in zip(one.fields, other.fields, strict=True)
        )
    return type(one) is type(other)


def _listed(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
