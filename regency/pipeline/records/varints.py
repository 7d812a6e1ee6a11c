"""Varints of many records at once: one step per byte of the longest, whatever the number of records."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Octets = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

INT_BYTES: Final = 5
"""Bytes that a varint of 32 bits has at most."""
LONG_BYTES: Final = 10

BEYOND: Final = 1 << 40
"""Position after a varint that has too many bytes: behind the end of whatever there is."""


def read_varints(octets: Octets, at: Ints, most_bytes: int) -> tuple[Ints, Ints]:
    """The zigzag varint at each position, and the positions after them.

    Never fails: what lies behind the end is read as the last byte is, and a varint of more than `most_bytes` ends at
    BEYOND or after it. A comparison of the last of a record's positions with its end finds both.
    """
    first = octets.take(at, mode="clip")
    values = (first & 0x7F).astype(np.int64)
    after = at + 1
    lanes = np.flatnonzero(first > 0x7F)
    if lanes.size:
        _read_on(octets, lanes, values, after, most_bytes)
    return (values.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(values & 1), after


def _read_on(octets: Octets, lanes: Ints, values: Ints, after: Ints, most_bytes: int) -> None:
    """The further bytes of those that have some."""
    for number in range(1, most_bytes):
        place = after[lanes]
        byte = octets.take(place, mode="clip")
        values[lanes] |= (byte & 0x7F).astype(np.int64) << (7 * number)
        after[lanes] = place + 1
        lanes = lanes[byte > 0x7F]
        if not lanes.size:
            break
    after[lanes] = BEYOND
    if most_bytes == INT_BYTES:
        values &= 0xFFFFFFFF
