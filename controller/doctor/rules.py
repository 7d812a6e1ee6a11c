"""What is wrong where ZooKeeper, the ruling controller and agents are compared, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from regency.controller.state.context import ControllerContext
from regency.controller.state.invariants import violations
from regency.controller.state.reconcile_rules import compare, expected, judge_uncalled_for
from regency.controller.state.reports import BrokerReports, ReplicaReport
from regency.controller.state.states import ReplicaState
from regency.controller.state.topic_entry import TopicEntry
from regency.model.facts import LeaderIsrAndControllerEpoch, ReplicaAssignment, TopicAssignment
from regency.model.hosting import HostedRole
from regency.model.ids import NO_LEADER, BrokerId, Offset, TopicPartition
from regency.model.words import counted, listed

_READ_ANEW: Final = "`regency controller resign` makes a new controller read everything"

ADVICE: Final = {
    "topic_unknown": f"It may be unreadable, or not be a topic at all: look at its znode. {_READ_ANEW}.",
    "topic_gone": f"Its znode was deleted by hand. {_READ_ANEW}.",
    "topic_differs": f"Its znode was changed by another hand. {_READ_ANEW}; then look at the assignment.",
    "state_differs": f"The state znode was written by another hand. {_READ_ANEW}, and elect where no broker leads.",
    "state_missing": f"The state znode was deleted by hand. {_READ_ANEW}, and write it.",
    "malformed": f"Repair or delete the znode. {_READ_ANEW}.",
    "invariant": f"`regency explain` shows who decided it. {_READ_ANEW}; if it comes back, look at its znodes.",
    "leaderless": "Start the brokers of its ISR, or repair their directories. Where they are lost for good: `regency "
    "leaders elect` with an unclean election, which loses what only they had.",
    "not_in_sync": "Wait while it catches up; if it does not, look at that broker's log and disks.",
    "broker_dead": "Start it, or move its replicas elsewhere: `regency brokers drain {name}`, and look at it first by "
    "`regency partitions plan --drain {name}`.",
    "deletion_owed": "Start it: it deletes them. If it is gone for good: `regency brokers forget {name}`.",
    "reassignment_waits": "Start that broker, or take the reassignment back by `regency partitions cancel`, and make "
    "another plan.",
    "deletion_waits": "It goes on by itself once that is over; the name stays taken until then.",
    "broker_unknown": "Without the control listener it is no broker of ours; else look at the controller's log.",
    "broker_stale": f"{_READ_ANEW}.",
    "controller_differs": "Another controller is taking over, or /controller was written by hand: try again.",
    "silent": "Its agent is paused, overloaded or cut off from the controller: look at its log and its process.",
    "not_acknowledged": "The broker does not acknowledge its desired state: look at its log for the reason.",
    "behind_watermark": "Committed records are missing from a replica in sync: look at this broker's disks before "
    "anything is restarted.",
    "two_leaders": "One of them has not heard that it was deposed, and can commit nothing: look at its log.",
    "offsets": "The log is damaged: look at that broker's disks.",
    "damaged": "Readers are refused there. Have it copied again: reassign the partition to its other replicas, then to "
    "all of them again (docs/operate/damage.md).",
    "isr_differs": f"{_READ_ANEW} and send everything again.",
    "epoch_unbelievable": "Restart that broker: the controller does not go beyond it, as one wrong word would use up "
    "all leader epochs there are.",
    "replica_offline": "Repair the directory, then restart that broker.",
}
RECONCILED: Final = (
    "The controller repairs it by itself within regency.reconcile.interval.ms; if it stays, look at that broker's log."
)


class Finding(msgspec.Struct, frozen=True, order=True):
    """Something that differs. `kind` is a stable word."""

    subject: str
    kind: str
    where: str
    what: str = msgspec.field(default="")

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes it the same finding when it is looked at again."""
        return self.subject, self.kind, self.where

    @property
    def advice(self) -> str:
        """What to do next."""
        return ADVICE.get(self.kind, RECONCILED).replace("{name}", self.subject.rpartition(" ")[2])


ZOOKEEPER: Final = "zookeeper and the controller"
OF_ALL_TOPICS: Final = ("broker_dead", "deletion_owed")
"""Kinds that tell of a broker by all topics: to look a second time, all are looked at."""


class Stored(msgspec.Struct, frozen=True):
    """What ZooKeeper holds of one topic; a word in place of what cannot be read."""

    assignment: TopicAssignment | str | None
    states: Mapping[int, LeaderIsrAndControllerEpoch | str | None]


def examine_topic(context: ControllerContext, entry: TopicEntry, stored: Stored) -> Iterator[Finding]:
    """One topic, as the controller knows it, against its znodes."""
    name = entry.name
    topic = stored.assignment
    if isinstance(topic, str):
        yield Finding(f"topic {name}", "malformed", "zookeeper", topic)
        return
    if topic is None:
        if not context.is_queued_for_deletion(name):
            yield Finding(f"topic {name}", "topic_gone", ZOOKEEPER, "the controller knows it, and it has no znode")
        return
    if topic.topic_id != entry.topic_id:
        what = f"its znode has the id {topic.topic_id}, the controller knows {entry.topic_id}"
        yield Finding(f"topic {name}", "topic_differs", ZOOKEEPER, what)
    known = dict(entry.partitions())
    for number in sorted(known.keys() | topic.partitions.keys()):
        held, there = known.get(number), topic.partitions.get(number)
        if held != there and not context.is_queued_for_deletion(name):
            what = f"assigned {_replicas(there)} in its znode, {_replicas(held)} as the controller knows it"
            yield Finding(f"{name}-{number}", "topic_differs", ZOOKEEPER, what)
    for number in known:
        yield from _examine_state(TopicPartition(name, number), entry.leadership[number], stored.states.get(number))


def _examine_state(
    partition: TopicPartition,
    known: LeaderIsrAndControllerEpoch | None,
    stored: LeaderIsrAndControllerEpoch | str | None,
) -> Iterator[Finding]:
    if isinstance(stored, str):
        yield Finding(str(partition), "malformed", "zookeeper", stored)
    elif stored is None and known is not None:
        yield Finding(
            str(partition), "state_missing", ZOOKEEPER, f"no state znode; the controller knows {_told(known)}"
        )
    elif stored is not None and stored != known:
        what = f"its znode says {_told(stored)}; the controller knows {_told(known)}"
        yield Finding(str(partition), "state_differs", ZOOKEEPER, what)


def examine_health(context: ControllerContext) -> Iterator[Finding]:
    """The invariants, and who does not lead or follow as it could."""
    for problem in violations(context):
        subject, _, what = problem.partition(" ")
        yield Finding(subject, "invariant", "the controller", what)
    for name, entry in context.topics.items():
        if context.is_queued_for_deletion(name):
            continue
        for number, assignment in entry.partitions():
            yield from _examine_partition(context, TopicPartition(name, number), assignment, entry.leadership[number])


def _examine_partition(
    context: ControllerContext,
    partition: TopicPartition,
    assignment: ReplicaAssignment,
    leadership: LeaderIsrAndControllerEpoch | None,
) -> Iterator[Finding]:
    live = [replica for replica in assignment.replicas if replica in context.usable]
    failed = [replica for replica in live if context.replica_state(partition, replica) is ReplicaState.OFFLINE]
    yield from _examine_reassignment(context, partition, assignment)
    for replica in failed:
        what = "its broker lives and does not serve it: its log directory has failed"
        yield Finding(str(partition), "replica_offline", f"broker {replica}", what)
    if leadership is None or leadership.leader_and_isr.leader == NO_LEADER:
        isr = "none" if leadership is None else list(leadership.leader_and_isr.isr)
        yield Finding(str(partition), "leaderless", "the cluster", f"no broker leads it; in sync last: {isr}")
        return
    isr = list(leadership.leader_and_isr.isr)
    for replica in live:
        if replica not in isr and replica not in failed and replica not in assignment.adding:
            what = f"it lives and is not in sync; the ISR is {isr}"
            yield Finding(str(partition), "not_in_sync", f"broker {replica}", what)


def _examine_reassignment(
    context: ControllerContext, partition: TopicPartition, assignment: ReplicaAssignment
) -> Iterator[Finding]:
    """Brokers that a reassignment waits for: it ends when all of its target are in sync."""
    if not assignment.is_reassigning:
        return
    for replica in assignment.target:
        if replica not in context.brokers:
            way = f"from {list(assignment.origin)} to {list(assignment.target)}"
            what = f"it is being reassigned {way}, and waits for broker {replica}, which is not live"
            yield Finding(str(partition), "reassignment_waits", f"broker {replica}", what)


def examine_reports(context: ControllerContext, reports: Mapping[BrokerId, BrokerReports]) -> Iterator[Finding]:
    """What brokers report to host of the topics of this context, against what they shall host."""
    for name, entry in context.topics.items():
        for number, assignment in entry.partitions():
            partition = TopicPartition(name, number)
            told = {broker: reports[broker].replicas.get(partition) for broker in reports}
            for broker in assignment.replicas:
                wanted = expected(context, broker, partition) if broker in reports else None
                difference = None if wanted is None else compare(wanted, told[broker])
                if difference is not None:
                    yield Finding(str(partition), difference.kind, f"broker {broker}", difference.why)
            for broker, replica in told.items():
                if replica is not None:
                    yield from _examine_replica(context, partition, broker, replica)
            yield from _examine_leaders(partition, told)


def _examine_replica(
    context: ControllerContext, partition: TopicPartition, broker: BrokerId, told: ReplicaReport
) -> Iterator[Finding]:
    if broker not in context.assignment(partition).replicas:
        uncalled = judge_uncalled_for(context, broker, partition, told)
        if uncalled is not None:
            yield Finding(str(partition), uncalled.kind, f"broker {broker}", uncalled.why)
    if not told.log_start_offset <= told.high_watermark <= told.log_end_offset:
        what = (
            f"log start {told.log_start_offset}, high watermark {told.high_watermark}, log end {told.log_end_offset}, "
            "which must not fall"
        )
        yield Finding(str(partition), "offsets", f"broker {broker}", what)
    if told.damage:
        yield Finding(str(partition), "damaged", f"broker {broker}", told.damage)
    leadership = context.leadership(partition)
    if told.role is HostedRole.LEADER and leadership is not None:
        now = leadership.leader_and_isr
        same = now.leader == broker and now.zk_version == told.zk_version
        if same and sorted(told.isr) != sorted(now.isr):
            what = (
                f"its ISR is {list(told.isr)}, the controller knows {list(now.isr)}, both at version {now.zk_version}"
            )
            yield Finding(str(partition), "isr_differs", f"broker {broker}", what)


def _examine_leaders(partition: TopicPartition, told: Mapping[BrokerId, ReplicaReport | None]) -> Iterator[Finding]:
    leading = [broker for broker, each in told.items() if each is not None and each.role is HostedRole.LEADER]
    if len(leading) > 1:
        epochs = ", ".join(f"{broker} in leader epoch {_epoch(told[broker])}" for broker in leading)
        yield Finding(str(partition), "two_leaders", "agents", f"it is led by {epochs}")


class Watermark(NamedTuple):
    """What a leader told of a partition: its high watermark, and when; the log of a member does not reach it."""

    high: Offset
    told_ms: int
    members: tuple[BrokerId, ...]


def watermarks(
    context: ControllerContext, reports: Mapping[BrokerId, BrokerReports]
) -> dict[TopicPartition, Watermark]:
    """High watermarks that are beyond a log of the ISR, as far as reports go: suspicious if that lasts."""
    found = {}
    for name, entry in context.topics.items():
        for number, leadership in enumerate(entry.leadership):
            if leadership is None or leadership.leader_and_isr.leader not in reports:
                continue
            partition, now = TopicPartition(name, number), leadership.leader_and_isr
            leader = reports[now.leader].replicas.get(partition)
            if leader is None or leader.role is not HostedRole.LEADER:
                continue
            behind = tuple(
                member
                for member in now.isr
                if member in reports
                and (told := reports[member].replicas.get(partition)) is not None
                and told.leader_epoch == leader.leader_epoch
                and told.log_end_offset < leader.high_watermark
            )
            if behind:
                found[partition] = Watermark(leader.high_watermark, reports[now.leader].last.at_ms, behind)
    return found


def examine_watermarks(
    now: Mapping[TopicPartition, Watermark],
    reports: Mapping[BrokerId, BrokerReports],
    earlier: Mapping[TopicPartition, Watermark],
) -> Iterator[Finding]:
    """Members of ISRs that told later than the leader, and of a log that does not reach what the leader told earlier.

    The last word of a member that is frozen or slow is older than the leader's: its log has grown since.
    """
    for partition in now.keys() & earlier.keys():
        high, told_ms, _ = earlier[partition]
        for broker in now[partition].members:
            end = reports[broker].replicas[partition].log_end_offset
            if end < high and reports[broker].last.at_ms > told_ms:
                what = f"its log ends at {end}, below the high watermark {high}, and it is in sync"
                yield Finding(str(partition), "behind_watermark", f"broker {broker}", what)


def examine_strangers(known: Mapping[str, int], reports: Mapping[BrokerId, BrokerReports]) -> Iterator[Finding]:
    """What brokers report of topics that the controller does not know."""
    for broker, each in reports.items():
        for partition, told in each.replicas.items():
            if partition.topic not in known and told.role is not HostedRole.OFFLINE:
                what = f"it {told}, and the controller knows no such topic"
                yield Finding(str(partition), "hosted_unknown", f"broker {broker}", what)


def examine_absent(
    dead: Mapping[BrokerId, Sequence[TopicPartition]], owing: Mapping[BrokerId, Sequence[TopicPartition]]
) -> Iterator[Finding]:
    """Brokers that do not live, and partitions that they have replicas of, or are still to delete a replica of."""
    for broker, partitions in sorted(dead.items()):
        what = f"it is not live, and has replicas of {counted(len(partitions), 'partition')}: {listed(partitions)}"
        yield Finding(f"broker {broker}", "broker_dead", "the cluster", what)
    for broker, partitions in sorted(owing.items()):
        what = f"it is not live, and is still to delete former replicas of {counted(len(partitions), 'partition')}: "
        yield Finding(f"broker {broker}", "deletion_owed", "the cluster", what + listed(partitions))


def examine_deletions(waiting: Mapping[str, str]) -> Iterator[Finding]:
    """Topics whose deletion does not go on, and what it waits for."""
    for name, why in sorted(waiting.items()):
        yield Finding(f"topic {name}", "deletion_waits", "the cluster", f"it is being deleted, and waits: {why}")


def _epoch(told: ReplicaReport | None) -> int:
    return -1 if told is None else told.leader_epoch


def _replicas(assignment: object) -> str:
    return "nobody" if assignment is None else str(assignment)


def _told(state: LeaderIsrAndControllerEpoch | None) -> str:
    if state is None:
        return "none"
    now = state.leader_and_isr
    leader = now.leader if now.has_leader else "none"
    return f"leader {leader}, isr {list(now.isr)}, leader epoch {now.leader_epoch}, version {now.zk_version}"
