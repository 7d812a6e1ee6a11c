"""Record batches made and read by hand, not with the code under test."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c


def make_batch(records: int, base: int, epoch: int, producer: int, sequence: int, timestamp: int) -> bytes:
    body = bytes(range(20, 100))
    tail = struct.pack(">hiqqqhii", 0, records - 1, timestamp, timestamp, producer, 0, sequence, records) + body
    return struct.pack(">qiibI", base, len(tail) + 9, epoch, 2, crc32c(tail)) + tail


def make_keyed_batch(keys: list[bytes], base: int, epoch: int, producer: int, sequence: int, timestamp: int) -> bytes:
    """A record for each key; the value says where it stands, so that no two are alike. A key of b"-" is deleted."""
    body = b""
    for number, key in enumerate(keys):
        value = None if key.startswith(b"-") else b"%s at %d" % (key, base + number)
        body += make_record(number, key.removeprefix(b"-"), value)
    count = len(keys)
    tail = struct.pack(">hiqqqhii", 0, count - 1, timestamp, timestamp, producer, 0, sequence, count) + body
    return struct.pack(">qiibI", base, len(tail) + 9, epoch, 2, crc32c(tail)) + tail


def make_record(number: int, key: bytes, value: bytes | None) -> bytes:
    """All lengths fit into one byte."""
    valued = b"\x01" if value is None else bytes([2 * len(value)]) + value
    record = bytes([0, 0, 2 * number, 2 * len(key)]) + key + valued + b"\0"
    return bytes([2 * len(record)]) + record


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        octet = data[at]
        at += 1
        value |= (octet & 127) << shift
        shift += 7
        if octet < 128:
            return (value >> 1) ^ -(value & 1), at


class Batch(NamedTuple):
    """A batch as it stands in a log."""

    base: int
    following: int
    epoch: int
    data: bytes

    def records(self) -> Iterator[tuple[int, bytes, bytes | None]]:
        """Offset, key and value of every record."""
        at = 61
        while at < len(self.data):
            size, at = read_varint(self.data, at)
            end = at + size
            _, at = read_varint(self.data, at + 1)
            delta, at = read_varint(self.data, at)
            size, at = read_varint(self.data, at)
            key, at = self.data[at : at + size], at + size
            size, at = read_varint(self.data, at)
            yield self.base + delta, key, None if size < 0 else self.data[at : at + size]
            at = end

    @staticmethod
    def all_in(content: bytes) -> Iterator[Batch]:
        """The whole and sound batches at the beginning of `content`. By hand, not with the code under test."""
        while len(content) >= 61:
            base, size, epoch, _, crc = struct.unpack_from(">qiibI", content)
            if size < 49 or len(content) < 12 + size or crc32c(content[21 : 12 + size]) != crc:
                break
            (last,) = struct.unpack_from(">i", content, 23)
            yield Batch(base, base + last + 1, epoch, content[: 12 + size])
            content = content[12 + size :]


def unstamped(data: bytes) -> bytearray:
    return bytearray(bytes(8) + data[8:12] + b"\xff" * 4 + data[16:])
