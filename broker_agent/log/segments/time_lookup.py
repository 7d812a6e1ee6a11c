"""Finding offsets by timestamp, for ListOffsets. The only place of the log that looks at single records.

A search goes in steps. Between two of them the log may grow and lose its oldest segments, which a search notices; it
must be begun again where batches were cut off (`Segments.cuts`), and not be continued in a log that is not in use.

Producers write what they like below a batch's header, and no broker looks into it when it is appended: each number here
is bounded in groups, each record by the bytes there are, and a compressed batch is inflated a piece at a time.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from regency.broker_agent.log.segments.segment import Segment
from regency.broker_agent.log.segments.segments import Segments
from regency.broker_agent.steps import Steps
from regency.kafka.record_batch import HEADER_BYTES, NO_TIMESTAMP, BatchHeader, crc_matches
from regency.model.ids import LeaderEpoch, Offset

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


_STEP_EFFORT: Final = 2_000
"""Of one step, some milliseconds. To look at a header or a record is 1."""
_SEGMENT_EFFORT: Final = 100
"""To find out where in a segment to begin."""
_PIECE_EFFORT: Final = 100
"""To inflate a piece of a batch."""
_READ_BYTES: Final = 8 << 10
"""Bytes read from a file for 1."""
_MOST_READ: Final = 256 << 10
"""Bytes read to get at a header, at most."""


class TimestampAndOffset(NamedTuple):
    """A record's timestamp (wall milliseconds), its offset, and the leader epoch of its batch."""

    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch


class _Effort:
    """What has been done since the last pause."""

    def __init__(self) -> None:
        self._left = _STEP_EFFORT

    def is_pause_due(self, effort: int) -> bool:
        """Count `effort`; whether the step is over, and another begins."""
        self._left -= effort
        if self._left > 0:
            return False
        self._left = _STEP_EFFORT
        return True


def find_timestamp(segments: Segments, timestamp: int, log_start: Offset) -> Steps[TimestampAndOffset | None]:
    """The first record at or above `log_start` whose timestamp is not below `timestamp`."""
    effort = _Effort()
    for segment in segments.walk(log_start):
        segment.check_greatest_timestamp()
        start = segment.size if segment.max_timestamp < timestamp else segment.indexed_by_time(timestamp)
        if effort.is_pause_due(_SEGMENT_EFFORT):
            yield
        for position, header in segments.headers(segment, start):
            if header.record_count and header.max_timestamp >= timestamp and header.last_offset >= log_start:
                found = yield from _first_record(segment, position, header, timestamp, log_start, effort)
                if found is not None:
                    return found
            if effort.is_pause_due(_cost(header)):
                yield
    return None


def find_greatest(segments: Segments, log_start: Offset, max_offset: Offset) -> Steps[TimestampAndOffset | None]:
    """The record with the greatest timestamp below `max_offset`, the first of equals."""
    effort = _Effort()
    greatest, place = NO_TIMESTAMP, None
    for segment in segments.walk(log_start):
        if segment.base_offset >= max_offset:
            break
        segment.check_greatest_timestamp()
        start = _begin(segment, greatest, max_offset)
        if effort.is_pause_due(_SEGMENT_EFFORT):
            yield
        for position, header in segments.headers(segment, start):
            if header.base_offset >= max_offset or greatest >= segment.max_timestamp:
                break
            if header.record_count and header.max_timestamp > greatest and header.last_offset >= log_start:
                greatest, place = header.max_timestamp, (segment, position, header)
            if effort.is_pause_due(_cost(header)):
                yield
    if place is None:
        return None
    if place[0] not in segments:
        return (yield from find_greatest(segments, segments.first.base_offset, max_offset))
    return (yield from _first_record(*place, greatest, log_start, effort))


def _first_record(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, log_start: Offset, effort: _Effort
) -> Steps[TimestampAndOffset | None]:
    """Of a batch that says it has one. Where its records cannot be read, its first offset stands for them."""
    batch = segment.log.read(header.size, position)
    if not crc_matches(batch, header):
        raise segment.corrupt(position, "its checksum is wrong")
    epoch = LeaderEpoch(header.leader_epoch)
    start = max(Offset(header.base_offset), log_start)
    if header.is_log_append_time:
        return TimestampAndOffset(header.max_timestamp, start, epoch)
    if header.first_timestamp >= timestamp and header.base_offset == start and not header.is_compacted:
        return TimestampAndOffset(header.first_timestamp, start, epoch)
    try:
        for place in record_places(batch, header):
            if place is not None and place.timestamp >= timestamp and place.offset >= log_start:
                return TimestampAndOffset(place.timestamp, place.offset, epoch)
            if effort.is_pause_due(1 if place is not None else _PIECE_EFFORT):
                yield
    except Opaque:
        return TimestampAndOffset(header.max_timestamp, start, epoch)
    return None


def _begin(segment: Segment, greatest: int, max_offset: Offset) -> int:
    """The byte from which on a segment may hold a timestamp above `greatest`.

    A batch that has no records any more still has the greatest timestamp of those it had.
    """
    if segment.max_timestamp <= greatest:
        return segment.size
    if segment.offset_of_max_timestamp < max_offset:
        place = segment.position_of(segment.offset_of_max_timestamp)
        if place < segment.size and segment.header_at(place).record_count:
            return segment.indexed_below(segment.offset_of_max_timestamp)
    return 0


def _cost(header: BatchHeader) -> int:
    return 1 + min(header.size, _MOST_READ) // _READ_BYTES
