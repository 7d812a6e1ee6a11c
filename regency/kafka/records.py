"""The records in a RecordBatch v2, for brokers that write and read batches of their own: keys and values, no headers.

What is read is not trusted to be well made, only to be what its checksum says. Layout: KIP-98.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from kafka import codec as codecs
from kafka.record.default_records import DefaultRecordBatch

from regency.kafka.record_batch import (
    HEADER_BYTES,
    MAGIC,
    OVERHEAD_BYTES,
    BatchHeader,
    Buffer,
    CorruptBatch,
    compute_crc,
)
from regency.model.errors import RegencyError

KeyAndValue: TypeAlias = tuple[bytes | None, bytes | None]

NO_CODEC, GZIP, SNAPPY, LZ4, ZSTD = range(5)
_GZIP_WINDOW: Final = 31
"""zlib's window of 2^15 bytes, in gzip's wrapping."""
MOST_BYTES: Final = 256 << 20
"""Largest batch that is inflated."""
_LIBRARIES: Final = {
    SNAPPY: (codecs.has_snappy, codecs.snappy_decode, "snappy", "python-snappy"),
    LZ4: (codecs.has_lz4, codecs.lz4_decode, "lz4", "lz4"),
    ZSTD: (codecs.has_zstd, codecs.zstd_decode, "zstd", "zstandard"),
}

_HEADER = struct.Struct(">qiibIhiqqqhii")
_NO_EPOCH: Final = -1
_NO_PRODUCER: Final = -1
_LONGEST_VARINT: Final = 63


class WholeRecord(NamedTuple):
    """A record at its place; `timestamp` in ms."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class CodecMissing(RegencyError):
    """A batch is compressed in a way that needs a library that is not installed."""

    code = "codec_missing"


def encode_batch(records: Sequence[tuple[bytes, bytes | None]], timestamp_ms: int, codec: int = NO_CODEC) -> bytearray:
    """A plain batch of these records (1 or more), all of one time, without a producer; `codec`: NO_CODEC or GZIP.

    Its place, offset and leader epoch, is its log's to give.
    """
    body = bytearray()
    for number, (key, value) in enumerate(records):
        record = b"\0\0" + _varint(number) + _sized(key) + _sized(value) + b"\0"
        body += _varint(len(record))
        body += record
    if codec == GZIP:
        deflating = zlib.compressobj(wbits=_GZIP_WINDOW)
        body = bytearray(deflating.compress(body) + deflating.flush())
    length = HEADER_BYTES - OVERHEAD_BYTES + len(body)
    last = len(records) - 1
    header = BatchHeader(
        0, length, _NO_EPOCH, MAGIC, 0, codec, last, timestamp_ms, timestamp_ms, _NO_PRODUCER, -1, -1, len(records)
    )
    batch = bytearray(_HEADER.pack(*header)) + body
    _HEADER.pack_into(batch, 0, *header._replace(crc=compute_crc(batch, header)))
    return batch


def iter_records(buffer: Buffer, header: BatchHeader, at: int = 0) -> Iterator[KeyAndValue]:
    """Keys and values of the whole batch at `at`, in order. Raises CorruptBatch, CodecMissing."""
    body = bytes(buffer[at + HEADER_BYTES : at + header.size])
    data = body if header.codec == NO_CODEC else _inflated(body, header.codec, at)
    try:
        yield from _iter(data, header.record_count, at)
    except IndexError:
        raise CorruptBatch(at, "its records go on after its end") from None


def iter_whole_records(batch: Buffer) -> Iterator[WholeRecord]:
    """All there is to the records of one batch, in order, slower; of a control batch nothing.

    Raises what decompressors raise, where it cannot be read.
    """
    read = DefaultRecordBatch(batch)
    for record in () if read.is_control_batch else read:
        yield WholeRecord(record.offset, record.timestamp, record.key, record.value, record.headers)


def _iter(data: bytes, count: int, at: int) -> Iterator[KeyAndValue]:
    """Lengths below 64 have one byte, and most are."""
    size, position = len(data), 0
    for _ in range(count):
        length, position = _read_varint(data, position)
        end = position + length
        if length < 0 or end > size:
            raise CorruptBatch(at, f"a record of {length} bytes begins {size - position} before its end")
        position += 1  # attributes, of which there are none
        while data[position] >= 0x80:  # the timestamp
            position += 1
        position += 1
        while data[position] >= 0x80:  # the offset
            position += 1
        position += 1
        first = data[position]
        if first < 0x80:
            key_size, position = (first >> 1) ^ -(first & 1), position + 1
        else:
            key_size, position = _read_varint(data, position)
        key = data[position : position + key_size] if key_size >= 0 else None
        position += max(key_size, 0)
        first = data[position]
        if first < 0x80:
            value_size, position = (first >> 1) ^ -(first & 1), position + 1
        else:
            value_size, position = _read_varint(data, position)
        if position + max(value_size, 0) > end:
            raise CorruptBatch(at, "a key or value ends after its record")
        yield key, data[position : position + value_size] if value_size >= 0 else None
        position = end


def _inflated(body: bytes, codec: int, at: int) -> bytes:
    if codec == GZIP:
        inflating = zlib.decompressobj(_GZIP_WINDOW)
        try:
            data = inflating.decompress(body, MOST_BYTES)
        except zlib.error as error:
            raise CorruptBatch(at, f"it cannot be inflated: {error}") from error
        if inflating.unconsumed_tail:
            raise CorruptBatch(at, f"it inflates to more than {MOST_BYTES} bytes")
        return data
    if codec not in _LIBRARIES:
        raise CorruptBatch(at, f"its compression {codec} is not one of Kafka's")
    is_there, decode, name, library = _LIBRARIES[codec]
    if not is_there():
        raise CodecMissing(
            f"a batch is compressed with {name}, for which no library is installed",
            hint=f"Install {library} with the pip of this Python.",
        )
    try:
        inflated: bytes = decode(body)
    except Exception as error:  # every library has its own
        raise CorruptBatch(at, f"it cannot be inflated: {error}") from error
    return inflated


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A zig-zag number, and the byte after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > _LONGEST_VARINT:
            raise CorruptBatch(at, "a number goes on for more than ten bytes")


def _varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data
