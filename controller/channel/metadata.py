"""The cluster's metadata as numbered deltas with a snapshot, each encoded once for all brokers.

Written by the controller's thread, read by every sender with a cursor of its own; a lock guards it. A broker that has
no metadata, or too old ones, gets it whole: a snapshot, and what has changed since. Nothing is decided here.
Source: protos/control.proto (UpdateMetadataRequest).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Self

import msgspec

from regency.model.crash_points import crash_point

CHUNK_BYTES = 2 << 20
"""Encoded deltas or pieces of a snapshot that travel in one request, about; 2 MiB."""


class Snapshot(msgspec.Struct, frozen=True):
    """Everything as of delta `as_of`, encoded in pieces, at least one."""

    as_of: int
    pieces: tuple[bytes, ...]


class MetadataLog:
    """Deltas of one controller epoch, numbered from 1, the newest `retained_bytes` kept; and the last snapshot."""

    def __init__(self, *, retained_bytes: int = 16 << 20) -> None:
        self._lock = threading.Lock()
        self._deltas: deque[bytes] = deque()
        self._first = 1
        self._size = 0
        self._retained_bytes = retained_bytes
        self._snapshot: Snapshot | None = None

    @property
    def last(self) -> int:
        """Number of the newest delta, 0 before the first."""
        with self._lock:
            return self._first + len(self._deltas) - 1

    def append(self, deltas: Sequence[bytes]) -> None:
        """Add deltas; the oldest are forgotten when there are too many bytes."""
        crash_point("controller.metadata.before_deltas")
        with self._lock:
            self._deltas.extend(deltas)
            self._size += sum(map(len, deltas))
            while self._size > self._retained_bytes and len(self._deltas) > 1:
                self._size -= len(self._deltas.popleft())
                self._first += 1

    def set_snapshot(self, pieces: Sequence[bytes]) -> None:
        """Keep the pieces as the snapshot of everything up to the newest delta."""
        crash_point("controller.metadata.before_snapshot")
        with self._lock:
            self._snapshot = Snapshot(self._first + len(self._deltas) - 1, tuple(pieces))

    def snapshot(self) -> Snapshot | None:
        """The snapshot, if every delta since it is still kept; None: a new one must be made."""
        with self._lock:
            usable = self._snapshot is not None and self._snapshot.as_of + 1 >= self._first
            return self._snapshot if usable else None

    def read(self, first: int, max_bytes: int = CHUNK_BYTES) -> list[bytes] | None:
        """Deltas from number `first` on, about `max_bytes`; empty at the end; None where `first` is forgotten."""
        with self._lock:
            if first < self._first:
                return None
            taken: list[bytes] = []
            size = 0
            for number in range(first - self._first, len(self._deltas)):
                size += len(self._deltas[number])
                if taken and size > max_bytes:
                    break
                taken.append(self._deltas[number])
            return taken


class MetadataPart(msgspec.Struct, frozen=True):
    """What one UpdateMetadata says. `deltas` of a snapshot are its pieces too; then it is as of `first_delta` - 1."""

    first_delta: int
    deltas: tuple[bytes, ...]
    snapshot: bool = False
    first_chunk: bool = False
    last_chunk: bool = False


class WholeMetadata:
    """All that is in the log at the moment it is begun, in parts.

    A snapshot may be days old, of a time without topics. So the deltas behind it are sent as pieces of it: a broker
    shows nothing to anybody before the last one.
    """

    def __init__(self, snapshot: Snapshot, as_of: int) -> None:
        self._pieces = snapshot.pieces
        self._first_delta = snapshot.as_of + 1
        self._as_of = as_of
        self._sent = 0
        """Pieces and deltas that were taken."""

    @classmethod
    def begin(cls, log: MetadataLog) -> Self | None:
        """None where the log has no usable snapshot."""
        snapshot = log.snapshot()
        return None if snapshot is None else cls(snapshot, log.last)

    def next_part(self, log: MetadataLog) -> MetadataPart | None:
        """The same until it is taken. None: what comes next is forgotten, begin again."""
        if self._sent < len(self._pieces):
            content = self._pieces[self._sent : self._sent + 1]
        else:
            first = self._first_delta + self._sent - len(self._pieces)
            deltas = log.read(first)
            if deltas is None:
                return None
            content = tuple(deltas[: self._as_of + 1 - first])
        return MetadataPart(
            self._as_of + 1,
            content,
            snapshot=True,
            first_chunk=self._sent == 0,
            last_chunk=self._sent + len(content) == len(self._pieces) + self._as_of + 1 - self._first_delta,
        )

    def taken(self, part: MetadataPart) -> None:
        """The broker has it."""
        self._sent += len(part.deltas)
