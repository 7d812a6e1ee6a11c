"""Defects of the controller, of its conversation with agents, and of what both write to ZooKeeper."""

from __future__ import annotations

from simulation.defects import (
    administration_defects,
    agent_control_defects,
    deletion_defects,
    election_defects,
    message_defects,
    race_defects,
    reassignment_defects,
    write_defects,
)
from simulation.defects.patching import Defect

_ALL = (
    *race_defects.DEFECTS,
    *election_defects.DEFECTS,
    *message_defects.DEFECTS,
    *agent_control_defects.DEFECTS,
    *write_defects.DEFECTS,
    *reassignment_defects.DEFECTS,
    *deletion_defects.DEFECTS,
    *administration_defects.DEFECTS,
)

BECAUSE: dict[str, str] = {
    "write-in-a-later-session": "harmless: the version of /controller_epoch is checked too, and by the time there is "
    "another session somebody else has won, or nobody is there who could",
    "begun-too-soon": "harmless: once it has been told all, an agent checkpoints high watermarks and looks for strays, "
    "but a checkpoint keeps the marks of logs that it does not name (DirectoryLogs.write_high_watermarks_later), and "
    "ZooKeeper is asked before a log is set aside (Strays)",
    "batch-survives-the-term": "harmless: what is sent is taken from the context of the new term, whose failover wants "
    "all of it told anyway, and takes back what was to stop",
    "deltas-not-counted": "harmless: the sender's cursor follows the agent's answers, so that deltas come in order",
    "lower-leader-epoch": "harmless: one request is under way at a time, requests of earlier numbers, incarnations and "
    "controllers are refused (ControlGate), and none holds less than the one before, which newest-is-asked looks at",
    "lost-reply-is-conflict": "harmless: what is taken for a conflict is read and decided again",
    "lost-reply-sent-again": "harmless: the version does not fit any more, so it is a conflict, read and decided again",
    "isr-by-the-unregistered": "harmless: the session is checked too, and a registration goes only with its session or "
    "its successor's",
    "lost-registration-unknown": "harmless: writes are bound to the session of the registration, which is gone, and "
    "no controller speaks to who is not registered",
    "strays-of-the-past": "harmless: a session begins with all that was committed by then, an agent asks through a "
    "sync before it obeys another controller, and what it is told of afterwards it serves, which is never set aside",
}
"""Why the simulation does not find those of UNSEEN."""

DEFECTS: tuple[Defect, ...] = tuple(defect for defect in _ALL if defect.name not in BECAUSE)

UNSEEN: tuple[Defect, ...] = tuple(defect for defect in _ALL if defect.name in BECAUSE)
"""Planted in vain."""
