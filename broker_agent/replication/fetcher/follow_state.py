"""What a fetcher knows of each partition that it follows."""

from __future__ import annotations

from enum import Enum

from regency.broker_agent.replication.fetcher.follower import Follower
from regency.model.ids import LeaderEpoch, Offset


class Phase(Enum):
    """What a fetcher does about a partition."""

    FETCHING = "fetching"
    LATEST = "asking for the leader's end"
    EARLIEST = "asking for the leader's start"
    SETTLING = "waiting until the disk knows where the log is cut off"


class FollowState:
    """Where a fetcher is with one partition."""

    __slots__ = (
        "delayed_until",
        "epoch",
        "lag",
        "offset",
        "phase",
        "refusals",
        "replica",
        "requested",
        "starts_over",
    )

    def __init__(self, replica: Follower, epoch: LeaderEpoch) -> None:
        self.replica = replica
        self.epoch = epoch
        self.offset = replica.log_end_offset
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
