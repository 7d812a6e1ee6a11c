"""The last offset of every key of the dirty part: a hash table of a fixed size, filled and asked by the thousand.

24 bytes a slot: 16 of the key's hash, 8 of its offset, as Kafka's SkimpyOffsetMap. The hash is multilinear over
words of 32 bits, with multipliers drawn anew for every map: two keys, whatever they are, have the same one with a
probability of 2**-128 (Lemire and Kaser, "Strongly universal string hashing is fast"), so nobody can choose keys
that take each other's place; keys longer than `_MOST_BYTES` are told apart by their BLAKE2b digests.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any, Final

import numpy as np

from regency.broker_agent.log.cleaning.records import Bits, Flags, Numbers
from regency.kafka.record_batch import Buffer
from regency.model.ids import Offset

SLOT_BYTES: Final = 24

_MOST_BYTES: Final = 512
_LANES: Final = 4
_WORDS: Final = _MOST_BYTES // 4 + 2
_LOW: Final = np.uint64(0xFFFFFFFF)
_HIGH: Final = np.uint64(32)
_MASKS: Final = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
_FEWEST_SLOTS: Final = 64
_MOST_OFFSETS_PER_SLOT: Final = 24


class OffsetMap:
    """Offsets by hash of key. Never more than `capacity` keys: who puts some in asks before what there is room for."""

    def __init__(self, memory_bytes: int, load_factor: float, most_keys: int, secret: bytes = b"") -> None:
        """Takes no more than `memory_bytes`, and less where there cannot be more than `most_keys` keys.

        `secret` is for tests: maps with the same one hash alike.
        """
        slots = min(memory_bytes // SLOT_BYTES, int(most_keys / load_factor) + _FEWEST_SLOTS)
        self._slots = _prime_below(max(slots, _FEWEST_SLOTS))
        self.capacity = max(1, int(self._slots * load_factor))
        self._table = np.zeros((self._slots, 3), np.uint64)
        """Two halves of the hash, and the offset plus one: a slot of zeros is free."""
        self.size = 0
        seed = secret or secrets.token_bytes(32)
        self._factors = np.frombuffer(hashlib.shake_256(seed).digest(8 * _LANES * (_WORDS + 1)), np.uint64).reshape(
            _LANES, _WORDS + 1
        )

    @property
    def room(self) -> int:
        """How many keys can still be put in."""
        return self.capacity - self.size

    @property
    def fill(self) -> float:
        """Share of its capacity that is used."""
        return self.size / self.capacity

    def hashes(self, data: Buffer, at: Numbers, sizes: Numbers) -> Bits:
        """Two halves of the hash of each key: `sizes` bytes from `at`, none negative. `data` ends with PADDING."""
        found = np.empty((len(at), 2), np.uint64)
        if not len(at):
            return found
        words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))  # one begins at every byte
        long = np.flatnonzero(sizes > _MOST_BYTES)
        if long.size:
            short = np.flatnonzero(sizes <= _MOST_BYTES)
            found[short] = self.hashes(data, at[short], sizes[short])
            view = memoryview(data)
            for each, start, size in zip(long.tolist(), at[long].tolist(), sizes[long].tolist(), strict=True):
                digest = hashlib.blake2b(view[start : start + size], digest_size=16).digest()
                found[each] = np.frombuffer(digest, np.uint64)
            return found
        factors = self._factors
        sums = [factors[lane, 0] + factors[lane, 1] * sizes.astype(np.uint64) for lane in range(_LANES)]
        least, most = int(sizes.min()), int(sizes.max())
        for begin in range(0, most, 8):
            some: Any = slice(None) if least > begin else np.flatnonzero(sizes > begin)
            word = words[at[some] + begin]  # not `take`, which would copy all of them
            if least < begin + 8:
                word &= _MASKS.take(np.minimum(sizes[some] - begin, 8))
            low, high = word & _LOW, word >> _HIGH
            factor = 2 + begin // 4
            for lane in range(_LANES):
                sums[lane][some] += low * factors[lane, factor] + high * factors[lane, factor + 1]
        found[:, 0] = (sums[0] & ~_LOW) | (sums[1] >> _HIGH)
        found[:, 1] = (sums[2] & ~_LOW) | (sums[3] >> _HIGH)
        return found

    def put(self, hashes: Bits, offsets: Numbers) -> None:
        """Note the offset of each key; of several of one key the greatest counts. There must be room for all."""
        if len(hashes) > self.room:
            raise ValueError(f"{len(hashes)} keys have no room in a map that takes {self.room} more")
        slots, steps = self._places(hashes)
        rows = np.column_stack((hashes, (offsets + 1).view(np.uint64)))
        table, values = self._table, self._table[:, 2]
        while len(rows):
            there = table.take(slots, axis=0)
            is_free = there[:, 2] == 0
            is_same = (there[:, 0] == rows[:, 0]) & (there[:, 1] == rows[:, 1]) & ~is_free
            same = np.flatnonzero(is_same)
            _raise_to(values, slots[same], rows[same, 2])
            free = np.flatnonzero(is_free)
            if free.size:
                values[slots[free]] = rows[free, 2]  # of several that want one slot, one gets it
                won = free[values[slots[free]] == rows[free, 2]]
                table[slots[won], :2] = rows[won, :2]
                self.size += len(won)
                is_same[won] = True
            taken = ~is_same & ~is_free
            slots[taken] = (slots[taken] + steps[taken]) % self._slots
            left = ~is_same
            rows, slots, steps = rows[left], slots[left], steps[left]

    def get(self, hashes: Bits) -> Numbers:
        """The offset of each key; -1 for those that are not here."""
        found = np.full(len(hashes), -1, np.int64)
        slots, steps = self._places(hashes)
        wanted = np.arange(len(hashes))
        while wanted.size:
            there = self._table.take(slots, axis=0)
            is_used = there[:, 2] != 0
            is_same = is_used & (there[:, 0] == hashes[wanted, 0]) & (there[:, 1] == hashes[wanted, 1])
            found[wanted[is_same]] = there[is_same, 2].view(np.int64) - 1
            left = is_used & ~is_same
            wanted, slots, steps = wanted[left], slots[left], steps[left]
            slots = (slots + steps) % self._slots
        return found

    def survivors(self, start: Offset, end: Offset) -> Flags | None:
        """For each offset from `start` to `end` whether it is one of those here; None where that takes much memory.

        Of the records that were put in, those at these offsets are the last of their keys.
        """
        if end - start > _MOST_OFFSETS_PER_SLOT * self._slots:
            return None
        flags = np.zeros(end - start, np.bool_)
        values = self._table[:, 2]
        flags[values[values != 0].view(np.int64) - 1 - start] = True
        return flags

    def _places(self, hashes: Bits) -> tuple[Numbers, Numbers]:
        """Where to look first, and how far on from there: no multiple of it is the number of slots, a prime."""
        slots = (hashes[:, 0] % np.uint64(self._slots)).astype(np.int64)
        steps = (hashes[:, 1] % np.uint64(self._slots - 1)).astype(np.int64) + 1
        return slots, steps


def _raise_to(values: Bits, places: Numbers, wanted: Bits) -> None:
    """Have each of these values be no less than what is wanted; in which order numpy writes is not said."""
    while places.size:
        lower = values[places] < wanted
        places, wanted = places[lower], wanted[lower]
        values[places] = wanted


def _prime_below(limit: int) -> int:
    """The greatest prime that is not above `limit`, which is 2 or more."""
    return next(each for each in range(limit, 1, -1) if all(each % by for by in range(2, int(each**0.5) + 1)))
