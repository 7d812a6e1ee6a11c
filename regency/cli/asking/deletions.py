"""Topics that are being deleted, for commands that find a topic missing: how far that is, and what it waits for."""

from __future__ import annotations

from collections.abc import Sequence

from regency.cli.asking.wire import ClusterWire, cluster_wire, tell_controller
from regency.cli.exits import CommandFailed, Exit
from regency.protos import admin_pb2


def ongoing(wire: ClusterWire) -> Sequence[admin_pb2.Deletion]:
    """What is being deleted, as the ruling controller has it. Raises CommandFailed."""
    request = admin_pb2.ListDeletionsRequest()
    answer = tell_controller(wire.ruling(), "the deletions", lambda admin: admin.list_deletions, request)
    deletions: Sequence[admin_pb2.Deletion] = answer.deletions
    return deletions


def why_going(servers: str, topic: str) -> str | None:
    """How far the deletion of the topic is, in a sentence; None where it is not being deleted, or not known."""
    try:
        with cluster_wire(servers) as wire:
            return next((progress(each) for each in ongoing(wire) if each.topic == topic), None)
    except CommandFailed:
        return None


def refuse_if_going(servers: str, topic: str) -> None:
    """Raises CommandFailed, saying what it waits for, where the topic is there only because its deletion goes on."""
    going = why_going(servers, topic)
    if going is not None:
        raise CommandFailed(going, status=Exit.IN_PROGRESS)


def progress(deletion: admin_pb2.Deletion) -> str:
    """A deletion in a sentence."""
    why = f"; {deletion.waits_for}" if deletion.waits_for else ""
    return f"Topic {deletion.topic} is being deleted: {deletion.deleted} of {deletion.replicas} replicas are{why}."
