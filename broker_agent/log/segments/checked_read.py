"""Reading batches out of one segment, checked on every read: a byte may flip on the disk at any time, and nothing that
was damaged there is handed on as good.

A checksum covers its batch from the attributes on. What lies before is held against what else is known: the offsets
against the batches around, the leader epoch against the log's epochs, the length by the checksum itself.
`check_batches` and `judge_chain` are pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from crc32c import crc32c

from regency.broker_agent.log.segments.damage import Flaw
from regency.broker_agent.log.segments.segment import Segment
from regency.kafka.record_batch import (
    HEADER_BYTES,
    MAGIC,
    MIN_LENGTH,
    OVERHEAD_BYTES,
    CorruptBatch,
    batch_size,
    read_header,
)
from regency.model.ids import LeaderEpoch, Offset

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
    """Whether no batch begins below the end of the one before, and the first at the offset it was looked up by."""


def check_batches(data: bytes, offset: int, bound: int, spans: EpochSpans, *, is_joint: bool = False) -> Checked:
    """Check batch by batch, from the one that should hold `offset` on, up to the first that reaches `bound`.

    `is_joint`: a batch is known to end at `offset`, so that the first may begin above it, where records were compacted
    away: else it might be that the batch before lies about its own. What lies upwards contradicts the next.
    Where the batches are not in line they may be good all the same, or one may lie about its offset: `judge_chain`
    tells. So what is returned is in line, or empty of judgement.
    """
    at, expected, why = 0, offset, ""
    highest = NO_END if is_joint else offset
    epoch_now, epoch_end = _NO_EPOCH, -1
    with memoryview(data) as view:
        end = len(view)
        while end - at >= HEADER_BYTES:
            base, length, epoch, magic, crc, delta = _PLACE.unpack_from(view, at)
            following = at + length + OVERHEAD_BYTES
            why = _header_flaw(length, magic)
            in_line = expected <= base <= highest
            if why or following > end or base + delta >= bound:
                return Checked(at, expected, why, in_line)
            if crc32c(view[at + _CHECKED_FROM : following]) != crc:
                return Checked(at, expected, "its checksum is wrong", in_line)
            if not in_line:
                return Checked(at, expected, "", in_line=False)
            if epoch != epoch_now or base >= epoch_end:
                why = _epoch_flaw(base, epoch, spans)
                if why:
                    break
                epoch_now, epoch_end = epoch, spans(base).end
            at, expected, highest = following, base + delta + 1, NO_END
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


_BASE_OFFSET_BYTES: Final = 8


class Wanted(NamedTuple):
    """What to read of a segment: from byte `start`, where the batch begins that reaches `offset`, up to `upper`."""

    offset: Offset
    start: int
    upper: int
    bound: Offset
    """No batch that reaches it is returned."""
    max_bytes: int
    min_one_batch: bool
    """Return the first batch whatever its size."""
    segment_end: Offset
    """Where the next segment begins, or the log ends."""


def read_checked(segment: Segment, wanted: Wanted, spans: EpochSpans) -> tuple[bytes, Flaw | None]:
    """Whole sound batches, and the flaw that ends them or took the place of the first, if there is one."""
    start, available = wanted.start, wanted.upper - wanted.start
    if available <= 0:
        return _judge(segment, wanted, start, spans)
    size = min(available, max(wanted.max_bytes, HEADER_BYTES))
    data = segment.log.read(size, start)
    if len(data) < size:
        return _judge(segment, wanted, segment.size, spans)
    if available > wanted.max_bytes and size >= HEADER_BYTES:
        first = batch_size(data)
        if wanted.max_bytes < first <= available and not wanted.min_one_batch:
            return b"", None
        if len(data) < first <= available and _joins(segment, data, start + first):
            data = segment.log.read(first, start)
    checked = check_batches(data, wanted.offset, wanted.bound, spans, is_joint=segment.ends_at(wanted.offset))
    if not (checked.size and checked.in_line and _is_in_line_with_next(segment, wanted, data, checked)):
        return _judge(segment, wanted, start + len(data), spans)
    segment.remember(checked.next_offset, start + checked.size)
    flaw = None
    if checked.why:
        flaw = Flaw(segment.log.path, start + checked.size, checked.why, Offset(checked.next_offset))
    return data if checked.size == len(data) else data[: checked.size], flaw


def _joins(segment: Segment, first: bytes, following: int) -> bool:
    """Whether a large batch ends where the next begins: else its length is wrong, and may stand for the whole file."""
    try:
        return following == segment.size or segment.header_at(following).base_offset >= read_header(first).next_offset
    except CorruptBatch:
        return False


def _is_in_line_with_next(segment: Segment, wanted: Wanted, data: bytes, checked: Checked) -> bool:
    """Whether the next batch does not begin below where the last one checked ends; known if its header was there."""
    if len(data) - checked.size >= HEADER_BYTES:
        return True
    return _follower(segment, wanted, wanted.start + checked.size) >= checked.next_offset


def _follower(segment: Segment, wanted: Wanted, position: int) -> int:
    """Offset of what begins at byte `position`."""
    if position + HEADER_BYTES > segment.size:
        return wanted.segment_end
    return int.from_bytes(segment.log.read(_BASE_OFFSET_BYTES, position), signed=True)


def _judge(segment: Segment, wanted: Wanted, end: int, spans: EpochSpans) -> tuple[bytes, Flaw | None]:
    """Where batches up to byte `end` are not in line: find out from the batches around which are good."""
    begin = segment.indexed_below(wanted.offset)
    chain = segment.log.read(end - begin, begin)
    before = segment.base_offset if begin == 0 else None
    links = judge_chain(chain, before, lambda at: _follower(segment, wanted, begin + at), spans)
    is_cut = end < segment.size
    if links and is_cut and links[-1].next_offset < 0 and links[-1].at + begin > wanted.start:
        links.pop()  # only a part of it was read
    good, lost = _good_run(links, wanted)
    flaw = None
    if lost is not None:
        offset = Offset(good[-1].next_offset) if good else wanted.offset
        flaw = Flaw(segment.log.path, begin + lost.at, lost.why, offset)
    elif not good and not is_cut and sum(link.size for link in links) < segment.size - begin:
        why = f"{segment.size} bytes should be there"
        flaw = Flaw(segment.log.path, begin + len(chain), why, wanted.offset)
    if not good:
        return b"", flaw
    return chain[good[0].at : good[-1].at + good[-1].size], flaw


def _good_run(links: list[Link], wanted: Wanted) -> tuple[list[Link], Link | None]:
    """The batches to return, and the flaw that ends them or took the place of the first."""
    good: list[Link] = []
    lost: Link | None = None
    for link in links:
        if link.why:
            lost = link
            if good:
                break
        elif good or link.next_offset > wanted.offset:
            if (lost is not None and link.base > wanted.offset) or link.next_offset > wanted.bound:
                break
            lost = None
            good.append(link)
        else:
            lost = None
    return good, lost
