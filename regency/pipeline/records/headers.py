"""The headers of many records as one Arrow column: the first of all records at once, then the second of all.

Where few records have many more than the others, those are followed to their end one by one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from regency.pipeline.records.arrow import Mask, pick, validity
from regency.pipeline.records.varints import INT_BYTES, Ints, Octets, read_varints

HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
"""Spark's array of structs, as Arrow spells it."""

_FEW: Final = 16
"""Records for which a step for all of them is not worth it."""


class HeadersBroken(Exception):
    """The headers of `record` (by its place in the arrays) do not end where the record does."""

    def __init__(self, record: int) -> None:
        super().__init__(record)
        self.record = record


class _Pieces(NamedTuple):
    """Where keys and values of all headers are, records in order."""

    key_begins: Ints
    key_ends: Ints
    value_begins: Ints
    value_ends: Ints
    has_value: Mask


def headers_column(octets: Octets, at: Ints, stops: Ints, counts: Ints) -> pa.Array:
    """Headers of records, null for those that have none, as Spark's Kafka source has it.

    `at` is where the first header of each record is, `stops` where the record ends, `counts` how many it has (0 or
    more). Keys that are not UTF-8 have U+FFFD where they are not. Raises HeadersBroken.
    """
    begins = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=begins[1:])
    pieces = _pieces(octets, at.copy(), stops, counts, begins)
    keys = _text(pick(octets, pieces.key_begins, pieces.key_ends, np.ones(begins[-1], np.bool_)))
    values = pick(octets, pieces.value_begins, pieces.value_ends, pieces.has_value)
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS.value_type))
    bounds = pa.py_buffer(begins.astype(np.int32))
    return pa.Array.from_buffers(HEADERS, len(counts), [validity(counts > 0), bounds], children=[pairs])


def _pieces(octets: Octets, at: Ints, stops: Ints, counts: Ints, begins: Ints) -> _Pieces:
    """`at` is moved to the end of each record's headers."""
    too_many = counts > (stops - at) // 2
    if too_many.any():
        raise HeadersBroken(int(too_many.argmax()))
    total = int(begins[-1])
    key_begins, key_ends, value_begins, value_ends = np.zeros((4, total), np.int64)
    pieces = _Pieces(key_begins, key_ends, value_begins, value_ends, np.zeros(total, np.bool_))
    records = np.flatnonzero(counts)
    number = 0
    while len(records) > _FEW or number == 0:
        _one_each(octets, at, stops, records, begins[records] + number, pieces)
        number += 1
        records = records[counts[records] > number]
        if not len(records):
            break
    for record in records.tolist():
        _rest(octets, at, stops, record, slice(int(begins[record]) + number, int(begins[record + 1])), pieces)
    unfinished = (at != stops) & (counts > 0)
    if unfinished.any():
        raise HeadersBroken(int(unfinished.argmax()))
    return pieces


def _one_each(octets: Octets, at: Ints, stops: Ints, records: Ints, places: Ints, pieces: _Pieces) -> None:
    """The next header of each of these records."""
    key_sizes, key_begins = read_varints(octets, at[records], INT_BYTES)
    key_ends = key_begins + np.maximum(key_sizes, 0)
    value_sizes, value_begins = read_varints(octets, key_ends, INT_BYTES)
    value_ends = value_begins + np.maximum(value_sizes, 0)
    broken = (value_ends > stops[records]) | (key_sizes < 0)
    if broken.any():
        raise HeadersBroken(int(records[broken.argmax()]))
    pieces.key_begins[places] = key_begins
    pieces.key_ends[places] = key_ends
    pieces.value_begins[places] = value_begins
    pieces.value_ends[places] = value_ends
    pieces.has_value[places] = value_sizes >= 0
    at[records] = value_ends


def _rest(octets: Octets, at: Ints, stops: Ints, record: int, places: slice, pieces: _Pieces) -> None:
    """All further headers of one record."""
    offset = int(at[record])
    data = octets[offset : stops[record]].tobytes()
    bounds: list[int] = []
    has_value: list[bool] = []
    position = 0
    for _ in range(places.stop - places.start):
        key_size, begin = _varint(data, position)
        end = begin + key_size
        if key_size < 0 or end > len(data):
            raise HeadersBroken(record)
        value_size, value_begin = _varint(data, end)
        position = value_begin + max(value_size, 0)
        if position > len(data):
            raise HeadersBroken(record)
        bounds += (begin, end, value_begin, position)
        has_value.append(value_size >= 0)
    found = np.array(bounds, np.int64).reshape(-1, 4) + offset
    pieces.key_begins[places], pieces.key_ends[places] = found[:, 0], found[:, 1]
    pieces.value_begins[places], pieces.value_ends[places] = found[:, 2], found[:, 3]
    pieces.has_value[places] = has_value
    at[record] = position + offset


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint and the position after it, which lies behind the end where it has none."""
    value = 0
    for shift in range(0, 7 * INT_BYTES, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFF
            return (value >> 1) ^ -(value & 1), at
    return 0, len(data) + 1


def _text(keys: pa.Array) -> pa.Array:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:  # one of them is not UTF-8
        texts = [key.decode("utf-8", "replace").encode() for key in keys.to_pylist()]
        bounds = np.zeros(len(texts) + 1, np.int32)
        np.cumsum([len(text) for text in texts], out=bounds[1:])
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(b"".join(texts))]
        return pa.Array.from_buffers(pa.string(), len(texts), buffers, null_count=0)
