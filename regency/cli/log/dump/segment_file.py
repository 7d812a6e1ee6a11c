"""A segment's file read in pieces of 1 MiB, however large it is: headers of its batches, and their checksums."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from crc32c import crc32c

from regency.kafka.record_batch import HEADER_BYTES, BatchHeader, read_header

CHUNK = 1 << 20
_CHECKED_FROM = 21
"""The checksum covers everything of a batch from here on."""


class SegmentFile:
    """Read only; a broker may append to it meanwhile, which is not looked at. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._fd).st_size
        """When it was opened."""
        self._held = b""
        self._held_at = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def read(self, size: int, position: int) -> memoryview:
        """Bytes from `position`, fewer only at the end of the file."""
        start = position - self._held_at
        if start < 0 or start + size > len(self._held):
            self._held, self._held_at, start = os.pread(self._fd, max(size, CHUNK), position), position, 0
        return memoryview(self._held)[start : start + size]

    def grown_to(self, size: int) -> bool:
        """Whether the file has `size` bytes by now: what ended in the middle of a batch may only have been early."""
        if os.fstat(self._fd).st_size < size:
            return False
        self.size = max(self.size, size)
        self._held = b""
        return True

    def headers(self) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every whole batch, bodies unseen. Raises CorruptBatch at bytes that are no batch."""
        position = 0
        while position + HEADER_BYTES <= self.size:
            header = self.header(position)
            if header is None or position + header.size > self.size:
                return
            yield position, header
            position += header.size

    def header(self, position: int) -> BatchHeader | None:
        """The header at `position`; None where the file ends before its end. Raises CorruptBatch."""
        held = self.read(HEADER_BYTES, position)
        if len(held) < HEADER_BYTES:
            return None
        return read_header(held)

    def checksum(self, position: int, header: BatchHeader) -> int:
        """CRC-32C of the batch there, as it is."""
        crc, at, end = 0, position + _CHECKED_FROM, position + header.size
        while at < end:
            piece = self.read(min(end - at, CHUNK), at)
            if not piece:
                break  # cut off meanwhile: no checksum will fit
            crc = crc32c(piece, crc)
            at += len(piece)
        return crc
