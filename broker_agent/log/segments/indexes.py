"""The sparse indexes of one segment: offsets to byte positions (`.index`), timestamps to offsets (`.timeindex`).

Entries are in memory while the file is open and are appended to the file as they come; nothing is synced, because
recovery can rebuild an index from the batches. Not preallocated: the file holds its entries and no more. Kafka's
entries of 8 and 12 bytes.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import ClassVar, Self

from regency.broker_agent.log.segments.open_files import LogFile
from regency.kafka.record_batch import NO_TIMESTAMP
from regency.model.ids import Offset


class _Index(ABC):
    """Entries of a key and a number, in two columns; offsets are counted from `base_offset` on."""

    __slots__ = ("_file", "_keys", "_numbers", "base_offset", "max_entries")

    _entry: ClassVar[Struct]

    def __init__(self, file: LogFile, base_offset: Offset, max_bytes: int) -> None:
        self.base_offset = base_offset
        self.max_entries = max_bytes // self._entry.size
        self._file = file
        self._keys: array[int] | None = None
        self._numbers: array[int] = array("I")
        file.on_close = self._forget

    @staticmethod
    @abstractmethod
    def _columns(content: bytes) -> tuple[array[int], array[int]]:
        """The keys and numbers of some entries."""

    @property
    def file(self) -> LogFile:
        """The file behind it."""
        return self._file

    def __len__(self) -> int:
        return len(self._loaded())

    @property
    def _last(self) -> tuple[int, int] | None:
        """The last entry; of a file that is not open it is the only one to be read."""
        if self._keys is not None:
            return (self._keys[-1], self._numbers[-1]) if self._keys else None
        return self._last_in_file(self._file.size())

    def _last_in_file(self, size: int) -> tuple[int, int] | None:
        entry = self._entry.size
        if size < entry:
            return None
        key, number = self._entry.unpack(self._file.read(entry, size - entry))
        return key, number

    def _append(self, key: int, number: int) -> None:
        keys = self._loaded()
        self._file.write(self._entry.pack(key, number), len(keys) * self._entry.size)
        try:
            keys.append(key)
            self._numbers.append(number)
        except MemoryError:
            self._forget()  # the file has it
            raise

    def _keep(self, kept: int) -> None:
        """Drop all entries but the first so many."""
        keys = self._loaded()
        if kept < len(keys):
            del keys[kept:], self._numbers[kept:]
            self._file.truncate(kept * self._entry.size)

    def reset(self) -> None:
        """Drop every entry."""
        self._file.truncate(0)
        self._keys, self._numbers = self._columns(b"")

    def empty_copy(self) -> Self:
        """An index for the same batches, in memory."""
        return type(self)(self._file.in_memory(), self.base_offset, self.max_entries * self._entry.size)

    def replace_by(self, other: Self) -> None:
        """Have the entries of one that is in memory, and no others. Raises OSError."""
        other.file.copy_to(self._file)
        self._keys, self._numbers = other._keys, other._numbers

    def _loaded(self) -> array[int]:
        if self._keys is None:
            size = self._file.size()
            self._keys, self._numbers = self._columns(self._file.read(size - size % self._entry.size, 0))
        return self._keys

    def _forget(self) -> None:
        self._keys, self._numbers = None, array("I")


class OffsetIndex(_Index):
    """Entries (last offset of a batch, byte where the batch begins), strictly rising; offsets from `base_offset` on."""

    __slots__ = ()

    _entry = Struct(">II")

    @staticmethod
    def _columns(content: bytes) -> tuple[array[int], array[int]]:
        entries = array("I", content)
        if sys.byteorder == "little":
            entries.byteswap()
        return entries[0::2], entries[1::2]

    @property
    def is_full(self) -> bool:
        """Whether no entry fits any more: time to roll."""
        return len(self._loaded()) >= self.max_entries

    def append(self, offset: Offset, position: int) -> None:
        """Add an entry; `offset` and `position` must be greater than those of the last one."""
        offsets = self._loaded()
        relative = offset - self.base_offset
        if offsets and (relative <= offsets[-1] or position <= self._numbers[-1]):
            raise ValueError(f"{self._file.path}: entry ({offset}, {position}) does not come after the last")
        self._append(relative, position)

    def lookup(self, offset: int) -> int:
        """Where to begin looking for the batch that holds `offset`: a batch begins there, all before are lower."""
        found = bisect_right(self._loaded(), offset - self.base_offset)
        return self._numbers[found - 1] if found else 0

    def positions_up_to(self, offset: int) -> Sequence[int]:
        """Positions of the entries that `lookup` chooses from for `offset`, rising."""
        found = bisect_right(self._loaded(), offset - self.base_offset)
        return self._numbers[:found]

    def entries(self) -> Iterator[tuple[int, int]]:
        """Every (offset, position) that is there now, for another thread. Raises OSError."""
        offsets = self._loaded()[:]
        return ((self.base_offset + each, at) for each, at in zip(offsets, self._numbers[:], strict=True))

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

    def truncate_to(self, offset: Offset, position: int) -> None:
        """Drop entries of batches that reach `offset`, or begin at byte `position` or later."""
        offsets = self._loaded()
        self._keep(min(bisect_left(offsets, offset - self.base_offset), bisect_left(self._numbers, position)))

    def fits(self, log_bytes: int) -> bool:
        """Whether the file can be the index of a segment of `log_bytes` bytes; one that cannot must be rebuilt."""
        size = self._file.size()
        last = self._last_in_file(size)
        return not size % self._entry.size and (last is None or (last[0] > 0 and 0 < last[1] < log_bytes))


class TimeIndex(_Index):
    """Entries (greatest timestamp so far, last offset of the batch that had it), both rising.

    An entry says: no record up to this offset has a greater timestamp.
    """

    __slots__ = ()

    _entry = Struct(">qI")

    @staticmethod
    def _columns(content: bytes) -> tuple[array[int], array[int]]:
        timestamps, offsets = array("q"), array("I")
        for timestamp, relative in TimeIndex._entry.iter_unpack(content):
            timestamps.append(timestamp)
            offsets.append(relative)
        return timestamps, offsets

    @property
    def is_full(self) -> bool:
        """Whether it is time to roll: one slot is kept for the last entry of the segment."""
        return len(self._loaded()) >= self.max_entries - 1

    @property
    def last(self) -> tuple[int, Offset]:
        """The last entry; (-1, base offset) where there is none."""
        timestamp, relative = self._last or (NO_TIMESTAMP, 0)
        return timestamp, Offset(self.base_offset + relative)

    def maybe_append(self, timestamp: int, offset: Offset) -> None:
        """Add an entry, if its timestamp is greater than the last one's. The offset may not be lower."""
        timestamps = self._loaded()
        last_timestamp, last_offset = self.last
        if timestamp <= last_timestamp or timestamp < 0:
            return
        if timestamps and offset < last_offset:
            raise ValueError(f"{self._file.path}: offset {offset} is below the last entry's {last_offset}")
        self._append(timestamp, offset - self.base_offset)

    def lookup(self, timestamp: int) -> tuple[int, Offset]:
        """The entry with the greatest timestamp not above `timestamp`; (-1, base offset) where there is none."""
        timestamps = self._loaded()
        found = bisect_right(timestamps, timestamp)
        if not found:
            return NO_TIMESTAMP, self.base_offset
        return timestamps[found - 1], Offset(self.base_offset + self._numbers[found - 1])

    def truncate_to(self, offset: Offset) -> None:
        """Drop entries of `offset` and later ones."""
        self._loaded()
        self._keep(bisect_left(self._numbers, offset - self.base_offset))

    def fits(self) -> bool:
        """Whether the file can be a time index; one that cannot must be rebuilt."""
        size = self._file.size()
        last = self._last_in_file(size)
        if last is None or size % self._entry.size:
            return not size
        first_timestamp, first_offset = self._entry.unpack(self._file.read(self._entry.size, 0))
        return bool(last[0] >= first_timestamp >= 0 and last[1] >= first_offset)
