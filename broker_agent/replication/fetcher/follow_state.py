"""What a fetcher knows of each partition that it follows, which of them lack records, and where a log is cut off.

Pure but for the throttle it is handed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.replication.fetcher.throttle import ReplicationThrottle
from regency.broker_agent.replication.partition import Partition
from regency.kafka.fetching.values import EpochEndOffset, FetchedPartition
from regency.model.ids import NO_LEADER_EPOCH, UNKNOWN_OFFSET, LeaderEpoch, Offset, TopicPartition


class Phase(Enum):
    """What a fetcher does about a partition."""

    FETCHING = "fetching"
    LATEST = "asking for the leader's end"
    EARLIEST = "asking for the leader's start"
    SETTLING = "waiting until the disk knows where the log is cut off"


class FollowState:
    """Where a fetcher is with one partition."""

    __slots__ = ("delayed_until", "epoch", "lag", "offset", "phase", "refusals", "replica", "requested", "starts_over")

    def __init__(self, replica: Partition, epoch: LeaderEpoch) -> None:
        self.replica = replica
        self.epoch = epoch
        self.offset = replica.log.log_end_offset
        self.phase = Phase.FETCHING
        self.starts_over = False
        """Nothing of our log is the leader's: as soon as its start is known, all of it is dropped."""
        self.delayed_until: int | None = None
        self.refusals = 0
        self.lag: int | None = None
        """Records behind the leader's high watermark at its last answer."""
        self.requested: Offset | None = None
        """Offset named to the leader in the running request or session; None: this state is not known there."""


class ReceivedBytes:
    """Bytes of record batches that were fetched and appended; a broker's fetchers share one."""

    __slots__ = ("adding", "total")

    def __init__(self) -> None:
        self.total = 0
        self.adding = 0
        """Of them, those of replicas that a reassignment adds here."""


def truncation_point(log: PartitionLog, leader: EpochEndOffset) -> Offset | None:
    """Where a follower cuts its log, given the leader's greatest epoch not above its own and where that ends (KIP-279).

    None: the leader cannot say. A replica that does not know the leader's epoch cuts to the end of the greatest one it
    knows below it, and asks again.
    """
    end = log.log_end_offset
    if leader.end_offset == UNKNOWN_OFFSET:
        return None
    if leader.leader_epoch == NO_LEADER_EPOCH:
        return min(leader.end_offset, end)
    own = log.end_offset_for_epoch(leader.leader_epoch)
    if own.end_offset == UNKNOWN_OFFSET:
        return min(leader.end_offset, end)
    if own.leader_epoch != leader.leader_epoch:
        return min(own.end_offset, end)
    return min(own.end_offset, leader.end_offset, end)


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
