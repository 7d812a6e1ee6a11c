"""Looking for records without keys in a batch that a producer sent: a compacted topic takes none (KIP-58).

One of the two places where a broker looks into records, so every number is bounded and every record by the bytes there
are. What is found sound here can be compacted later.
"""

from __future__ import annotations

from typing import Final

from regency.kafka.compression import NONE, Undecodable, decompress
from regency.kafka.record_batch import HEADER_BYTES, BatchHeader, Buffer, CorruptBatch, crc_matches, read_header
from regency.model.errors import RegencyError
from regency.model.kafka_errors import ErrorCode

MOST_UNPACKED: Final = 64 << 20
"""Bytes that the records of one batch may have once they are unpacked."""

_CODEC_AT: Final = 22
_CODEC_MASK: Final = 7
_INT_GROUPS: Final = 5
_LONG_GROUPS: Final = 10


class RecordsRefused(RegencyError):
    """The records of a batch cannot be compacted. `error` is the code for the producer."""

    code = "records_refused"

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


def records_without_key(records: Buffer) -> list[int]:
    """Numbers, from 0 on, of the records that have no key. None of what is no whole and sound batch: the log says why.

    Raises RecordsRefused: INVALID_RECORD where records are malformed, MESSAGE_TOO_LARGE where they unpack to too much.
    """
    try:
        header = read_header(records)
    except CorruptBatch:
        return []
    if header.size != len(records) or not crc_matches(records, header):
        return []
    try:
        with memoryview(records) as view:
            data = bytes(decompress(header.codec, view[HEADER_BYTES:], MOST_UNPACKED))
        return _without_key(data, header)
    except Undecodable as error:
        too_large = "unpacks to more" in error.message
        code = ErrorCode.MESSAGE_TOO_LARGE if too_large else ErrorCode.INVALID_RECORD
        raise RecordsRefused(code, f"the records of a compacted topic must be readable: {error.message}") from error
    except (IndexError, ValueError) as error:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"a record of the batch is malformed: {error}") from error


def is_quick(records: Buffer, bytes_at_once: int) -> bool:
    """Whether to look takes no time worth mentioning: it is not much, and not compressed."""
    codec = records[_CODEC_AT] & _CODEC_MASK if len(records) > HEADER_BYTES else NONE
    return codec == NONE and len(records) <= bytes_at_once


def _without_key(data: bytes, header: BatchHeader) -> list[int]:
    """Raises IndexError and ValueError where the records are not what they should be."""
    missing: list[int] = []
    at = 0
    for index in range(header.record_count):
        size, at = _varint(data, at, _INT_GROUPS) if data[at] > 127 else (data[at], at + 1)
        end = at + (size >> 1)
        if size & 1 or end > len(data):
            raise ValueError(f"record {index} has no length that is possible")
        _, at = _varint(data, at + 1, _LONG_GROUPS)  # behind its attributes
        delta, at = _varint(data, at, _INT_GROUPS)
        key, at = _varint(data, at, _INT_GROUPS)
        if delta != 2 * index:
            raise ValueError(f"record {index} does not have the offset {index}")
        if key & 1:
            missing.append(index)
        elif at + (key >> 1) >= end:
            raise ValueError(f"record {index} ends within its key")
        at = end
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow the last")
    return missing


def _varint(data: bytes, at: int, most_groups: int) -> tuple[int, int]:
    """The zigzag number at byte `at`, as it stands there, and the byte after it."""
    value = data[at]
    if value < 128:
        return value, at + 1
    value &= 127
    for group in range(1, most_groups):
        octet = data[at + group]
        value |= (octet & 127) << 7 * group
        if octet < 128:
            return value, at + group + 1
    raise ValueError(f"a number has more than {most_groups} bytes")
