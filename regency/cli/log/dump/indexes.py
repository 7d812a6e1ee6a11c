"""Offset and time indexes: their entries in Kafka's words, each held against the batches of the segment."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from regency.cli.log.dump.entries import Entries
from regency.cli.log.dump.segment import base_offset_of
from regency.cli.log.dump.segment_file import SegmentFile
from regency.cli.log.dump.sink import Empty, Fact, Passed, Sink
from regency.kafka.logfiles.file_names import INDEX, LOG, TIME_INDEX
from regency.kafka.record_batch import BatchHeader, CorruptBatch

_OFFSET_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qI")

Entry = tuple[int, tuple[int, ...]]
"""Position in the file, and fields."""

_SOUND = ("", "")


class OffsetEntry(Fact, frozen=True, tag="offset_index_entry"):
    """The last offset of a batch, and the byte where that begins."""

    offset: int
    position: int


class TimeEntry(Fact, frozen=True, tag="time_index_entry"):
    """The greatest timestamp so far, and the last offset of the batch that had it."""

    timestamp: int
    offset: int


class Scope(msgspec.Struct, frozen=True):
    """What is done with an index."""

    entries: bool = True
    """Whether they are printed."""
    sanity_only: bool = False
    """Only what a broker looks at when it starts."""


def dump_offset_index(path: Path, sink: Sink, scope: Scope) -> None:
    """Tell and check `.index`. Raises OSError."""
    with closing(Entries(path, _OFFSET_ENTRY, sink)) as entries:
        if _is_told(path, entries, sink):
            return
        if scope.sanity_only:
            _offset_sanity(path, entries, sink)
            return
        with closing(_segment(path, sink)) as batches:
            _OffsetCheck(path, batches, sink, scope).run(entries)
            _tell_broken(path, batches, sink)


def dump_time_index(path: Path, sink: Sink, scope: Scope) -> None:
    """Tell and check `.timeindex`. Raises OSError."""
    with closing(Entries(path, _TIME_ENTRY, sink)) as entries:
        if _is_told(path, entries, sink):
            return
        if scope.sanity_only:
            _time_sanity(path, entries, sink)
            return
        with closing(_segment(path, sink)) as batches:
            _TimeCheck(path, batches, sink, scope).run(entries)
            _tell_broken(path, batches, sink)


class _NoBatches:
    """Stands for a segment that is not there: nothing can be checked against it."""

    def close(self) -> None:
        """Nothing is open."""


def _segment(path: Path, sink: Sink) -> Batches | _NoBatches:
    log = segment_of(path)
    try:
        return Batches(log)
    except FileNotFoundError:
        sink.damage(path, "no_segment", f"there is no {log.name} beside it: its entries cannot be checked")
        return _NoBatches()


def _tell_broken(path: Path, batches: Batches | _NoBatches, sink: Sink) -> None:
    if isinstance(batches, Batches) and batches.broken is not None:
        what = f"{segment_of(path).name} is damaged at byte {batches.broken.position}: entries beyond are not checked"
        sink.damage(path, "segment_damaged", what)


def _is_told(path: Path, entries: Entries, sink: Sink) -> bool:
    """Whether there is nothing more to tell: the file is empty, or has no whole number of entries."""
    if not entries.check_size():
        return True
    if next(iter(entries), None) is None:
        sink.fact(Empty(file=str(path)), f"{path} is empty.")
        return True
    return False


class _Check(ABC):
    """Holds each entry against the last sound one, the next and the batches: one bad entry is one finding."""

    def __init__(self, path: Path, batches: Batches | _NoBatches, sink: Sink, scope: Scope) -> None:
        self._path, self._batches, self._sink, self._scope = path, batches, sink, scope
        self._base = base_offset_of(path)

    def run(self, entries: Entries) -> None:
        before = (-1, -1)
        for (at, fields), following in _with_next(iter(entries)):
            entry = self._entry(fields)
            if self._scope.entries:
                self._sink.fact(*self._fact(entry))
            kind, what = self._problem(before, entry, following)
            if kind:
                self._sink.damage(self._path, kind, what, at)
            else:
                before = entry

    @abstractmethod
    def _entry(self, fields: tuple[int, ...]) -> tuple[int, int]:
        """The fields of an entry, in their order, with whole offsets."""

    @abstractmethod
    def _fact(self, entry: tuple[int, int]) -> tuple[Fact, str]:
        """What there is to tell of an entry, and Kafka's line for it."""

    @abstractmethod
    def _problem(self, before: tuple[int, int], entry: tuple[int, int], following: Entry | None) -> tuple[str, str]:
        """What is wrong with an entry, by kind and in words; `_SOUND` if nothing is."""


class _OffsetCheck(_Check):
    """Entries are (offset, position)."""

    def _entry(self, fields: tuple[int, ...]) -> tuple[int, int]:
        relative, position = fields
        return self._base + relative, position

    def _fact(self, entry: tuple[int, int]) -> tuple[Fact, str]:
        offset, position = entry
        fact = OffsetEntry(file=str(self._path), offset=offset, position=position)
        return fact, f"offset: {offset} position: {position}"

    def _problem(self, before: tuple[int, int], entry: tuple[int, int], following: Entry | None) -> tuple[str, str]:
        offset, position = entry
        if offset <= before[0] or position <= before[1]:
            return "order", f"entry ({offset}, {position}) after ({before[0]}, {before[1]}): both must rise"
        if following is not None and position >= following[1][1]:
            next_entry = (self._base + following[1][0], following[1][1])
            return "order", f"entry ({offset}, {position}) before {next_entry}: both must rise"
        if not isinstance(self._batches, Batches) or self._batches.broken is not None:
            return _SOUND
        return self._compare(self._batches, offset, position, following)

    def _compare(self, batches: Batches, offset: int, position: int, following: Entry | None) -> tuple[str, str]:
        """Kafka's older brokers index several batches that came at once by the last offset of the last of them."""
        if position >= batches.size:
            what = f"Index offset: {offset}, position: {position}: the segment ends at byte {batches.size}"
            return "position", what
        header = batches.to_position(position)
        if batches.broken is not None:
            return _SOUND
        if header is None:
            return "position", f"Index offset: {offset}, position: {position}: no batch of the segment begins there"
        first = header.last_offset
        found = batches.to_offset(offset, None if following is None else following[1][1])
        if batches.broken is None and (found is None or found.last_offset != offset):
            return "offset", f"Index offset: {offset}, log offset: {first} (of the batch at byte {position})"
        return _SOUND


class _TimeCheck(_Check):
    """Entries are (timestamp, offset)."""

    def _entry(self, fields: tuple[int, ...]) -> tuple[int, int]:
        timestamp, relative = fields
        return timestamp, self._base + relative

    def _fact(self, entry: tuple[int, int]) -> tuple[Fact, str]:
        timestamp, offset = entry
        fact = TimeEntry(file=str(self._path), timestamp=timestamp, offset=offset)
        return fact, f"timestamp: {timestamp} offset: {offset}"

    def _problem(self, before: tuple[int, int], entry: tuple[int, int], following: Entry | None) -> tuple[str, str]:
        timestamp, offset = entry
        if timestamp <= before[0]:
            return "order", f"Index timestamp: {timestamp}, Previously indexed timestamp: {before[0]}: it must rise"
        if offset < before[1]:
            return "order", f"Index offset: {offset}, previously indexed offset: {before[1]}: it must not fall"
        if following is not None and offset > self._base + following[1][1]:
            return (
                "order",
                f"Index offset: {offset}, next indexed offset: {self._base + following[1][1]}: it must not fall",
            )
        if not isinstance(self._batches, Batches) or self._batches.broken is not None:
            return _SOUND
        return self._compare(self._batches, timestamp, offset)

    def _compare(self, batches: Batches, timestamp: int, offset: int) -> tuple[str, str]:
        header = batches.to_offset(offset)
        if batches.broken is not None:
            return _SOUND
        if header is None or header.last_offset != offset:
            found = "no batch reaches it" if header is None else f"found log offset: {header.last_offset}"
            return "offset", f"Indexed offset: {offset}, {found}: it must be the last one of a batch"
        if header.max_timestamp != timestamp:
            return "timestamp", f"Index timestamp: {timestamp}, log timestamp: {header.max_timestamp} (offset {offset})"
        if batches.max_timestamp > timestamp:
            greater = batches.max_timestamp
            return "timestamp", f"Index timestamp: {timestamp}, but {greater} stands at or before offset {offset}"
        return _SOUND


def _offset_sanity(path: Path, entries: Entries, sink: Sink) -> None:
    *_, (at, (relative, position)) = entries
    log = segment_of(path)
    size = log.stat().st_size if log.exists() else None
    if relative == 0 or position == 0 or (size is not None and position >= size):
        what = f"its last entry ({relative} beyond the base, byte {position}) cannot be of a segment of {size} bytes"
        sink.damage(path, "sanity", what, at)
        return
    sink.fact(Passed(file=str(path)), f"{path} passed sanity check.")


def _time_sanity(path: Path, entries: Entries, sink: Sink) -> None:
    first = next(iter(entries))[1]
    *_, (at, last) = entries
    if last[0] < first[0] or last[1] < first[1] or first[0] < 0:
        sink.damage(path, "sanity", f"its last entry {last} lies before its first {first}", at)
        return
    sink.fact(Passed(file=str(path)), f"{path} passed sanity check.")


def _with_next(entries: Iterator[Entry]) -> Iterator[tuple[Entry, Entry | None]]:
    """Each entry, and the one after it."""
    held = next(entries, None)
    for following in entries:
        assert held is not None
        yield held, following
        held = following
    if held is not None:
        yield held, None


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
