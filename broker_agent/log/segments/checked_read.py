"""Reading batches out of one segment, checked on every read: a byte may flip on the disk at any time."""

from __future__ import annotations

from typing import Final, NamedTuple

from regency.broker_agent.log.segments.batch_check import Checked, EpochSpans, Link, check_batches, judge_chain
from regency.broker_agent.log.segments.damage import Flaw
from regency.broker_agent.log.segments.segment import Segment
from regency.kafka.record_batch import HEADER_BYTES, CorruptBatch, batch_size, read_header
from regency.model.ids import Offset

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
    checked = check_batches(data, wanted.offset, wanted.bound, spans)
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
    """Whether the next batch begins where the last one checked ends; where its header was there, that is known."""
    if len(data) - checked.size >= HEADER_BYTES:
        return True
    return _follower(segment, wanted, wanted.start + checked.size) == checked.next_offset


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
