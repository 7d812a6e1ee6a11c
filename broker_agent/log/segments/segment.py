"""One segment of a log: a file of batches with its two indexes. Knows positions, not rules about appends."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path

from regency.broker_agent.log.errors import LogStorageError
from regency.broker_agent.log.segments.damage import CorruptFile
from regency.broker_agent.log.segments.indexes import OffsetIndex, TimeIndex
from regency.broker_agent.log.segments.open_files import LogFile, OpenFiles
from regency.kafka.logfiles.file_names import DELETED, INDEX, LOG, TIME_INDEX, offset_file
from regency.kafka.record_batch import (
    HEADER_BYTES,
    NO_TIMESTAMP,
    OVERHEAD_BYTES,
    BatchHeader,
    Buffer,
    CorruptBatch,
    read_header,
    skip_below,
)
from regency.model.crash_points import crash_point
from regency.model.ids import Offset
from regency.model.settings.log_config import LogConfig
from regency.runtime.descriptors import is_shortage

_LOOKUP_CHUNK = 8 * 1024
_REPLAY_CHUNK = 256 * 1024
_REMEMBERED_POSITIONS = 32
_MOST_UNINDEXED = 64 << 20
"""More bytes than Kafka ever appends between two index entries."""
MAX_RELATIVE_OFFSET = 2**31 - 1
"""Of an index entry: how far above the base offset of its segment it reaches."""


class Segment:
    """Batches from `base_offset` on. `size` is the bytes that count; the file may not be longer once it is loaded."""

    def __init__(
        self,
        directory: Path,
        base_offset: Offset,
        config: LogConfig,
        files: OpenFiles,
        now_ms: int,
        on_doubt: Callable[[Segment, str], None],
        suffix: str = "",
    ) -> None:
        """`suffix` is what the names of its files have behind them while it is none of the log's."""
        self.base_offset = base_offset
        self.size = 0
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = base_offset
        self.first_timestamp = NO_TIMESTAMP
        """Greatest timestamp of the first batch, by which the segment ages; -1 while it is empty or unread."""
        self.created_ms = now_ms
        self.index_interval_bytes = config.index_interval_bytes
        self.log = LogFile(offset_file(directory, base_offset, LOG + suffix), files)
        self.offsets = OffsetIndex(
            LogFile(offset_file(directory, base_offset, INDEX + suffix), files), base_offset, config.segment_index_bytes
        )
        self.times = TimeIndex(
            LogFile(offset_file(directory, base_offset, TIME_INDEX + suffix), files),
            base_offset,
            config.segment_index_bytes,
        )
        self._bytes_since_index = 0
        self._positions: dict[int, int] = {}
        self._misfit = ""
        """Why the last index entry could not be added; empty where it could."""
        self.on_doubt = on_doubt
        """Called where its indexes must be rebuilt, and why: raises unless they are then."""
        self.is_index_checked = False
        """Whether an index entry contradicted the batches, and all were looked at: that is done once."""
        self._is_greatest_checked = False

    @property
    def files(self) -> tuple[LogFile, LogFile, LogFile]:
        """Its files, the batches first."""
        return self.log, self.offsets.file, self.times.file

    def create(self) -> None:
        """Begin with empty files, whatever was there under these names."""
        self.log.truncate(0)
        crash_point("log.segment.before_indexes")
        self.offsets.reset()
        self.times.reset()

    def load(self) -> None:
        """Take size, first and greatest timestamp from the files; indexes must be sound."""
        self.size = self.log.size()
        self._bytes_since_index = self.size - self.offsets.last_position
        self.max_timestamp, self.offset_of_max_timestamp = self.times.last
        if self.size >= HEADER_BYTES:
            self.first_timestamp = self.header_at(0).max_timestamp

    @property
    def is_index_full(self) -> bool:
        """Whether one of its indexes takes no more entries."""
        return self.offsets.is_full or self.times.is_full

    def largest_timestamp(self) -> int:
        """The greatest timestamp of its records, or when its file was written where they have none."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        if not self.size:
            return self.created_ms
        return self.log.modified_ms()

    @property
    def lacks_entries(self) -> bool:
        """Whether its indexes end so early that entries must be missing."""
        is_untimed = self.first_timestamp >= 0 and self.times.last[0] < 0
        return is_untimed or self.size - self.offsets.last_position > self.index_interval_bytes + _MOST_UNINDEXED

    def has_true_last_entries(self, end: Offset) -> bool:
        """Whether the last entry of each index is of a batch that is there, in a segment that ends at `end`."""
        return self.offsets.last_offset < end and self._is_true(*self.times.last)

    def has_room(self, last_offset: Offset) -> bool:
        """Whether the distance to `last_offset` fits into an index entry."""
        return last_offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def append(self, data: Buffer, batches: Sequence[tuple[int, BatchHeader]]) -> None:
        """Write `data`, which is exactly these batches at these positions, in one call, then index it.

        Where an index takes no entry the batches are there all the same; `tell_misfit` is for when they count.
        """
        start = self.size
        self.log.write(data, start)
        crash_point("log.append.after_write")
        self.size = start + len(data)
        if start == 0:
            self.first_timestamp = batches[0][1].max_timestamp
        for at, header in batches:
            self.index(start + at, header)
        at, header = batches[-1]
        self.remember(header.base_offset, start + at)

    def index(self, position: int, header: BatchHeader) -> None:
        """Count the batch at `position` in, and add index entries if it is time for some."""
        last_offset = header.last_offset
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp, self.offset_of_max_timestamp = header.max_timestamp, last_offset
        if self._bytes_since_index > self.index_interval_bytes:
            try:
                self._add_entries(last_offset, position)
            except ValueError as error:
                self._misfit, self._bytes_since_index = str(error), 0
            except (OSError, MemoryError) as error:  # the batch is written: without an entry it is only found later
                if not is_shortage(error):
                    raise
        self._bytes_since_index += header.length + OVERHEAD_BYTES

    def _add_entries(self, last_offset: Offset, position: int) -> None:
        if not self.offsets.is_full:
            self.offsets.append(last_offset, position)
            if not self.times.is_full:
                self.times.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
            self._bytes_since_index = 0

    def tell_misfit(self) -> None:
        """Have the indexes rebuilt where an entry did not fit: nothing waits for that."""
        why, self._misfit = self._misfit, ""
        if why:
            with suppress(LogStorageError, OSError, MemoryError):
                self._doubt_indexes(why)

    def reset_indexes(self) -> None:
        """Forget what is indexed, before every batch is counted in again."""
        self.offsets.reset()
        self.times.reset()
        self.max_timestamp, self.offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        self.first_timestamp = NO_TIMESTAMP
        self._bytes_since_index = 0
        self._positions = {}

    def header_at(self, position: int) -> BatchHeader:
        """Header of the batch that begins at byte `position`. Raises CorruptFile."""
        try:
            return read_header(self.log.read(HEADER_BYTES, position))
        except CorruptBatch as error:
            raise self.corrupt(position, error.reason) from error

    def headers(self, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every whole batch from byte `start`, where a batch must begin; bodies are skipped.

        Raises CorruptFile at bytes that are no batch.
        """
        buffer, buffer_at, position = b"", start, start
        while position + HEADER_BYTES <= self.size:
            if position + HEADER_BYTES > buffer_at + len(buffer):
                buffer, buffer_at = self.log.read(min(_REPLAY_CHUNK, self.size - position), position), position
            try:
                header = read_header(buffer, position - buffer_at)
            except CorruptBatch as error:
                raise self.corrupt(position, error.reason) from error
            following = position + header.size
            if following > self.size:
                return
            yield position, header
            position = following

    def position_of(self, offset: Offset) -> int:
        """Byte where the first batch begins that reaches `offset`; the size where none does."""
        known = self._positions.get(offset)
        if known is not None:
            return known
        position = self.indexed_below(offset)
        while position + HEADER_BYTES <= self.size:
            chunk = self.log.read(min(_LOOKUP_CHUNK, self.size - position), position)
            skipped = 0
            try:
                skipped = skip_below(chunk, offset)
                if skipped + HEADER_BYTES <= len(chunk):
                    read_header(chunk, skipped)
                    return position + skipped
            except CorruptBatch as error:
                raise self.corrupt(position + error.position, error.reason) from error
            position += skipped
            if not skipped:
                raise self.corrupt(position, f"the file ends before byte {self.size}")
        return self.size

    def indexed_below(self, offset: int) -> int:
        """A byte where a batch begins at or below `offset`, by the index where that can be believed."""
        position = self.offsets.lookup(offset)
        if not position or self._begins_at_or_below(offset, position):
            return position
        self._doubt_indexes(f"nothing at or below offset {offset} begins at byte {position}")
        candidates = reversed(self.offsets.positions_up_to(offset))
        return next((each for each in candidates if self._begins_at_or_below(offset, each)), 0)

    def indexed_by_time(self, timestamp: int) -> int:
        """A byte before which all records are older than `timestamp`, by the indexes where they can be believed."""
        entry = self.times.lookup(timestamp)
        if not self._is_true(*entry):
            self._doubt_indexes(f"no batch at offset {entry[1]} has the timestamp {entry[0]}")
            entry = self.times.lookup(timestamp)
            if not self._is_true(*entry):
                return 0
        return self.indexed_below(entry[1])

    def check_greatest_timestamp(self) -> bool:
        """Correct the greatest timestamp where no batch has the one that the time index said; False if done before."""
        if self._is_greatest_checked:
            return False
        timestamp, offset = self.max_timestamp, self.offset_of_max_timestamp
        if not self._is_true(timestamp, offset):
            self._doubt_indexes(f"no batch at offset {offset} has the timestamp {timestamp}")
        self._is_greatest_checked = True
        return True

    def _begins_at_or_below(self, offset: int, position: int) -> bool:
        try:
            header = self.header_at(position)
        except CorruptFile:
            return False
        return self.base_offset <= header.base_offset <= offset and position + header.size <= self.size

    def _is_true(self, timestamp: int, offset: Offset) -> bool:
        """Whether the batch that holds `offset` has this greatest timestamp."""
        if timestamp < 0:
            return True
        try:
            position = self.position_of(offset)
            header = self.header_at(position)
        except CorruptFile:
            return False
        return header.base_offset <= offset <= header.last_offset and header.max_timestamp == timestamp

    def _doubt_indexes(self, why: str) -> None:
        """An entry does not fit: see to it, once, that the indexes are rebuilt. Raises what `on_doubt` does."""
        if not self.is_index_checked:
            self.on_doubt(self, why)

    def unindexed_copy(self) -> Segment:
        """The same batches with a descriptor of their own, and empty indexes in memory. Raises OSError."""
        other = copy(self)
        other.log, other.is_index_checked = self.log.twin(), True
        other.offsets, other.times = self.offsets.empty_copy(), self.times.empty_copy()
        other.reset_indexes()
        return other

    def count(self, position: int, header: BatchHeader) -> None:
        """As `index`, where every batch is counted in that is there, from the first on."""
        if position == 0:
            self.first_timestamp = header.max_timestamp
        self.index(position, header)

    def base_of(self, last_offset: int, position: int) -> int | None:
        """Offset of the batch that begins at byte `position`, if it is there and ends with `last_offset`."""
        try:
            header = self.header_at(position)
        except CorruptFile:
            return None
        is_there = header.last_offset == last_offset and position + header.size <= self.size
        return header.base_offset if is_there and self.base_offset <= header.base_offset <= last_offset else None

    def forget_entries(self, offset: int, position: int) -> None:
        """Drop index entries of batches that reach `offset`, or begin at byte `position` or later."""
        self.offsets.truncate_to(Offset(offset), position)
        self.times.truncate_to(Offset(offset))

    def take_indexes(self, other: Segment, *, is_whole: bool) -> None:
        """Have the indexes of a copy in which every batch was counted, but for damaged ones. Raises OSError."""
        self.hold()
        other.seal()
        self.offsets.replace_by(other.offsets)
        self.times.replace_by(other.times)
        if is_whole or other.max_timestamp > self.max_timestamp:
            self.max_timestamp, self.offset_of_max_timestamp = other.max_timestamp, other.offset_of_max_timestamp
        if other.first_timestamp >= 0:
            self.first_timestamp = other.first_timestamp
        self._bytes_since_index = other._bytes_since_index
        self._positions.clear()

    def corrupt(self, position: int, reason: str) -> CorruptFile:
        """What to raise where byte `position` should be the first of a batch."""
        return CorruptFile(self.log.path, position, reason)

    def truncate(self, position: int, offset: Offset) -> None:
        """Cut off batches from byte `position` on; `offset` is the first that is gone."""
        self.log.truncate(position)
        crash_point("log.truncation.before_indexes")
        self.forget_entries(offset, position)
        self._positions.clear()
        self.size = position
        self._bytes_since_index = position - self.offsets.last_position
        greatest = self.max_timestamp
        try:
            self._load_greatest_timestamp()
        except CorruptFile:  # an entry is wrong, which shows when it is used; nothing greater is left, if that
            self.max_timestamp, self.offset_of_max_timestamp = greatest, Offset(offset - 1)
            self.is_index_checked = self._is_greatest_checked = False
        if position == 0:
            self.first_timestamp = NO_TIMESTAMP

    def seal(self) -> None:
        """Write the last time index entry: the segment takes no more batches, or is about to be closed."""
        try:
            self.times.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
        except ValueError as error:
            self._misfit = str(error)
            self.tell_misfit()
        self._positions.clear()

    def read_tail(self) -> BatchHeader | None:
        """The last batch, and the greatest timestamp of what follows the last index entry; None where it is empty.

        Raises CorruptFile where the file does not end with a whole batch.
        """
        last, end = None, self.offsets.last_position
        for position, header in self.headers(end):
            last, end = header, position + header.size
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.offset_of_max_timestamp = header.max_timestamp, header.last_offset
        if end != self.size:
            raise self.corrupt(end, f"the {self.size - end} bytes at its end are no whole batch")
        return last

    def mark_deleted(self) -> list[Path]:
        """Rename its files to `.deleted` and close them; returns what is to be removed later."""
        paths = []
        for file in self.files:
            file.close()
            if file.exists():
                file.rename(file.path.with_name(file.path.name + DELETED))
                paths.append(file.path)
        return paths

    def hold(self) -> None:
        """Have all files, and have them open at once: to open one may have closed another. Raises OSError."""
        for file in self.files:
            file.fileno()
        if not all(file.is_open for file in self.files):
            raise OSError(errno.EMFILE, "no descriptors for a segment and its indexes", str(self.log.path))

    def close(self) -> None:
        """Give all descriptors back."""
        for file in self.files:
            file.close()

    def _load_greatest_timestamp(self) -> None:
        self.max_timestamp, self.offset_of_max_timestamp = self.times.last
        self.read_tail()

    def ends_at(self, offset: int) -> bool:
        """Whether a batch was seen to end right before `offset`, or one to begin there."""
        return offset in self._positions

    def remember(self, offset: int, position: int) -> None:
        """Note that the first batch that reaches `offset` begins at byte `position`, and where one ends or begins."""
        positions = self._positions
        if len(positions) >= _REMEMBERED_POSITIONS:
            del positions[next(iter(positions))]
        positions[offset] = position
