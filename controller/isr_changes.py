"""Leaders changed their ISRs: read what they wrote, tell everybody, and take out again who is not there any more."""

from __future__ import annotations

from collections.abc import Sequence

from regency.controller.brokers import take_offline
from regency.controller.partition_state_machine import refresh_leadership
from regency.controller.term import Term
from regency.model.ids import PartitionReplica, TopicPartition


def on_isrs_changed(term: Term) -> None:
    """Read the states the notifications name into the context, then delete exactly the notifications that were read."""
    listed = term.store.isr_notifications()
    if not listed:
        return
    named = term.store.read_isr_notifications(listed)
    known = [each for each in named if term.context.leadership(each) is not None]
    changed = refresh_leadership(term.context, term.store, known)
    term.batch.metadata(changed)
    take_offline(term, _gone_members(term, changed))
    term.store.delete_notifications(listed)


def _gone_members(term: Term, changed: Sequence[TopicPartition]) -> list[PartitionReplica]:
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
