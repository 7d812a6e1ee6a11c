"""Brokers that start, die, restart unnoticed or change their endpoints; replicas that stop working on live brokers."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from regency.controller.machines.state_machine import refresh_leadership
from regency.controller.reassignment.replica_deletion import fail_deletions, retry_deletions
from regency.controller.reassignment.requests import finish
from regency.controller.state.context import ControllerContext
from regency.controller.state.states import PartitionState, ReplicaState
from regency.controller.term import Term
from regency.model.crash_points import crash_point
from regency.model.facts import Broker, LeaderIsrAndControllerEpoch
from regency.model.ids import BrokerId, PartitionReplica, TopicPartition
from regency.model.znodes import NO_LOSS

logger = logging.getLogger(__name__)


class BrokerChanges(msgspec.Struct, frozen=True):
    """How the registered brokers differ from the known ones, each by id."""

    new: tuple[Broker, ...]
    bounced: tuple[Broker, ...]
    """Registered again: another incarnation than the known one."""
    dead: tuple[BrokerId, ...]
    modified: tuple[Broker, ...]
    """The same incarnation with other endpoints or another rack."""

    @property
    def any(self) -> bool:
        """Whether anything differs."""
        return bool(self.new or self.bounced or self.dead or self.modified)


def compare_brokers(known: Mapping[BrokerId, Broker], registered: Mapping[BrokerId, Broker]) -> BrokerChanges:
    """What happened to the brokers since `known`. A higher czxid under the same id is a bounce (KIP-380)."""
    both = sorted(known.keys() & registered.keys())
    return BrokerChanges(
        new=tuple(registered[broker] for broker in sorted(registered.keys() - known.keys())),
        bounced=tuple(registered[broker] for broker in both if registered[broker].epoch != known[broker].epoch),
        dead=tuple(sorted(known.keys() - registered.keys())),
        modified=tuple(
            registered[broker]
            for broker in both
            if registered[broker].epoch == known[broker].epoch and registered[broker] != known[broker]
        ),
    )


def read_brokers(term: Term) -> dict[BrokerId, Broker]:
    """The registered brokers this controller can steer. Others are reported once and left out.

    A registration that became unreadable does not kill its broker: what was known of the same incarnation stays.
    """
    registered = term.store.registered_brokers()
    term.context.members.update(registered.incarnations)
    term.context.last_epochs = {broker: each.epoch for broker, each in registered.incarnations.items()}
    term.context.process_since = {
        broker: each.since
        for broker, each in registered.incarnations.items()
        if each.since is not None and registered.epochs.get(broker) == each.epoch
    }
    term.context.note_losses(registered.lost_epochs)
    brokers = dict(registered.brokers)
    for broker, epoch in registered.malformed.items():
        known = term.context.brokers.get(broker)
        if known is not None and known.epoch == epoch:
            brokers[broker] = known
    listener = term.settings.control_plane_listener_name
    for broker in sorted(brokers):
        if brokers[broker].endpoint(listener) is None:
            del brokers[broker]
            if term.report_once(f"broker {broker} without {listener}"):
                logger.warning(
                    "broker %d has no listener %s: it is left out, as a foreign broker or one under another "
                    "control.plane.listener.name.",
                    broker,
                    listener,
                )
    term.context.unsteered = frozenset(registered.epochs.keys() - brokers.keys())
    return dict(sorted(brokers.items()))


def on_brokers_changed(term: Term) -> None:
    """Read /brokers/ids again and act on what differs.

    Those that are gone are forgotten first and those that came are known before anybody is elected, so that no election
    chooses a dead broker; a bounce is a failure and a start.
    """
    context = term.context
    changes = compare_brokers(context.brokers, read_brokers(term))
    if not changes.any:
        return
    _note(term, changes)
    listener = term.settings.control_plane_listener_name
    moved = [
        each for each in changes.modified if each.endpoint(listener) != context.brokers[each.id].endpoint(listener)
    ]
    restarted = [broker.id for broker in changes.bounced]
    for broker in (*changes.dead, *restarted):
        context.remove_broker(broker)
        term.channels.remove(broker)
    for new in (*changes.new, *changes.modified):
        context.add_broker(new)
    term.batch.brokers_changed()
    crash_point("controller.brokers.before_failures")
    context.returning.update(restarted)
    if changes.dead or restarted:
        fail_brokers(term, (*changes.dead, *restarted))
    context.returning.clear()
    for bounced in changes.bounced:
        context.add_broker(bounced)
        term.batch.brokers_changed()  # again: what was told meanwhile, for the new leaders' sake, left them out
    started = [*changes.new, *changes.bounced, *moved]
    if started:
        crash_point("controller.brokers.before_starts")
        start_brokers(term, sorted(started, key=lambda broker: broker.id))
    finish(term, list(context.reassigning))


def fail_brokers(term: Term, brokers: Collection[BrokerId]) -> None:
    """Move what the dead brokers led, and take their replicas out of the ISRs. They are no longer in the context."""
    dead = sorted(brokers)
    replicas = term.context.replicas_on(dead)
    fail_deletions(term, dead)
    take_offline(term, replicas)


def start_brokers(term: Term, brokers: Sequence[Broker]) -> None:
    """Tell brokers that started all they host, and elect where they make it possible. They are in the context."""
    for broker in brokers:
        term.context.clear_offline(broker.id)
        term.channels.add(broker)
        term.batch.start(broker.id)
    term.batch.snapshot()
    started = [broker.id for broker in brokers]
    bring_online(term, started)
    retry_deletions(term, started)
    term.deletions.brokers_started(started)


def bring_online(term: Term, brokers: Collection[BrokerId]) -> None:
    """Let the replicas on these live brokers take part again."""
    context = term.context
    replicas = [
        PartitionReplica(*partition, broker)
        for partition in context.partitions_on(brokers)
        if not context.is_being_deleted(partition.topic)
        for broker in sorted(brokers)
        if broker in context.assignment(partition).replicas and context.is_online(broker, partition)
    ]
    known = [each for each in replicas if _exists(term, each)]
    term.replicas.handle(known, ReplicaState.ONLINE)
    crash_point("controller.online.before_elections")
    term.partitions.trigger_online()


def take_offline(term: Term, replicas: Sequence[PartitionReplica]) -> None:
    """Replicas stopped working: elect for what they led, then take them out of the ISRs.

    Where one is not known to be in the ISR, its leader may have taken it in a moment ago: those states are read again.
    """
    context = term.context
    deleted = context.topics_deletion_started
    term.deletions.replicas_offline(each for each in replicas if each.topic in deleted)
    gone = [(each, each.topic_partition) for each in replicas if each.topic not in deleted]
    outside = dict.fromkeys(partition for each, partition in gone if not _is_member(term, each.broker, partition))
    tell_leaders(term, refresh_leadership(context, term.store, list(outside)))
    leaderless = [each for each in dict.fromkeys(partition for _, partition in gone) if _lost_its_leader(term, each)]
    crash_point("controller.offline.before_elections")
    term.partitions.handle(leaderless, PartitionState.OFFLINE)
    term.partitions.trigger_online()
    term.hand_over_leaders(len(gone))
    crash_point("controller.offline.before_isr_shrinks")
    term.replicas.handle([each for each, _ in gone if _exists(term, each)], ReplicaState.OFFLINE)
    crash_point("controller.offline.after_isr_shrinks")
    if any(_is_electable(term, partition) for partition in sorted(context.leaderless)):
        term.partitions.trigger_online()


def tell_leaders(term: Term, changed: Iterable[TopicPartition]) -> None:
    """Partitions were found written by another: send metadata to all brokers, and their leaders by LeaderAndIsr.

    A leader whose own write went unanswered waits for that; to any other it is no news.
    """
    for partition in changed:
        term.batch.host((term.context.leader(partition),), partition)


def judge_losses(context: ControllerContext, mzxids: Mapping[TopicPartition, int]) -> None:
    """Note which members of ISRs may have lost something since (see `ControllerContext.judge_losses`)."""
    newest = max(context.lost_epochs.values(), default=NO_LOSS)
    for partition, mzxid in mzxids.items() if newest > NO_LOSS else ():
        leadership = context.leadership(partition)
        if mzxid < newest or (leadership is not None and not leadership.leader_and_isr.has_leader):
            context.judge_losses(partition, mzxid)


def find_bounced(
    context: ControllerContext, mzxids: Mapping[TopicPartition, int]
) -> dict[BrokerId, list[TopicPartition]]:
    """Live brokers that registered after the last write of a state znode that names them leader or ISR member.

    They have restarted since that decision: for these partitions they are handled as bounced.
    """
    epochs = {broker.id: int(broker.epoch) for broker in context.brokers.values()}
    newest = max(epochs.values(), default=0)
    bounced: dict[BrokerId, list[TopicPartition]] = {}
    for partition, mzxid in mzxids.items():
        if mzxid >= newest:
            continue
        for member in dict.fromkeys((*context.isr(partition), context.leader(partition))):
            if epochs.get(member, 0) > mzxid:
                bounced.setdefault(member, []).append(partition)
    return bounced


def how_it_came_back(context: ControllerContext, broker: BrokerId, known: int, when: str = "") -> str:
    """How a broker came to register again after transaction `known`, when it was live: by the same process or another.

    `when` stands behind the verb.
    """
    since = context.process_since.get(broker)
    if since is None:
        return f"registered again{when}: session lost or process restarted"
    return f"session lost{when}, registered again by the same process" if since <= known else f"restarted{when}"


def find_dead(context: ControllerContext, states: Iterable[LeaderIsrAndControllerEpoch]) -> list[BrokerId]:
    """Brokers that are gone and whose death no earlier controller decided about, by what state znodes say.

    A controller that hears of a death takes the broker out of every ISR, or leaves the partition without a leader. So
    where a state names a leader, and a broker that is not registered as leader or in the ISR, none has heard of it.
    """
    named: set[BrokerId] = set()
    for each in {id(state): state for state in states}.values():  # most states of a large cluster are one of few
        now = each.leader_and_isr
        if now.has_leader:
            named.update((now.leader, *now.isr))
    return sorted(named - context.brokers.keys() - context.unsteered)


def _lost_its_leader(term: Term, partition: TopicPartition) -> bool:
    context = term.context
    return context.leadership(partition) is not None and not context.is_online(context.leader(partition), partition)


def _is_electable(term: Term, partition: TopicPartition) -> bool:
    return any(term.context.is_online(member, partition) for member in term.context.isr(partition))


def _is_member(term: Term, broker: BrokerId, partition: TopicPartition) -> bool:
    return broker in term.context.isr(partition) or term.context.leadership(partition) is None


def _exists(term: Term, replica: PartitionReplica) -> bool:
    state = term.context.replica_state(replica.topic_partition, replica.broker)
    return state is not ReplicaState.NON_EXISTENT


def _note(term: Term, changes: BrokerChanges) -> None:
    for broker in changes.new:
        is_same = term.context.process_since.get(broker.id, broker.epoch) < broker.epoch
        why = "session lost, registered again by the same process" if is_same else "it registered"
        term.decisions.note(f"broker {broker.id}", "absent", f"live, epoch {broker.epoch}", why)
    for broker in changes.bounced:
        known = term.context.brokers[broker.id]
        why = how_it_came_back(term.context, broker.id, known.epoch)
        term.decisions.note(f"broker {broker.id}", f"live, epoch {known.epoch}", f"live, epoch {broker.epoch}", why)
    for dead in changes.dead:
        epoch = term.context.brokers[dead].epoch
        if dead in term.context.shutting_down:
            others = term.context.brokers.keys() - set(changes.dead)
            why = "it left in order" if others else "it left in order, the last one that was live"
            term.decisions.note(f"broker {dead}", f"shutting down, epoch {epoch}", "dead", why)
        else:
            term.decisions.note(f"broker {dead}", f"live, epoch {epoch}", "dead", "its registration is gone")
    for broker in changes.modified:
        endpoints = ", ".join(map(str, broker.endpoints))
        term.decisions.note(f"broker {broker.id}", "registered", endpoints, "it changed its registration")
