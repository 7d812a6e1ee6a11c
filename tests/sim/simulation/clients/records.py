"""Record batches of the simulated workload: uncompressed, the value is a number in decimal, without a key.

In compacted topics there are keys, and some records delete theirs; then the number stands in a header.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from regency.judge.operations import Run
from regency.kafka.record_batch import HEADER_BYTES, MAGIC, OVERHEAD_BYTES

_BASE = struct.Struct(">q")
_BEFORE_CRC = struct.Struct(">qiibI")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_READ = struct.Struct(">qiibIhi30xi")
_BYTES_BEFORE_CRC_END = 9
_CRC_END = 21

KEYS = 6
DELETING = 6
"""Every so many values delete their keys."""
_SMALL = 0x80
"""A varint below this takes one byte; everything here does."""
_VALUE_AT = 6


class RecordsCorrupt(Exception):
    """A consumer was given bytes that no client of the simulation has written."""


def build_batch(
    values: Sequence[int],
    *,
    timestamp_ms: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    keyed: bool = False,
) -> bytes:
    """A batch of one record for each value, as a producer sends it: its base offset is 0."""
    body = bytearray()
    for delta, value in enumerate(values):
        text = b"%d" % value
        size = len(text)
        if keyed:
            key = key_of(value).encode()
            content = bytes((size << 1,)) + text
            content = b"\1\2" + content + b"\1" if value % DELETING == 0 else content + b"\0"
            record = bytes((0, 0, delta << 1, len(key) << 1)) + key + content
            body += bytes((len(record) << 1,)) + record
            continue
        body += bytes(((_VALUE_AT + size) << 1, 0, 0, delta << 1, 1, size << 1))
        body += text
        body.append(0)
    count = len(values)
    checked = _AFTER_CRC.pack(
        0, count - 1, timestamp_ms, timestamp_ms, producer_id, producer_epoch, sequence, count
    ) + bytes(body)
    head = _BEFORE_CRC.pack(0, _BYTES_BEFORE_CRC_END + len(checked), -1, MAGIC, crc32c(checked))
    return head + checked


def values_in(records: bytes) -> list[tuple[int, int]]:
    """(offset, value) of every record of the whole batches. Raises RecordsCorrupt at what `build_batch` cannot make."""
    found: list[tuple[int, int]] = []
    at, end = 0, len(records)
    while end - at >= HEADER_BYTES:
        base, length, _, magic, crc, attributes, last_delta, count = _READ.unpack_from(records, at)
        following = at + length + OVERHEAD_BYTES
        if following > end:
            break
        if magic != MAGIC or attributes & 0x07 or crc32c(records[at + _CRC_END : following]) != crc:
            raise RecordsCorrupt(f"the batch at offset {base} is damaged: format {magic}, attributes {attributes:#x}")
        if last_delta + 1 != count:
            raise RecordsCorrupt(f"the batch at offset {base} has {count} records, and last offset delta {last_delta}")
        position = at + HEADER_BYTES
        for delta in range(count):
            size = records[position + _VALUE_AT - 1]
            if records[position] >= _SMALL or size >= _SMALL or records[position + 3] != delta << 1:
                raise RecordsCorrupt(f"record {delta} of the batch at offset {base} is of another make")
            start = position + _VALUE_AT
            found.append((base + delta, int(records[start : start + (size >> 1)])))
            position += 1 + (records[position] >> 1)
        if position != following:
            raise RecordsCorrupt(f"the batch at offset {base} holds more than its {count} records")
        at = following
    return found


def key_of(value: int) -> str:
    """The key of a value in a compacted topic."""
    return f"k{value * 7 % KEYS}"


def keyed_values_in(records: bytes) -> tuple[list[tuple[int, int]], int]:
    """(offset, value) of every record of the whole batches of a compacted topic, and the offset behind these, or -1.
    Raises RecordsCorrupt.
    """
    behind = -1
    found: list[tuple[int, int]] = []
    at, end = 0, len(records)
    while end - at >= HEADER_BYTES:
        base, length, _, _, crc, _, last_delta, _ = _READ.unpack_from(records, at)
        following = at + length + OVERHEAD_BYTES
        if following > end:
            break
        if crc32c(records[at + _CRC_END : following]) != crc:
            raise RecordsCorrupt(f"the batch at offset {base} is damaged")
        for record in records_of(records[at:following]):
            value = int(record.header if record.value is None else record.value)
            if record.key != key_of(value).encode():
                raise RecordsCorrupt(f"{record} has the key of another one")
            found.append((record.offset, value))
        at, behind = following, base + last_delta + 1
    return found, behind


class Record(NamedTuple):
    """A record of a compacted topic."""

    offset: int
    key: bytes | None
    value: bytes | None
    """None: the key is deleted."""
    header: bytes
    """The name of its first header."""


def records_of(batch: bytes) -> Iterator[Record]:
    """The records of one batch, whichever of them a cleaning has left."""
    (base,) = _BASE.unpack_from(batch)
    at, end = HEADER_BYTES, len(batch)
    while at < end:
        size, at = _varint(batch, at)
        following = at + size
        _, at = _varint(batch, at + 1)  # behind attributes: the timestamp
        delta, at = _varint(batch, at)
        key, at = _octets(batch, at)
        value, at = _octets(batch, at)
        headers, at = _varint(batch, at)
        header = _octets(batch, at)[0] if headers else None
        yield Record(base + delta, key, value, header or b"")
        at = following


def _octets(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        octet = data[at]
        at += 1
        value |= (octet & 127) << shift
        shift += 7
        if octet < 128:
            return (value >> 1) ^ -(value & 1), at


def runs_of(found: Iterable[tuple[int, int]]) -> tuple[Run, ...]:
    """(offset, value) pairs as runs of consecutive offsets, in the order they came."""
    runs: list[Run] = []
    first = expected = -1
    values: list[int] = []
    for offset, value in found:
        if offset != expected:
            if values:
                runs.append(Run(first, tuple(values)))
            first, values = offset, []
        values.append(value)
        expected = offset + 1
    if values:
        runs.append(Run(first, tuple(values)))
    return tuple(runs)
