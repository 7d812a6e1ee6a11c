"""Entries of fixed size in an index's file, read in pieces. Kafka's brokers fill the rest of an open one with zeros."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from regency.cli.log.dump.sink import Sink

_ENTRIES_AT_ONCE = 8192


class Entries:
    """Read only. What a broker appends after it was opened is not looked at. Raises OSError."""

    def __init__(self, path: Path, entry: struct.Struct, sink: Sink) -> None:
        self._path = path
        self._entry = entry
        self._sink = sink
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._fd).st_size

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._fd)

    def check_size(self) -> bool:
        """Whether the file is a whole number of entries; else that is reported."""
        left = self.size % self._entry.size
        if left:
            what = f"{self.size} bytes are no whole number of {self._entry.size}-byte entries"
            self._sink.damage(self._path, "size", what, self.size - left)
        return not left

    def __iter__(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Position and fields of each entry, up to the zeros that fill the file."""
        size = self._entry.size
        whole, at = self.size - self.size % size, 0
        while at < whole:
            piece = os.pread(self._fd, min(_ENTRIES_AT_ONCE * size, whole - at), at)
            piece = piece[: len(piece) - len(piece) % size]
            if not piece:
                return  # cut off meanwhile
            for start in range(0, len(piece), size):
                if not any(piece[start : start + size]):
                    self._check_rest(at + start, whole)
                    return
                yield at + start, self._entry.unpack_from(piece, start)
            at += len(piece)

    def _check_rest(self, at: int, end: int) -> None:
        """What follows an empty entry must be empty too."""
        size = self._entry.size
        first = at
        while at < end:
            piece = os.pread(self._fd, min(_ENTRIES_AT_ONCE * size, end - at), at)
            if not piece:
                return
            if any(piece):
                what = "an empty entry, and entries after it"
                self._sink.damage(self._path, "empty_entry", what, first)
                return
            at += len(piece)
