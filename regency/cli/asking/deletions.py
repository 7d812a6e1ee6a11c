"""Topics that are being deleted, for commands that find a topic missing: how far that is, and what it waits for."""

from __future__ import annotations

from regency.cli.asking.wire import cluster_wire
from regency.cli.exits import CommandFailed, Exit
from regency.clients.controllers import ask_controller
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2
from regency.runtime.grpc.channels import RpcFailed
from regency.runtime.grpc.clients import AdminClient


def why_going(servers: str, topic: str) -> str | None:
    """How far the deletion of the topic is, in a sentence; None where it is not being deleted, or nobody can tell."""
    try:
        with cluster_wire(servers) as wire:
            ruling = wire.ruling()
        answer = ask_controller(
            ruling.address, lambda channel: AdminClient(channel).list_deletions, admin_pb2.ListDeletionsRequest()
        )
    except (CommandFailed, RpcFailed):
        return None
    if answer.outcome.error_code != ErrorCode.NONE:
        return None
    return next((told(each) for each in answer.deletions if each.topic == topic), None)


def refuse_if_going(servers: str, topic: str) -> None:
    """Raises CommandFailed, saying what it waits for, where the topic is there only because its deletion goes on."""
    going = why_going(servers, topic)
    if going is not None:
        raise CommandFailed(going, status=Exit.IN_PROGRESS)


def told(deletion: admin_pb2.Deletion) -> str:
    """A deletion in a sentence."""
    why = f"; {deletion.waits_for}" if deletion.waits_for else ""
    return f"Topic {deletion.topic} is being deleted: {deletion.deleted} of {deletion.replicas} replicas are{why}."
