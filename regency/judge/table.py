"""Which anomalies there are, and the table of those that a configuration allows and why. Data first; docs render it.

An anomaly about one send is allowed by the rows that hold for that send's acks and idempotence, never by those of
another producer beside it. One that is about no single send is allowed by the rows of any producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from regency.judge.operations import ALL


class Anomaly(StrEnum):
    """A way in which what clients saw differs from one log per partition. `DESCRIPTIONS` says what each means."""

    LOST_WRITE = "lost-write"
    LOST_LEADER_WRITE = "lost-leader-write"
    INCONSISTENT_OFFSET = "inconsistent-offset"
    MISPLACED_WRITE = "misplaced-write"
    PHANTOM = "phantom"
    FAILED_WRITE_READ = "failed-write-read"
    DUPLICATE = "duplicate"
    RETRY_DUPLICATE = "retry-duplicate"
    REORDERED = "reordered"
    RETRY_REORDERED = "retry-reordered"
    NONMONOTONIC_SEND = "nonmonotonic-send"
    RETRY_NONMONOTONIC_SEND = "retry-nonmonotonic-send"
    SKIPPED_SEND = "skipped-send"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    SKIPPED_POLL = "skipped-poll"
    HOLE_IN_LOG = "hole-in-log"
    UNREAD_TAIL = "unread-tail"
    END_WENT_BACK = "end-went-back"
    UNJUDGED = "unjudged"


DESCRIPTIONS: Final[Mapping[Anomaly, str]] = MappingProxyType(
    {
        Anomaly.LOST_WRITE: "acknowledged with acks=all, and not in the final read, or another record stands there",
        Anomaly.LOST_LEADER_WRITE: "the same for an acknowledgement with acks=1",
        Anomaly.INCONSISTENT_OFFSET: "two values at one offset, among polls, final read and acknowledgements",
        Anomaly.MISPLACED_WRITE: "acknowledged at one offset, read at another one only",
        Anomaly.PHANTOM: "read, and never sent to this partition",
        Anomaly.FAILED_WRITE_READ: "read, though its send failed for sure",
        Anomaly.DUPLICATE: "a value of an idempotent producer at two offsets",
        Anomaly.RETRY_DUPLICATE: "a value of a plain producer at two offsets",
        Anomaly.REORDERED: "an idempotent producer's values in the log in another order than sent",
        Anomaly.RETRY_REORDERED: "a plain producer's values in the log in another order than sent",
        Anomaly.NONMONOTONIC_SEND: "an idempotent producer's later send acknowledged at a lower offset",
        Anomaly.RETRY_NONMONOTONIC_SEND: "a plain producer's later send acknowledged at a lower offset",
        Anomaly.SKIPPED_SEND: "not in the log, though a later send of its idempotent session is; nothing expired there",
        Anomaly.NONMONOTONIC_POLL: "within a session, offsets or the position go back",
        Anomaly.SKIPPED_POLL: "within a session, offsets or the position jump over records above the log start",
        Anomaly.HOLE_IN_LOG: "the final read lacks offsets between log start and high watermark",
        Anomaly.UNREAD_TAIL: "a consumer that polled to the end of the run did not see all below the high watermark",
        Anomaly.END_WENT_BACK: "a listed end lies below what was listed, read or acknowledged before at that leader",
        Anomaly.UNJUDGED: "final read or polls are missing, without which a complete history cannot be judged",
    }
)


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """What producers and topic were set to."""

    acks: int = ALL
    """0, 1 or ALL."""
    idempotent: bool = True
    retries: bool = True
    """Whether a producer sends again what got no answer."""
    in_flight: int = 5
    """Requests a producer has under way to one broker."""
    min_insync_replicas: int = 2
    replication_factor: int = 3
    sees_epoch_bumps: bool = True
    """Whether the history's producer sessions follow the client's epoch; librdkafka bumps it unseen."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What befell one partition, as far as it excuses anything."""

    unclean_elections: int = 0
    leader_changes: int = 0
    lossy_replicas: int = 0
    """Most replicas that had lost their unsynced tails at one time, before they were back in the ISR."""
    whole_isr_lossy: bool = False
    """Whether the whole ISR was among them, be it one replica, and none that had the records could be asked for them.

    Else the longest log led (docs/concepts/durability.md), and nothing may be lost.
    """
    epoch_bumps: int = 0
    compacted: bool = False


class Cause(StrEnum):
    """What must have happened for a row of the table to hold."""

    RETRIES = "a plain producer sends again what got no answer"
    RETRIES_IN_FLIGHT = "a plain producer sends again, with more than one request under way"
    LEADER_CHANGE = "the leader changed"
    ANY_LOSSY_CRASH = "a replica lost its unsynced tail"
    LOSSY_CRASHES = (
        "more than min.insync.replicas - 1 replicas lost their unsynced tails at a time, or the whole ISR, and none "
        "with the records could be asked"
    )
    UNCLEAN_ELECTION = "a replica outside the ISR was elected"
    COMPACTED_LOG_REPLACED = "one of the last two befell a compacted partition"
    EPOCH_BUMP = "an idempotent producer bumped its epoch with sends unanswered (known hole)"
    UNSEEN_EPOCHS = "the history does not follow the producers' epochs"


class Row(msgspec.Struct, frozen=True):
    """One row of the table: with these acks, once the cause has happened, the anomalies are allowed."""

    acks: tuple[int, ...]
    idempotent: bool | None
    """None = either."""
    cause: Cause
    anomalies: tuple[Anomaly, ...]
    why: str


def _may_be_lost(configuration: Configuration, facts: Facts) -> bool:
    fewest = max(1, min(configuration.min_insync_replicas, configuration.replication_factor))
    return facts.whole_isr_lossy or facts.lossy_replicas >= fewest


_CAUSES: Final[Mapping[Cause, Callable[[Configuration, Facts], bool]]] = MappingProxyType(
    {
        Cause.RETRIES: lambda configuration, _facts: configuration.retries,
        Cause.RETRIES_IN_FLIGHT: lambda configuration, _facts: configuration.retries and configuration.in_flight > 1,
        Cause.LEADER_CHANGE: lambda _configuration, facts: facts.leader_changes > 0,
        Cause.ANY_LOSSY_CRASH: lambda _configuration, facts: facts.lossy_replicas > 0,
        Cause.LOSSY_CRASHES: _may_be_lost,
        Cause.UNCLEAN_ELECTION: lambda _configuration, facts: facts.unclean_elections > 0,
        Cause.COMPACTED_LOG_REPLACED: lambda configuration, facts: (
            facts.compacted and (facts.unclean_elections > 0 or _may_be_lost(configuration, facts))
        ),
        Cause.EPOCH_BUMP: lambda _configuration, facts: facts.epoch_bumps > 0,
        Cause.UNSEEN_EPOCHS: lambda configuration, _facts: not configuration.sees_epoch_bumps,
    }
)

_ANY = (0, 1, ALL)
_LEADER_TRUNCATED = (
    Anomaly.LOST_LEADER_WRITE,
    Anomaly.MISPLACED_WRITE,
    Anomaly.REORDERED,
    Anomaly.RETRY_REORDERED,
    Anomaly.NONMONOTONIC_SEND,
    Anomaly.RETRY_NONMONOTONIC_SEND,
)
_LOG_REPLACED = (
    *_LEADER_TRUNCATED,
    Anomaly.LOST_WRITE,
    Anomaly.INCONSISTENT_OFFSET,
    Anomaly.DUPLICATE,
    Anomaly.RETRY_DUPLICATE,
    Anomaly.SKIPPED_SEND,
    Anomaly.END_WENT_BACK,
)

TABLE: Final[tuple[Row, ...]] = (
    Row(_ANY, False, Cause.RETRIES, (Anomaly.RETRY_DUPLICATE,), "an attempt whose reply was lost may stand already"),
    Row(
        _ANY,
        False,
        Cause.RETRIES_IN_FLIGHT,
        (Anomaly.RETRY_REORDERED, Anomaly.RETRY_NONMONOTONIC_SEND),
        "a later request may be written before the repeated one",
    ),
    Row(
        (1,),
        None,
        Cause.LEADER_CHANGE,
        _LEADER_TRUNCATED,
        "only the old leader had promised the record; the new one may not have it, and its offset is used again",
    ),
    Row((1,), None, Cause.ANY_LOSSY_CRASH, _LEADER_TRUNCATED, "the leader may have had the only copy, not yet synced"),
    Row(
        _ANY,
        None,
        Cause.LOSSY_CRASHES,
        _LOG_REPLACED,
        "every replica that had to have the record may have lost it: a write is acknowledged before it is synced",
    ),
    Row(
        _ANY,
        None,
        Cause.UNCLEAN_ELECTION,
        _LOG_REPLACED,
        "the elected log replaces what the ISR had, above and below the high watermark",
    ),
    Row(
        _ANY,
        None,
        Cause.COMPACTED_LOG_REPLACED,
        (Anomaly.SKIPPED_POLL,),
        "readers of the lost log passed over what was compacted away there; the next one gives these offsets again",
    ),
    Row(
        (1, ALL),
        True,
        Cause.EPOCH_BUMP,
        (Anomaly.DUPLICATE, Anomaly.REORDERED, Anomaly.NONMONOTONIC_SEND),
        "what a deposed leader had appended is answered NOT_LEADER_OR_FOLLOWER and sent again under new numbers",
    ),
    Row(
        (1, ALL),
        True,
        Cause.UNSEEN_EPOCHS,
        (Anomaly.SKIPPED_SEND, Anomaly.REORDERED),
        "a session of the history may be several of the broker's: what was given up between them may be late or never",
    ),
)


def allowed_rows(configuration: Configuration, facts: Facts) -> tuple[Row, ...]:
    """The rows of the table that hold, in its order."""
    return tuple(
        row
        for row in TABLE
        if configuration.acks in row.acks
        and row.idempotent in (None, configuration.idempotent)
        and _CAUSES[row.cause](configuration, facts)
    )


def allowed_anomalies(configuration: Configuration, facts: Facts) -> frozenset[Anomaly]:
    """What a correct cluster may show under the configuration once `facts` have happened; `allowed_rows` says why."""
    return frozenset(anomaly for row in allowed_rows(configuration, facts) for anomaly in row.anomalies)


Sender = tuple[int, bool]
"""The acks and the idempotence of a send."""


class Allowance(msgspec.Struct, frozen=True):
    """What one partition may show, by who sent: what is not about one send is allowed if it is to any sender."""

    by_sender: Mapping[Sender, frozenset[Anomaly]] = MappingProxyType({})
    """A send of acks and idempotence that are not named is allowed nothing."""

    @property
    def anomalies(self) -> frozenset[Anomaly]:
        """What is allowed to any sender."""
        return frozenset().union(*self.by_sender.values())

    def allows(self, anomaly: Anomaly, sender: Sender | None) -> bool:
        """Whether an anomaly about a send of `sender`, or about no single send (None), is allowed."""
        if sender is None:
            return any(anomaly in anomalies for anomalies in self.by_sender.values())
        return anomaly in self.by_sender.get(sender, ())

    def __bool__(self) -> bool:
        return any(self.by_sender.values())

    def __or__(self, other: Allowance) -> Allowance:
        merged = dict(self.by_sender)
        for sender, anomalies in other.by_sender.items():
            merged[sender] = merged.get(sender, frozenset()) | anomalies
        return Allowance(merged)


def allowance_of(configurations: Iterable[Configuration], facts: Facts) -> Allowance:
    """What a partition may show that producers of these configurations write to, once `facts` have happened.

    Of two configurations with the same acks and idempotence, which a send does not tell apart, either may allow.
    """
    allowance = Allowance()
    for each in configurations:
        allowance |= Allowance({(each.acks, each.idempotent): allowed_anomalies(each, facts)})
    return allowance
