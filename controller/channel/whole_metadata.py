"""The whole metadata for a broker that has none, or too old a one: a snapshot, and what has changed since.

Source: protos/control.proto (UpdateMetadataRequest).
"""

from __future__ import annotations

from typing import Self

import msgspec

from regency.controller.channel.metadata_log import MetadataLog, Snapshot


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
        """The same until it is taken. None: what comes next is forgotten, begin anew."""
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
