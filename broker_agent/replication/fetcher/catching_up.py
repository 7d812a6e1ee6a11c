"""Followed partitions that lack committed records, and those of them that a throttle holds back.

Bookkeeping for one fetcher. In-sync replicas have all committed records, so they are never among them (KIP-73).
"""

from __future__ import annotations

from collections.abc import Callable

from regency.broker_agent.replication.fetcher.throttle import ReplicationThrottle
from regency.kafka.fetching.values import FetchedPartition
from regency.model.ids import Offset, TopicPartition


class CatchingUp:
    """Which partitions of a fetcher are behind. Without a throttle none is held back."""

    def __init__(self, throttle: ReplicationThrottle | None) -> None:
        self._throttle = throttle
        self._behind: dict[TopicPartition, None] = {}
        self._held_back: dict[TopicPartition, None] = {}

    def count(self, name: TopicPartition, fetched: FetchedPartition, log_end: Offset, now_ms: int) -> None:
        """Take in what came of a partition, which ends at `log_end` now."""
        if fetched.high_watermark > log_end:
            self._behind[name] = None
        else:
            self._behind.pop(name, None)
        if self._throttle is not None and fetched.records:
            self._throttle.record(name, len(fetched.records), now_ms)

    def forget(self, name: TopicPartition) -> None:
        """It is not followed any more, or in another leader epoch: nothing is known of it."""
        self._behind.pop(name, None)
        self._held_back.pop(name, None)

    def hold_back(
        self, now_ms: int, is_asked_for: Callable[[TopicPartition], bool], wait: Callable[[TopicPartition, int], None]
    ) -> None:
        """Have every throttled partition that is behind `wait`, until the rate allows more.

        Also those that were asked for in vain: the leader would send them as soon as it has room.
        """
        until = self._throttle.exceeded_until(now_ms) if self._throttle is not None and self._behind else None
        if self._throttle is None or until is None:
            return
        for name in [name for name in self._behind if is_asked_for(name) and self._throttle.covers(name)]:
            del self._behind[name]
            self._held_back[name] = None
            wait(name, until)

    def resumed(self, name: TopicPartition) -> None:
        """A partition has waited long enough, for whatever reason."""
        if name in self._held_back:
            del self._held_back[name]
            self._behind[name] = None

    @property
    def held_back(self) -> tuple[TopicPartition, ...]:
        """What waits for the throttle."""
        return tuple(self._held_back)
