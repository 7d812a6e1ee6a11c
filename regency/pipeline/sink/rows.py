"""Rows of a frame as records: which columns they have, Arrow batches cut into pieces, and a piece as plain values.

Columns, types and order of preference are those of Spark's Kafka sink (KafkaWriter); others are refused before anything
is written.

Key and value become bytes without being copied row by row before that; a row becomes Python objects once, since the
producer takes nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructField, StructType

from regency.model.topic_names import InvalidTopicName, validate_topic_name
from regency.pipeline.errors import RowRefused, SinkColumnsInvalid
from regency.pipeline.sink.identity import Headers
from regency.pipeline.sink.producer import ANY_PARTITION

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


PIECE_BYTES: Final = 4 << 20


class Rows(msgspec.Struct, frozen=True):
    """Columns of some rows, all of one length. A column that says nothing of any row is None."""

    topics: list[str] | str
    """One for all where it is a text."""
    keys: list[bytes | None] | None
    values: list[bytes | None]
    headers: list[Headers | None] | None
    partitions: list[int] | None
    """ANY_PARTITION where the row names none."""
    size: int
    """Bytes, at least."""

    def __len__(self) -> int:
        return len(self.values)

    def topic(self, row: int) -> str:
        """The topic of a row."""
        return self.topics if isinstance(self.topics, str) else self.topics[row]

    def key(self, row: int) -> bytes | None:
        """The key of a row."""
        return None if self.keys is None else self.keys[row]

    def partition(self, row: int) -> int:
        """The partition a row names, ANY_PARTITION if it names none."""
        return ANY_PARTITION if self.partitions is None else self.partitions[row]

    def headers_of(self, row: int) -> Headers | None:
        """The headers a row brings."""
        return None if self.headers is None else self.headers[row]


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in pieces of about PIECE_BYTES, so that few huge rows are not all held several times at once."""
    if batch.num_rows == 0:
        return
    rows = max(1, batch.num_rows * PIECE_BYTES // max(PIECE_BYTES, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def rows_of(batch: pa.RecordBatch, topic: str | None) -> Rows:
    """The rows of a batch whose columns were checked. `topic` is that of all rows, None for the column's.

    Raises RowRefused for a null topic, a name no topic can have, a partition below 0, a header without key or with a
    NUL in it, and for what is no UTF-8 in names and keys of headers.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return Rows(
        topics=_topics(columns, topic),
        keys=_bytes(columns["key"]) if "key" in columns and columns["key"].null_count < batch.num_rows else None,
        values=_bytes(columns["value"]),
        headers=_headers(columns.get("headers")),
        partitions=_partitions(columns.get("partition")),
        size=batch.nbytes,
    )


def _topics(columns: dict[str, pa.Array], topic: str | None) -> list[str] | str:
    if topic is not None:
        return topic
    column = columns["topic"]
    if column.null_count:
        raise RowRefused(
            "A row has null in the column topic.", hint="Set option topic for a topic of all rows, or filter such rows."
        )
    names: list[str] = _texts(column, "topic")
    different = set(names)
    for name in different:
        try:
            validate_topic_name(name)
        except InvalidTopicName as error:
            raise RowRefused(f"A row goes to no topic: {error.message}", hint=error.hint) from None
    return names[0] if len(different) == 1 else names


def _texts(column: pa.Array, name: str) -> list[Any]:
    """The values of a column that has texts. Raises RowRefused."""
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError as error:
        what = "a key that is" if name == "headers" else "what is"
        raise RowRefused(
            f"A row has in the column {name} {what} no UTF-8: {error.object[:100]!r}.",
            hint="Such texts come from CAST(... AS STRING) of other bytes: decode these, or leave them out.",
        ) from None
    return values


def _bytes(column: pa.Array) -> list[bytes | None]:
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    values: list[bytes | None] = column.to_pylist()
    return values


def _headers(column: pa.Array | None) -> list[Headers | None] | None:
    if column is None or column.null_count == len(column):
        return None
    found: list[Headers | None] = []
    for headers in _texts(column, "headers"):
        if headers is None:
            found.append(None)
            continue
        if any(header is None or header["key"] is None for header in headers):
            raise RowRefused("A row has a header without key.", hint="Give every header a key, or filter them.")
        named = [(header["key"], header["value"]) for header in headers]
        if any("\0" in name for name, _ in named):
            raise RowRefused(
                f"A row has a header whose key has a NUL: {next(name for name, _ in named if chr(0) in name)[:100]!r}.",
                hint="The producer would cut it there; take such characters out of keys of headers.",
            )
        found.append(named)
    return found


def _partitions(column: pa.Array | None) -> list[int] | None:
    if column is None or column.null_count == len(column):
        return None
    numbers: list[int] = column.fill_null(ANY_PARTITION).to_pylist()
    wrong = next((number for number in column.to_pylist() if number is not None and number < 0), None)
    if wrong is not None:
        raise RowRefused(f"A row names partition {wrong}.", hint="Partitions count from 0; null lets the key choose.")
    return numbers
