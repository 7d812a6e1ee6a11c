"""Record batches of the simulated workload: uncompressed, no keys, the value is a number in decimal."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from crc32c import crc32c

from regency.judge.operations import Run
from regency.kafka.record_batch import HEADER_BYTES, MAGIC, OVERHEAD_BYTES

_BEFORE_CRC = struct.Struct(">qiibI")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_READ = struct.Struct(">qiibIhi30xi")
_BYTES_BEFORE_CRC_END = 9
_CRC_END = 21

_SMALL = 0x80
"""A varint below this takes one byte; everything here does."""
_VALUE_AT = 6


class RecordsCorrupt(Exception):
    """A consumer was given bytes that no client of the simulation has written."""


def build_batch(
    values: Sequence[int], *, timestamp_ms: int, producer_id: int = -1, producer_epoch: int = -1, sequence: int = -1
) -> bytes:
    """A batch of one record for each value, as a producer sends it: its base offset is 0."""
    body = bytearray()
    for delta, value in enumerate(values):
        text = b"%d" % value
        size = len(text)
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
