"""A timer that costs almost nothing per event: how often, how long in all, and quantiles of the last minutes.

Kafka's timers (Yammer's, with an exponentially decaying sample) tell quantiles of about the last five minutes. Here
durations are counted in buckets a thirty-second of their size wide, in slots of one minute, of which the last five
count: no random choice, no lock, and a quantile is off by less than two percent.

Written by one thread. Read by any: a reader copies a slot at once, which the interpreter does not interrupt.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

SLOT_MS = 60_000
SLOTS = 5

_FINE_BITS = 5
"""2**5 buckets for every doubling."""
_FINE = 1 << _FINE_BITS


class Times(msgspec.Struct, frozen=True):
    """What a timer knew at one moment, in milliseconds. A quantile is 0 where nothing happened in the last minutes."""

    count: int
    sum_ms: float
    quantiles_ms: tuple[float, ...]


class RecentTimes:
    """Durations of one kind of event."""

    __slots__ = ("_buckets", "_number", "_older", "count", "sum_us")

    def __init__(self) -> None:
        self.count = 0
        self.sum_us = 0
        self._number = -1
        self._buckets: dict[int, int] = {}
        self._older: list[tuple[int, dict[int, int]]] = []

    def record(self, duration_us: int, now_ms: int) -> None:
        """An event took so many microseconds (negative counts as 0) and ended at `now_ms`, monotonic milliseconds."""
        if duration_us < 0:
            duration_us = 0
        self.count += 1
        self.sum_us += duration_us
        number = now_ms // SLOT_MS
        if number != self._number:
            self._turn(number)
        bucket = bucket_of(duration_us)
        buckets = self._buckets
        buckets[bucket] = buckets.get(bucket, 0) + 1

    def read(self, now_ms: int, quantiles: Sequence[float]) -> Times:
        """Everything at `now_ms`, on the clock of `record`."""
        return read_together([self], now_ms, quantiles)

    def add_recent(self, now_ms: int, merged: dict[int, int]) -> None:
        """Add what counts at `now_ms` to `merged`, by bucket."""
        oldest = now_ms // SLOT_MS - SLOTS
        for number, buckets in [(self._number, self._buckets), *self._older]:
            if number > oldest:
                for bucket, count in buckets.copy().items():
                    merged[bucket] = merged.get(bucket, 0) + count

    def _turn(self, number: int) -> None:
        kept = [slot for slot in [(self._number, self._buckets), *self._older] if slot[0] > number - SLOTS]
        self._older = kept[: SLOTS - 1]
        self._buckets = {}
        self._number = number


def read_together(timers: Sequence[RecentTimes], now_ms: int, quantiles: Sequence[float]) -> Times:
    """Several timers as if they were one."""
    merged: dict[int, int] = {}
    for timer in timers:
        timer.add_recent(now_ms, merged)
    count, total_us = sum(timer.count for timer in timers), sum(timer.sum_us for timer in timers)
    return Times(count, total_us / 1000, quantiles_of(merged, quantiles))


RATE_SLOT_MS = 10_000
RATE_SLOTS = 6


class RecentRate:
    """How often something happened in the last minute. Written by one thread, read by any."""

    __slots__ = ("_counts", "_number", "_started_ms")

    def __init__(self, now_ms: int) -> None:
        self._started_ms = now_ms
        self._number = now_ms // RATE_SLOT_MS
        self._counts = (0,) * RATE_SLOTS

    def count(self, now_ms: int) -> None:
        """It happened."""
        self._counts = self._turned(now_ms)
        self._number = now_ms // RATE_SLOT_MS
        self._counts = (self._counts[0] + 1, *self._counts[1:])

    def per_second(self, now_ms: int) -> float:
        """Its rate in the running ten seconds and the five times ten before; since the start where that is less."""
        counts = self._turned(now_ms)
        since_ms = max(self._started_ms, (now_ms // RATE_SLOT_MS - RATE_SLOTS + 1) * RATE_SLOT_MS)
        return sum(counts) * 1000 / max(now_ms - since_ms, 1000)

    def _turned(self, now_ms: int) -> tuple[int, ...]:
        empty = min(max(now_ms // RATE_SLOT_MS - self._number, 0), RATE_SLOTS)
        return (*(0,) * empty, *self._counts[: RATE_SLOTS - empty]) if empty else self._counts


def bucket_of(value: int) -> int:
    """The bucket of a value of 0 or more: exact below 64, then 32 to a doubling."""
    shift = value.bit_length() - _FINE_BITS - 1
    return value if shift <= 0 else (shift << _FINE_BITS) + (value >> shift)


def middle_of(bucket: int) -> float:
    """The value that stands for a bucket."""
    shift = (bucket >> _FINE_BITS) - 1
    if shift <= 0:
        return float(bucket)
    low = (bucket - (shift << _FINE_BITS)) << shift
    return low + ((1 << shift) - 1) / 2


def quantiles_of(buckets: dict[int, int], quantiles: Sequence[float]) -> tuple[float, ...]:
    """The values below which these shares (ascending, 0 to 1) of the counted ones lie, in thousandths of their unit."""
    total = sum(buckets.values())
    if not total:
        return (0.0,) * len(quantiles)
    found: list[float] = []
    ordered = iter(sorted(buckets.items()))
    bucket, reached = next(ordered)
    for quantile in quantiles:
        while reached < quantile * total:
            bucket, count = next(ordered)
            reached += count
        found.append(middle_of(bucket) / 1000)
    return tuple(found)
