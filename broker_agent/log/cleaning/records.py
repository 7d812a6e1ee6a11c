"""Where the records of many batches begin, and what in them decides whether they stay. No record is a Python object.

The records of a batch are a chain: each says where the next begins. Chains of many batches are followed side by side,
one step at a time; a few long ones that are left over each for itself. All else is read column by column.
Layout of a record: KIP-98. Every number is bounded in groups and every record by its batch: what producers wrote below
a batch's header was not always looked into.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from regency.kafka.record_batch import Buffer
from regency.model.errors import RegencyError

PADDING: Final = bytes(16)
"""What must stand behind the last batch of a buffer: numbers and keys are read in eights."""

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Bits: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"
Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"

_FEW_CHAINS: Final = 12
"""So many are followed one by one: each step costs as much as it does for many."""
_STOPS: Final = np.uint64(0x8080808080808080)
"""Of eight bytes: the bits that are unset in the last byte of a number."""
_ONE: Final = np.uint64(1)
_INT_GROUPS: Final = 5
_LONG_GROUPS: Final = 10
_SHORTEST_RECORD: Final = 7
"""Bytes of a record without key, value and headers, its length among them."""


class Unreadable(RegencyError):
    """The records of a batch are not what its header says. `batch` is its number among those that were looked at."""

    code = "records_unreadable"

    def __init__(self, batch: int, reason: str) -> None:
        super().__init__(reason)
        self.batch = batch
        self.reason = reason


class Span(NamedTuple):
    """The records of one batch: bytes `start` to `end` of a buffer, and how many there are to be."""

    start: int
    end: int
    records: int
    base_offset: int
    last_offset_delta: int


class Records(NamedTuple):
    """Columns: one element per record, in order of the batches, and of offsets in each."""

    firsts: Numbers
    """One per batch: which record is its first. And their number."""
    starts: Numbers
    ends: Numbers
    offsets: Numbers
    key_at: Numbers
    key_sizes: Numbers
    """-1 where there is no key."""
    has_value: Flags


def scan(data: Buffer, spans: Sequence[Span]) -> Records:
    """All records of these batches, none compressed. `data` ends with PADDING, beyond the last. Raises Unreadable."""
    octets = np.frombuffer(data, np.uint8)
    table = np.array(spans, np.int64).reshape(-1, len(Span._fields))
    begins, limits, counts, bases, last_deltas = table.T
    impossible = np.flatnonzero((counts < 0) | (counts * _SHORTEST_RECORD > limits - begins))
    if impossible.size:
        raise _unreadable(impossible, f"{counts[impossible[0]]} records have no room in it")
    firsts = np.zeros(len(spans) + 1, np.int64)
    np.cumsum(counts, out=firsts[1:])
    batch = np.repeat(np.arange(len(spans)), counts)
    starts = _starts(octets, data, table, firsts)
    sizes, at = _varints(octets, starts, _INT_GROUPS)
    ends = at + sizes
    limit = limits[batch]
    deltas, key_sizes, key_at = _deltas_and_keys(octets, data, np.minimum(at + 1, limit))
    value_at = key_at + np.maximum(key_sizes, 0)
    has_value = _sizes_that_are_not_negative(octets, np.minimum(value_at, limit))
    wrong = (ends > limit) | (value_at >= ends) | (key_sizes < -1) | (deltas < 0) | (deltas > last_deltas[batch])
    if wrong.any():
        raise _unreadable(batch[wrong], "a record in it is malformed")
    later = np.flatnonzero(deltas[1:] <= deltas[:-1]) + 1
    if later.size and not np.isin(later, firsts).all():
        raise _unreadable(batch[later[~np.isin(later, firsts)]], "the offsets of its records do not rise")
    return Records(firsts, starts, ends, bases[batch] + deltas, key_at, key_sizes, has_value)


def _deltas_and_keys(octets: Any, data: Buffer, at: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Of records whose timestamp deltas stand at these bytes: offset delta, size of the key, and where that begins.

    The three numbers have eight bytes together at most, but for timestamps of another age: then one by one.
    """
    words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))  # one begins at every byte
    word = words[at]
    stops = ~word & _STOPS
    first = stops & -stops
    stops ^= first
    second = stops & -stops
    stops ^= second
    third = stops & -stops
    if not third.all():
        at = after_numbers(octets, at)
        deltas, at = _varints(octets, at, _INT_GROUPS)
        return deltas, *_varints(octets, at, _INT_GROUPS)
    one, two, three = (np.bitwise_count(stop - _ONE).astype(np.uint64) + _ONE for stop in (first, second, third))
    deltas = _zigzag((word & ((second << _ONE) - _ONE)) >> one)
    key_sizes = _zigzag((word & ((third << _ONE) - _ONE)) >> two)
    return deltas, key_sizes, at + (three >> np.uint64(3)).view(np.int64)


def _zigzag(groups: Bits) -> Numbers:
    """The signed numbers of which these are the groups of seven bits, at most five of them counting."""
    value = groups & np.uint64(0x7F)
    for group in range(1, _INT_GROUPS):
        value |= groups >> np.uint64(group) & np.uint64(0x7F << 7 * group)
    return (value >> _ONE).view(np.int64) ^ -(value & _ONE).view(np.int64)


def timestamps(data: Buffer, starts: Numbers, first_timestamps: Numbers) -> Numbers:
    """Timestamps of the records that begin there; each batch's first is given for each of its records."""
    octets = np.frombuffer(data, np.uint8)
    deltas, _ = _varints(octets, after_numbers(octets, starts) + 1, _LONG_GROUPS)
    return first_timestamps + deltas


def _starts(octets: Any, data: Buffer, table: Numbers, firsts: Numbers) -> Numbers:
    """Where each record begins, by the lengths of those before it."""
    starts = np.empty(firsts[-1], np.int64)
    by_count = np.argsort(-table[:, 2], kind="stable")
    at, limits, left = table[by_count, 0], table[by_count, 1], table[by_count, 2]
    first = firsts[:-1][by_count]
    step, live = 0, int(np.count_nonzero(left))
    falling = -left
    pairs = np.ndarray((len(data) - 1,), "<u2", data, strides=(1,))  # one begins at every byte
    while live > _FEW_CHAINS:
        here = at[:live]
        if (here >= limits[:live]).any():
            raise _unreadable(by_count[:live][here >= limits[:live]], "its records end before it does")
        starts[first[:live] + step] = here
        pair = pairs[here]
        if (pair & 0x8080 == 0x8080).any():
            sizes, behind = _varints(octets, here, _INT_GROUPS)
        else:  # all lengths have one byte or two
            is_long = pair >> 7 & 1
            number = pair & 127 | (pair >> 1 & 0x3F80) * is_long
            sizes, behind = (number >> 1).astype(np.int64), here + 1 + is_long
            sizes[number & 1 > 0] = -1
        if (sizes < 0).any():
            raise _unreadable(by_count[:live][sizes < 0], "a record in it has a negative length")
        at[:live] = behind + sizes
        step += 1
        live = int(np.searchsorted(falling, -step))
    for each in range(live):
        chain = _chain(data, int(at[each]), int(limits[each]), int(left[each]) - step, int(by_count[each]))
        at[each] = chain.pop()
        starts[first[each] + step : first[each] + int(left[each])] = chain
    off = np.flatnonzero(at != limits)
    if off.size:
        raise _unreadable(by_count[off], "its records do not end where it does")
    return starts


def _chain(data: Buffer, at: int, limit: int, count: int, batch: int) -> list[int]:
    """Where the next `count` records begin, and where the last one ends."""
    starts = [at]
    append = starts.append
    for _ in range(count):
        if at >= limit:
            raise Unreadable(batch, "its records end before it does")
        size = data[at]
        at += 1
        if size > 127:
            group = data[at]
            at += 1
            size = size & 127 | (group & 127) << 7
            if group > 127:
                for shift in range(14, 7 * _INT_GROUPS, 7):
                    group = data[at]
                    at += 1
                    size |= (group & 127) << shift
                    if group < 128:
                        break
                else:
                    raise Unreadable(batch, "a length in it has more than five bytes")
        if size & 1:
            raise Unreadable(batch, "a record in it has a negative length")
        at += size >> 1
        append(at)
    return starts


def _varints(octets: Any, at: Numbers, most_groups: int) -> tuple[Numbers, Numbers]:
    """The signed numbers at these bytes, and where each ends. More groups than may be are read as an odd number."""
    first = octets.take(at, mode="clip")
    values = (first & 127).astype(np.uint64)
    ends = at + 1
    longer = np.flatnonzero(first > 127)
    for group in range(1, most_groups):
        if not longer.size:
            break
        octet = octets.take(ends[longer], mode="clip")
        values[longer] |= (octet & 127).astype(np.uint64) << np.uint64(7 * group)
        ends[longer] += 1
        longer = longer[octet > 127]
    return (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64), ends


def after_numbers(octets: Any, at: Numbers) -> Numbers:
    """Where the numbers that begin there end."""
    ends = at + 1
    longer = np.flatnonzero(octets.take(at, mode="clip") > 127)
    for _ in range(1, _LONG_GROUPS):
        if not longer.size:
            break
        octet = octets.take(ends[longer], mode="clip")
        ends[longer] += 1
        longer = longer[octet > 127]
    return ends


def _sizes_that_are_not_negative(octets: Any, at: Numbers) -> Flags:
    first: Any = octets.take(at, mode="clip")
    flags: Flags = first & 1 == 0  # the sign is the lowest bit
    return flags


def _unreadable(batches: Any, reason: str) -> Unreadable:
    return Unreadable(int(np.min(batches)), reason)
