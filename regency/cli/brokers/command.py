"""`regency brokers list | shutdown`; the other subcommands have files of their own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click

from regency.cli.asking.metadata import TopicFacts, all_topics
from regency.cli.asking.refusals import refusal
from regency.cli.asking.wire import ClusterWire, cluster_wire, find
from regency.cli.brokers.describe import describe_broker
from regency.cli.brokers.forget import forget_broker
from regency.cli.brokers.rows import rows_of, ruler_of
from regency.cli.context import INT32_MAX, Seconds, cluster_options, current, say, show
from regency.cli.exits import CommandFailed, Exit
from regency.cli.partitions.command import do_now, waiting
from regency.cli.partitions.plan_making import Wish
from regency.clients.controllers import ask_controller
from regency.clients.nodes import Node
from regency.model.ids import NO_BROKER_EPOCH, BrokerId
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2
from regency.runtime.grpc.channels import RpcFailed
from regency.runtime.grpc.clients import AdminClient


@click.command("drain")
@click.argument("broker", type=click.IntRange(0, INT32_MAX))
@click.option(
    "--rollback-file", "rollback", type=click.Path(dir_okay=False, path_type=Path), help="Write the way back."
)
@waiting
@cluster_options
def drain_broker(broker: int, rollback: Path | None, waits: bool, timeout: float) -> int:
    """Move all replicas off a broker, to the other live ones. It may be dead, and gone for ever.

    Exit status 1, and nothing moves, where too few others are live to hold as many replicas; 4 while partitions are
    being reassigned otherwise. With --wait: 5 when it takes longer than --timeout. New partitions can still be placed
    on it until it is shut down.

    \b
    Examples:
      regency brokers drain 3 --wait && regency brokers shutdown 3
      regency brokers drain 3 --wait && regency brokers forget 3   it is dead, and gone for good
      regency partitions plan --drain 3 --out drain-3.json         to look at it first
    """
    return do_now(Wish(drain=(broker,)), waits=waits, timeout=timeout, rollback=rollback)


_LOOK_EVERY_S = 0.2
_SHOWN = 5


@click.group()
@cluster_options
def brokers() -> None:
    """List and describe brokers, drain one, have one shut down, and forget one that is gone for good.

    \b
    Examples:
      regency brokers list
      regency brokers drain 3 --wait && regency brokers shutdown 3      it goes
      regency brokers drain 3 --wait && regency brokers forget 3        it is gone
    """


@brokers.command("list", short_help="List brokers, also dead ones with replicas.")
@cluster_options
def list_brokers() -> None:
    """List the live brokers, and those that partitions are assigned to although they are not live.

    \b
    Examples:
      regency brokers list
      regency brokers list -o json | jq '.[] | select(.live | not) | .broker'
    """
    servers = current().bootstrap_servers()
    with cluster_wire(servers) as wire:
        nodes, ruler = wire.brokers(), ruler_of(wire)
    show(
        rows_of(nodes, ruler, all_topics(servers)),
        ["broker", "live", "address", "rack", "rules", "leads", "replicas", "out_of_sync"],
    )


brokers.add_command(describe_broker)
brokers.add_command(drain_broker)
brokers.add_command(forget_broker)


@brokers.command()
@click.argument("broker", type=click.IntRange(0, INT32_MAX))
@click.option("--force", is_flag=True, help="Also when partitions are left without a leader.")
@click.option("--timeout", type=Seconds(0), default=60.0, show_default=True, help="Seconds to wait until it is gone.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it is gone.")
@cluster_options
def shutdown(broker: int, force: bool, timeout: float, no_wait: bool) -> None:
    """Have a broker hand its leadership over and end, as SIGTERM does.

    Refused (exit status 6) where it is the only replica in sync of a partition, unless --force is said. Exit status 5
    when it is still there after --timeout.

    \b
    Examples:
      regency brokers shutdown 2
      regency brokers shutdown 2 --force --no-wait
    """
    servers = current().bootstrap_servers()
    alone = alone_in_sync(broker, all_topics(servers))
    if alone and not force:
        more = f" and {len(alone) - _SHOWN} more" if len(alone) > _SHOWN else ""
        raise CommandFailed(
            f"Broker {broker} alone is in sync for {', '.join(alone[:_SHOWN])}{more}: nobody else could lead.",
            hint="Wait until others are in sync, move them, or say --force.",
            status=Exit.REFUSED,
        )
    with cluster_wire(servers) as wire:
        nodes = wire.brokers()
        node = find(nodes, BrokerId(broker))
        _tell(wire, broker)
    say(f"Broker {broker} hands over what it leads, and ends.")
    if no_wait:
        return
    others = [each.address for each in nodes.values() if each.id != broker]
    deadline = time.monotonic() + timeout
    while _is_there(node, others):
        if time.monotonic() >= deadline:
            raise CommandFailed(f"Broker {broker} is still there after {timeout:g} s.", status=Exit.TIMED_OUT)
        time.sleep(_LOOK_EVERY_S)
    say(f"Broker {broker} is gone.")


def alone_in_sync(broker: int, topics: Sequence[TopicFacts]) -> list[str]:
    """Partitions of which no other replica is in sync: without the broker nobody could lead them."""
    return [
        f"{topic.name}-{partition.partition_index}"
        for topic in topics
        for partition in topic.partitions
        if partition.isr_nodes == [broker]
    ]


def _tell(wire: ClusterWire, broker: int) -> None:
    request = admin_pb2.ShutDownBrokerRequest(broker_id=broker, broker_epoch=NO_BROKER_EPOCH)
    try:
        answer = ask_controller(wire.ruling().address, lambda channel: AdminClient(channel).shut_down_broker, request)
    except RpcFailed as error:
        raise CommandFailed(str(error), hint="`regency controller status` shows who rules.") from error
    if answer.outcome.error_code != ErrorCode.NONE:
        raise refusal(f"broker {broker}", answer.outcome.error_code, answer.outcome.message)


def _is_there(node: Node, others: Sequence[str]) -> bool:
    """Whether the others still know it; the last one of all is gone when it does not answer."""
    try:
        with cluster_wire(",".join(others) or node.address) as wire:
            return node.id in wire.brokers()
    except CommandFailed:
        return bool(others)
