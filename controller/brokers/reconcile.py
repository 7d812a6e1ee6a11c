"""Reconcile: from time to time, what every broker reports to host is compared with what it shall host, and put right.

Digests first; replicas are compared only where the digests of a broker differ, and what differs is put right only if it
still does a little later: news is always on its way. All of it goes in steps, between which other events have their
turn. See docs/operate/explain.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from regency.controller.brokers.membership import tell_leaders
from regency.controller.events import ControllerState, OfTerm
from regency.controller.machines.state_machine import refresh_leadership
from regency.controller.reassignment.requests import finish
from regency.controller.state.reconcile_rules import (
    Difference,
    HostedDigests,
    Repair,
    compare,
    expected,
    judge_uncalled_for,
)
from regency.controller.state.reports import ReplicaReport
from regency.controller.term import Term
from regency.model.crash_points import crash_point
from regency.model.hosting import replaced
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition
from regency.model.znodes import paths as znode_paths

STEP = 2_000
"""Replicas one event looks at: a few milliseconds."""
REPORTS_TO_WAIT_FOR = 3
"""What still differs so many intervals of reports later is put right: agents have told by then what they did."""


class ReconcileDue(OfTerm):
    """It is time to compare, or to go on with it."""

    state = ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED
    cause = "reconcile"

    def __init__(self, reconciler: Reconciler, epoch: ControllerEpoch) -> None:
        super().__init__(epoch)
        self.reconciler = reconciler


class Suspect(NamedTuple):
    """A difference that was seen once."""

    broker: BrokerId
    partition: TopicPartition
    difference: Difference


class Reconciler:
    """Where the comparison of one term stands."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._reports = term.reports
        self._repairs = term.counters.repairs
        self._digests = HostedDigests(term.context)
        self._suspects: list[Suspect] = []
        self._looking: Iterator[None] | None = None

    def step(self) -> None:
        """Begin, go on, or come back to what was suspicious; and see to it that there is a next time."""
        queue, interval_ms = self._term.queue, self._term.settings.regency_reconcile_interval_ms
        confirm_ms = REPORTS_TO_WAIT_FOR * self._term.settings.regency_report_interval_ms
        again = ReconcileDue(self, self._term.epoch)
        if self._looking is None and self._suspects:
            self._put_right()
            queue.put_later(again, interval_ms)
            return
        if self._looking is None:
            self._looking = self._look()
        if next(self._looking, self) is None:
            queue.put(again)
            return
        self._looking = None
        queue.put_later(again, confirm_ms if self._suspects else interval_ms)

    def _look(self) -> Iterator[None]:
        yield from self._go_on_reassigning()
        yield from self._refresh()
        context = self._term.context
        for broker in sorted(context.usable):
            if broker not in context.usable:
                continue  # it has died or begun to leave since the first step
            epoch = context.brokers[broker].epoch
            last = self._reports.last(broker, epoch)
            if last is not None and last.digest != self._digests.of(broker):
                yield from self._compare(broker, epoch)

    def _go_on_reassigning(self) -> Iterator[None]:
        """Whatever it was that should have told that a reassignment can go on."""
        under_way = iter(list(self._term.context.reassigning))
        while some := list(islice(under_way, STEP)):
            crash_point("controller.reconcile.before_reassignments")
            finish(self._term, some)
            yield

    def _refresh(self) -> Iterator[None]:
        done = 0
        for count in self._digests.refresh():
            done += count
            if done >= STEP:
                done = 0
                yield

    def _compare(self, broker: BrokerId, epoch: BrokerEpoch) -> Iterator[None]:
        """Look at every replica of a broker. What it is being told anyway is not suspicious."""
        reported = self._reports.copy(broker, epoch)
        if reported is None:
            return
        yield
        owed, digest, before = self._term.channels.owed(broker), 0, len(self._suspects)
        for count, (partition, told) in enumerate(reported.replicas.items(), start=1):
            digest = replaced(digest, 0, told.number(partition.partition))
            if partition not in owed:
                self._suspect(broker, partition, told)
            if count % STEP == 0:
                yield
        context = self._term.context
        seen = 0
        for name in list(context.topics):
            entry = context.topics.get(name)
            for number, assignment in () if entry is None else entry.partitions():
                partition = TopicPartition(name, number)
                if broker in assignment.replicas and partition not in reported.replicas and partition not in owed:
                    self._suspect(broker, partition, None)
            seen += 0 if entry is None else len(entry.assignments)
            if seen >= STEP:
                seen = 0
                yield
        if len(self._suspects) == before and digest != reported.last.digest:
            self._reports.ask_for_all(broker)

    def _suspect(self, broker: BrokerId, partition: TopicPartition, told: ReplicaReport | None) -> None:
        difference = self._judge(broker, partition, told)
        if difference is not None:
            self._suspects.append(Suspect(broker, partition, difference))

    def _judge(self, broker: BrokerId, partition: TopicPartition, told: ReplicaReport | None) -> Difference | None:
        wanted = expected(self._term.context, broker, partition)
        if wanted is not None:
            return compare(wanted, told)
        return None if told is None else judge_uncalled_for(self._term.context, broker, partition, told)

    def _put_right(self) -> None:
        """Repair what differs as it did when it was seen first."""
        confirmed = self._confirmed()
        self._suspects = []
        told = [each for each in confirmed if each.difference.repair is Repair.TELL]
        self._refresh_led(told)
        for each in told:
            self._term.batch.host((each.broker,), each.partition)
        stopped = self._stop([each for each in confirmed if each.difference.repair is Repair.STOP])
        read = [each for each in confirmed if each.difference.repair is Repair.READ]
        self._count_and_note([*told, *stopped, *read])
        self._read(read)

    def _refresh_led(self, suspects: list[Suspect]) -> None:
        """Read what these brokers shall lead: one that lost its role may have written an ISR without notice.

        Without its role it cannot refuse an older version of the same leader epoch.
        """
        context = self._term.context
        led = [each.partition for each in suspects if context.leader(each.partition) == each.broker]
        if led:
            tell_leaders(self._term, refresh_leadership(context, self._term.store, led))

    def _confirmed(self) -> list[Suspect]:
        context, confirmed = self._term.context, []
        owed = {broker: self._term.channels.owed(broker) for broker in sorted(context.usable)}
        for suspect in self._suspects:
            broker, partition, before = suspect
            if broker not in owed or partition in owed[broker]:
                continue
            if self._reports.last(broker, context.brokers[broker].epoch) is None:
                continue  # another incarnation, which has not told
            now = self._judge(broker, partition, self._reports.replica(broker, partition))
            if now is not None and now.kind == before.kind:
                confirmed.append(Suspect(broker, partition, now))
        return confirmed

    def _stop(self, suspects: list[Suspect]) -> list[Suspect]:
        """Stop what is not assigned. A topic that is unknown and yet has a znode may only be unreadable: it goes on."""
        if not suspects:
            return []
        there = frozenset(self._term.store.access.children(znode_paths.TOPICS))
        stopped = []
        for each in suspects:
            told = self._reports.replica(each.broker, each.partition)
            topic = each.partition.topic
            if told is not None and (topic in self._term.context.topics or topic not in there):
                self._term.batch.stop_stranger(each.broker, each.partition, told.topic_id)
                stopped.append(each)
        return stopped

    def _read(self, suspects: list[Suspect]) -> None:
        """Read again what brokers know newer than the controller; go beyond what ZooKeeper no longer has."""
        if not suspects:
            return
        term = self._term
        partitions = list(dict.fromkeys(each.partition for each in suspects))
        changed = refresh_leadership(term.context, term.store, partitions)
        epochs_newer = {each.partition for each in suspects if each.difference.kind == "epoch_newer"}
        tell_leaders(term, [each for each in changed if each not in epochs_newer])
        for partition in changed:
            if partition in epochs_newer:
                term.batch.host(term.context.assignment(partition).replicas, partition)
        held: dict[TopicPartition, LeaderEpoch] = {}
        for each in suspects:
            if each.partition not in changed or each.partition in epochs_newer:
                beyond = self._beyond(each)
                held[each.partition] = max(held.get(each.partition, beyond), beyond)
        crash_point("controller.reconcile.before_overtaking")
        term.partitions.overtake(held)

    def _beyond(self, suspect: Suspect) -> LeaderEpoch:
        """The leader epoch to go beyond, so that a replica gives up what only it believes."""
        told = self._reports.replica(suspect.broker, suspect.partition)
        leadership = self._term.context.leadership(suspect.partition)
        own = LeaderEpoch(-1) if leadership is None else leadership.leader_and_isr.leader_epoch
        if suspect.difference.kind == "epoch_newer":
            return own if told is None else told.leader_epoch
        return LeaderEpoch(own + 1)

    def _count_and_note(self, repaired: list[Suspect]) -> None:
        if not repaired:
            return
        crash_point("controller.reconcile.before_repairs")
        self._repairs.update(each.difference.repair.value for each in repaired)
        self._term.decisions.note_each(
            (str(each.partition), f"on broker {each.broker}", each.difference.repair.value, each.difference.why)
            for each in repaired
        )


def begin_reconciling(term: Term) -> None:
    """A new controller compares for the first time after one interval: agents have to report first."""
    term.queue.put_later(ReconcileDue(Reconciler(term), term.epoch), term.settings.regency_reconcile_interval_ms)
