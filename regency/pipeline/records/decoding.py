"""The records of many batches as columns. No step is taken record by record, but for finding where each begins.

What a producer sent is not trusted: a record that claims what its batch does not have is an error that names it, and
nothing is made of its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from regency.kafka.record_batch import BatchHeader
from regency.pipeline.records.arrow import pick
from regency.pipeline.records.chain import SMALLEST_RECORD, ChainBroken, fill_starts
from regency.pipeline.records.headers import HeadersBroken, headers_column
from regency.pipeline.records.varints import INT_BYTES, LONG_BYTES, Ints, Octets, read_varints

MOST_BYTES: Final = (1 << 31) - 1
"""Of one buffer: Arrow's offsets have 32 bits."""

_LARGEST_MS: Final = (2**63 - 1) // 1000
"""Timestamps become microseconds in 64 bits, as Spark has them."""


class Span(NamedTuple):
    """Where the records of a batch are in a buffer, decompressed."""

    header: BatchHeader
    start: int
    stop: int


class Columns(NamedTuple):
    """Records in order of their offsets."""

    key: pa.Array
    value: pa.Array
    offset: Ints
    timestamp_us: Ints
    timestamp_type: npt.NDArray[np.int32]
    """0 where the producer, 1 where the broker gave it."""
    headers: pa.Array | None
    """Where they were asked for."""


class BatchMalformed(Exception):
    """The batch at place `span` of those given is not what it claims to be. Says which record and why."""

    def __init__(self, span: int, reason: str) -> None:
        super().__init__(reason)
        self.span = span
        self.reason = reason


class _Fields(NamedTuple):
    """What every record has, and where."""

    offset: Ints
    timestamp_ms: Ints
    key_begin: Ints
    key_end: Ints
    key_size: Ints
    value_begin: Ints
    value_end: Ints
    value_size: Ints
    header_count: Ints
    headers_begin: Ints
    stop: Ints


def decode(data: memoryview | bytes, spans: Sequence[Span], start: int, end: int, *, with_headers: bool) -> Columns:
    """Records of these batches with offsets from `start` up to but without `end`. Raises BatchMalformed.

    The batches lie in `data`, which has at most MOST_BYTES, in order of their offsets and of their places.
    """
    octets = np.frombuffer(data, np.uint8)
    counts = np.array([span.header.record_count for span in spans], np.int64)
    starts, stops = _places(octets, data if isinstance(data, bytes) else octets.tobytes(), spans, counts)
    fields = _fields(octets, spans, counts, starts, stops)
    append_time = np.array([span.header.is_log_append_time for span in spans], np.int32)
    types = np.repeat(append_time, counts)
    if append_time.any():
        latest = np.repeat(np.array([span.header.max_timestamp for span in spans], np.int64), counts)
        fields = fields._replace(timestamp_ms=np.where(types == 1, latest, fields.timestamp_ms))
    wanted = slice(*np.searchsorted(fields.offset, [start, end]).tolist())
    fields = _Fields(*(column[wanted] for column in fields))
    unfit = (fields.timestamp_ms > _LARGEST_MS) | (fields.timestamp_ms < -_LARGEST_MS)
    if unfit.any():
        record = int(unfit.argmax())
        raise _malformed(
            counts, record + wanted.start, f"its timestamp {fields.timestamp_ms[record]} ms is out of Spark's range"
        )
    headers = None
    if with_headers:
        try:
            headers = headers_column(octets, fields.headers_begin, fields.stop, fields.header_count)
        except HeadersBroken as error:
            raise _malformed(counts, error.record + wanted.start, "its headers do not end where it does") from error
    return Columns(
        pick(octets, fields.key_begin, fields.key_end, fields.key_size >= 0),
        pick(octets, fields.value_begin, fields.value_end, fields.value_size >= 0),
        fields.offset,
        fields.timestamp_ms * 1000,
        types[wanted],
        headers,
    )


def _places(octets: Octets, data: bytes, spans: Sequence[Span], counts: Ints) -> tuple[Ints, Ints]:
    """Where each record begins and ends."""
    for number, span in enumerate(spans):
        fit = min(span.header.last_offset_delta + 1, (span.stop - span.start) // SMALLEST_RECORD)
        if not 0 <= span.header.record_count <= fit:
            raise BatchMalformed(number, f"it announces {span.header.record_count} records and has room for {fit}")
    ends = np.cumsum(counts)
    starts = np.empty(int(ends[-1]) if len(ends) else 0, np.int64)
    done = 0
    for number, span in enumerate(spans):
        following = done + span.header.record_count
        try:
            fill_starts(octets, data, span.start, span.stop, starts[done:following])
        except ChainBroken as error:
            raise BatchMalformed(number, _named(error.record, span.header.record_count, error.reason)) from error
        done = following
    stops = np.empty_like(starts)
    stops[:-1] = starts[1:]
    filled = counts > 0
    stops[ends[filled] - 1] = np.array([span.stop for span in spans], np.int64)[filled]
    return starts, stops


def _fields(octets: Octets, spans: Sequence[Span], counts: Ints, starts: Ints, stops: Ints) -> _Fields:
    size, at = read_varints(octets, starts, INT_BYTES)
    misled = at + size != stops
    if misled.any():
        raise _malformed(counts, int(misled.argmax()), "its length is not what it has")
    timestamp_delta, at = read_varints(octets, at + 1, LONG_BYTES)  # one byte of attributes, of which none is used
    offset_delta, at = read_varints(octets, at, INT_BYTES)
    key_size, key_begin = read_varints(octets, at, INT_BYTES)
    key_end = key_begin + np.maximum(key_size, 0)
    value_size, value_begin = read_varints(octets, key_end, INT_BYTES)
    value_end = value_begin + np.maximum(value_size, 0)
    header_count, headers_begin = read_varints(octets, value_end, INT_BYTES)
    broken = (headers_begin > stops) | (header_count < 0) | ((header_count == 0) & (headers_begin != stops))
    if broken.any():
        raise _malformed(counts, int(broken.argmax()), "its fields do not end where it does")
    base = np.array([span.header.base_offset for span in spans], np.int64)
    first = np.array([span.header.first_timestamp for span in spans], np.int64)
    last = np.array([span.header.last_offset_delta for span in spans], np.int64)
    offset = np.repeat(base, counts) + offset_delta
    strange = (offset_delta < 0) | (offset_delta > np.repeat(last, counts))
    strange[1:] |= offset[1:] <= offset[:-1]
    if strange.any():
        record = int(strange.argmax())
        raise _malformed(counts, record, f"its offset {offset[record]} is not between those of its neighbours")
    return _Fields(
        offset,
        np.repeat(first, counts) + timestamp_delta,
        key_begin,
        key_end,
        key_size,
        value_begin,
        value_end,
        value_size,
        header_count,
        headers_begin,
        stops,
    )


def _malformed(counts: Ints, record: int, reason: str) -> BatchMalformed:
    """The error for a record by its number among all."""
    ends = np.cumsum(counts)
    span = int(np.searchsorted(ends, record, side="right"))
    return BatchMalformed(span, _named(record - int(ends[span] - counts[span]), int(counts[span]), reason))


def _named(record: int, count: int, reason: str) -> str:
    return f"record {record} of {count} (from 0): {reason}" if record < count else reason
