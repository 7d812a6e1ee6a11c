"""`regency brokers forget`: a broker is gone for good."""

from __future__ import annotations

import click
import msgspec

from regency.cli.asking.refusals import refusal
from regency.cli.asking.wire import cluster_wire
from regency.cli.context import INT32_MAX, cluster_options, current, print_json, say
from regency.cli.exits import CommandFailed, Exit
from regency.clients.controllers import ask_controller
from regency.model.kafka_errors import ErrorCode
from regency.model.words import counted
from regency.protos import admin_pb2
from regency.runtime.grpc.channels import RpcFailed
from regency.runtime.grpc.clients import AdminClient


class Forgotten(msgspec.Struct, frozen=True):
    """What `regency brokers forget -o json` prints."""

    broker: int
    replicas_given_up: int
    """Replicas that it was to delete when it returns."""


@click.command("forget", short_help="Say that a dead broker is gone for good.")
@click.argument("broker", type=click.IntRange(0, INT32_MAX))
@cluster_options
def forget_broker(broker: int) -> None:
    """Say that a dead broker is gone for good, so that nothing waits for it any more.

    A dead broker may return with what was moved off it or deleted meanwhile, so a deletion is complete only when it has
    deleted its part, and the name of the topic stays taken. A forgotten one is not waited for. In Kafka's KRaft mode
    this is `kafka-cluster.sh unregister`.

    Refused (exit status 6) while the broker lives, or has replicas of topics that are not being deleted: drain it
    first. Exit status 1 where nothing is known of it. Should it return all the same, it registers as a new broker: it
    sets the logs aside that it still has, and no topic gets them, not even one that was created again under the name.

    \b
    Example:
      regency brokers drain 3 --wait && regency brokers forget 3
    """
    with cluster_wire(current().bootstrap_servers()) as wire:
        ruling = wire.ruling()
    request = admin_pb2.ForgetBrokerRequest(broker_id=broker)
    try:
        answer = ask_controller(ruling.address, lambda channel: AdminClient(channel).forget_broker, request)
    except RpcFailed as error:
        raise CommandFailed(str(error), hint="`regency controller status` shows who rules.") from error
    code, message = answer.outcome.error_code, answer.outcome.message
    if code == ErrorCode.INVALID_REQUEST:
        raise CommandFailed(message, status=Exit.REFUSED)
    if code != ErrorCode.NONE:
        raise refusal(f"broker {broker}", code, message)
    given_up = f"; what it was to delete is given up: {counted(answer.replicas, 'replica')}" if answer.replicas else ""
    say(f"Broker {broker} is forgotten{given_up}.")
    if current().json:
        print_json(Forgotten(broker, answer.replicas))
