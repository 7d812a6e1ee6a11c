"""Where the records of a batch begin: each begins with its length, so that one leads to the next.

The only thing that has to be followed record by record. Records of equal length, as most producers of fixed-size values
make them, are found many at once; of others two bytes each are looked at.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import numpy as np

from regency.pipeline.records.varints import INT_BYTES, Ints, Octets

SMALLEST_RECORD: Final = 7
"""Bytes: length, attributes, two deltas, key length, value length and number of headers, one each."""

_FIRST_WINDOW: Final = 128
_LARGEST_WINDOW: Final = 1 << 16
"""Records that are taken to be of one length, at a time."""
_WORTHWHILE: Final = 32
"""A run of fewer costs more to find than it saves."""
_LONGEST_PATIENCE: Final = 4096
"""Records that are followed one by one before a run is hoped for again; fewer where the last hope came true."""


_JUMP: Final = [1 + (first >> 1) if first < 0x80 else 2 + ((first & 0x7F) >> 1) for first in range(256)]
"""How far the next record is by the first byte of a length; where there is a second, that times 64 is added. A negative
length is taken for a positive one: who reads the records finds that they are not as long."""


class ChainBroken(Exception):
    """The lengths do not lead from the first byte to the last in as many steps as announced. `record` from 0."""

    def __init__(self, record: int, reason: str) -> None:
        super().__init__(reason)
        self.record = record
        self.reason = reason


def fill_starts(octets: Octets, data: bytes | bytearray, start: int, stop: int, starts: Ints) -> None:
    """Fill in where each of len(starts) records begins, which fill the bytes from `start` up to `stop`.

    `octets` and `data` are the same bytes: the former for many at once, the latter for one after another. Raises
    ChainBroken.
    """
    count = len(starts)
    done, at, patience = 0, start, _WORTHWHILE
    while done < count:
        if count - done >= _WORTHWHILE:
            number, stride = _run(octets, data, at, stop, count - done)
            if number:
                starts[done : done + number] = np.arange(at, at + number * stride, stride)
                done += number
                at += number * stride
            if number >= _WORTHWHILE:
                patience = _WORTHWHILE
                continue  # often another run follows: a delta has grown by a byte
            patience = min(2 * patience, _LONGEST_PATIENCE)
        some, at = _one_by_one(data, at, stop, min(patience, count - done), done)
        starts[done : done + len(some)] = some
        done += len(some)
    if at != stop:
        raise ChainBroken(count, f"{stop - at} bytes are left over after {count} records, as many as are announced")


def _run(octets: Octets, data: bytes | bytearray, at: int, stop: int, most: int) -> tuple[int, int]:
    """How many records from here on are as long as the first, and how long they are; 0 where none was looked for.

    A record whose length has the same bytes ends as far behind as the first does, and there the next begins.
    """
    if stop - at < _WORTHWHILE * SMALLEST_RECORD:
        return 0, 0
    first, second = data[at], data[at + 1]
    if first >= 0x80 and second >= 0x80:
        return 0, 0
    stride = _JUMP[first] + (second << 6 if first >= 0x80 else 0)
    most = min(most, (stop - at) // stride)
    found, window = 0, _FIRST_WINDOW
    while found < most:
        size = min(window, most - found)
        begin = at + found * stride
        same = octets[begin : begin + (size - 1) * stride + 1 : stride] == first
        if first >= 0x80:
            same &= octets[begin + 1 : begin + (size - 1) * stride + 2 : stride] == second
        other = same.argmin()
        if not same[other]:
            return found + int(other), stride
        found += size
        window = min(8 * window, _LARGEST_WINDOW)
    return found, stride


def _one_by_one(data: bytes | bytearray, at: int, stop: int, most: int, done: int) -> tuple[list[int], int]:
    """Positions of so many records, the first of which has number `done`, and the position after the last.

    Looks behind the batch where lengths lead there, and finds out in the end. A tenth of a microsecond for each.
    """
    starts: list[int] = []
    append = starts.append
    jump = _JUMP
    try:
        for _ in range(most):
            append(at)
            first = data[at]
            if first < 0x80:
                at += jump[first]
            else:
                second = data[at + 1]
                if second < 0x80:
                    at += jump[first] + (second << 6)
                else:
                    at = _behind_a_long_one(data, at, stop, done + len(starts) - 1)
    except IndexError:
        at = len(data) + 1
    if at > stop:
        last = bisect_left(starts, stop) - 1
        if last + 1 < len(starts) and starts[last + 1] == stop:
            raise ChainBroken(done + last + 1, "the batch ends where it should begin")
        raise ChainBroken(done + last, "it claims more bytes than the batch has")
    return starts, at


def _behind_a_long_one(data: bytes | bytearray, at: int, stop: int, record: int) -> int:
    """The position after a record whose length takes more than two bytes."""
    length = 0
    for number, byte in enumerate(data[at : min(at + INT_BYTES, stop)]):
        length |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return at + number + 1 + ((length & 0xFFFFFFFF) >> 1)
    raise ChainBroken(record, "its length has no end")
