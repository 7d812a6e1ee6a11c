"""Leaders changed their ISRs: read what they wrote, tell everybody, and take out again who is not there any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from regency.controller.brokers.membership import find_bounced, take_offline, tell_leaders
from regency.controller.machines.partition_state_machine import refresh_leadership
from regency.controller.reassignment.requests import finish
from regency.controller.state.states import ReplicaState
from regency.controller.term import Term
from regency.model.crash_points import crash_point
from regency.model.ids import BrokerId, PartitionReplica, TopicPartition


def on_isrs_changed(term: Term) -> None:
    """Read the states the notifications name into the context, then delete exactly the notifications that were read."""
    listed = term.store.isr_notifications()
    if not listed:
        return
    crash_point("controller.isr_changes.after_list")
    named = term.store.read_isr_notifications(listed)
    known = [each for each in named if _is_known(term, each)]
    changed = refresh_leadership(term.context, term.store, known)
    crash_point("controller.isr_changes.after_read")
    tell_leaders(term, changed)
    judge_isrs(term, known)
    crash_point("controller.isr_changes.before_deletion")
    term.store.delete_notifications(listed)


def judge_isrs(term: Term, named: Iterable[TopicPartition] = ()) -> None:
    """Take out of the ISRs that others wrote and that were read since who does not work, and finish reassignments.

    Also of partitions `named`. Notifications bring it about, and reconciling where they are lost. Raises
    ControllerMoved, ZkError.
    """
    read, term.context.unjudged = term.context.unjudged, {}
    judged = {each: mzxid for each, mzxid in read.items() if _is_known(term, each)}
    bounced = _mark_bounced(term, judged)
    term.context.returning.update(bounced)
    take_offline(term, _gone_members(term, judged))
    term.context.returning.clear()
    _let_return(term, bounced)
    finish(term, dict.fromkeys((*judged, *named)))


def _is_known(term: Term, partition: TopicPartition) -> bool:
    """Whether it is worth looking at: what leaders write of a topic that is being deleted is not."""
    return term.context.leadership(partition) is not None and not term.context.is_being_deleted(partition.topic)


def _mark_bounced(term: Term, changed: Mapping[TopicPartition, int]) -> dict[BrokerId, list[TopicPartition]]:
    """Take members that registered after the ISR was written as not working, for the moment.

    The leader took in an earlier incarnation, whose log need not be that of the present one.
    """
    bounced: dict[BrokerId, list[TopicPartition]] = {}
    for broker, partitions in find_bounced(term.context, changed).items():
        online = [each for each in partitions if term.context.is_online(broker, each)]
        if online:
            bounced[broker] = online
            term.context.mark_offline(broker, online)
            why = f"it restarted after {len(online)} of its partitions had it in their ISR, such as {online[0]}"
            term.decisions.note(f"broker {broker}", "live", "bounced", why)
    return bounced


def _let_return(term: Term, bounced: Mapping[BrokerId, Sequence[TopicPartition]]) -> None:
    for broker, partitions in bounced.items():
        term.context.mark_online(broker, partitions)
    replicas = [
        PartitionReplica(each.topic, each.partition, broker) for broker, those in bounced.items() for each in those
    ]
    if replicas:
        term.replicas.handle(replicas, ReplicaState.ONLINE)
        term.partitions.trigger_online()


def _gone_members(term: Term, changed: Iterable[TopicPartition]) -> list[PartitionReplica]:
    """Members that do not work: a leader took them in again before it heard that they leave or are dead.

    A leader that is leaving itself is none of them: it leads until it has gone, or has asked again to be moved off.
    """
    gone = []
    for partition in changed:
        leadership = term.context.leadership(partition)
        assert leadership is not None, "it has just been read"
        now = leadership.leader_and_isr
        gone += [
            PartitionReplica(partition.topic, partition.partition, member)
            for member in now.isr
            if not term.context.is_online(member, partition)
            and not (member == now.leader and member in term.context.shutting_down)
        ]
    return gone
