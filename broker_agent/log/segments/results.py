"""What a log answers to appends and reads. Values only."""

from __future__ import annotations

from typing import NamedTuple

from regency.model.ids import Offset


class LogPosition(NamedTuple):
    """A place in the files: base offset of the segment, and the byte in it where a batch begins or would."""

    segment: Offset
    byte: int


class AppendInfo(NamedTuple):
    """Where records went, or where they already are if `duplicate`. An append of nothing has last = base - 1."""

    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    """-1 unless the topic's timestamps are LogAppendTime."""
    log_start_offset: Offset
    duplicate: bool = False


class ReadInfo(NamedTuple):
    """Whole batches; the first holds the offset asked for and may begin below it."""

    records: bytes
    position: LogPosition
