"""What a cleaner is given, and what it answers: values that go between processes. And what it may leave behind.

Nothing here wants numpy, which a broker that compacts nothing never loads.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from regency.kafka.logfiles.file_names import CLEANED
from regency.model.ids import Offset
from regency.runtime.disk import Disk


class Source(msgspec.Struct, frozen=True):
    """A closed segment: where it begins, and its bytes that count."""

    base: Offset
    size: int


class CleaningJob(msgspec.Struct, frozen=True, kw_only=True):
    """One cleaning of one log. Times are wall milliseconds."""

    directory: str
    segments: tuple[Source, ...]
    """All from the first to the last that is cleaned, without a gap."""
    end: Offset
    """Where the first segment begins that is not cleaned."""
    first_dirty: Offset
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    load_factor: float
    buffer_bytes: int
    """Read at a time, and more where a batch is larger."""
    bytes_per_second: int
    """Most to read and write; whoever takes the steps waits between them."""
    producers: dict[int, tuple[Offset, int]]
    """Last data offset, or -1, and epoch, of each producer that is remembered."""


class CleaningLimits(msgspec.Struct, frozen=True):
    """What a cleaning may use, by the settings of the broker."""

    map_bytes: int
    load_factor: float
    buffer_bytes: int
    bytes_per_second: int


class CleanedSegment(msgspec.Struct, frozen=True):
    """A new segment, in `.cleaned` files, and the segments in whose place it is."""

    base: Offset
    sources: tuple[Offset, ...]


class Cleaned(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a cleaning. `segments` that would be as they were are left out."""

    end: Offset
    """Everything below is clean."""
    segments: tuple[CleanedSegment, ...]
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    without_key: int
    """Records that had no key, which are gone."""
    map_fill: float
    """Share of the offset map that was used."""


def remove_cleaned(disk: Disk, directory: Path) -> None:
    """Remove what cleanings left that did not come to an end. None may be under way."""
    for name in disk.names_in(directory):
        if name.endswith(CLEANED):
            disk.remove(directory / name, missing_ok=True)
