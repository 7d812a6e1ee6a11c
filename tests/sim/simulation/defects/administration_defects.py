"""Defects of what administrators ask for: settings, elections, reassignments and deletions, and who waits for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from regency.controller import routes
from regency.controller.elections import leader_elections
from regency.controller.events import Request
from regency.controller.machines import leader_choice
from regency.controller.machines.topic_deletion import TopicDeletionManager
from regency.controller.reassignment import requests as reassignment_requests
from regency.controller.state.election import Election
from regency.controller.store import configs as store_configs
from regency.model.ids import BrokerId
from simulation.defects.patching import Defects, Patch

DEFECTS = Defects()


@DEFECTS.of("Kafka 2.4")
def settings_without_word(patch: Patch) -> None:
    """Changed settings are written without a notification in /config/changes."""
    patch.edit(store_configs, "write_configs", ("= (write, word)", "= (write,)"))


@DEFECTS.of("KAFKA-9866")
def preferred_out_of_sync(patch: Patch) -> None:
    """The preferred replica is elected also where it is not in sync."""

    def elect(assignment: Sequence[BrokerId], isr: Sequence[BrokerId], *_: Collection[BrokerId]) -> Election:
        return Election(assignment[0], tuple(isr), "it is preferred")

    patch.set(leader_choice, "elect_preferred", elect)
    patch.edit(leader_elections, "_can_lead", ("preferred in context.isr(partition)", "context.isr(partition)"))


@DEFECTS.of("KAFKA-5099")
def deleted_amid_reassignment(patch: Patch) -> None:
    """The deletion of a topic does not wait for its reassignments."""

    def none(_: Any) -> set[str]:
        return set()

    patch.set(TopicDeletionManager, "_reassigning", none)


@DEFECTS.of("Kafka 2.4")
def asked_edits_missed(patch: Patch) -> None:
    """/admin/reassign_partitions is read when it is created, and not when it is written again."""
    patch.edit(
        reassignment_requests,
        "look_at_asked",
        (
            "(asked.czxid, asked.version) == term.context.asked_seen",
            "asked.czxid == (term.context.asked_seen or (0,))[0]",
        ),
    )
    asked, look = reassignment_requests.ReassignmentsAsked, reassignment_requests.look_at_asked
    patch.set(routes, "NOTIFICATIONS", {**routes.NOTIFICATIONS, asked: look})


@DEFECTS.of("KAFKA-10193")
def callers_unanswered(patch: Patch) -> None:
    """Who waits for a request that a deposed controller has not come to is not answered."""

    def nothing(_: Any) -> None:
        """Nobody is told."""

    patch.set(Request, "preempt", nothing)
