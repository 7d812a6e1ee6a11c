"""Defects of the agent, by subject."""

from __future__ import annotations

from simulation.defects import (
    disk_defects,
    follower_defects,
    leader_defects,
    log_defects,
    record_deletion_defects,
)
from simulation.defects.patching import Defect

_ALL = (
    *leader_defects.DEFECTS,
    *follower_defects.DEFECTS,
    *log_defects.DEFECTS,
    *disk_defects.DEFECTS,
    *record_deletion_defects.DEFECTS,
)

BECAUSE: dict[str, str] = {
    "stale-state-taken": "harmless: an agent executes control requests in the order of controller epoch, broker epoch "
    "and number, and a request holds the newest state of each partition, so no lower leader epoch ever comes later",
    "below-start-unseen": "harmless: who is told where logs differ cuts its own, and with it the epoch that differed; "
    "at last none does, and the offset is out of range then",
    "epoch-lost-when-idle": "harmless: in one leader epoch a leader only appends, so that what agreed once agrees from "
    "then on; and in another one the fetcher begins anew",
    "epochs-not-synced": "harmless but for a window: rolls sync the directory, a file whose content was lost is made "
    "anew from the batches, and recovery reads all epochs of the segment that holds the recovery point",
    "start-after-drop": "harmless: nobody looks at a log while the data loop changes it, and after a crash it begins "
    "with its oldest segment",
}
"""Why the simulation does not find them."""

DEFECTS: tuple[Defect, ...] = tuple(defect for defect in _ALL if defect.name not in BECAUSE)

UNSEEN: tuple[Defect, ...] = tuple(defect for defect in _ALL if defect.name in BECAUSE)
"""Planted in vain."""
