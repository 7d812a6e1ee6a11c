"""Defects of the agent, by subject."""

from __future__ import annotations

from simulation.defects import disk_defects, follower_defects, leader_defects, log_defects
from simulation.defects.patching import Defect

_ALL = (
    *leader_defects.DEFECTS,
    *follower_defects.DEFECTS,
    *log_defects.DEFECTS,
    *disk_defects.DEFECTS,
    *leader_defects.UNSEEN,
    *log_defects.UNSEEN,
)

_SELDOM = "a gap: found before there were so many kinds of faults, now not within 50 seeds; it needs a drill"

BECAUSE: dict[str, str] = {
    **dict.fromkeys(("watermark-of-diverging", "strangers-begin-anywhere"), _SELDOM),
    "stale-state-taken": "harmless: an agent executes control requests in the order of controller epoch, broker epoch "
    "and number, and a request holds the newest state of each partition, so no lower leader epoch ever comes later",
    "watermarks-lost": "harmless: nothing is truncated to a high watermark, a leader works its own out again from its "
    "followers' fetches, and until then tells nobody an end (KIP-207)",
    "watermarks-early": "harmless as watermarks-lost is",
    "stop-untold": "a gap until there is deletion: who is told to stop has been told before that another leads, and "
    "has answered everybody then",
    "below-start-unseen": "harmless: who is told where logs differ cuts its own, and with it the epoch that differed; "
    "at last none does, and the offset is out of range then",
    "watermark-not-tried-again": "a gap: the next record that followers fetch moves it, and simulated producers write "
    "on when everything has been healed",
    "epoch-lost-when-idle": "harmless: in one leader epoch a leader only appends, so that what agreed once agrees from "
    "then on; and in another one the fetcher begins anew",
    "epochs-not-synced": "harmless but for a window: rolls sync the directory, a file whose content was lost is made "
    "anew from the batches, and recovery reads all epochs of the segment that holds the recovery point",
    "start-after-drop": "harmless: nobody looks at a log while the data loop changes it, and after a crash it begins "
    "with its oldest segment",
    "producers-expire-with-records": "a gap: a batch is sent again within seconds, while it is among the newest, and "
    "these do not expire",
    "marker-in-spite-of-failure": "a gap: a disk that fails while logs are closed, and still takes the marker, needs "
    "more chance than 50 seeds have",
}
"""Why the simulation does not find them."""

DEFECTS: tuple[Defect, ...] = tuple(defect for defect in _ALL if defect.name not in BECAUSE)

UNSEEN: tuple[Defect, ...] = tuple(defect for defect in _ALL if defect.name in BECAUSE)
"""Planted in vain."""
