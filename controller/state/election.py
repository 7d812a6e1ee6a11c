"""Who leads: leader elections and ISR changes as pure functions that say why. Nothing here reads, writes or logs.

"Online" replicas are those whose broker is live, not shutting down, and holds the replica on a working directory.
Source: the election strategies of Kafka's PartitionStateMachine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from regency.model.ids import LARGEST_LEAP, NO_LEADER, BrokerEpoch, BrokerId, LeaderEpoch, Offset


class ElectionKind(Enum):
    """Why a leader is elected, which decides by which rule."""

    OFFLINE = "offline"
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    LONGEST_LOG = "longest_log"
    """As offline; where that elects no leader and it is allowed, the replica with the longest log that is known of."""


UNCLEAN: Final = "unclean"
REASSIGN: Final = "reassign"
"""The step of a reassignment that gives its partition another leader; no election of its own."""
RESTARTED: Final = "restarted"
"""All who were in sync have restarted after a loss, and another replica has more: nothing is lost by its election."""
ELECTED_BECAUSE: Final = ("offline", REASSIGN, "preferred", "controlled_shutdown", RESTARTED, UNCLEAN)
"""What elections are counted by."""


class LogEnd(NamedTuple):
    """How far a replica's log goes. Of two, the greater one by the first two has more of what was written last."""

    epoch: LeaderEpoch
    """Of the last batch; -1 for an empty log."""
    offset: Offset
    """The log end offset; -1 where there is no log."""
    leader_epoch: LeaderEpoch = LeaderEpoch(-1)
    """The highest its broker was told of; says nothing of what is in the log."""
    start: Offset = Offset(0)
    epochs: tuple[tuple[LeaderEpoch, Offset], ...] = ()
    """Where each leader epoch begins, ascending; none where an older agent does not tell."""
    high_watermark: Offset = Offset(0)
    """As far as the replica knows; it may be seconds old after a restart."""

    @property
    def committed(self) -> LogEnd:
        """The part of the log that is known to be committed."""
        epoch = max((epoch for epoch, start in self.epochs if start < self.high_watermark), default=LeaderEpoch(-1))
        return LogEnd(epoch, self.high_watermark)

    def extends(self, other: LogEnd) -> bool:
        """Whether this log has all that the other still has: it goes on where that one ends, or begins behind it.

        Batches of one epoch at one offset are the same batches, and so are all before them. What is not told is not so.
        """
        if self.offset < other.offset:
            return False
        if other.epoch < 0 or self.start >= other.offset:
            return True
        if self.epoch <= other.epoch:
            return self.epoch == other.epoch
        following = next((after for (epoch, _), after in pairwise(self.epochs) if epoch == other.epoch), None)
        return following is not None and following[1] >= other.offset


class Election(msgspec.Struct, frozen=True):
    """Outcome. `leader` is None when no replica may lead, and then nothing changes; `why` is for people and history."""

    leader: BrokerId | None
    isr: tuple[BrokerId, ...]
    why: str
    unclean: bool = False
    """The leader was not in sync, and who was may have more: records acknowledged before may be lost."""
    restarted: bool = False
    """The leader was not in sync, but has all that is left with those who were."""


def elected_because(kind: ElectionKind, election: Election) -> str:
    """What an election is counted as, one of ELECTED_BECAUSE."""
    if election.unclean:
        return UNCLEAN
    if election.restarted:
        return RESTARTED
    counted: str = (ElectionKind.OFFLINE if kind is ElectionKind.LONGEST_LOG else kind).value
    return counted


def elect_offline(
    assignment: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    online: Collection[BrokerId],
    unsure: Collection[BrokerId] = (),
) -> Election:
    """Elect for a partition without a working leader: the first assigned replica that is online and in sync.

    The ISR shrinks to its online members. Those who are `unsure`, because they may have lost something since they were
    in sync, are none of them; see `elect_restarted`. Source: OfflinePartitionLeaderElection.
    """
    online_isr = tuple(replica for replica in isr if replica in online and replica not in unsure)
    for replica in assignment:
        if replica in online_isr:
            return Election(replica, online_isr, f"first live replica of {list(assignment)} that is in sync")
    if online_isr:
        return Election(None, tuple(isr), f"no live member of the ISR {list(isr)} is assigned")
    if any(replica in online for replica in isr):
        return Election(None, tuple(isr), f"all live members of the ISR {list(isr)} restarted after a loss")
    return Election(None, tuple(isr), f"no member of the ISR {list(isr)} is live")


def elect_restarted(
    assignment: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    online: Collection[BrokerId],
    ends: Mapping[BrokerId, LogEnd | None],
) -> Election:
    """Elect where all who are in sync may have lost something: the live replica with the longest log leads alone.

    One that is not in sync leads only where its log is known to go on where that of the longest member ends: then it
    has all that the member still has, and perhaps what it lost. Where several such logs differ, the one with the most
    below a high watermark counts. A log that merely ends later, or in a later epoch, may
    lack what was committed: a leader commits batches of older epochs before it writes one of its own, and the later
    epoch may be one of which nothing ever was. Source: KIP-966's recovery.
    """
    members = [replica for replica in assignment if replica in isr and replica in online]
    lost = f"all of the ISR {list(isr)} restarted after a loss"
    if not members:
        return Election(None, tuple(isr), f"{lost}, and none of it is live and assigned")
    others = [replica for replica in assignment if replica in online and replica not in members]
    known = {replica: end for replica in (*members, *others) if (end := ends.get(replica)) is not None}
    if not others:
        leader, rule = members[0], f"no other replica of {list(assignment)} is live"
    elif known.keys().isdisjoint(members):
        leader, rule = members[0], f"{members[0]} does not tell how far its log goes"
    else:
        base = max((replica for replica in members if replica in known), key=lambda replica: known[replica][:2])
        able = [replica for replica in known if known[replica].extends(known[base])]
        committed = max((known[replica].committed for replica in able), key=lambda end: end[:2])
        able = [replica for replica in able if known[replica].extends(committed)]
        leader = max(able, key=lambda replica: known[replica][:2])
        rest = [
            _told(replica, known.get(replica))
            + (", lacks part of that" if replica in known and replica not in able else "")
            for replica in (*members, *others)
            if replica != leader
        ]
        rule = f"of the live replicas with all that {base} has and that is known to be committed, "
        rule += f"{_told(leader, known[leader])} has the longest log; "
        rule += ", ".join(rest)
    return Election(leader, (leader,), f"restarted: {lost}; {rule}", restarted=leader not in isr)


def elect_unclean(
    assignment: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    online: Collection[BrokerId],
    ends: Mapping[BrokerId, LogEnd | None],
) -> Election:
    """Elect a replica that is not in sync, as none that is lives; it leads alone.

    The one with the longest log, by the epoch of its last batch and then its end, ties in the order of the assignment;
    those of which nothing is known, because they were not asked or are silent, come last, in that order too, which is
    Kafka's. Source: KIP-106; docs/internals/architecture.md.
    """
    live = [replica for replica in assignment if replica in online]
    lost = f"no member of the ISR {list(isr)} is live"
    if not live:
        return Election(None, tuple(isr), f"{lost}, nor is another replica of {list(assignment)}")
    known = {replica: end for replica in live if (end := ends.get(replica)) is not None}
    if len(live) == 1:
        leader = live[0]
        rule = f"{leader} is the only live replica of {list(assignment)}"
    elif not known:
        leader = live[0]
        rule = f"none of {live} tells how far its log goes: the first live replica of {list(assignment)}, as in Kafka"
    else:
        leader = max(known, key=lambda replica: known[replica][:2])
        others = [_told(replica, known.get(replica)) for replica in live if replica != leader]
        rule = f"the longest log of the live replicas is that of {_told(leader, known[leader])}; {', '.join(others)}"
    return Election(leader, (leader,), f"unclean: {lost}; {rule}", unclean=True)


class Recovery(msgspec.Struct, frozen=True):
    """A first leader for a partition that has no state znode, chosen by what its replicas say of their logs."""

    election: Election
    leader_epoch: LeaderEpoch
    unheard: tuple[BrokerId, ...] = ()
    """Replicas that may have more than the elected one."""


def elect_without_state(
    assignment: Sequence[BrokerId], online: Collection[BrokerId], ends: Mapping[BrokerId, LogEnd | None]
) -> Recovery:
    """Elect for a partition whose state znode is not there, because it was never written or is lost.

    Where every live replica says that it has no log, there never was a leader: the first live one leads, with all
    live ones in sync. A log shows that the state is lost, and with it the ISR. Each of its members has all that is
    committed, so the longest of all logs mostly has it (`elect_restarted` tells when not): its replica leads alone,
    beyond all leader epochs that are believed.
    At least one replica must be online.
    """
    live = tuple(replica for replica in assignment if replica in online)
    told = {replica: end for replica in live if (end := ends.get(replica)) is not None}
    epoch = max(
        (each for end in told.values() for each in (end.epoch, end.leader_epoch) if each <= LARGEST_LEAP), default=-1
    )
    logs = {replica: end for replica, end in told.items() if end.offset >= 0}
    if not logs and len(told) == len(live):
        why = f"first live replica of {list(assignment)}; no live one has a log of it"
        return Recovery(Election(live[0], live, why), LeaderEpoch(epoch + 1))
    unheard = tuple(replica for replica in assignment if replica not in told)
    if logs:
        leader = max(logs, key=lambda replica: logs[replica][:2])
        others = "".join(f"; {_told(each, told.get(each))}" for each in assignment if each != leader)
        why = f"the longest log of the live replicas is that of {_told(leader, logs[leader])}{others}"
    else:
        leader, why = live[0], f"no replica tells how far its log goes: the first live one of {list(assignment)}"
    lost = Election(leader, (leader,), f"unclean: the state znode is lost; {why}", unclean=True)
    return Recovery(lost, LeaderEpoch(epoch + 1), unheard)


def _told(replica: BrokerId, end: LogEnd | None) -> str:
    if end is None:
        return f"{replica} (silent)"
    if end.offset < 0:
        return f"{replica} (no log)"
    return f"{replica} (epoch {end.epoch}, end {end.offset})"


def elect_reassigned(target: Sequence[BrokerId], isr: Sequence[BrokerId], online: Collection[BrokerId]) -> Election:
    """Elect when a reassignment completes: the first target replica that is online and in sync; the ISR stays."""
    for replica in target:
        if replica in online and replica in isr:
            return Election(replica, tuple(isr), f"first live replica of the target {list(target)} that is in sync")
    return Election(None, tuple(isr), f"no live replica of the target {list(target)} is in the ISR {list(isr)}")


def elect_preferred(
    assignment: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    online: Collection[BrokerId],
    unsure: Collection[BrokerId] = (),
) -> Election:
    """Elect the preferred replica, the first assigned one, if it is online, in sync and not `unsure`; the ISR stays."""
    if not assignment:
        return Election(None, tuple(isr), "no replica is assigned")
    preferred = assignment[0]
    if preferred not in online:
        return Election(None, tuple(isr), f"preferred replica {preferred} is not live")
    if preferred not in isr:
        return Election(None, tuple(isr), f"preferred replica {preferred} is not in the ISR {list(isr)}")
    if preferred in unsure:
        return Election(None, tuple(isr), f"preferred replica {preferred} restarted after a loss")
    return Election(preferred, tuple(isr), f"preferred replica of {list(assignment)}")


def elect_for_shutdown(
    assignment: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    live: Collection[BrokerId],
    shutting_down: Collection[BrokerId],
) -> Election:
    """Elect because the leader's broker shuts down: the first assigned, live, in-sync replica that stays.

    `live` includes the brokers shutting down. They leave the ISR. When all of it shuts down the leader stays.
    """
    staying = tuple(replica for replica in isr if replica not in shutting_down)
    for replica in assignment:
        if replica in live and replica in staying:
            return Election(replica, staying, f"first live replica of {list(assignment)} in sync and not shutting down")
    return Election(None, tuple(isr), f"every live member of the ISR {list(isr)} is shutting down")


def remove_from_isr(
    assignment: Sequence[BrokerId],
    leader: BrokerId,
    isr: Sequence[BrokerId],
    offline: Collection[BrokerId],
    *,
    back: Collection[BrokerId] = (),
    unsure: Collection[BrokerId] = (),
) -> Election | None:
    """Leader and ISR once the replicas `offline` are out; None where none of them is in the ISR and so nothing changes.

    A leader that goes leaves the partition without one (NO_LEADER). The ISR never becomes empty: if all of it goes,
    one stays that has every committed record. That is who restarted and is `back` already; else who is gone, and
    may return with all of it; and last who is `unsure`, because it may have lost something. Of those it is the last
    known leader, or the first of the assignment.
    """
    gone = [replica for replica in isr if replica in offline]
    if not gone and leader not in offline:
        return None
    remaining = tuple([replica for replica in isr if replica not in offline])
    new_leader = NO_LEADER if leader in offline else leader
    may_return = any(replica not in unsure for replica in gone)
    if not isr or (remaining and not (may_return and set(unsure).issuperset(remaining))):
        return Election(new_leader, remaining or tuple(isr), f"{gone} went offline")
    order = [leader, *assignment, *isr]
    kept = min(isr, key=lambda replica: (replica in unsure, replica not in back, order.index(replica)))
    if (kept,) == tuple(isr) and new_leader == leader:
        return None
    return Election(new_leader, (kept,), f"{gone} went offline; {kept} is kept as the last known to be in sync")


class Inquiry(msgspec.Struct):
    """Who was asked how far its log of a partition goes, and what was answered; None for one who does not tell."""

    due_ms: int
    """When it is over, also with silent brokers; monotonic."""
    forced: bool = False
    """It was asked for: settings do not matter."""
    asked: dict[BrokerId, BrokerEpoch] = {}
    ends: dict[BrokerId, LogEnd | None] = {}

    @property
    def unheard(self) -> bool:
        """Whether one who was asked has not told."""
        return any(self.ends.get(broker) is None for broker in self.asked)
