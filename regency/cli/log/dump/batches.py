"""The batches of the segment that an index belongs to, in step with its entries: each is looked at once."""

from __future__ import annotations

from pathlib import Path

from regency.cli.log.dump.segment_file import SegmentFile
from regency.kafka.logfiles.file_names import INDEX, LOG, TIME_INDEX
from regency.kafka.record_batch import BatchHeader, CorruptBatch


def segment_of(index: Path) -> Path:
    """The segment's file beside an index; of one that is to be deleted the one that is to be deleted too."""
    for suffix in (TIME_INDEX, INDEX):
        stem, found, rest = index.name.partition(suffix)
        if found:
            return index.with_name(stem + LOG + rest)
    raise AssertionError(f"{index} is no index")


class Batches:
    """Walks forward. Raises OSError where there is no segment."""

    def __init__(self, path: Path) -> None:
        self._segment = SegmentFile(path)
        self._walk = self._segment.headers()
        self.broken: CorruptBatch | None = None
        """Where the segment is damaged, once the walk has come there: what lies behind is not known."""
        self.at: tuple[int, BatchHeader] | None = None
        """Position and header of the batch that was come to; None behind the last one."""
        self.max_timestamp = -1
        """The greatest of all batches up to this one."""
        self.advance()

    @property
    def size(self) -> int:
        """Bytes of the segment."""
        return self._segment.size

    def advance(self) -> None:
        """Go on to the next batch."""
        try:
            self.at = next(self._walk, None)
        except CorruptBatch as error:
            self.at, self.broken = None, error
        if self.at is not None:
            self.max_timestamp = max(self.max_timestamp, self.at[1].max_timestamp)

    def to_position(self, position: int) -> BatchHeader | None:
        """The batch that begins there, which is come to; None, and not beyond it, where none does."""
        while self.at is not None and self.at[0] < position:
            self.advance()
        return self.at[1] if self.at is not None and self.at[0] == position else None

    def to_offset(self, offset: int, before: int | None = None) -> BatchHeader | None:
        """The first batch that reaches `offset`, which is come to; None where there is none before byte `before`."""
        while self.at is not None and self.at[1].last_offset < offset:
            if before is not None and self.at[0] + self.at[1].size >= before:
                return None
            self.advance()
        return self.at[1] if self.at is not None else None

    def close(self) -> None:
        """Give the descriptor back."""
        self._segment.__exit__(None, None, None)
