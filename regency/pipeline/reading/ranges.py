"""What Spark's tasks read: ranges of offsets, cut where the options ask for smaller ones. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from regency.model.ids import TopicPartition


class OffsetRange(msgspec.Struct, frozen=True):
    """Offsets of one partition from `start` up to but without `end`."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets there are; records may be fewer."""
        return self.end - self.start


def cut(ranges: Iterable[OffsetRange], *, at_least: int | None, max_size: int | None) -> list[OffsetRange]:
    """The ranges with something in them: none larger than `max_size`, about `at_least` of them.

    As Spark's Kafka source does: what is too large is cut into equal parts first; if these are still fewer than
    `at_least`, the large ones are cut by their share of all offsets, those whose share is one part left as they are.
    """
    whole = [each for each in ranges if each.size > 0]
    if max_size is not None:
        whole = [part for each in whole for part in _parts(each, -(-each.size // max_size))]
    if at_least is None or len(whole) >= at_least:
        return whole
    total = sum(each.size for each in whole)
    large = [each for each in whole if _share(each.size, total, at_least) > 1]
    total_of_large = sum(each.size for each in large)
    parts_of_large = max(at_least - (len(whole) - len(large)), 1)
    found: list[OffsetRange] = []
    for each in whole:
        is_large = _share(each.size, total, at_least) > 1
        found += _parts(each, _share(each.size, total_of_large, parts_of_large)) if is_large else [each]
    return found


def _share(size: int, total: int, parts: int) -> int:
    """How many of `parts` fall to a range, to the nearest, at least one."""
    return max((2 * size * parts + total) // (2 * total), 1)


def _parts(whole: OffsetRange, count: int) -> Iterator[OffsetRange]:
    """A range in `count` parts whose sizes differ by one at most; fewer where it has fewer offsets."""
    start, left = whole.start, whole.size
    for number in range(count):
        size = left // (count - number)
        if size:
            yield OffsetRange(whole.partition, start, start + size)
        start, left = start + size, left - size
