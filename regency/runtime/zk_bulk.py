"""Many reads as pipelined MultiReads, in chunks that grow and shrink with the size of the replies. Passive.

A MultiRead stalls what is behind it and its reply is held in the server's memory at once, so a chunk aims at
TARGET_REPLY_BYTES and never has more than MAX_PATHS paths; the first ones are small, because nothing is known yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

MAX_PATHS: Final = 500
FIRST_PATHS: Final = 32
MAX_REQUEST_BYTES: Final = 256 * 1024
TARGET_REPLY_BYTES: Final = 512 * 1024
WINDOW: Final = 4
"""Requests under way at a time: enough that the server never waits for us."""


class ChunkPlan:
    """Cuts a list of paths into requests."""

    def __init__(self, paths: Sequence[str], *, max_paths: int = MAX_PATHS) -> None:
        self._paths = paths
        self._next = 0
        self._max_paths = max_paths
        self._limit = min(FIRST_PATHS, max_paths)

    @property
    def done(self) -> bool:
        """Whether every path is in a chunk."""
        return self._next >= len(self._paths)

    def next(self) -> Sequence[str]:
        """The next chunk, at least one path; call only while not `done`."""
        chunk = self._paths[self._next : self._next + self._limit]
        if sum(map(len, chunk)) + 16 * len(chunk) > MAX_REQUEST_BYTES:
            sizes = accumulate(len(path) + 16 for path in chunk)
            fitting = sum(size <= MAX_REQUEST_BYTES for size in sizes)
            chunk = chunk[: max(fitting, 1)]
        self._next += len(chunk)
        return chunk

    def learn(self, paths: int, reply_bytes: int) -> None:
        """A chunk of `paths` paths gave a reply of that size: the next ones aim at the target, at most doubling."""
        fitting = TARGET_REPLY_BYTES * paths // max(reply_bytes, 1)
        self._limit = max(1, min(fitting, self._limit * 2, self._max_paths))
