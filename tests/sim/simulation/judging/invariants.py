"""The table of invariants: a name that stays, a sentence, and where it comes from."""

from __future__ import annotations

from typing import Final, NamedTuple


class Invariant(NamedTuple):
    """Something that must hold."""

    name: str
    sentence: str
    source: str


class InvariantBroken(BaseException):
    """An invariant does not hold. A BaseException, so that no handler in production code takes it for a failure."""

    def __init__(self, name: str, words: str) -> None:
        super().__init__(f"{name}: {words}")
        self.name = name
        self.words = words


_DESIGN_4: Final = "own rule"
_DESIGN_5: Final = "own rule"
_DESIGN_6: Final = "own rule"

_TABLE: Final = (
    # In ZooKeeper
    Invariant("leader-in-isr", "The leader of a state znode is in its ISR, or there is no leader.", _DESIGN_6),
    Invariant("isr-assigned", "The ISR of a state znode is not empty, and all of it is assigned.", _DESIGN_6),
    Invariant("one-leader-per-epoch", "No two brokers lead one partition in one leader epoch, ever.", _DESIGN_6),
    Invariant("leader-epoch-grows", "The leader epoch of a state znode never goes back under one topic id.", _DESIGN_6),
    Invariant(
        "election-raises-epoch",
        "A controller that writes a state raises its leader epoch, and leaps not too far.",
        _DESIGN_5,
    ),
    Invariant("state-epoch-grows", "The controller epoch in a state znode never goes back.", _DESIGN_6),
    Invariant("state-epoch-current", "A controller writes the controller epoch that rules into a state.", _DESIGN_4),
    Invariant("versions-count", "Every write of a state or topic znode raises its version by one.", _DESIGN_4),
    Invariant(
        "controller-epoch-won",
        "/controller_epoch grows by one in the multi that creates /controller, and only there.",
        _DESIGN_4,
    ),
    Invariant(
        "controller-fenced",
        "A controller writes only where it checks the version of /controller_epoch, in the session that has won it.",
        _DESIGN_6,
    ),
    Invariant("state-writer", "Only controllers and the registered leader write state znodes.", _DESIGN_5),
    Invariant("isr-change-keeps-leader", "A leader's ISR change keeps leader, leader and controller epoch.", _DESIGN_5),
    Invariant("isr-joins-registered", "Who joins an ISR has been registered not long before.", _DESIGN_5),
    Invariant(
        "isr-change-hides-nobody",
        "Nobody who stays in an ISR by its leader's change has registered since the state was last written.",
        _DESIGN_4,
    ),
    Invariant(
        "decision-hides-nobody",
        "Nobody a controller keeps in an ISR with others has registered since the state was last written.",
        _DESIGN_4,
    ),
    Invariant("clean-elections", "A leader is elected from the ISR, unless the topic allows otherwise.", _DESIGN_5),
    Invariant("topic-ids-stay", "A topic znode has one topic id for as long as it exists.", _DESIGN_4),
    Invariant("broker-epochs-grow", "A broker that registers again has a higher broker epoch.", _DESIGN_4),
    # On replicas
    Invariant("watermark-holds", "The high watermark of a leader never goes back within a leader epoch.", _DESIGN_6),
    Invariant("watermark-within-log", "Log start <= high watermark <= log end, on every replica.", _DESIGN_6),
    Invariant(
        "watermark-everywhere",
        "The leader's high watermark is in the log of every live member of its and ZooKeeper's ISR that lost nothing.",
        _DESIGN_6,
    ),
    Invariant("logs-agree", "Logs of two replicas agree below the smaller high watermark.", _DESIGN_6),
    Invariant(
        "acknowledged-committed", "A record acknowledged with acks=all was below a high watermark before.", _DESIGN_6
    ),
    Invariant(
        "acknowledged-kept",
        "A record acknowledged with acks=all is on every later leader, at its offset, unless elected uncleanly.",
        _DESIGN_6,
    ),
    Invariant(
        "committed-kept",
        "A record that was below a high watermark is on every later leader, at its offset, unless elected uncleanly.",
        _DESIGN_6,
    ),
    Invariant("one-believer-per-epoch", "At most one broker ever believes to lead in one leader epoch.", _DESIGN_6),
    Invariant(
        "epoch-not-ahead", "A replica's leader epoch and version are never ahead of the state znode's.", _DESIGN_5
    ),
    Invariant("epoch-holds", "A replica's leader epoch never goes back within a process.", _DESIGN_6),
    Invariant(
        "role-by-epoch", "A replica changes between leading and following only in a higher leader epoch.", _DESIGN_5
    ),
    Invariant(
        "epoch-resets-knowledge",
        "What a leader knows of its followers' logs comes from fetches of its own leader epoch.",
        _DESIGN_5,
    ),
    Invariant("version-holds", "The version of the state a replica goes by never goes back.", _DESIGN_5),
    Invariant(
        "followers-assigned", "A leader knows of the logs of those that are assigned, and of nobody else.", "KAFKA-9672"
    ),
    Invariant(
        "leaders-serve",
        "Nobody leads whose data loop has stood still for longer than regency.loop.watchdog.ms and three looks.",
        _DESIGN_4,
    ),
    Invariant("waiters-told", "No produce and no deletion waits at a replica that does not lead.", "KAFKA-9198"),
    Invariant(
        "watermark-advances",
        "A leader's high watermark has risen to what all in sync are known to have when its ISR has changed.",
        "KAFKA-13091",
    ),
    Invariant(
        "watermark-needs-min-insync",
        "A leader's high watermark rises only while min.insync.replicas, or all that are assigned, are in sync.",
        _DESIGN_5,
    ),
    Invariant(
        "isr-eligible",
        "Who is put into an ISR is registered as who fetched, does not shut down, and has what the epoch began with.",
        _DESIGN_5,
    ),
    Invariant(
        "isr-complete",
        "Every member of an ISR in ZooKeeper that lost nothing has every record that was below a high watermark.",
        _DESIGN_6,
    ),
    # In logs
    Invariant(
        "log-matching",
        "Batches at one offset and of one leader epoch are one and follow the same, in all logs.",
        "KIP-101",
    ),
    Invariant("batches-sound", "Every batch of a log has the checksum it claims.", "own rule"),
    Invariant("epochs-fit", "The leader epochs a log knows rise, and are those of its batches.", "KIP-101"),
    Invariant("epoch-noted", "A leader's log knows its leader epoch before it has any record of it.", "KIP-279"),
    Invariant(
        "moved-whole",
        "A log that was moved to another directory is what it was before: records, marks, epochs and producers.",
        "KIP-113",
    ),
    Invariant(
        "retention-by-rule",
        "A log begins later only where retention.ms, by the broker's clock, retention.bytes, a client or its leader "
        "says so.",
        "KIP-33",
    ),
    Invariant(
        "deleted-everywhere",
        "When a client is told that records are deleted, no replica that its leader takes for live offers them.",
        "KIP-107",
    ),
    Invariant(
        "deleted-for-good",
        "A leader that has told a client so does not offer them again, also not after a power cut.",
        "own rule",
    ),
    Invariant(
        "synced-kept",
        "A log that is opened again has all that was synced, and knows how new its older segments are.",
        "own rule",
    ),
    Invariant(
        "marks-after-cuts",
        "No higher high watermark is checkpointed while the disk does not know where logs were cut off.",
        _DESIGN_6,
    ),
    Invariant(
        "marks-kept",
        "A checkpointed high watermark stays in the checkpoint, and is known again when the log is hosted.",
        "KAFKA-1647",
    ),
    Invariant(
        "marked-when-closed", "A directory is marked as clean only when all of its logs are closed.", "KAFKA-10723"
    ),
    Invariant(
        "last-values-kept",
        "Of every key of a compacted topic the last committed record is in every log that goes so far, and of every "
        "producer its last batch.",
        "KIP-534",
    ),
    Invariant(
        "cleaned-when-committed",
        "What counts as clean was committed when it was cleaned, and is in the log.",
        _DESIGN_6,
    ),
    Invariant("producers-kept", "A log that begins later forgets no producer.", "KAFKA-7190"),
    Invariant("producers-fit", "A leader knows the last batch of every producer in its log.", "KIP-98"),
    # Of controllers, at agents and at themselves
    Invariant(
        "deposed-refused", "An agent that has seen a newer controller epoch does nothing in an older one.", _DESIGN_6
    ),
    Invariant("obeyed-won", "An agent obeys only who has won the controller epoch it names.", _DESIGN_6),
    Invariant("incarnation-refused", "An agent does nothing that an earlier incarnation was asked.", _DESIGN_5),
    Invariant("refused-is-older", "An agent fences only what is of a lower leader epoch than it holds.", "KAFKA-13972"),
    Invariant(
        "newest-is-asked", "A controller asks an agent for nothing older than it has asked it before.", _DESIGN_5
    ),
    Invariant("requests-in-order", "An agent executes a controller's requests in order of number.", _DESIGN_5),
    Invariant("rules-what-it-won", "A controller rules only in an epoch that its session has won.", _DESIGN_6),
    Invariant(
        "term-begins-anew", "What a controller knows when it begins to rule, it has read since it won.", _DESIGN_5
    ),
    Invariant("decided-on-what-stands", "A controller writes over the version that it decided on.", _DESIGN_4),
    Invariant("leavers-asked", "Nobody is taken for shutting down who asked in an earlier life.", _DESIGN_5),
    Invariant("left-as-told", "A broker stops as one that leads nothing if a controller has said so.", _DESIGN_5),
    Invariant("callers-answered", "A term that is over leaves nobody without an answer.", _DESIGN_5),
    Invariant("leavers-not-elected", "Nobody is elected who has asked to leave.", _DESIGN_5),
    Invariant(
        "longest-log-leads",
        "Nobody leads who was not in sync while another live replica has said that its log goes further.",
        _DESIGN_5,
    ),
    Invariant("busy-are-heard", "A broker says how far its logs go while it does what a controller asked.", "own rule"),
    Invariant("shortages-outlived", "No agent that is up ends because it gets no descriptor for a while.", "own rule"),
    Invariant("no-surprise", "Production code meets no exception that it does not expect.", "own rule"),
    Invariant(
        "new-partitions-placed",
        "A partition made with a broker in its ISR since that registered gets a log there while a directory works.",
        "KAFKA-10314",
    ),
    Invariant("metadata-holds", "The controller epoch of an agent's metadata never goes back.", _DESIGN_6),
    # Of consumer groups
    Invariant(
        "commits-kept",
        "What is committed of a group, as who leads it tells, is the last that was, and nothing else.",
        "own rule",
    ),
    Invariant(
        "one-assignment-per-generation",
        "A member of a generation has one assignment in it, which was made in it, and for that member.",
        "own rule",
    ),
    Invariant(
        "old-generations-refused",
        "Nothing is taken from a member of a generation after which another one has got its assignments.",
        "own rule",
    ),
    Invariant(
        "replaced-are-fenced",
        "A static member in whose place another one has its assignment is told so, whatever it asks.",
        "KIP-345",
    ),
    Invariant("answered-once", "A coordinator answers no request twice.", "own rule"),
    Invariant("owned-once", "No two members of one generation own the same partition.", "own rule"),
    Invariant(
        "sessions-kept",
        "A member that has said in time that it lives is known, in its generation, also where its coordinator moves.",
        "own rule",
    ),
    # At the end
    Invariant("converged", "After the last fault has healed everything is well again in 30 s.", _DESIGN_6),
    Invariant("history", "What clients were told and saw fits one log per partition.", "own rule"),
)

INVARIANTS: Final = {each.name: each for each in _TABLE}
"""All invariants by name, in order."""


def broken(name: str, words: str) -> InvariantBroken:
    """The exception to raise; the name must be in the table."""
    return InvariantBroken(INVARIANTS[name].name, words)
