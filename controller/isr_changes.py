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
    """Members that do not work: a leader took them in again before it heard that they leave or are dead."""
    gone = []
    for partition in changed:
        leadership = term.context.leadership(partition)
        members = leadership.leader_and_isr.isr if leadership is not None else ()
        gone += [
            PartitionReplica(partition.topic, partition.partition, member)
            for member in members
            if not term.context.is_online(member, partition)
        ]
    return gone
