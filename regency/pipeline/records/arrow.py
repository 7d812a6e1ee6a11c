"""Columns of bytes that lie scattered in one buffer, as Arrow arrays. The copying is Arrow's, not Python's."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from regency.pipeline.records.varints import Ints, Octets

Mask = npt.NDArray[np.bool_]


def pick(octets: Octets, begins: Ints, ends: Ints, present: Mask) -> pa.Array:
    """The bytes from each position up to its end as a binary column, null where not `present`.

    Positions rise, and no piece overlaps the next; those that are not present are empty. `octets` has less than 2 GiB.

    An array over the whole buffer has every second element in a gap between two pieces: taking the others copies them
    together.
    """
    number = len(begins)
    if number == 0 or not present.any():
        return pa.nulls(number, pa.binary())
    bounds = np.empty(2 * number, np.int32)
    bounds[0::2] = begins
    bounds[1::2] = ends
    every = pa.Array.from_buffers(
        pa.binary(), 2 * number - 1, [None, pa.py_buffer(bounds), pa.py_buffer(octets)], null_count=0
    )
    pieces = every.take(numbers(np.arange(0, 2 * number, 2), pa.int64()))
    if present.all():
        return pieces
    return pa.Array.from_buffers(pa.binary(), number, [validity(present), *pieces.buffers()[1:]])


def numbers(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """The same numbers as an Arrow column of the same width, not copied. (`pyarrow.array` and
    `scalar` would import pandas.)"""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], null_count=0)


def repeated(text: str, count: int) -> pa.Array:
    """The same text in so many rows."""
    encoded = text.encode()
    bounds = np.arange(count + 1, dtype=np.int32) * np.int32(len(encoded))
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(encoded * count)], null_count=0
    )


def validity(present: Mask) -> pa.Buffer:
    """Arrow's bitmap of what is not null."""
    return pa.py_buffer(np.packbits(present, bitorder="little"))
