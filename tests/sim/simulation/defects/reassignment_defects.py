"""Defects of reassignments: what is written, what is waited for, what is carried on by whom."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from regency.broker_agent.replication.partition import Partition
from regency.controller import failover
from regency.controller.brokers import membership as brokers
from regency.controller.brokers import notifications as isr_changes
from regency.controller.reassignment import moves as reassignment
from regency.controller.reassignment import requests as reassignment_requests
from regency.controller.reassignment import rules as reassignment_rules
from regency.controller.reassignment.moves import _Moves
from regency.controller.reassignment.rules import Step
from regency.controller.store.access import StoreAccess
from regency.controller.store.reassignments import TopicChange, TopicChanged, write_topics
from regency.controller.term import Term
from regency.model.facts import LeaderIsrAndControllerEpoch, ReplicaAssignment
from regency.model.ids import BrokerId, LeaderEpoch, TopicPartition
from simulation.defects.patching import Defects, Patch

DEFECTS = Defects()


def _nothing(*_: Any) -> None:
    """Instead of something."""


@DEFECTS.of("KIP-455")
def reassigned_too_soon(patch: Patch) -> None:
    """A reassignment ends when one of its target is live, whoever is in sync."""

    def complete(assignment: ReplicaAssignment, isr: Sequence[BrokerId], online: Collection[BrokerId]) -> bool:
        del isr
        return any(replica in online for replica in assignment.target)

    patch.set(reassignment_rules, "is_complete", complete)


@DEFECTS.of("KAFKA-9672")
def isr_after_replicas(patch: Patch) -> None:
    """A step of a reassignment writes the topic first and the states afterwards."""

    def write(access: StoreAccess, changes: Sequence[TopicChange]) -> list[TopicChanged]:
        topics = write_topics(access, [msgspec.structs.replace(change, states={}) for change in changes])
        return write_topics(
            access,
            [
                msgspec.structs.replace(change, before=written.stored, after=written.stored.assignment)
                for change, written in zip(changes, topics, strict=True)
            ],
        )

    patch.set(reassignment, "write_topics", write)


@DEFECTS.of("Kafka 2.4")
def epoch_kept_by_reassignments(patch: Patch) -> None:
    """A step of a reassignment writes replicas and ISR and keeps the leader epoch."""
    decide = _Moves._next_state

    def kept(self: _Moves, partition: TopicPartition, step: Step) -> LeaderIsrAndControllerEpoch | None:
        state = decide(self, partition, step)
        if state is None:
            return None
        now = state.leader_and_isr
        same = msgspec.structs.replace(now, leader_epoch=LeaderEpoch(now.leader_epoch - 1))
        return msgspec.structs.replace(state, leader_and_isr=same)

    patch.set(_Moves, "_next_state", kept)


@DEFECTS.of("Kafka 2.4")
def last_in_sync_dropped(patch: Patch) -> None:
    """Replacing a reassignment drops who was being added, also where nobody else is in sync."""
    patch.edit(reassignment_rules, "retarget", ("if not any(member in known", "if False and not any(member in known"))


@DEFECTS.of("Kafka 2.4")
def reassignment_not_completed(patch: Patch) -> None:
    """Nobody looks whether a reassignment can end when ISRs or brokers change."""
    patch.set(isr_changes, "finish", _nothing)
    patch.set(brokers, "finish", _nothing)


@DEFECTS.of("Kafka 2.4")
def reassignment_not_resumed(patch: Patch) -> None:
    """A new controller leaves alone what was being reassigned."""
    patch.set(failover, "resume_reassignments", _nothing)


@DEFECTS.of("Kafka 2.4")
def deletions_not_resumed(patch: Patch) -> None:
    """A new controller does not have former replicas deleted."""
    patch.set(reassignment_requests, "resume_deletions", _nothing)


@DEFECTS.of("Kafka 2.4")
def returning_broker_not_told(patch: Patch) -> None:
    """A broker that returns is not told to delete what it is no replica of any more."""
    patch.set(brokers, "retry_deletions", _nothing)


@DEFECTS.of("KAFKA-9672")
def removed_followers_kept(patch: Patch) -> None:
    """A leader goes on counting followers that are no replicas any more."""
    patch.edit(
        Partition,
        "_take_assignment",
        ("for broker in state.replicas", "for broker in dict.fromkeys((*state.replicas, *held))"),
    )


@DEFECTS.of("Kafka 2.4")
def asked_reassignments_stay(patch: Patch) -> None:
    """What is done is not taken out of /admin/reassign_partitions."""

    def begun(term: Term, partitions: Iterable[TopicPartition]) -> None:
        reassignment.advance(term, partitions)

    for module in (isr_changes, brokers, reassignment_requests):
        patch.set(module, "finish", begun)
