"""Finding offsets by timestamp, for ListOffsets. The only place of the log that looks at single records.

A search goes in steps. Between two of them the log may grow and lose its oldest segments, which a search notices; it
must be begun again where batches were cut off (`Segments.cuts`), and not be continued in a log that is not in use.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from regency.broker_agent.log.segments.record_places import Opaque, record_places
from regency.broker_agent.log.segments.segment import Segment
from regency.broker_agent.log.segments.segments import Segments
from regency.broker_agent.steps import Steps
from regency.kafka.record_batch import NO_TIMESTAMP, BatchHeader, crc_matches
from regency.model.ids import LeaderEpoch, Offset

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
            if header.max_timestamp >= timestamp and header.last_offset >= log_start:
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
            if header.max_timestamp > greatest and header.last_offset >= log_start:
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
    if header.first_timestamp >= timestamp and header.base_offset == start:
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
    """The byte from which on a segment may hold a timestamp above `greatest`."""
    if segment.max_timestamp <= greatest:
        return segment.size
    if segment.offset_of_max_timestamp < max_offset:
        return segment.indexed_below(segment.offset_of_max_timestamp)
    return 0


def _cost(header: BatchHeader) -> int:
    return 1 + min(header.size, _MOST_READ) // _READ_BYTES
