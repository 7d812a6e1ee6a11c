"""Which write a record belongs to, as a header of the record tells it, and what makes two records the same. Pure.

The header `regency.sink` holds 37 bytes, big-endian: query id (16), batch id (8), Spark partition (4), position of the
row among those of the task (8), flags (1; bit 0: the row named its partition). With it any reader can tell which write
a record came from, and which records two attempts of one task have both written.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final
from uuid import UUID

import msgspec

HEADER: Final = "regency.sink"
DIGEST_BYTES: Final = 16
EXPLICIT_PARTITION: Final = 1

_WRITE: Final = struct.Struct(">16sq")
_TASK: Final = struct.Struct(">16sqi")
_ROW: Final = struct.Struct(">qB")
_LENGTH: Final = struct.Struct(">q")
HEADER_BYTES: Final = _TASK.size + _ROW.size

Headers = Sequence[tuple[str, bytes | None]]
"""Headers of a record in their order; a key may be there several times."""


class WriteId(msgspec.Struct, frozen=True):
    """One batch of one query: what is written once. A batch write is batch 0 of a query of its own."""

    query: UUID
    batch: int

    @property
    def prefix(self) -> bytes:
        """How headers of this write begin."""
        return _WRITE.pack(self.query.bytes, self.batch)

    def task_prefix(self, task: int) -> bytes:
        """How headers of Spark partition `task` begin; `row_header` ends them."""
        return _TASK.pack(self.query.bytes, self.batch, task)


def row_header(task_prefix: bytes, position: int, *, explicit_partition: bool) -> bytes:
    """The header's value for a row."""
    return task_prefix + _ROW.pack(position, EXPLICIT_PARTITION if explicit_partition else 0)


def task_of(value: bytes) -> int:
    """The Spark partition in a header's value."""
    return int(_TASK.unpack_from(value)[2])


def named_its_partition(value: bytes) -> bool:
    """Whether the row of this header's value came with a partition."""
    return bool(value[-1] & EXPLICIT_PARTITION)


def without_own(headers: Headers | None) -> list[tuple[str, bytes | None]]:
    """Headers but this one: what a row read from such a topic brings along tells of another write."""
    return [header for header in headers or () if header[0] != HEADER]


def digest(topic: str, partition: int | None, key: bytes | None, value: bytes | None, headers: Headers | None) -> bytes:
    """What identifies a record: 16 bytes of BLAKE2b over topic, partition if the row named one, key, value, headers.

    Headers `regency.sink` do not count. Null and empty differ.
    """
    parts: list[bytes | None] = [topic.encode(), None if partition is None else _LENGTH.pack(partition), key, value]
    for name, content in without_own(headers):
        parts += [name.encode(), content]
    state = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        state.update(_LENGTH.pack(-1 if part is None else len(part)))
        state.update(part or b"")
    return state.digest()
