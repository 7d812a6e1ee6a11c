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

_HEALED = (
    "a gap: found before there was a reconcile, which now mends what it does within seconds; to be looked for where "
    "nothing is reconciled"
)
_SELDOM = "a gap: found before there were so many kinds of faults, now not within 50 seeds; it needs a drill"

BECAUSE: dict[str, str] = {
    **dict.fromkeys(
        (
            "no-look-again",
            "errors-forgotten",
            "silence-is-done",
            "any-controller-epoch",
            "answered-before-done",
            "unreachable-is-done",
            "isr-change-unannounced",
            "deleted-topics-known",
        ),
        _HEALED,
    ),
    **dict.fromkeys(
        (
            "shutdown-of-another-incarnation",
            "new-only-once",
            "topic-deletions-not-resumed",
            "marker-removed-first",
        ),
        _SELDOM,
    ),
    "write-in-a-later-session": "harmless: the version of /controller_epoch is checked too, and by the time there is "
    "another session somebody else has won, or nobody is there who could",
    "dead-stay-in-sync": "harmless: the leader takes them out itself once they lag, and elections ask who is live",
    "older-content-wins": "harmless: the agent refuses a lower leader epoch, and the controller then reads the state "
    "again and sends it",
    "begun-too-soon": "harmless: once it has been told all, an agent checkpoints high watermarks and looks for strays, "
    "but a checkpoint keeps the marks of logs that it does not name (DirectoryLogs.write_high_watermarks_later), and "
    "ZooKeeper is asked before a log is set aside (Strays)",
    "senders-survive-the-term": "harmless to data: agents refuse a lower controller epoch; that such threads go on "
    "asking for ever is judged by nobody, which is a gap",
    "batch-survives-the-term": "harmless: what is sent is taken from the context of the new term, whose failover wants "
    "all of it told anyway, and takes back what was to stop",
    "created-anew-unnoticed": "a gap: a simulated topic is made anew when no broker has it any more, and by then who "
    "rules has heard that it was gone",
    "stop-of-equal-epoch-refused": "a gap until there is deletion and reassignment: who is told to stop today shuts "
    "down or has lost a directory, and stops by itself",
    "newer-incarnation-refused": "harmless: Sender.on_answer sends what was refused again, and by then the agent knows "
    "its epoch",
    "deltas-not-counted": "harmless: the sender's cursor follows the agent's answers, so that deltas come in order",
    "lost-role-stays-lost": "harmless: whoever is told to stop is told a higher leader epoch when it returns",
    "lower-leader-epoch": "harmless: one request is under way at a time, requests of earlier numbers, incarnations and "
    "controllers are refused (ControlGate), and none holds less than the one before",
    "lost-reply-is-failure": "harmless: elections that failed read their states again and are decided again",
    "lost-reply-is-conflict": "harmless: what is taken for a conflict is read and decided again",
    "existing-state-unread": "a gap: a reply is seldom lost just when a state is created, and the next failover reads "
    "all states",
    "lost-reply-sent-again": "harmless: the version does not fit any more, so it is a conflict, read and decided again",
    "isr-by-the-unregistered": "harmless: the session is checked too, and a registration goes only with its session or "
    "its successor's",
    "removed-followers-kept": "rare: who is removed is told to delete at once, and would have to fetch in the new "
    "leader epoch before",
    "lost-registration-unknown": "harmless: writes are bound to the session of the registration, which is gone, and "
    "no controller speaks to who is not registered",
}
"""Why the simulation does not find those of UNSEEN."""

DEFECTS: tuple[Defect, ...] = tuple(defect for defect in _ALL if defect.name not in BECAUSE)

UNSEEN: tuple[Defect, ...] = tuple(defect for defect in _ALL if defect.name in BECAUSE)
"""Planted in vain."""
