"""What a leader knows of its followers: how far each has fetched and as which incarnation, and which are in sync.

Pure bookkeeping. The rules that use it (high watermark, ISR) are in partition.py. While an ISR change is on its way to
ZooKeeper it may have happened or not, so what counts records uses the larger set, and what promises safety to producers
the committed one (KIP-497).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from regency.broker_agent.ports import Peers
from regency.kafka.fetching.values import FetchPartition
from regency.model.ids import (
    NO_BROKER_EPOCH,
    NO_LEADER_EPOCH,
    UNKNOWN_OFFSET,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    ZkVersion,
)


class RemoteReplica:
    """A follower as its leader sees it. Offsets are -1 and times None while nothing is known in this leader epoch."""

    __slots__ = (
        "broker",
        "broker_epoch",
        "fetch_epoch",
        "idle_fetch",
        "last_caught_up_ms",
        "last_fetch_leader_end",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker: BrokerId) -> None:
        self.broker = broker
        self.broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
        self.fetch_epoch: LeaderEpoch = NO_LEADER_EPOCH
        """Leader epoch carried by the last fetch that was counted."""
        self.log_end_offset: Offset = UNKNOWN_OFFSET
        self.log_start_offset: Offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end: Offset = UNKNOWN_OFFSET
        self.last_fetch_ms: int | None = None
        self.idle_fetch: FetchPartition | None = None
        """The last fetch, where it was counted and found nothing to read."""
        self.last_caught_up_ms: int | None = None

    def forget(self, now_ms: int, *, in_sync: bool) -> None:
        """The leader epoch grew: fetches under older epochs prove nothing. An ISR member gets a lag time of grace."""
        self.broker_epoch = NO_BROKER_EPOCH
        self._forget_offsets()
        self.last_caught_up_ms = now_ms if in_sync else None

    def count_fetch(self, wanted: FetchPartition, leader_end: Offset, broker_epoch: BrokerEpoch, now_ms: int) -> bool:
        """Take in a fetch of the current leader epoch; returns whether the LEO changed.

        `leader_end` is the leader's LEO before the read. The follower is caught up now if it asked for the leader's
        end, and was so at its previous fetch if it asks for what was the end then. Another broker epoch means another
        incarnation, about which the old one's fetches say nothing (KIP-903).
        """
        fetch_offset = wanted.fetch_offset
        self.idle_fetch = wanted if fetch_offset == leader_end else None
        if self.broker_epoch not in (NO_BROKER_EPOCH, broker_epoch):
            self._forget_offsets()
            self.last_caught_up_ms = None
        if fetch_offset >= leader_end:
            self.last_caught_up_ms = now_ms
        elif self.last_fetch_ms is not None and fetch_offset >= self.last_fetch_leader_end:
            caught_up = self.last_caught_up_ms
            self.last_caught_up_ms = self.last_fetch_ms if caught_up is None else max(caught_up, self.last_fetch_ms)
        moved = fetch_offset != self.log_end_offset
        self.broker_epoch = broker_epoch
        self.fetch_epoch = wanted.current_leader_epoch
        self.log_end_offset = fetch_offset
        self.log_start_offset = wanted.log_start_offset
        self.last_fetch_leader_end = leader_end
        self.last_fetch_ms = now_ms
        return moved

    def has_counted(self, fetch_offset: Offset, leader_epoch: LeaderEpoch, broker_epoch: BrokerEpoch) -> bool:
        """Whether the last fetch that was counted asked for this offset, in this leader epoch, of this incarnation."""
        return (self.log_end_offset, self.fetch_epoch, self.broker_epoch) == (fetch_offset, leader_epoch, broker_epoch)

    def caught_up_within(self, lag_ms: int, now_ms: int) -> bool:
        """Whether it was caught up at some moment of the last `lag_ms` milliseconds."""
        return self.last_caught_up_ms is not None and now_ms - self.last_caught_up_ms <= lag_ms

    def fetched_within(self, lag_ms: int, now_ms: int) -> bool:
        """Whether it fetched in the last `lag_ms` milliseconds."""
        return self.last_fetch_ms is not None and now_ms - self.last_fetch_ms <= lag_ms

    def is_out_of_sync(self, leader_end: Offset, lag_ms: int, now_ms: int) -> bool:
        """Whether it has to leave the ISR. One that has all of the log stays, however silent it is."""
        return self.log_end_offset != leader_end and not self.caught_up_within(lag_ms, now_ms)

    def _forget_offsets(self) -> None:
        self.idle_fetch = None
        self.fetch_epoch = NO_LEADER_EPOCH
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end = UNKNOWN_OFFSET
        self.last_fetch_ms = None


class Committed(msgspec.Struct, frozen=True, gc=False):
    """The ISR of the state znode at `zk_version`; nothing under way."""

    committed: tuple[BrokerId, ...]
    zk_version: ZkVersion

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        """Everybody who may be in the ISR that elections use."""
        return self.committed


class PendingExpand(msgspec.Struct, frozen=True, gc=False):
    """`joining` is being added to the ISR at `zk_version`."""

    committed: tuple[BrokerId, ...]
    joining: tuple[BrokerId, ...]
    zk_version: ZkVersion

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        """With those that join: the write may have happened already."""
        return self.committed + self.joining

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The ISR being written."""
        return self.committed + self.joining


class PendingShrink(msgspec.Struct, frozen=True, gc=False):
    """`leaving` is being removed from the ISR at `zk_version`."""

    committed: tuple[BrokerId, ...]
    leaving: tuple[BrokerId, ...]
    zk_version: ZkVersion

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        """With those that leave: the write may not happen."""
        return self.committed

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The ISR being written."""
        return tuple(member for member in self.committed if member not in self.leaving)


Pending = PendingExpand | PendingShrink
IsrState = Committed | PendingExpand | PendingShrink

NOT_LEADING = Committed((), ZkVersion(-1))
"""Of a partition led elsewhere: a follower does not know the ISR."""


class ReplicationRules(msgspec.Struct, frozen=True):
    """What all partitions of a broker decide by."""

    broker_id: BrokerId
    lag_ms: int
    """replica.lag.time.max.ms"""
    peers: Peers
    min_insync: Callable[[str], int]
    """min.insync.replicas of a topic."""
    followers: set[BrokerId] = msgspec.field(default_factory=set)
    """Every broker that has followed a partition led here: whose coming and going matters."""
