"""What is in the answer to a consumer's fetch: whole batches of a range, checked, and what is wrong with them. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from regency.kafka.record_batch import (
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    OVERHEAD_BYTES,
    BatchHeader,
    CorruptBatch,
    compute_crc,
    read_header,
)

_OLD_FORMAT_HINT: Final = "Formats 0 and 1 are those of Kafka before 0.11; have the topic copied by a newer producer."


class Corruption(NamedTuple):
    """A batch that cannot be read, the last that was looked at."""

    offset: int
    """The first of the range that is in it."""
    next_offset: int | None
    """Where the next batch begins; None where that is not known."""
    reason: str
    hint: str = ""


class Batches(NamedTuple):
    """Batches of a range, with data in them; control batches are left out."""

    data: memoryview
    headers: list[tuple[int, BatchHeader]]
    """Where each begins in `data`."""
    next_offset: int
    """What is to be fetched next."""
    size: int
    """Bytes that were looked at."""
    corruption: Corruption | None = None


def scan(data: memoryview, position: int, end: int, *, check_crcs: bool, high_watermark: int) -> Batches:
    """Batches with offsets from `position` up to but without `end`, up to the first that is corrupt.

    An incomplete last batch is left for the next fetch. `high_watermark` is the highest offset a batch may begin at.
    """
    headers: list[tuple[int, BatchHeader]] = []
    at = 0
    corruption: Corruption | None = None
    while len(data) - at >= HEADER_BYTES and position < end:
        if data[at + MAGIC_AT] < MAGIC:
            reason = f"its format is {data[at + MAGIC_AT]}, and only {MAGIC} is read"
            corruption = Corruption(position, None, reason, _OLD_FORMAT_HINT)
            break
        try:
            header = read_header(data, at)
        except CorruptBatch as error:
            corruption = Corruption(position, None, error.reason)
            break
        following = at + header.size
        if following > len(data):
            break
        if header.last_offset < position and not headers:
            at = following
            continue
        if headers and header.base_offset < position:
            reason = f"it begins at offset {header.base_offset}, below the end of the one before"
            corruption = Corruption(position, None, reason)
            break
        position = max(position, header.base_offset)  # compaction leaves gaps
        if position >= end:
            break
        if check_crcs and (crc := compute_crc(data, header, at)) != header.crc:
            reason = f"its checksum is {crc:08x}, its producer sent {header.crc:08x}"
            corruption = Corruption(position, _next(data, header, following, high_watermark), reason)
            break
        if header.record_count and not header.is_control:
            headers.append((at, header))
        position = header.next_offset
        at = following
    if not at and corruption is None and position < end and len(data):
        corruption = Corruption(position, None, f"only {len(data)} bytes of it came")
    return Batches(data, headers, position, at, corruption)


def _next(data: memoryview, corrupt: BatchHeader, following: int, high_watermark: int) -> int | None:
    """Where the batch after a corrupt one begins: the header there says so, else the end of the corrupt one."""
    if len(data) - following >= OVERHEAD_BYTES:
        base_offset = int.from_bytes(data[following : following + 8], "big", signed=True)
    else:
        base_offset = corrupt.next_offset
    return base_offset if corrupt.base_offset < base_offset <= high_watermark else None
