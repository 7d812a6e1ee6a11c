"""The sparse index from offsets to byte positions of one segment (`.index`), Kafka's 8-byte entries.

Entries are in memory while the file is open and are appended to the file as they come; nothing is synced, because
recovery can rebuild the index from the batches. Not preallocated: the file holds its entries and no more.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from regency.broker_agent.log.segments.open_files import LogFile
from regency.model.ids import Offset

ENTRY_BYTES = 8

_ENTRY = struct.Struct(">II")


class OffsetIndex:
    """Entries (last offset of a batch, byte where the batch begins), strictly rising; offsets from `base_offset` on."""

    __slots__ = ("_file", "_offsets", "_positions", "base_offset", "max_entries")

    def __init__(self, file: LogFile, base_offset: Offset, max_bytes: int) -> None:
        self.base_offset = base_offset
        self.max_entries = max_bytes // ENTRY_BYTES
        self._file = file
        self._offsets: array[int] | None = None
        self._positions: array[int] = array("I")
        file.on_close = self._forget

    @property
    def file(self) -> LogFile:
        """The file behind it."""
        return self._file

    def __len__(self) -> int:
        return len(self._loaded())

    @property
    def is_full(self) -> bool:
        """Whether no entry fits any more: time to roll."""
        return len(self._loaded()) >= self.max_entries

    def append(self, offset: Offset, position: int) -> None:
        """Add an entry; `offset` and `position` must be greater than those of the last one."""
        offsets = self._loaded()
        relative = offset - self.base_offset
        if offsets and (relative <= offsets[-1] or position <= self._positions[-1]):
            raise ValueError(f"{self._file.path}: entry ({offset}, {position}) does not come after the last")
        self._file.write(_ENTRY.pack(relative, position), len(offsets) * ENTRY_BYTES)
        try:
            offsets.append(relative)
            self._positions.append(position)
        except MemoryError:
            self._forget()  # the file has it
            raise

    def lookup(self, offset: int) -> int:
        """Where to begin looking for the batch that holds `offset`: a batch begins there, all before are lower."""
        found = bisect_right(self._loaded(), offset - self.base_offset)
        return self._positions[found - 1] if found else 0

    def positions_up_to(self, offset: int) -> Sequence[int]:
        """Positions of the entries that `lookup` chooses from for `offset`, rising."""
        found = bisect_right(self._loaded(), offset - self.base_offset)
        return self._positions[:found]

    def entries(self) -> Iterator[tuple[int, int]]:
        """Every (offset, position) that is there now, for another thread. Raises OSError."""
        offsets = self._loaded()[:]
        return ((self.base_offset + each, at) for each, at in zip(offsets, self._positions[:], strict=True))

    @property
    def last_offset(self) -> int:
        """Offset of the last entry; -1 where there is none."""
        last = self._last
        return self.base_offset + last[0] if last else -1

    @property
    def last_position(self) -> int:
        """Byte of the last entry; 0 where there is none."""
        last = self._last
        return last[1] if last else 0

    @property
    def _last(self) -> tuple[int, int] | None:
        """The last entry as it is in the file, which is not read whole for it."""
        if self._offsets is not None:
            return (self._offsets[-1], self._positions[-1]) if self._offsets else None
        size = self._file.size()
        if size < ENTRY_BYTES:
            return None
        relative, position = _ENTRY.unpack(self._file.read(ENTRY_BYTES, size - ENTRY_BYTES))
        return relative, position

    def truncate_to(self, offset: Offset, position: int) -> None:
        """Drop entries of batches that reach `offset`, or begin at byte `position` or later."""
        offsets = self._loaded()
        kept = min(bisect_left(offsets, offset - self.base_offset), bisect_left(self._positions, position))
        if kept < len(offsets):
            del offsets[kept:], self._positions[kept:]
            self._file.truncate(kept * ENTRY_BYTES)

    def reset(self) -> None:
        """Drop every entry."""
        self._file.truncate(0)
        self._offsets, self._positions = array("I"), array("I")

    def empty_copy(self) -> OffsetIndex:
        """An index for the same batches, in memory."""
        return OffsetIndex(self._file.in_memory(), self.base_offset, self.max_entries * ENTRY_BYTES)

    def replace_by(self, other: OffsetIndex) -> None:
        """Have the entries of one that is in memory, and no others. Raises OSError."""
        other.file.copy_to(self._file)
        self._offsets, self._positions = other._offsets, other._positions

    def fits(self, log_bytes: int) -> bool:
        """Whether the file can be the index of a segment of `log_bytes` bytes; one that cannot must be rebuilt."""
        size = self._file.size()
        if size % ENTRY_BYTES:
            return False
        if not size:
            return True
        relative, position = _ENTRY.unpack(self._file.read(ENTRY_BYTES, size - ENTRY_BYTES))
        return bool(relative > 0 and 0 < position < log_bytes)

    def _loaded(self) -> array[int]:
        if self._offsets is not None:
            return self._offsets
        size = self._file.size()
        entries = array("I", self._file.read(size - size % ENTRY_BYTES, 0))
        if sys.byteorder == "little":
            entries.byteswap()
        self._offsets, self._positions = entries[0::2], entries[1::2]
        return self._offsets

    def _forget(self) -> None:
        self._offsets, self._positions = None, array("I")
