"""Snapshots of a log's producers (`.snapshot`): Kafka's version 1, fixed entries under a CRC-32C."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from regency.kafka.logfiles.checkpoints import CheckpointMalformed
from regency.model.ids import Offset

_VERSION = 1
_PREFIX = struct.Struct(">hIi")
_CRC_ENDS_AT = 6
_ENTRY = struct.Struct(">qhiqiqiq")
_NO_COORDINATOR = -1
_NO_TRANSACTION = -1


class SnapshotEntry(NamedTuple):
    """An entry of a snapshot: one remembered batch of a producer, or a producer without any (sequence -1)."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


def encode_snapshot(batches: Iterable[tuple[int, int, int, Offset, int, int]]) -> bytes:
    """Content of a snapshot: an entry for each (producer id, epoch, last sequence, last offset, offset delta,
    timestamp) in order, of no transaction.
    """
    entries = bytearray()
    for batch in batches:
        entries += _ENTRY.pack(*batch, _NO_COORDINATOR, _NO_TRANSACTION)
    count = struct.pack(">i", len(entries) // _ENTRY.size)
    return struct.pack(">hI", _VERSION, crc32c(count + entries)) + count + entries


def snapshot_entries(path: Path, content: bytes) -> list[SnapshotEntry]:
    """Entries of a snapshot's content, in order. Raises CheckpointMalformed naming `path`."""
    if len(content) < _PREFIX.size:
        raise CheckpointMalformed(path, f"{len(content)} bytes are no snapshot")
    version, crc, count = _PREFIX.unpack_from(content)
    if version != _VERSION:
        raise CheckpointMalformed(path, f"unrecognized version {version}; expected {_VERSION}")
    if crc32c(memoryview(content)[_CRC_ENDS_AT:]) != crc:
        raise CheckpointMalformed(path, "its checksum is wrong")
    if len(content) != _PREFIX.size + count * _ENTRY.size:
        raise CheckpointMalformed(path, f"{count} entries do not fill {len(content)} bytes")
    return [SnapshotEntry._make(entry) for entry in _ENTRY.iter_unpack(memoryview(content)[_PREFIX.size :])]
