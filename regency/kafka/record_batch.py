"""The header of a RecordBatch v2, on disk as on the wire: reading, walking, checking and patching it in place.

Nothing here looks at a single record, compresses or decompresses: batches stay opaque from producer to consumer.
Layout: KIP-98; all numbers are big endian. Offsets, the leader epoch and the length lie outside the checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from regency.model.errors import RegencyError
from regency.model.ids import LeaderEpoch, Offset

Buffer = bytes | bytearray | memoryview
"""Bytes that hold batches."""

MAGIC: Final = 2
"""The only format written and accepted."""

HEADER_BYTES: Final = 61
"""Bytes before the first record."""

OVERHEAD_BYTES: Final = 12
"""Bytes before what the length field counts."""

MIN_LENGTH: Final = HEADER_BYTES - OVERHEAD_BYTES
"""Smallest value of the length field: a batch without records."""

MAGIC_AT: Final = 16
"""Where the magic byte is, in every format of Kafka's."""

MAX_SEQUENCE: Final = 2**31 - 1
"""After this sequence number comes 0."""

NO_TIMESTAMP: Final = -1
"""A batch without records or without timestamps."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">i")
_PLACE = struct.Struct(">qi11xi")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")

_LENGTH_AT = 8
_LEADER_EPOCH_AT = 12
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35

_CODEC_MASK = 0x07
_LOG_APPEND_TIME_BIT = 0x08
_TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20
_DELETE_HORIZON_BIT = 0x40


class CorruptBatch(RegencyError):
    """These bytes are not a batch of format 2. `position` is where in the buffer or file they begin."""

    code = "corrupt_batch"

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"no record batch at byte {position}: {reason}")
        self.position = position
        self.reason = reason


class BatchHeader(NamedTuple):
    """The fixed part of a batch. Timestamps are wall milliseconds; -1 stands for none throughout."""

    base_offset: int
    length: int
    """Bytes after this field."""
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + OVERHEAD_BYTES

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record."""
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        """Offset after the last record."""
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def codec(self) -> int:
        """Compression: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & _CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record has `max_timestamp` as its timestamp, given by the broker."""
        return bool(self.attributes & _LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether it holds a transaction marker and no data."""
        return bool(self.attributes & _CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int:
        """From when on its records without value, or its marker, may go (KIP-534); -1 where that is not said yet."""
        return self.first_timestamp if self.attributes & _DELETE_HORIZON_BIT else NO_TIMESTAMP

    @property
    def is_compacted(self) -> bool:
        """Whether it may lack records it had: they do not fill its offsets, or its first timestamp is a delete horizon
        (KIP-534).
        """
        return self.record_count != self.last_offset_delta + 1 or bool(self.attributes & _DELETE_HORIZON_BIT)

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, 0 to MAX_SEQUENCE; -1 where the batch has none."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE


def read_header(buffer: Buffer, at: int = 0) -> BatchHeader:
    """The header that begins at byte `at`; the batch itself may be incomplete.

    Raises CorruptBatch where fewer than 61 bytes are left, the length is impossible or the format is not 2.
    """
    try:
        header = BatchHeader._make(_HEADER.unpack_from(buffer, at))
    except struct.error:
        raise CorruptBatch(at, f"{len(buffer) - at} bytes are fewer than a header has") from None
    if header.length < MIN_LENGTH:
        raise CorruptBatch(at, f"its length {header.length} is less than {MIN_LENGTH}")
    if header.magic != MAGIC:
        raise CorruptBatch(at, f"its format is {header.magic}, not {MAGIC}")
    if header.last_offset_delta < 0:
        raise CorruptBatch(at, f"its last offset lies {-header.last_offset_delta} below its first")
    return header


def batch_size(buffer: Buffer, at: int = 0) -> int:
    """Bytes of the whole batch that begins at `at`, of which 12 must be there."""
    length: int = _LENGTH.unpack_from(buffer, at + _LENGTH_AT)[0]
    return length + OVERHEAD_BYTES


def iter_batches(buffer: Buffer, at: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every whole batch from byte `at` on; an incomplete last one ends the walk silently.

    Raises CorruptBatch at bytes that are no batch.
    """
    end = len(buffer)
    while end - at >= HEADER_BYTES:
        header = read_header(buffer, at)
        following = at + header.length + OVERHEAD_BYTES
        if following > end:
            return
        yield at, header
        at = following


def skip_below(buffer: Buffer, offset: Offset, at: int = 0) -> int:
    """Where the first batch from byte `at` on begins that reaches `offset`, or whose header or body is not all there.

    Looks at offsets and lengths only, for bytes that were checked before. Raises CorruptBatch at an impossible length.
    """
    end = len(buffer)
    while end - at >= HEADER_BYTES:
        base_offset, length, last_offset_delta = _PLACE.unpack_from(buffer, at)
        if length < MIN_LENGTH:
            raise CorruptBatch(at, f"its length {length} is less than {MIN_LENGTH}")
        if base_offset + last_offset_delta >= offset:
            break
        at += length + OVERHEAD_BYTES
    return at


def compute_crc(buffer: Buffer, header: BatchHeader, at: int = 0) -> int:
    """CRC-32C of the batch at `at`, over everything after the checksum field."""
    with memoryview(buffer) as view:
        crc: int = crc32c(view[at + _ATTRIBUTES_AT : at + header.length + OVERHEAD_BYTES])
    return crc


def crc_matches(buffer: Buffer, header: BatchHeader, at: int = 0) -> bool:
    """Whether the batch at `at`, which must be whole, is what its producer checked in."""
    return compute_crc(buffer, header, at) == header.crc


def rewritten(header: BatchHeader, body: bytes, record_count: int, max_timestamp: int) -> bytes:
    """A batch of `header`, with length and checksum, for so many of its records. Offsets and sequences stay."""
    size = len(body) + MIN_LENGTH
    fields = header._replace(length=size, record_count=record_count, max_timestamp=max_timestamp, crc=0)
    packed = _HEADER.pack(*fields)
    crc: int = crc32c(body, crc32c(packed[_ATTRIBUTES_AT:]))
    return _HEADER.pack(*fields._replace(crc=crc)) + body


def with_delete_horizon(header: BatchHeader, horizon_ms: int) -> BatchHeader:
    """The header of a batch whose timestamps count from its delete horizon (KIP-534)."""
    return header._replace(first_timestamp=horizon_ms, attributes=header.attributes | _DELETE_HORIZON_BIT)


def without_records(header: BatchHeader) -> bytes:
    """A batch of 61 bytes in its place, which tells of its producer all that it did."""
    attributes = header.attributes & ~(_CODEC_MASK | _DELETE_HORIZON_BIT)
    empty = header._replace(attributes=attributes, first_timestamp=NO_TIMESTAMP)
    return rewritten(empty, b"", 0, header.max_timestamp)


def stamp(buffer: bytearray, base_offset: Offset, leader_epoch: LeaderEpoch, at: int = 0) -> None:
    """Give the batch at `at` its place in the log: base offset and epoch of the leader that appends it."""
    _BASE_OFFSET.pack_into(buffer, at, base_offset)
    _LEADER_EPOCH.pack_into(buffer, at + _LEADER_EPOCH_AT, leader_epoch)


def stamp_log_append_time(buffer: bytearray, header: BatchHeader, now_ms: int, at: int = 0) -> None:
    """Make `now_ms` the timestamp of every record of the batch at `at`, and renew the checksum."""
    _ATTRIBUTES.pack_into(buffer, at + _ATTRIBUTES_AT, header.attributes | _LOG_APPEND_TIME_BIT)
    _TIMESTAMP.pack_into(buffer, at + _MAX_TIMESTAMP_AT, now_ms)
    _CRC.pack_into(buffer, at + _CRC_AT, compute_crc(buffer, header, at))
