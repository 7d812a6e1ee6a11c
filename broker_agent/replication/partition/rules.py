"""What a broker can be to a partition, and what all its partitions decide by."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import msgspec

from regency.broker_agent.ports import ConfirmedPeers
from regency.model.ids import BrokerId


class Role(Enum):
    """What this broker is to a partition it hosts."""

    NONE = "none"
    """Hosted, but neither led nor followed: stopped, or not told yet."""
    LEADER = "leader"
    FOLLOWER = "follower"
    OFFLINE = "offline"
    """Its log directory failed."""


class ReplicationRules(msgspec.Struct, frozen=True):
    """What all partitions of a broker decide by."""

    broker_id: BrokerId
    lag_ms: int
    """replica.lag.time.max.ms"""
    peers: ConfirmedPeers
    min_insync: Callable[[str], int]
    """min.insync.replicas of a topic."""
    followers: set[BrokerId] = msgspec.field(default_factory=set)
    """Every broker that has followed a partition led here: whose coming and going matters."""
