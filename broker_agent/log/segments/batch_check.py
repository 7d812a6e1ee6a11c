"""Checking batches on their way out of a file: nothing that was damaged on the disk is handed on as good. Pure.

A checksum covers its batch from the attributes on. What lies before is held against what else is known: the offsets
against the batches around, the leader epoch against the log's epochs, the length by the checksum itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from crc32c import crc32c

from regency.kafka.record_batch import HEADER_BYTES, MAGIC, MIN_LENGTH, OVERHEAD_BYTES
from regency.model.ids import LeaderEpoch

_PLACE: Final = struct.Struct(">qiibI2xi")
_CHECKED_FROM: Final = 21
_NO_EPOCH: Final = -1

NO_END: Final = 2**63 - 1
"""Where the newest leader epoch ends."""


class EpochSpan(NamedTuple):
    """The leader epoch at some offset, None where the log does not know it, and the offset where that ends."""

    epoch: LeaderEpoch | None
    end: int


EpochSpans = Callable[[int], EpochSpan]


class Checked(NamedTuple):
    """Sound batches that some bytes begin with: how many bytes, and the offset after them."""

    size: int
    next_offset: int
    why: str
    """What is wrong with the batch that follows; empty where it is not all there, or reaches the bound."""
    in_line: bool
    """Whether each batch begins where the one before ends, the first at the offset it was looked up by."""


def check_batches(data: bytes, offset: int, bound: int, spans: EpochSpans) -> Checked:
    """Check batch by batch, from the one that should hold `offset` on, up to the first that reaches `bound`.

    Where the batches are not in line they may be good all the same, or one may lie about its offset: `judge_chain`
    tells. So what is returned is in line, or empty of judgement.
    """
    at, expected, why = 0, offset, ""
    epoch_now, epoch_end = _NO_EPOCH, -1
    with memoryview(data) as view:
        end = len(view)
        while end - at >= HEADER_BYTES:
            base, length, epoch, magic, crc, delta = _PLACE.unpack_from(view, at)
            following = at + length + OVERHEAD_BYTES
            why = _header_flaw(length, magic)
            if why or following > end or base + delta >= bound:
                return Checked(at, expected, why, base == expected)
            if crc32c(view[at + _CHECKED_FROM : following]) != crc:
                return Checked(at, expected, "its checksum is wrong", base == expected)
            if base != expected:
                return Checked(at, expected, "", in_line=False)
            if epoch != epoch_now or base >= epoch_end:
                why = _epoch_flaw(base, epoch, spans)
                if why:
                    break
                epoch_now, epoch_end = epoch, spans(base).end
            at, expected = following, base + delta + 1
    return Checked(at, expected, why, in_line=True)


class Link(NamedTuple):
    """One batch of a chain. `why` is empty where nothing is known against it."""

    at: int
    size: int
    base: int
    next_offset: int
    why: str


def judge_chain(data: bytes, before: int | None, follower: Callable[[int], int], spans: EpochSpans) -> list[Link]:
    """Every batch of `data`, which begins with one, and what is wrong with it; too few bytes for a header are left out.

    What precedes `data` ends at offset `before`, if that is known; what follows its byte N begins at `follower(N)`.
    Offsets may be missing between two batches, as compaction leaves them, and never go back: of two batches that
    contradict each other the one is wrong that does not join the one before it. Ends at a batch of which the end is
    not there.
    """
    links: list[Link] = []
    at, end = 0, len(data)
    while end - at >= HEADER_BYTES:
        base, length, epoch, magic, crc, delta = _PLACE.unpack_from(data, at)
        size = length + OVERHEAD_BYTES
        why = _header_flaw(length, magic)
        if not why and at + size > end:
            why = f"its length is {length}, and {end - at} bytes are left"
        if why:
            links.append(Link(at, end - at, base, -1, why))
            return _judged(links, before, base)
        if crc32c(memoryview(data)[at + _CHECKED_FROM : at + size]) != crc:
            why = "its checksum is wrong"
        links.append(Link(at, size, base, base + delta + 1, why or _epoch_flaw(base, epoch, spans)))
        at += size
    return _judged(links, before, follower(at))


def _judged(links: list[Link], ends_at: int | None, follower: int) -> list[Link]:
    judged: list[Link] = []
    for number, link in enumerate(links):
        why = link.why
        if not why and ends_at is not None and link.base < ends_at:
            why = f"offset {link.base} cannot follow {ends_at - 1}"
        after = links[number + 1].base if number + 1 < len(links) else follower
        if not why and after < link.next_offset and (ends_at is None or link.base > ends_at):
            why = f"it says it ends at offset {link.next_offset - 1}, and {after} follows"
        judged.append(link._replace(why=why))
        ends_at = None if why else link.next_offset
    return judged


def _header_flaw(length: int, magic: int) -> str:
    if length < MIN_LENGTH:
        return f"its length {length} is less than {MIN_LENGTH}"
    return f"its format is {magic}, not {MAGIC}" if magic != MAGIC else ""


def _epoch_flaw(base: int, epoch: int, spans: EpochSpans) -> str:
    known = spans(base).epoch
    if known is None or epoch in (known, _NO_EPOCH):
        return ""
    return f"its leader epoch is {epoch}, and leader-epoch-checkpoint has {known} at offset {base}"
