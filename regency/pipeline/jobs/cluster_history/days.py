"""Sums by day (UTC) of the times without a leader: of each partition, and by the broker that led before. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from regency.pipeline.jobs.cluster_history.leaderless import Interval

DAY_MS = 86_400_000


def by_partition(found: Iterable[Interval]) -> list[tuple[object, ...]]:
    """Rows of table `leaderless_by_partition_day`: topic, partition, day since 1970, milliseconds on it, intervals."""
    sums: dict[tuple[object, ...], list[int]] = {}
    for each in found:
        for day, ms in _days(each):
            of = sums.setdefault((each.topic, each.partition, day), [0, 0])
            of[0] += ms
            of[1] += 1
    return [(*key, *of) for key, of in sums.items()]


def by_broker(found: Iterable[Interval]) -> list[tuple[object, ...]]:
    """Rows of table `leaderless_by_broker_day`: broker, day, milliseconds, intervals, partitions."""
    sums: dict[tuple[object, ...], tuple[list[int], set[tuple[str, int]]]] = {}
    for each in found:
        for day, ms in _days(each):
            spans, partitions = sums.setdefault((each.broker, day), ([], set()))
            spans.append(ms)
            partitions.add((each.topic, each.partition))
    return [(*key, sum(spans), len(spans), len(partitions)) for key, (spans, partitions) in sums.items()]


def _days(interval: Interval) -> Iterator[tuple[int, int]]:
    """Each day that an interval touches, and the milliseconds on it."""
    began, end = interval.began_ms, interval.began_ms + interval.ms
    for day in range(began // DAY_MS, max(began, end - 1) // DAY_MS + 1):
        yield day, min(end, (day + 1) * DAY_MS) - max(began, day * DAY_MS)
