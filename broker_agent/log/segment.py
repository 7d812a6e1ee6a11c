"""One segment of a log: a file of batches with its two indexes. Knows positions, not rules about appends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from regency.broker_agent.log.file_names import DELETED, INDEX, LOG, TIME_INDEX, offset_file
from regency.broker_agent.log.offset_index import OffsetIndex
from regency.broker_agent.log.open_files import LogFile, OpenFiles
from regency.broker_agent.log.time_index import TimeIndex
from regency.model.crash_points import crash_point
from regency.model.ids import Offset
from regency.model.log_config import LogConfig
from regency.model.record_batch import (
    HEADER_BYTES,
    NO_TIMESTAMP,
    OVERHEAD_BYTES,
    BatchHeader,
    Buffer,
    CorruptBatch,
    batch_size,
    end_of_whole,
    read_header,
    skip_below,
)

_LOOKUP_CHUNK = 8 * 1024
_REPLAY_CHUNK = 256 * 1024
_REMEMBERED_POSITIONS = 32
_MAX_RELATIVE_OFFSET = 2**31 - 1


class Segment:
    """Batches from `base_offset` on. `size` is the bytes that count; the file may not be longer once it is loaded."""

    def __init__(self, directory: Path, base_offset: Offset, config: LogConfig, files: OpenFiles, now_ms: int) -> None:
        self.base_offset = base_offset
        self.size = 0
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = base_offset
        self.first_timestamp = NO_TIMESTAMP
        """Greatest timestamp of the first batch, by which the segment ages; -1 while it is empty or unread."""
        self.created_ms = now_ms
        self.index_interval_bytes = config.index_interval_bytes
        self.log = LogFile(offset_file(directory, base_offset, LOG), files)
        self.offsets = OffsetIndex(
            LogFile(offset_file(directory, base_offset, INDEX), files), base_offset, config.segment_index_bytes
        )
        self.times = TimeIndex(
            LogFile(offset_file(directory, base_offset, TIME_INDEX), files), base_offset, config.segment_index_bytes
        )
        self._bytes_since_index = 0
        self._positions: dict[int, int] = {}

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
            self.first_timestamp = read_header(self.log.read(HEADER_BYTES, 0)).max_timestamp

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

    def has_room(self, last_offset: Offset) -> bool:
        """Whether the distance to `last_offset` fits into an index entry."""
        return last_offset - self.base_offset <= _MAX_RELATIVE_OFFSET

    def append(self, data: Buffer, batches: Sequence[tuple[int, BatchHeader]]) -> None:
        """Write `data`, which is exactly these batches at these positions, in one call, then index it."""
        start = self.size
        self.log.write(data, start)
        crash_point("log.append.after_write")
        self.size = start + len(data)
        if start == 0:
            self.first_timestamp = batches[0][1].max_timestamp
        for at, header in batches:
            self.index(start + at, header)
        at, header = batches[-1]
        self._remember(header.base_offset, start + at)

    def index(self, position: int, header: BatchHeader) -> None:
        """Count the batch at `position` in, and add index entries if it is time for some."""
        last_offset = header.last_offset
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp, self.offset_of_max_timestamp = header.max_timestamp, last_offset
        if self._bytes_since_index > self.index_interval_bytes and not self.offsets.is_full:
            self.offsets.append(last_offset, position)
            if not self.times.is_full:
                self.times.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
            self._bytes_since_index = 0
        self._bytes_since_index += header.length + OVERHEAD_BYTES

    def reset_indexes(self) -> None:
        """Forget what is indexed, before every batch is counted in again."""
        self.offsets.reset()
        self.times.reset()
        self.max_timestamp, self.offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        self.first_timestamp = NO_TIMESTAMP
        self._bytes_since_index = 0
        self._positions.clear()

    def headers(self, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every whole batch from byte `start`, where a batch must begin; bodies are skipped.

        Raises CorruptBatch at bytes that are no batch.
        """
        buffer, buffer_at, position = b"", start, start
        while position + HEADER_BYTES <= self.size:
            if position + HEADER_BYTES > buffer_at + len(buffer):
                buffer, buffer_at = self.log.read(min(_REPLAY_CHUNK, self.size - position), position), position
            header = read_header(buffer, position - buffer_at)
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
        position = self.offsets.lookup(offset)
        while position + HEADER_BYTES <= self.size:
            chunk = self.log.read(min(_LOOKUP_CHUNK, self.size - position), position)
            skipped = skip_below(chunk, offset)
            position += skipped
            if skipped + HEADER_BYTES <= len(chunk):
                read_header(chunk, skipped)
                self._remember(offset, position)
                return position
            if not skipped:
                raise CorruptBatch(position, f"{self.log.path} ends before byte {self.size}")
        return self.size

    def read(self, start: int, upper: int, max_bytes: int, *, min_one_batch: bool) -> bytes:
        """Whole batches between bytes `start` and `upper`, where batches begin, at most `max_bytes` of them.

        With `min_one_batch` the first batch is returned whatever its size.
        """
        available = upper - start
        if available <= 0:
            return b""
        if available <= max_bytes:
            return self.log.read(available, start)
        data = self.log.read(max(max_bytes, HEADER_BYTES), start)
        if len(data) < HEADER_BYTES:
            return b""
        first = batch_size(data)
        if first > max_bytes:
            return self.log.read(first, start) if min_one_batch else b""
        indexed = max(self.offsets.position_at_or_below(start + max_bytes) - start, 0)
        with memoryview(data)[:max_bytes] as view:
            last, whole = end_of_whole(view, indexed)
        if whole > last:
            self._remember(read_header(data, last).next_offset, start + whole)
        return data[:whole]

    def remember_end(self, next_offset: Offset) -> None:
        """Note that a batch of `next_offset` would begin at the end: whoever read up to there comes back for it."""
        self._remember(next_offset, self.size)

    def truncate(self, position: int, offset: Offset) -> None:
        """Cut off batches from byte `position` on; `offset` is the first that is gone."""
        self.log.truncate(position)
        crash_point("log.truncation.before_indexes")
        self.offsets.truncate_to(offset, position)
        self.times.truncate_to(offset)
        self._positions.clear()
        self.size = position
        self._bytes_since_index = position - self.offsets.last_position
        self._load_greatest_timestamp()
        if position == 0:
            self.first_timestamp = NO_TIMESTAMP

    def seal(self) -> None:
        """Write the last time index entry: the segment takes no more batches, or is about to be closed."""
        self.times.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
        self._positions.clear()

    def read_tail(self) -> BatchHeader | None:
        """The last batch, and the greatest timestamp of what follows the last index entry; None where it is empty.

        Raises CorruptBatch where the file does not end with a whole batch.
        """
        last, end = None, self.offsets.last_position
        for position, header in self.headers(end):
            last, end = header, position + header.size
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.offset_of_max_timestamp = header.max_timestamp, header.last_offset
        if end != self.size:
            raise CorruptBatch(end, f"the {self.size - end} bytes that end {self.log.path} are no whole batch")
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

    def close(self) -> None:
        """Give all descriptors back."""
        for file in self.files:
            file.close()

    def _load_greatest_timestamp(self) -> None:
        self.max_timestamp, self.offset_of_max_timestamp = self.times.last
        self.read_tail()

    def _remember(self, offset: int, position: int) -> None:
        positions = self._positions
        if len(positions) >= _REMEMBERED_POSITIONS:
            del positions[next(iter(positions))]
        positions[offset] = position
