"""In which partition of an internal topic a group or a transactional id is kept."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""Where groups and their committed offsets are kept."""


@lru_cache(10_000)
def java_hash(text: str) -> int:
    """Java's `String.hashCode`: 32 bits with a sign, over UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    result = 0
    for position in range(0, len(units), 2):
        result = (31 * result + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return result - (1 << 32) if result >> 31 else result


def partition_of(name: str, partitions: int) -> int:
    """The partition, of so many (1 or more), of a group or transactional id. Source: GroupMetadataManager.partitionFor.

    Every broker must take the same number, and it must never change: each group would be looked for elsewhere.
    """
    value = java_hash(name)
    return 0 if value == -(1 << 31) else abs(value) % partitions
