"""Cuts what a connection receives into frames. Knows no socket, decides nothing but whether a size is allowed."""

from __future__ import annotations

from typing import ClassVar

from regency.model.errors import RegencyError

_LENGTH_BYTES = 4


class FrameOversized(RegencyError):
    """A frame of negative size or of more than the allowed bytes was announced. Nothing was allocated for it."""

    code: ClassVar[str] = "frame_oversized"


class FrameReader:
    """Frames of at most `limit` bytes out of received pieces. Memory grows with what arrives, not with promises."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._received = memoryview(b"")
        self._length = bytearray()
        self._size: int | None = None
        self._partial = bytearray()

    @property
    def has_input(self) -> bool:
        """Whether received bytes wait to be looked at."""
        return len(self._received) > 0

    @property
    def is_inside_frame(self) -> bool:
        """Whether the end of the input, if it came now, would cut a frame in two."""
        return self.has_input or len(self._length) > 0

    @property
    def partial_bytes(self) -> int:
        """Received of a frame of which more is to come."""
        return len(self._partial)

    def feed(self, data: bytes) -> None:
        """Take what was received."""
        self._received = memoryview(bytes(self._received) + data if self._received else data)

    def next_frame(self) -> memoryview | None:
        """The next complete frame, without its length; None until more is received. Raises FrameOversized."""
        if self._size is None:
            self._size = self._read_length()
            if self._size is None:
                return None
        if not self._partial and len(self._received) >= self._size:
            frame = self._take(self._size)
        else:
            self._partial += self._take(self._size - len(self._partial))
            if len(self._partial) < self._size:
                return None
            frame, self._partial = memoryview(self._partial), bytearray()
        self._size = None
        self._length.clear()
        return frame

    def _read_length(self) -> int | None:
        self._length += self._take(_LENGTH_BYTES - len(self._length))
        if len(self._length) < _LENGTH_BYTES:
            return None
        size = int.from_bytes(self._length, "big", signed=True)
        if not 0 <= size <= self._limit:
            raise FrameOversized(f"A request of {size} bytes was announced, at most {self._limit} are taken.")
        return size

    def _take(self, count: int) -> memoryview:
        taken, self._received = self._received[:count], self._received[count:]
        return taken
