"""`regency brokers list | describe | shutdown`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import click
import msgspec

from regency.cli.brokers_drain import drain_broker
from regency.cli.config_requests import BROKER, Resource, describe
from regency.cli.context import INT32_MAX, Seconds, cluster_options, current, print_json, print_table, say, show
from regency.cli.exits import CommandFailed, Exit
from regency.cli.metadata import TopicFacts, all_topics
from regency.cli.refusals import refusal
from regency.cli.wire import ClusterWire, Node, ask_controller, cluster_wire, find
from regency.model.ids import NO_BROKER_EPOCH, BrokerId
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2
from regency.runtime.grpc_channels import RpcFailed
from regency.runtime.grpc_clients import AdminClient

_LOOK_EVERY_S = 0.2
_SHOWN = 5


class BrokerRow(msgspec.Struct, frozen=True):
    """A broker in `regency brokers list`; one that only assignments name is not live and has no address."""

    broker: int
    live: bool
    address: str | None
    rack: str | None
    rules: bool
    leads: int
    replicas: int
    out_of_sync: int


class ReplicaRow(msgspec.Struct, frozen=True):
    """A replica of a broker in `regency brokers describe`."""

    topic: str
    partition: int
    role: str
    in_sync: bool
    offline: bool


class BrokerDetails(msgspec.Struct, frozen=True):
    """What `regency brokers describe -o json` prints; `settings` are those that were changed while it ran."""

    broker: BrokerRow
    controller: str | None
    settings: dict[str, str | None]
    replicas: list[ReplicaRow]


@click.group()
@cluster_options
def brokers() -> None:
    """List and describe brokers, drain one, and have one shut down.

    \b
    Example:
      regency brokers list
    """


@brokers.command("list")
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
        nodes, ruler = wire.brokers(), _ruler(wire)
    show(
        rows_of(nodes, ruler, all_topics(servers)),
        ["broker", "live", "address", "rack", "rules", "leads", "replicas", "out_of_sync"],
    )


brokers.add_command(drain_broker)


@brokers.command("describe")
@click.argument("broker", type=click.IntRange(0, INT32_MAX))
@cluster_options
def describe_broker(broker: int) -> None:
    """Show a broker's addresses, the settings it was given while it ran, and its replicas.

    \b
    Example:
      regency brokers describe 2
    """
    servers = current().bootstrap_servers()
    with cluster_wire(servers) as wire:
        nodes = wire.brokers()
        find(nodes, BrokerId(broker))
        controllers, ruler = wire.controllers(), _ruler(wire)
        configs = describe(wire, Resource(BROKER, str(broker)))
    topics = all_topics(servers)
    (row,) = [each for each in rows_of(nodes, ruler, topics) if each.broker == broker]
    own = controllers.get(BrokerId(broker))
    details = BrokerDetails(
        row,
        None if own is None else own.address,
        {config.key: config.value for config in configs if config.source.startswith("DYNAMIC")},
        replicas_of(broker, topics),
    )
    if current().json:
        print_json(details)
        return
    click.echo(f"broker      {broker}{', rules' if row.rules else ''}")
    click.echo(f"address     {row.address}")
    click.echo(f"controller  {details.controller or '-'}")
    click.echo(f"rack        {row.rack or '-'}")
    click.echo(f"settings    {', '.join(f'{key}={value}' for key, value in details.settings.items()) or '-'}")
    click.echo(f"replicas    {row.replicas}, leads {row.leads}, out of sync {row.out_of_sync}")
    if details.replicas:
        click.echo()
        yes = {True: "yes", False: "no"}
        table = [("TOPIC", "PARTITION", "ROLE", "IN-SYNC", "OFFLINE")]
        for each in details.replicas:
            table.append((each.topic, str(each.partition), each.role, yes[each.in_sync], yes[each.offline]))
        print_table(table)


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


def rows_of(nodes: Mapping[BrokerId, Node], ruler: int | None, topics: Sequence[TopicFacts]) -> list[BrokerRow]:
    """What there is to say of every broker that lives or has replicas."""
    leads: dict[int, int] = {}
    replicas: dict[int, int] = {}
    behind: dict[int, int] = {}
    for partition in (partition for topic in topics for partition in topic.partitions):
        leads[partition.leader_id] = leads.get(partition.leader_id, 0) + 1
        for replica in partition.replica_nodes:
            replicas[replica] = replicas.get(replica, 0) + 1
        for replica in partition.out_of_sync:
            behind[replica] = behind.get(replica, 0) + 1
    rows = []
    for broker in sorted({*map(int, nodes), *replicas}):
        node = nodes.get(BrokerId(broker))
        rows.append(
            BrokerRow(
                broker,
                node is not None,
                None if node is None else node.address,
                None if node is None else node.rack,
                broker == ruler,
                leads.get(broker, 0),
                replicas.get(broker, 0),
                behind.get(broker, 0),
            )
        )
    return rows


def replicas_of(broker: int, topics: Sequence[TopicFacts]) -> list[ReplicaRow]:
    """The replicas of a broker."""
    return [
        ReplicaRow(
            topic.name,
            partition.partition_index,
            "leader" if partition.leader_id == broker else "follower",
            broker in partition.isr_nodes,
            broker in partition.offline_replicas,
        )
        for topic in topics
        for partition in topic.partitions
        if broker in partition.replica_nodes
    ]


def alone_in_sync(broker: int, topics: Sequence[TopicFacts]) -> list[str]:
    """Partitions of which no other replica is in sync: without the broker nobody could lead them."""
    return [
        f"{topic.name}-{partition.partition_index}"
        for topic in topics
        for partition in topic.partitions
        if partition.isr_nodes == [broker]
    ]


def _ruler(wire: ClusterWire) -> int | None:
    ruling = [facts for facts in wire.controller_facts() if facts.rules]
    return max(ruling, key=lambda facts: facts.epoch or 0).broker if ruling else None


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
