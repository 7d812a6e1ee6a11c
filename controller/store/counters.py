"""What one controller process has counted since it started, over all its terms. Integers only.

The controller's thread adds; any thread reads, and may find one number a moment older than another.
"""

from __future__ import annotations

from collections import Counter


class Counters:
    """Counters that only grow; where the process restarts, from 0."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        """Events handled, by `cause`; those of a term that is over and those without a ruling controller among them."""
        self.failovers = 0
        """Elections won here whose failover was finished."""
        self.elections: Counter[str] = Counter()
        """Elections of a leader that are in ZooKeeper, one for each partition, by why there was one."""
        self.unclean_elections = 0
        """Leaders elected out of sync: records acknowledged before may be lost."""
        self.fenced_writes = 0
        """Batches of writes that ZooKeeper refused because another controller had won meanwhile."""
        self.repairs: Counter[str] = Counter()
        """Differences between reports and desired states that were put right, by kind."""
