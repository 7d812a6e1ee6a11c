"""What a controller does when it has just won: read everything, in order, and put right what happened meanwhile.

Order: notifications, brokers, topics, states, senders, replicas, partitions, dead replicas, bounced ones.
Source: Kafka's KafkaController.onControllerFailover; docs/internals/architecture.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from itertools import islice

from regency.controller.brokers.membership import (
    bring_online,
    find_bounced,
    find_dead,
    how_it_came_back,
    judge_losses,
    read_brokers,
)
from regency.controller.brokers.notifications import log_dir_notifications
from regency.controller.brokers.reconcile import begin_reconciling
from regency.controller.elections.leader_elections import begin_balancing, on_elections_asked
from regency.controller.reassignment.requests import resume_reassignments
from regency.controller.state.invariants import violations
from regency.controller.state.states import ReplicaState
from regency.controller.term import Term
from regency.controller.topics.config_changes import look_after_notifications
from regency.controller.topics.deletion_requests import load_deletions
from regency.controller.topics.topics import load_topics
from regency.history.events import NOT_YET
from regency.model.clock import Clock
from regency.model.crash_points import crash_point
from regency.model.facts import LeaderIsrAndControllerEpoch
from regency.model.ids import NO_LEADER, BrokerId, TopicPartition
from regency.model.words import counted

logger = logging.getLogger(__name__)

_UNRULED = " while no controller ruled"
LINES_OF_VIOLATIONS = 20
"""How many broken invariants are logged after a failover; one writer's mistake is seldom alone."""


def take_over(term: Term, phases: Phases) -> None:
    """Begin to rule. Watches are armed already. `phases` takes the time of each part.

    Raises ControllerMoved, ZkError.
    """
    listed = (*term.store.isr_notifications(), *log_dir_notifications(term.store.access))
    term.store.delete_notifications(listed)
    phases.mark("notifications")
    bounced = _mark_bounced(term, _load(term, phases))
    phases.mark("bounces")
    for broker in term.context.brokers.values():
        term.channels.add(broker)
        term.batch.start(broker.id)
    term.batch.brokers_changed()
    term.batch.snapshot()
    phases.mark("channels")
    offline = term.replicas.startup()
    phases.mark("replicas")
    term.partitions.startup()
    phases.mark("elections")
    crash_point("controller.failover.after_elections")
    if not bounced:  # else the first request to a bounced broker would leave out what it is about to host again
        term.hand_over_leaders(len(offline))
    crash_point("controller.failover.before_isr_shrinks")
    term.context.returning.update(bounced)
    term.replicas.handle(offline, ReplicaState.OFFLINE)
    term.context.returning.clear()
    if bounced:
        for broker_id in bounced:
            term.context.clear_offline(broker_id)
        crash_point("controller.failover.before_bounced_return")
        bring_online(term, bounced)
    phases.mark("dead replicas")
    resume_reassignments(term)
    crash_point("controller.failover.before_deletions")
    term.deletions.resume()
    on_elections_asked(term)
    begin_balancing(term)
    begin_reconciling(term)
    look_after_notifications(term)
    for problem in islice(violations(term.context), LINES_OF_VIOLATIONS):
        logger.error("%s: compare with what wrote its state znode", problem)
    phases.mark("requests")


def _load(term: Term, phases: Phases) -> Mapping[TopicPartition, int]:
    """Fill the context. Returns the zxid of each state znode's last write."""
    context = term.context
    for broker in read_brokers(term).values():
        context.add_broker(broker)
    phases.mark("brokers")
    load_topics(term, term.store.topic_names())
    phases.mark("topics")
    read = term.store.read_states(list(context.partitions()))
    context.set_leaderships(read.states)
    judge_losses(context, read.mzxids)
    phases.mark("states")
    load_deletions(term)
    _note_dead(term, read.states)
    return read.mzxids


def _note_dead(term: Term, states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch]) -> None:
    """Record which brokers died with the controller before, or after it: it has decided nothing about them."""
    context, before = term.context, term.elector.predecessor
    staying: Iterable[LeaderIsrAndControllerEpoch] = states.values()
    if context.topics_to_delete:
        staying = [state for partition, state in states.items() if partition.topic not in context.topics_to_delete]
    dead = find_dead(context, staying)
    for broker in dead:
        known = context.last_epochs.get(broker)
        was = "live" if known is None else f"live, epoch {known}"
        ruled = before is not None and before.broker == broker
        why = f"it ruled as controller in epoch {before.epoch}, and " if before is not None and ruled else ""
        # Where no controller ruled before, the cluster starts: that broker may be on its way.
        why += NOT_YET if before is None else "its registration is gone"
        term.decisions.note(f"broker {broker}", was, "dead", why)
    if before is not None and before.broker not in {*context.brokers, *context.unsteered, *dead}:
        # Its own controller may have heard that it left and decided about that: then it is no death to tell of again.
        why = "it is not registered, and no partition had it in sync: it left in order, or was out of sync"
        term.decisions.note(f"broker {before.broker}", f"controller in epoch {before.epoch}", "gone", why)


def _mark_bounced(term: Term, mzxids: Mapping[TopicPartition, int]) -> list[BrokerId]:
    """Take replicas whose broker restarted since the last decision about them as not working, for the moment."""
    context = term.context
    bounced = find_bounced(context, mzxids)
    for broker, partitions in sorted(bounced.items()):
        led = sum(context.leader(each) != NO_LEADER for each in partitions)
        context.mark_offline(broker, partitions)
        now = f"live, epoch {context.brokers[broker].epoch}"
        if led:
            came = how_it_came_back(context, broker, min(mzxids[each] for each in partitions), _UNRULED)
            why = f"{came}: in sync for {counted(led, 'partition')} until then"
            term.decisions.note(f"broker {broker}", "live", now, why)
        else:  # that it went was decided about: it is the last in sync of partitions without a leader
            why = f"it registered while no controller ruled, and may lead {counted(len(partitions), 'partition')} again"
            term.decisions.note(f"broker {broker}", "absent", now, why)
    return sorted(bounced)


class Phases:
    """Milliseconds per named part of what goes on since `__init__`; a part ends when it is marked."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_ms = clock.monotonic_ms()
        self._parts: list[tuple[str, int]] = []

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """Name and milliseconds of each part that has ended."""
        return tuple(self._parts)

    @property
    def total_ms(self) -> int:
        """All parts together, milliseconds."""
        return sum(spent for _, spent in self._parts)

    def mark(self, part: str) -> None:
        """What went on since the last mark was `part`."""
        now = self._clock.monotonic_ms()
        self._parts.append((part, now - self._last_ms))
        self._last_ms = now

    def __str__(self) -> str:
        return ", ".join(f"{part} {spent}" for part, spent in self._parts)
