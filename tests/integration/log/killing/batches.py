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


class Batch(NamedTuple):
    """A batch as it stands in a log."""

    base: int
    following: int
    epoch: int
    data: bytes

    @staticmethod
    def all_in(content: bytes) -> Iterator[Batch]:
        """The whole and sound batches at the beginning of `content`. By hand, not with the code under test."""
        while len(content) > 61:
            base, size, epoch, _, crc = struct.unpack_from(">qiibI", content)
            if size <= 49 or len(content) < 12 + size or crc32c(content[21 : 12 + size]) != crc:
                break
            (last,) = struct.unpack_from(">i", content, 23)
            yield Batch(base, base + last + 1, epoch, content[: 12 + size])
            content = content[12 + size :]


def unstamped(data: bytes) -> bytearray:
    return bytearray(bytes(8) + data[8:12] + b"\xff" * 4 + data[16:])
