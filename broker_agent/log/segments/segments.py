"""The segments of one log in order, and the places in them that reads and appends name. Never empty once it is open."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from regency.broker_agent.log.segments.checked_read import EpochSpans, Wanted, read_checked
from regency.broker_agent.log.segments.damage import CorruptFile, Flaw
from regency.broker_agent.log.segments.index_building import build_at_once
from regency.broker_agent.log.segments.open_files import OpenFiles
from regency.broker_agent.log.segments.segment import Segment
from regency.kafka.record_batch import BatchHeader
from regency.model.ids import Offset
from regency.model.settings.log_config import LogConfig


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


class Cut(NamedTuple):
    """A place between two batches: the log ends at `end` when `segment` ends at byte `position`."""

    segment: Segment
    position: int
    end: Offset


class Segments:
    """Segments by rising base offset; the last is the active one, which takes appends."""

    def __init__(self, directory: Path, files: OpenFiles, segments: list[Segment]) -> None:
        self.directory = directory
        self._files = files
        self._segments = segments
        self._bases: list[int] = [segment.base_offset for segment in segments]
        self._on_doubt: Callable[[Segment, str], None] = build_at_once
        self.cuts = 0
        """How often batches that were there have been cut off or cleaned; else a position is what it was."""

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __contains__(self, segment: Segment) -> bool:
        return self._segments[bisect_right(self._bases, segment.base_offset) - 1] is segment

    @property
    def first(self) -> Segment:
        """The oldest segment."""
        return self._segments[0]

    @property
    def active(self) -> Segment:
        """The segment that takes appends."""
        return self._segments[-1]

    @property
    def second_newest(self) -> Segment:
        """The segment before the active one, or the active one where it is alone."""
        return self._segments[max(len(self._segments) - 2, 0)]

    @property
    def size_bytes(self) -> int:
        """Bytes of batches in all segments."""
        return sum(segment.size for segment in self._segments)

    def floor(self, offset: Offset) -> Segment:
        """The segment whose range holds `offset`, which is not below the first base offset."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0)]

    def from_offset(self, offset: Offset) -> list[Segment]:
        """The segment whose range holds `offset`, and all later ones."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    def walk(self, offset: Offset) -> Iterator[Segment]:
        """As `from_offset`, one by one: segments may be added, and the oldest dropped, during the walk."""
        at = max(bisect_right(self._bases, offset) - 1, 0)
        while at < len(self._segments):
            segment = self._segments[at]
            yield segment
            at = bisect_right(self._bases, segment.base_offset)

    def headers(self, segment: Segment, start: int) -> Iterator[tuple[int, BatchHeader]]:
        """As `Segment.headers`, which end early where the segment is dropped meanwhile."""
        for found in segment.headers(start):
            yield found
            if segment not in self:
                return

    def upper_bounds(self, log_end: Offset) -> Iterator[tuple[Segment, Offset]]:
        """Every segment with the offset that its last one cannot reach."""
        for index, segment in enumerate(self._segments):
            following = index + 1
            yield segment, Offset(self._bases[following]) if following < len(self._bases) else log_end

    def read(
        self,
        offset: Offset,
        max_bytes: int,
        *,
        max_offset: Offset,
        log_end: Offset,
        min_one_batch: bool,
        epochs: EpochSpans,
    ) -> tuple[ReadInfo, Flaw | None]:
        """Sound batches from the one that holds `offset` on, within one segment, below `max_offset`.

        And the flaw in the segment that ends them or took the place of the first, if there is one. `offset` is below
        `max_offset`. Raises CorruptFile where the place of `offset` cannot be found.
        """
        for segment, segment_end in self._from(offset, log_end):
            start = segment.position_of(offset)
            upper = segment.size
            if max_offset < segment_end:
                with suppress(CorruptFile):  # it is between the two: what is good before it is returned
                    upper = segment.position_of(max_offset)
            wanted = Wanted(offset, start, upper, max_offset, max_bytes, min_one_batch, segment_end)
            records, flaw = read_checked(segment, wanted, epochs)
            if start < segment.size or flaw:
                return ReadInfo(records, LogPosition(segment.base_offset, start)), flaw
        return ReadInfo(b"", self.end), None

    def _from(self, offset: Offset, log_end: Offset) -> Iterator[tuple[Segment, Offset]]:
        first = max(bisect_right(self._bases, offset) - 1, 0)
        return islice(self.upper_bounds(log_end), first, None)

    @property
    def end(self) -> LogPosition:
        """Where the next batch goes, unless the log rolls."""
        return LogPosition(self.active.base_offset, self.active.size)

    def position_of(self, offset: Offset) -> LogPosition:
        """Where the first batch begins that reaches `offset`; the end where none does."""
        for segment in self.from_offset(offset):
            position = segment.position_of(offset)
            if position < segment.size:
                return LogPosition(segment.base_offset, position)
        return self.end

    def bytes_between(self, lower: LogPosition, upper: LogPosition) -> int:
        """Bytes of batches from `lower` to `upper`, which must not lie before it."""
        if lower.segment == upper.segment:
            return upper.byte - lower.byte
        between = [
            segment.size
            for segment in self.from_offset(lower.segment)
            if lower.segment <= segment.base_offset < upper.segment
        ]
        return sum(between) - lower.byte + upper.byte

    def create(self, base_offset: Offset, config: LogConfig, now_ms: int) -> Segment:
        """Add an empty active segment, whatever is in files of its names; where that fails, there are none.

        The first segment is there in any case, its files are made when they are used. Raises OSError.
        """
        segment = Segment(self.directory, base_offset, config, self._files, now_ms, self._on_doubt)
        is_first = not self._segments
        if is_first:
            self._add(segment)
        try:
            segment.create()
        except Exception:
            for file in segment.files:
                file.remove()
            raise
        if not is_first:
            self._add(segment)
        return segment

    def _add(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def drop_first(self, count: int) -> list[Path]:
        """Take the oldest `count` segments out of use; returns the renamed files."""
        dropped, self._segments = self._segments[:count], self._segments[count:]
        del self._bases[:count]
        return [path for segment in dropped for path in segment.mark_deleted()]

    def exchange(self, sources: Sequence[Segment], new: Segment) -> list[Path]:
        """Have `new` in the place of these, which stand side by side; returns the renamed files.

        Its files must have other names than theirs.
        """
        self.cuts += 1  # positions are others now
        first = self._segments.index(sources[0])
        self._segments = [*self._segments[:first], new, *self._segments[first + len(sources) :]]
        self._bases = [segment.base_offset for segment in self._segments]
        return [path for source in sources for path in source.mark_deleted()]

    def drop_all(self) -> list[Path]:
        """Take every segment out of use, newest first, so that what is left is always a prefix."""
        self.cuts += 1
        dropped = self._segments[::-1]
        self._segments, self._bases = [], []
        return [path for segment in dropped for path in segment.mark_deleted()]

    def find_cut(self, offset: Offset) -> Cut:
        """Where to cut so that the batch that holds `offset` goes; `offset` is not below the first base offset."""
        segment = self.floor(offset)
        position = segment.position_of(offset)
        if position == segment.size:
            return Cut(segment, position, offset)
        base = segment.header_at(position).base_offset
        return Cut(segment, position, min(offset, Offset(base)))

    def drop_after(self, last: Segment) -> list[Path]:
        """Take all segments after `last` out of use, newest first, before it is cut; returns the renamed files."""
        self.cuts += 1
        kept = self._segments.index(last) + 1
        dropped, self._segments = self._segments[kept:], self._segments[:kept]
        del self._bases[kept:]
        return [path for newer in reversed(dropped) for path in newer.mark_deleted()]

    def move_to(self, files: OpenFiles, on_doubt: Callable[[Segment, str], None]) -> None:
        """Let another pool keep the open files, and each segment's `on_doubt` be this one."""
        self._files, self._on_doubt = files, on_doubt
        for segment in self._segments:
            segment.on_doubt = on_doubt
            for file in segment.files:
                file.move_to(files)

    def renamed(self, directory: Path) -> None:
        """Their directory is at this path now; open files stay open."""
        self.directory = directory
        for segment in self._segments:
            for file in segment.files:
                file.path = directory / file.path.name

    def close(self) -> None:
        """Give all descriptors back."""
        for segment in self._segments:
            segment.close()
