"""Defects of the agent, by subject."""

from __future__ import annotations

from simulation.defects import follower_defects, leader_defects, log_defects, write_defects
from simulation.defects.patching import Defect

DEFECTS: tuple[Defect, ...] = (*leader_defects.DEFECTS, *follower_defects.DEFECTS, *log_defects.DEFECTS)

UNSEEN: tuple[Defect, ...] = (
    *leader_defects.UNSEEN,
    *follower_defects.UNSEEN,
    *write_defects.UNSEEN,
    *log_defects.UNSEEN,
)
"""What is planted in vain, by BECAUSE."""

BECAUSE: dict[str, str] = {
    "join-while-leaving": "rare: who leaves is taken out of every ISR in an epoch that it is never told, so that only "
    "one that had not caught up yet can join by a fetch that is on its way then; about one seed in sixty",
    "watermark-of-diverging": "rare: the truncation in the same step takes the watermark along, unless it needs more "
    "rounds; about one seed in sixty",
    "stale-state-taken": "harmless: an agent executes control requests in the order of controller epoch, broker epoch "
    "and number, and a request holds the newest state of each partition, so no lower leader epoch ever comes later",
    "outcome-of-older-epoch": "rare: a LeaderAndIsr has to overtake ZooKeeper's reply to the leader's own write, which "
    "one run in seventy shows",
    "isr-members-unchecked": "rare: a member has to restart between two writes of one leader, or during one; the "
    "tests of stale joins do that directly",
    "cut-not-checkpointed": "rare: the same replica has to be cut off, appended to and lose power within five seconds; "
    "the tests of logs after power cuts do that directly",
    "strangers-begin-anywhere": "rare: a producer's first batches of a partition have to be lost with a deposed leader "
    "while later ones are on their way to the next",
    "watermarks-lost": "harmless: nothing is truncated to a high watermark, a leader works its own out again from its "
    "followers' fetches, and until then tells nobody an end (KIP-207)",
    "watermarks-early": "harmless as watermarks-lost is",
}
"""Why the simulation does not find them."""
