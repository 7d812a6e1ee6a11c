"""Finding offsets by timestamp. The only place of the log that looks at single records, and only for ListOffsets."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from regency.broker_agent.log.segment import Segment
from regency.broker_agent.log.segments import Segments
from regency.model.ids import LeaderEpoch, Offset
from regency.model.record_batch import HEADER_BYTES, NO_TIMESTAMP, BatchHeader, crc_matches

_NO_CODEC = 0
_GZIP = 1
_GZIP_WINDOW = 31
_MAX_DECOMPRESSED = 64 << 20
_MAX_RECORDS = 100_000
"""In one batch: a producer may claim two billion, and this is the data loop."""


class _Opaque(Exception):
    """The records cannot be read, or not at a reasonable price."""


class TimestampAndOffset(NamedTuple):
    """A record's timestamp (wall milliseconds), its offset, and the leader epoch of its batch."""

    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch


def find_timestamp(segments: Segments, timestamp: int, log_start: Offset) -> TimestampAndOffset | None:
    """The first record at or above `log_start` whose timestamp is not below `timestamp`."""
    for segment in segments.from_offset(log_start):
        segment.check_greatest_timestamp()
        if segment.max_timestamp < timestamp:
            continue
        start = segment.indexed_by_time(timestamp)
        for position, header in segment.headers(start):
            if header.max_timestamp < timestamp or header.last_offset < log_start:
                continue
            found = _first_record(segment, position, header, timestamp, log_start)
            if found is not None:
                return found
    return None


def find_greatest(segments: Segments, log_start: Offset, max_offset: Offset) -> TimestampAndOffset | None:
    """The record with the greatest timestamp below `max_offset`, the first of equals."""
    greatest, place = NO_TIMESTAMP, None
    for segment in segments.from_offset(log_start):
        if segment.base_offset >= max_offset:
            break
        segment.check_greatest_timestamp()
        if segment.max_timestamp <= greatest:
            continue
        start = 0
        if segment.offset_of_max_timestamp < max_offset:
            start = segment.indexed_below(segment.offset_of_max_timestamp)
        for position, header in segment.headers(start):
            if header.base_offset >= max_offset:
                break
            if header.max_timestamp > greatest and header.last_offset >= log_start:
                greatest, place = header.max_timestamp, (segment, position, header)
    if place is None:
        return None
    segment, position, header = place
    return _first_record(segment, position, header, greatest, log_start)


def _first_record(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, log_start: Offset
) -> TimestampAndOffset | None:
    batch = segment.log.read(header.size, position)
    if not crc_matches(batch, header):
        raise segment.corrupt(position, "its checksum is wrong")
    epoch = LeaderEpoch(header.leader_epoch)
    start = max(Offset(header.base_offset), log_start)
    if header.is_log_append_time:
        return TimestampAndOffset(header.max_timestamp, start, epoch)
    if header.first_timestamp >= timestamp and header.base_offset == start:
        return TimestampAndOffset(header.first_timestamp, start, epoch)
    try:
        records = _records(batch[HEADER_BYTES:], header)
    except (IndexError, zlib.error, _Opaque):
        return TimestampAndOffset(header.max_timestamp, start, epoch)
    for record_timestamp, offset in records:
        if record_timestamp >= timestamp and offset >= log_start:
            return TimestampAndOffset(record_timestamp, offset, epoch)
    return None


def _decompress(body: bytes, codec: int) -> bytes:
    if codec == _NO_CODEC:
        return body
    if codec == _GZIP:
        return zlib.decompressobj(_GZIP_WINDOW).decompress(body, _MAX_DECOMPRESSED)
    raise _Opaque


def _records(body: bytes, header: BatchHeader) -> list[tuple[int, Offset]]:
    """Timestamp and offset of each record. Raises _Opaque, zlib.error or IndexError where that is not possible."""
    if header.record_count > _MAX_RECORDS:
        raise _Opaque
    body = _decompress(body, header.codec)
    found: list[tuple[int, Offset]] = []
    at = 0
    for _ in range(header.record_count):
        length, at = _varint(body, at)
        if length < 1:
            raise _Opaque
        timestamp_delta, inside = _varint(body, at + 1)
        offset_delta, _ = _varint(body, inside)
        found.append((header.first_timestamp + timestamp_delta, Offset(header.base_offset + offset_delta)))
        at += length
    return found


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """A zig-zag number of base-128 groups, least significant first, and the byte after it."""
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
