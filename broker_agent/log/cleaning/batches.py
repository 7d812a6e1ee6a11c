"""A piece of a log for a cleaning: whole batches, checked, their records in the plain side by side."""

from __future__ import annotations

from typing import Final, NamedTuple

from regency.broker_agent.log.cleaning.records import PADDING, Records, Span, Unreadable, scan
from regency.broker_agent.log.errors import Uncleanable
from regency.kafka.compression import Undecodable, decompress
from regency.kafka.record_batch import HEADER_BYTES, BatchHeader, Buffer, crc_matches, iter_batches

MOST_UNPACKED: Final = 256 << 20
"""Bytes that the records of one batch may have once they are unpacked."""

_ENOUGH_UNPACKED: Final = 32 << 20
"""Where a piece has so many, it ends."""


class Piece(NamedTuple):
    """Batches one after another: `source` is how they are on the disk, `plain` has their records."""

    source: memoryview
    plain: Buffer
    places: list[tuple[int, BatchHeader]]
    """Byte in `source`, and header, of every batch."""
    records: Records
    size: int
    """Bytes of `source` that these batches are."""


def read_piece(source: bytes, path: str, position: int) -> Piece:
    """The whole batches that `source` begins with, which was read at byte `position` of the file at `path`.

    Fewer where they unpack to very much. Raises Uncleanable, and CorruptBatch at bytes that are none.
    """
    view = memoryview(source)
    places: list[tuple[int, BatchHeader]] = []
    spans: list[Span] = []
    parts: list[Buffer] = []
    copied = unpacked = size = grown = 0
    for at, header in iter_batches(view):
        if not crc_matches(view, header, at):
            raise Uncleanable(f"{path}: the checksum of the batch at byte {position + at} is wrong.")
        start, size = at + HEADER_BYTES, at + header.size
        first = start + grown
        if header.codec and header.record_count:
            try:
                body = decompress(header.codec, view[start:size], MOST_UNPACKED)
            except Undecodable as error:
                raise Uncleanable(f"{path}: the batch at byte {position + at}: {error}.") from error
            parts += (view[copied:start], body)
            copied, grown, unpacked = size, grown + len(body) - (size - start), unpacked + len(body)
        places.append((at, header))
        spans.append(Span(first, size + grown, header.record_count, header.base_offset, header.last_offset_delta))
        if unpacked > _ENOUGH_UNPACKED:
            break
    plain = b"".join((*parts, view[copied:size], PADDING))
    try:
        records = scan(plain, spans)
    except Unreadable as error:
        at, header = places[error.batch]
        raise Uncleanable(
            f"{path}: the batch of offset {header.base_offset} at byte {position + at}: {error.reason}."
        ) from error
    return Piece(view[:size], plain, places, records, size)
