"""Timestamps and offsets of the records in one batch, read as far as they are asked for. Pure.

Producers write what they like below a batch's header, and no broker looks into it when it is appended: each number here
is bounded in groups, each record by the bytes there are, and a compressed batch is inflated a piece at a time.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from regency.kafka.record_batch import HEADER_BYTES, BatchHeader
from regency.model.ids import Offset

MAX_RECORDS: Final = 100_000
"""In one batch: a producer may claim two billion."""
MAX_INFLATED: Final = 64 << 20
"""Bytes that one batch is inflated to."""
PIECE_BYTES: Final = 64 << 10
"""Bytes inflated at a time."""

_NO_CODEC: Final = 0
_GZIP: Final = 1
_GZIP_WINDOW: Final = 31
_INPUT_BYTES: Final = 16 << 10
_INT_GROUPS: Final = 5
_LONG_GROUPS: Final = 10
_LONGEST_START: Final = 2 * _INT_GROUPS + _LONG_GROUPS + 1
"""Bytes of a record up to its offset delta, at most: length, attributes, timestamp delta, offset delta."""


class Opaque(Exception):
    """The records cannot be read, or not at a reasonable price."""


class RecordPlace(NamedTuple):
    """A record's timestamp (wall milliseconds) and its offset."""

    timestamp: int
    offset: Offset


def record_places(batch: bytes, header: BatchHeader) -> Iterator[RecordPlace | None]:
    """Each record of a whole batch in order; None after each piece that was inflated. Raises Opaque.

    gzip is inflated; other codecs are opaque, as no library for them is needed by a broker.
    """
    if header.record_count > MAX_RECORDS:
        raise Opaque
    pieces = _pieces(batch[HEADER_BYTES:], header.codec)
    data, at = next(pieces, b""), 0
    ended = header.codec == _NO_CODEC
    for _ in range(header.record_count):
        while not ended and at + _LONGEST_START > len(data):
            piece = next(pieces, None)
            yield None
            if piece is None:
                ended = True
            else:
                at, data = max(at - len(data), 0), data[at:] + piece
        length, begin = _varint(data, at, _INT_GROUPS)
        at = begin + length
        if length < 1 or (ended and at > len(data)):
            raise Opaque
        timestamp_delta, inside = _varint(data, begin + 1, _LONG_GROUPS)
        offset_delta, inside = _varint(data, inside, _INT_GROUPS)
        if inside > at or not 0 <= offset_delta <= header.last_offset_delta:
            raise Opaque
        yield RecordPlace(header.first_timestamp + timestamp_delta, Offset(header.base_offset + offset_delta))


def _pieces(body: bytes, codec: int) -> Iterator[bytes]:
    if codec == _NO_CODEC:
        yield body
        return
    if codec != _GZIP:
        raise Opaque
    inflating = zlib.decompressobj(_GZIP_WINDOW)
    left = MAX_INFLATED
    try:
        for start in range(0, len(body), _INPUT_BYTES):
            waiting = body[start : start + _INPUT_BYTES]
            while waiting and not inflating.eof:
                piece = inflating.decompress(waiting, PIECE_BYTES)
                waiting = inflating.unconsumed_tail
                left -= len(piece)
                if left < 0:
                    raise Opaque
                yield piece
    except zlib.error as error:
        raise Opaque from error


def _varint(data: bytes, at: int, groups: int) -> tuple[int, int]:
    """A zig-zag number of at most so many base-128 groups, least significant first, and the byte after it."""
    value = 0
    for shift in range(0, 7 * groups, 7):
        if at >= len(data):
            raise Opaque
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise Opaque
