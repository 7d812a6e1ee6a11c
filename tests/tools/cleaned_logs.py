"""Logs written by a client library, cleaned; and what Kafka would leave of them, record by record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from regency.broker_agent.log.cleaning.cleaner import clean
from regency.broker_agent.log.cleaning.job import Cleaned, CleaningJob, Source
from regency.kafka.logfiles.file_names import CLEANED, INDEX, LOG, TIME_INDEX, offset_file
from regency.kafka.record_batch import crc_matches, iter_batches, stamp
from regency.model.ids import Offset
from regency.runtime.disk import OsDisk

NOW = 10_000_000
DAY = 86_400_000


class Rec(NamedTuple):
    """A record of a test's log."""

    key: bytes | None
    value: bytes | None
    timestamp: int = 1000
    headers: tuple[tuple[str, bytes], ...] = ()


class Read(NamedTuple):
    """A record that was read back."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def make(records: Iterable[Rec], base: int, *, codec: int = 0, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """A batch of these records at offset `base`."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, *producer, 1 << 26)
    for number, record in enumerate(records):
        assert builder.append(number, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytearray(builder.build())
    stamp(batch, Offset(base), 0)
    return bytes(batch)


def read(content: bytes) -> list[Read]:
    """Every record of a segment's file, by the client library; checksums and the rising of offsets are checked."""
    found: list[Read] = []
    end = -1
    view = memoryview(content)
    total = 0
    for at, header in iter_batches(view):
        assert crc_matches(view, header, at)
        assert header.base_offset > end or end == -1
        total += header.size
        if not header.record_count:
            assert header.size == 61
        else:
            batch = DefaultRecordBatch(bytes(view[at : at + header.size]))
            records = list(batch)
            assert len(records) == header.record_count
            assert max(each.timestamp for each in records) == header.max_timestamp
            found += [Read(each.offset, each.timestamp, each.key, each.value, tuple(each.headers)) for each in records]
            assert all(header.base_offset <= each.offset <= header.last_offset for each in records)
        end = header.last_offset
    assert total == len(content)
    return found


class Bench:
    """A log's directory, to which segments are written and which is cleaned."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.disk = OsDisk()
        self.sources: list[Source] = []
        self.end = Offset(0)

    def segment(self, *batches: bytes, end: int | None = None) -> None:
        """Add one. It ends where its last batch ends, or the next begins at `end`."""
        content = b"".join(batches)
        base = self.end
        offset_file(self.directory, base, LOG).write_bytes(content)
        for suffix in (INDEX, TIME_INDEX):
            offset_file(self.directory, base, suffix).touch()
        self.sources.append(Source(base, len(content)))
        headers = [header for _, header in iter_batches(content)]
        self.end = Offset(headers[-1].next_offset if end is None else end)

    def job(self, **overrides: Any) -> CleaningJob:
        """A cleaning of all there is."""
        options = {
            "directory": str(self.directory),
            "segments": tuple(self.sources),
            "end": self.end,
            "first_dirty": Offset(0),
            "now_ms": NOW,
            "delete_retention_ms": DAY,
            "segment_bytes": 1 << 30,
            "segment_index_bytes": 10 << 20,
            "index_interval_bytes": 4096,
            "map_bytes": 1 << 20,
            "load_factor": 0.9,
            "buffer_bytes": 4 << 20,
            "bytes_per_second": 1 << 40,
            "producers": {},
        }
        return CleaningJob(**(options | overrides))

    def clean(self, **overrides: Any) -> Cleaned:
        """Clean, and put what came out in the place of what was there."""
        steps = clean(self.job(**overrides), self.disk)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            cleaned: Cleaned = end.value
        self.swap(cleaned)
        return cleaned

    def swap(self, cleaned: Cleaned) -> None:
        """As the log does it."""
        for segment in cleaned.segments:
            for base in segment.sources:
                for suffix in (LOG, INDEX, TIME_INDEX):
                    offset_file(self.directory, base, suffix).unlink()
            for suffix in (LOG, INDEX, TIME_INDEX):
                offset_file(self.directory, segment.base, suffix + CLEANED).rename(
                    offset_file(self.directory, segment.base, suffix)
                )
            kept = [source for source in self.sources if source.base not in segment.sources]
            size = offset_file(self.directory, segment.base, LOG).stat().st_size
            self.sources = sorted([*kept, Source(segment.base, size)], key=lambda source: source.base)

    def content(self, base: int) -> bytes:
        """Of the segment that begins there."""
        return offset_file(self.directory, Offset(base), LOG).read_bytes()

    def read(self) -> list[Read]:
        """Every record."""
        return [record for source in self.sources for record in read(self.content(source.base))]

    def headers(self) -> list[Any]:
        """Of every batch."""
        return [header for source in self.sources for _, header in iter_batches(self.content(source.base))]


def compacted(records: Sequence[Read], *, first_dirty: int = 0, end: int) -> list[Read]:
    """What stays: of every key the last below `end`, if its offset is in the dirty part; and all from `end` on.

    Records without key go. Deletion marks stay as long as no horizon has passed.
    """
    last = {each.key: each.offset for each in records if each.key is not None and first_dirty <= each.offset < end}
    return [
        each
        for each in records
        if each.offset >= end or (each.key is not None and each.offset >= last.get(each.key, -1))
    ]
