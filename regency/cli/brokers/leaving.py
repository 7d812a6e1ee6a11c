"""`regency brokers drain | shutdown | forget`: a broker is emptied, ends, or is gone for good."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from regency.cli.asking.wire import TopicFacts, cluster_wire, find, tell_controller
from regency.cli.context import BROKER_ID, Seconds, cluster_options, conclude, current, print_json, say
from regency.cli.exits import CommandFailed, Exit
from regency.cli.partitions.command import do_now, moving_now
from regency.cli.partitions.plans import Wish
from regency.clients.nodes import Node
from regency.model.ids import NO_BROKER_EPOCH, BrokerId
from regency.model.kafka_errors import ErrorCode
from regency.model.words import counted, listed
from regency.protos import admin_pb2
from regency.runtime.daemon_options import Renamed

_LOOK_EVERY_S = 0.2


@click.command("drain")
@click.argument("broker", type=BROKER_ID)
@moving_now
@cluster_options
def drain_broker(broker: int, rollback: Path | None, waits: bool, timeout: float) -> int:
    """Move all replicas off a broker, to the other live ones. It may be dead, and gone for ever.

    Exit status 1, and nothing moves, where too few others are live to hold as many replicas; 4 while partitions are
    being reassigned otherwise. 5 when it takes longer than --timeout, and goes on. New partitions can still be placed
    on it until it is shut down.

    \b
    Examples:
      regency brokers drain 3 && regency brokers shutdown 3
      regency brokers drain 3 && regency brokers forget 3   it is dead, and gone for good
      regency partitions plan --drain 3 --out drain-3.json         to look at it first
    """
    return do_now(Wish(drain=(broker,)), waits=waits, timeout=timeout, rollback=rollback)


class ShutDown(msgspec.Struct, frozen=True):
    """What `regency brokers shutdown -o json` prints. `gone` is false where that was not waited for."""

    broker: int
    gone: bool


@click.command("shutdown")
@click.argument("broker", type=BROKER_ID)
@click.option(
    "--yes", cls=Renamed, old=["--force"], is_flag=True, help="Also when partitions are left without a leader."
)
@click.option("--timeout", type=Seconds(0), default=60.0, show_default=True, help="Seconds to wait until it is gone.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it is gone.")
@cluster_options
def shut_down_broker(broker: int, yes: bool, timeout: float, no_wait: bool) -> None:
    """Have a broker hand its leadership over and end, as SIGTERM does.

    Refused (exit status 6) where it is the only replica in sync of a partition, unless --yes is said. Exit status 5
    when it is still there after --timeout.

    \b
    Examples:
      regency brokers shutdown 2
      regency brokers shutdown 2 --yes --no-wait
    """
    with cluster_wire(current().bootstrap_servers()) as wire:
        alone = alone_in_sync(broker, wire.topics())
        if alone and not yes:
            raise CommandFailed(
                f"Broker {broker} alone is in sync for {listed(alone)}: no other broker could lead.",
                hint="Wait until others are in sync, move them, or say --yes.",
                status=Exit.REFUSED,
            )
        nodes = wire.brokers()
        node = find(nodes, BrokerId(broker))
        request = admin_pb2.ShutDownBrokerRequest(broker_id=broker, broker_epoch=NO_BROKER_EPOCH)
        tell_controller(wire.ruling(), f"broker {broker}", lambda admin: admin.shut_down_broker, request)
    say(f"Broker {broker} hands over what it leads, and ends.")
    others = [each.address for each in nodes.values() if each.id != broker]
    deadline = time.monotonic() + timeout
    while not no_wait and _is_there(node, others):
        if time.monotonic() >= deadline:
            raise CommandFailed(f"Broker {broker} is still there after {timeout:g} s.", status=Exit.TIMED_OUT)
        time.sleep(_LOOK_EVERY_S)
    if not no_wait:
        conclude(f"Broker {broker} is gone.")
    if current().json:
        print_json(ShutDown(broker, not no_wait))


class Forgotten(msgspec.Struct, frozen=True):
    """What `regency brokers forget -o json` prints."""

    broker: int
    replicas_given_up: int
    """Replicas that it was to delete when it returns."""


@click.command("forget", short_help="Say that a dead broker is gone for good.")
@click.argument("broker", type=BROKER_ID)
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
      regency brokers drain 3 && regency brokers forget 3
    """
    request = admin_pb2.ForgetBrokerRequest(broker_id=broker)
    with cluster_wire(current().bootstrap_servers()) as wire:
        answer = tell_controller(
            wire.ruling(),
            f"broker {broker}",
            lambda admin: admin.forget_broker,
            request,
            unsafe=ErrorCode.INVALID_REQUEST,
        )
    given_up = f"; what it was to delete is given up: {counted(answer.replicas, 'replica')}" if answer.replicas else ""
    conclude(f"Broker {broker} is forgotten{given_up}.")
    if current().json:
        print_json(Forgotten(broker, answer.replicas))


def alone_in_sync(broker: int, topics: Sequence[TopicFacts]) -> list[str]:
    """Partitions of which no other replica is in sync: without the broker they would have no leader."""
    return [
        f"{topic.name}-{partition.partition_index}"
        for topic in topics
        for partition in topic.partitions
        if partition.isr_nodes == [broker]
    ]


def _is_there(node: Node, others: Sequence[str]) -> bool:
    """Whether the others still know it; the last one of all is gone when it does not answer."""
    try:
        with cluster_wire(",".join(others) or node.address) as wire:
            return node.id in wire.brokers()
    except CommandFailed:
        return bool(others)
