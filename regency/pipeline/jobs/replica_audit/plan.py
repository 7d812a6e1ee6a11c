"""Which task reads which offsets of which partitions. Pure.

A piece is a range of offsets of one partition with all its replicas, so that a task compares what it reads and nothing
has to be shuffled. Pieces with the same replicas stand together: a task talks to few brokers, and neighbouring tasks,
which run at the same time, to different ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from regency.clients.replicas.reading import Partition
from regency.clients.replicas.wire import Place, Replica
from regency.model.ids import BrokerId

TASKS_PER_SLOT = 4
"""So that who is done early takes over from who is not."""
PIECE_COST = 64 << 10
"""What asking for a piece costs, in bytes that could have been read meanwhile."""
LEAST_SHARE = 64 << 10
"""Bytes a second below which a task is not worth its connections: fewer tasks share what is allowed then."""


class Task(msgspec.Struct, frozen=True):
    """Pieces, by their numbers, that one task reads; `pace`: bytes a second that it may read of each broker."""

    pieces: tuple[int, ...]
    pace: Mapping[BrokerId, int] | None


def pieces_of(partition: Partition, sizes: Mapping[Replica, int], piece_bytes: int) -> list[Partition]:
    """The partition in ranges of about `piece_bytes` of the largest replica each; whole, where sizes are unknown or
    replicas are compacted: whether one may lack a record is known by what follows.

    The first begins at 0, wherever logs begin, and the last ends at the high watermark.
    """
    read = _read(partition)
    bound = partition.bound
    size = max((sizes.get((broker, partition.name), 0) for broker in read), default=0)
    start = min((place.log_start for place in read.values()), default=0)
    count = min(-(-size // piece_bytes), bound - start)
    if count < 2 or partition.is_compacted:
        return [msgspec.structs.replace(partition, end=bound)]
    borders = [0, *(start + (bound - start) * number // count for number in range(1, count)), bound]
    return [msgspec.structs.replace(partition, begin=begin, end=end) for begin, end in pairwise(borders)]


def weight(piece: Partition, sizes: Mapping[Replica, int]) -> int:
    """About how many bytes of all replicas have to be read for it."""
    total = PIECE_COST
    for broker, place in _read(piece).items():
        offsets = max(1, place.log_end - place.log_start)
        here = max(0, min(place.log_end, piece.read_end) - max(place.log_start, piece.begin))
        total += sizes.get((broker, piece.name), 0) * here // offsets
    return total


def tasks_of(
    weights: Sequence[int], brokers: Sequence[tuple[BrokerId, ...]], slots: int, pace: int | None
) -> list[Task]:
    """Pieces spread over tasks by weight; `brokers`: who is asked for each. `slots`: tasks that run at the same time.

    With a `pace` (bytes a second of each broker) there are no more tasks than slots, each with its share of every
    broker it asks: however many run, no broker is asked for more than the pace.
    """
    if not weights:
        return []
    groups: dict[tuple[BrokerId, ...], list[int]] = {}
    for number, asked in enumerate(brokers):
        groups.setdefault(tuple(sorted(asked)), []).append(number)
    most = slots * TASKS_PER_SLOT if pace is None else min(slots, max(1, pace // LEAST_SHARE))
    target = -(-sum(weights) // most)
    cut = _cut([number for _, group in sorted(groups.items()) for number in group], weights, target)
    if pace is None:
        return [Task(tuple(some), None) for some in _apart(cut, brokers)]
    asked_by = [{broker for number in some for broker in brokers[number]} for some in cut]
    readers = Counter(broker for asked in asked_by for broker in asked)
    shares = [{broker: max(1, pace // readers[broker]) for broker in sorted(asked)} for asked in asked_by]
    return [Task(tuple(some), share) for some, share in zip(cut, shares, strict=True)]


def _cut(numbers: Sequence[int], weights: Sequence[int], target: int) -> list[list[int]]:
    """Cut the row of pieces where the weight passes a multiple of `target`: as many parts as targets, or fewer."""
    parts: dict[int, list[int]] = {}
    before = 0
    for number in numbers:
        middle = before + weights[number] // 2
        parts.setdefault(middle // target, []).append(number)
        before += weights[number]
    return list(parts.values())


def _apart(cut: Sequence[list[int]], brokers: Sequence[tuple[BrokerId, ...]]) -> list[list[int]]:
    """In an order in which neighbours ask different brokers, as far as there are any."""
    seen = Counter[tuple[BrokerId, ...]]()
    places: list[tuple[int, int]] = []
    for number, some in enumerate(cut):
        first = tuple(sorted(brokers[some[0]]))
        places.append((seen[first], number))
        seen[first] += 1
    return [cut[number] for _, number in sorted(places)]


def _read(partition: Partition) -> dict[BrokerId, Place]:
    return {broker: place for broker, place in partition.places.items() if isinstance(place, Place)}


def asked(piece: Partition) -> tuple[BrokerId, ...]:
    """Brokers that are read for a piece."""
    return tuple(_read(piece))
