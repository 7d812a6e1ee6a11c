"""How much one batch of a stream takes: at most so many offsets, or none before there are enough. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from regency.model.ids import TopicPartition
from regency.pipeline.offsets import Offsets


def limited(limit: int, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> Offsets:
    """Where a batch of about `limit` offsets ends: each partition gives its share of what there is.

    A share below one is one, so that small partitions do not starve; any other is rounded down. No partition goes
    beyond its latest offset; one whose `start` is not known, or has nothing new, goes to its latest.
    """
    sizes = {name: end - start[name] for name, end in latest.items() if name in start and end > start[name]}
    total = sum(sizes.values())
    ends = dict(latest)
    for name, size in sizes.items():
        share = max(limit * size // total, 1)
        ends[name] = min(start[name] + share, latest[name])
    return ends


def available(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> int:
    """How many offsets there are beyond `start`."""
    return sum(max(end - start.get(name, end), 0) for name, end in latest.items())


class Patience:
    """Whether a batch waits for more records: while there are fewer than `enough`, but no longer than `max_delay_ms`.

    The first batch of a query waits for nothing, as in Spark's Kafka source. Times are monotonic milliseconds.
    """

    def __init__(self, enough: int, max_delay_ms: int) -> None:
        self._enough = enough
        self._max_delay_ms = max_delay_ms
        self._last: float | None = None

    def waits(self, offsets: int, now_ms: float) -> bool:
        """Whether a batch of `offsets` is put off at this time; if not, waiting begins anew."""
        overdue = self._last is None or now_ms - self._last >= self._max_delay_ms
        if not overdue and offsets < self._enough:
            return True
        self._last = now_ms
        return False
