"""What agents tell by znodes: ISRs that leaders changed, and log directories that failed.

Of ISRs what leaders wrote is read and told everybody, and those that are not there any more are taken out again.

Of a log directory its broker only says that it failed. It is asked once more to host what it is known to host with
nothing changed, and answers KAFKA_STORAGE_ERROR for what it cannot reach (see agent_troubles.py). Replicas that are
known to be out of reach stay that until the broker restarts: a second failure does not bring back those of the first.
Source: KIP-112.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from regency.controller.brokers.membership import find_bounced, take_offline, tell_leaders
from regency.controller.events import ControllerState, Notification
from regency.controller.machines.state_machine import refresh_leadership
from regency.controller.reassignment.requests import finish
from regency.controller.state.states import ReplicaState
from regency.controller.store.access import StoreAccess
from regency.controller.term import Term
from regency.model import znodes
from regency.model.crash_points import crash_point
from regency.model.errors import ZnodeMalformed
from regency.model.ids import BrokerId, PartitionReplica, TopicPartition
from regency.model.words import counted
from regency.model.znodes import paths

logger = logging.getLogger(__name__)


def on_isrs_changed(term: Term) -> None:
    """Read the states the notifications name into the context, then delete exactly the notifications that were read.

    What was read before, of which no notification told yet, is judged with them.
    """
    listed = term.store.isr_notifications()
    if not listed and not term.context.unjudged:
        return
    named = term.store.read_isr_notifications(listed)
    known = [each for each in named if _is_known(term, each)]
    changed = refresh_leadership(term.context, term.store, known)
    crash_point("controller.isr_changes.after_read")
    tell_leaders(term, changed)
    judge_isrs(term, known)
    term.store.delete_notifications(listed)


def judge_isrs(term: Term, named: Iterable[TopicPartition] = ()) -> None:
    """Take out of the ISRs that others wrote and that were read since who does not work, and finish reassignments.

    Also of partitions `named`. Raises ControllerMoved, ZkError.
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
            joined = counted(len(online), "partition")
            why = f"it restarted after it had joined the ISR of {joined}, such as {online[0]}"
            term.decisions.note(f"broker {broker}", "live", "to catch up again", why)
    return bounced


def _let_return(term: Term, bounced: Mapping[BrokerId, Sequence[TopicPartition]]) -> None:
    for broker, partitions in bounced.items():
        term.context.mark_online(broker, partitions)
    replicas = [PartitionReplica(*each, broker) for broker, those in bounced.items() for each in those]
    if replicas:
        term.replicas.handle(replicas, ReplicaState.ONLINE)
        term.partitions.trigger_online()


def _gone_members(term: Term, changed: Iterable[TopicPartition]) -> list[PartitionReplica]:
    """Members that do not work: a leader took them in again before it heard that they leave or are dead.

    A leader that is leaving itself is none of them: it leads until it has gone, or has asked again to be moved off.
    """
    gone = []
    for partition in changed:
        leader = term.context.leader(partition)
        gone += [
            PartitionReplica(*partition, member)
            for member in term.context.isr(partition)
            if not term.context.is_online(member, partition)
            and not (member == leader and member in term.context.shutting_down)
        ]
    return gone


class LogDirsFailed(Notification):
    """Log directory notifications were written."""

    state = ControllerState.LOG_DIR_CHANGE
    cause = "log_dir_failure"


def log_dir_notifications(access: StoreAccess) -> tuple[str, ...]:
    """Paths of the log directory notifications there are."""
    parent = paths.LOG_DIR_EVENT_NOTIFICATION
    return tuple(f"{parent}/{name}" for name in access.children(parent))


def on_log_dirs_failed(term: Term) -> None:
    """Ask the brokers named what they can still reach, then delete exactly the notifications that were read."""
    listed = log_dir_notifications(term.store.access)
    if not listed:
        return
    for broker in _named(term.store.access, listed):
        if broker not in term.context.brokers:
            logger.info("broker %d, of which a log directory failed, is not registered (any more)", broker)
            continue
        hosted = _hosted(term, broker)
        why = f"one of its log directories failed; it is asked for the {len(hosted)} replicas it may still reach"
        term.decisions.note(f"broker {broker}", "live", "with a failed directory", why)
        for partition in hosted:
            term.batch.host((broker,), partition)
    term.store.delete_notifications(listed)


def _named(access: StoreAccess, listed: Sequence[str]) -> list[BrokerId]:
    """Brokers these notifications name, each once, in order; malformed ones are reported and skipped."""
    named = set()
    for znode in access.read_many(listed):
        if znode is None:
            continue
        try:
            named.add(znodes.decode_log_dir_event(znode.path, znode.data))
        except ZnodeMalformed as error:
            access.report(error, znode, "It is removed; a directory that failed is not looked for because of it.")
    return sorted(named)


def _hosted(term: Term, broker: BrokerId) -> list[TopicPartition]:
    """What the broker is wanted to host now and is not known to have lost."""
    context = term.context
    lost = context.offline_replicas.get(broker, ())
    return [
        each
        for each in context.partitions_on([broker])
        if each not in lost
        and not context.is_being_deleted(each.topic)
        and context.replica_state(each, broker) is ReplicaState.ONLINE
    ]
