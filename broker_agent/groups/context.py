"""States of groups, with those each may be entered from: Kafka's table; and what the groups of one shard share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum
from uuid import UUID

from regency.broker_agent.groups.timers import Timers
from regency.model.settings import BrokerSettings


class GroupState(Enum):
    """Where a group is in its life."""

    EMPTY = "Empty"
    """No members; offsets may be committed."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits for its members to join."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Waits for the assignment of its leader, and for that to be stored."""
    STABLE = "Stable"
    """Every member has its assignment."""
    DEAD = "Dead"
    """Left the shard: deleted, expired or unloaded."""

    @property
    def valid_previous(self) -> frozenset[GroupState]:
        """States from which this one may be entered."""
        return _VALID_PREVIOUS[self]


_VALID_PREVIOUS = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


class GroupCounters:
    """What all shards of a coordinator have done; each number only grows."""

    __slots__ = ("commits", "completed_rebalances", "deletions", "expirations")

    def __init__(self) -> None:
        self.commits = 0
        """Offsets committed."""
        self.expirations = 0
        """Offsets gone by age."""
        self.deletions = 0
        """Offsets deleted by a client."""
        self.completed_rebalances = 0
        """Assignments that leaders have brought (Kafka counts before they are stored)."""


class GroupContext:
    """What groups of one shard share."""

    __slots__ = ("counters", "new_uuid", "offset_count", "settings", "states", "timers", "wall_ms")

    def __init__(
        self,
        settings: BrokerSettings,
        new_uuid: Callable[[], UUID],
        wall_ms: Callable[[], int],
        counters: GroupCounters,
    ) -> None:
        self.settings = settings
        self.new_uuid = new_uuid
        self.wall_ms = wall_ms
        self.counters = counters
        self.timers = Timers()
        self.states: Counter[GroupState] = Counter()
        """Groups by state."""
        self.offset_count = 0
        """Committed offsets of all groups."""
