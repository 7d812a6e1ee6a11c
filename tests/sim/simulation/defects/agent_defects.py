"""Defects of the agent, by subject."""

from __future__ import annotations

from simulation.defects import follower_defects, leader_defects, log_defects
from simulation.defects.patching import Defect

DEFECTS: tuple[Defect, ...] = (*leader_defects.DEFECTS, *follower_defects.DEFECTS, *log_defects.DEFECTS)

UNSEEN: tuple[Defect, ...] = (
    *leader_defects.UNSEEN,
    *log_defects.UNSEEN,
)
"""What is planted in vain, by BECAUSE."""

BECAUSE: dict[str, str] = {
    "stale-state-taken": "harmless: an agent executes control requests in the order of controller epoch, broker epoch "
    "and number, and a request holds the newest state of each partition, so no lower leader epoch ever comes later",
    "watermarks-lost": "harmless: nothing is truncated to a high watermark, a leader works its own out again from its "
    "followers' fetches, and until then tells nobody an end (KIP-207)",
    "watermarks-early": "harmless as watermarks-lost is",
}
"""Why the simulation does not find them."""
