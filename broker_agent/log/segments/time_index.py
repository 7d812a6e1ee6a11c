"""The sparse index from timestamps to offsets of one segment (`.timeindex`), Kafka's 12-byte entries.

An entry (timestamp, offset) says: no record up to this offset has a greater timestamp. Kept like the offset index: in
memory while the file is open, appended to the file, never synced, rebuilt by recovery.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right

from regency.broker_agent.log.segments.open_files import LogFile
from regency.kafka.record_batch import NO_TIMESTAMP
from regency.model.ids import Offset

ENTRY_BYTES = 12

_ENTRY = struct.Struct(">qI")


class TimeIndex:
    """Entries (greatest timestamp so far, last offset of the batch that had it), both rising."""

    __slots__ = ("_file", "_offsets", "_timestamps", "base_offset", "max_entries")

    def __init__(self, file: LogFile, base_offset: Offset, max_bytes: int) -> None:
        self.base_offset = base_offset
        self.max_entries = max_bytes // ENTRY_BYTES
        self._file = file
        self._timestamps: array[int] | None = None
        self._offsets: array[int] = array("I")
        file.on_close = self._forget

    @property
    def file(self) -> LogFile:
        """The file behind it."""
        return self._file

    def __len__(self) -> int:
        return len(self._loaded())

    @property
    def is_full(self) -> bool:
        """Whether it is time to roll: one slot is kept for the last entry of the segment."""
        return len(self._loaded()) >= self.max_entries - 1

    @property
    def last(self) -> tuple[int, Offset]:
        """The last entry; (-1, base offset) where there is none."""
        if self._timestamps is None:
            size = self._file.size()
            if size < ENTRY_BYTES:
                return NO_TIMESTAMP, self.base_offset
            timestamp, relative = _ENTRY.unpack(self._file.read(ENTRY_BYTES, size - ENTRY_BYTES))
            return timestamp, Offset(self.base_offset + relative)
        if not self._timestamps:
            return NO_TIMESTAMP, self.base_offset
        return self._timestamps[-1], Offset(self.base_offset + self._offsets[-1])

    def maybe_append(self, timestamp: int, offset: Offset) -> None:
        """Add an entry, if its timestamp is greater than the last one's. The offset may not be lower."""
        timestamps = self._loaded()
        last_timestamp, last_offset = self.last
        if timestamp <= last_timestamp or timestamp < 0:
            return
        if timestamps and offset < last_offset:
            raise ValueError(f"{self._file.path}: offset {offset} is below the last entry's {last_offset}")
        relative = offset - self.base_offset
        self._file.write(_ENTRY.pack(timestamp, relative), len(timestamps) * ENTRY_BYTES)
        try:
            timestamps.append(timestamp)
            self._offsets.append(relative)
        except MemoryError:
            self._forget()  # the file has it
            raise

    def lookup(self, timestamp: int) -> tuple[int, Offset]:
        """The entry with the greatest timestamp not above `timestamp`; (-1, base offset) where there is none."""
        timestamps = self._loaded()
        found = bisect_right(timestamps, timestamp)
        if not found:
            return NO_TIMESTAMP, self.base_offset
        return timestamps[found - 1], Offset(self.base_offset + self._offsets[found - 1])

    def truncate_to(self, offset: Offset) -> None:
        """Drop entries of `offset` and later ones."""
        timestamps = self._loaded()
        kept = bisect_left(self._offsets, offset - self.base_offset)
        if kept < len(timestamps):
            del timestamps[kept:], self._offsets[kept:]
            self._file.truncate(kept * ENTRY_BYTES)

    def reset(self) -> None:
        """Drop every entry."""
        self._file.truncate(0)
        self._timestamps, self._offsets = array("q"), array("I")

    def empty_copy(self) -> TimeIndex:
        """An index for the same batches, in memory."""
        return TimeIndex(self._file.in_memory(), self.base_offset, self.max_entries * ENTRY_BYTES)

    def replace_by(self, other: TimeIndex) -> None:
        """Have the entries of one that is in memory, and no others. Raises OSError."""
        other.file.copy_to(self._file)
        self._timestamps, self._offsets = other._timestamps, other._offsets

    def fits(self) -> bool:
        """Whether the file can be a time index; one that cannot must be rebuilt."""
        size = self._file.size()
        if size % ENTRY_BYTES:
            return False
        if not size:
            return True
        first_timestamp, first_offset = _ENTRY.unpack(self._file.read(ENTRY_BYTES, 0))
        timestamp, offset = _ENTRY.unpack(self._file.read(ENTRY_BYTES, size - ENTRY_BYTES))
        return bool(timestamp >= first_timestamp >= 0 and offset >= first_offset)

    def _loaded(self) -> array[int]:
        if self._timestamps is not None:
            return self._timestamps
        size = self._file.size()
        content = self._file.read(size - size % ENTRY_BYTES, 0)
        timestamps, offsets = array("q"), array("I")
        for timestamp, relative in _ENTRY.iter_unpack(content):
            timestamps.append(timestamp)
            offsets.append(relative)
        self._timestamps, self._offsets = timestamps, offsets
        return timestamps

    def _forget(self) -> None:
        self._timestamps, self._offsets = None, array("I")
