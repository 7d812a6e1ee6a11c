"""`regency brokers list | describe`: brokers that live, and those that only assignments name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import click
import msgspec

from regency.cli.asking.config_requests import BROKER, Resource, describe
from regency.cli.asking.controllers import ControllerFacts, newest_ruler
from regency.cli.asking.wire import TopicFacts, cluster_wire
from regency.cli.brokers.disk import disk_of_brokers
from regency.cli.brokers.leaving import drain_broker, forget_broker, shut_down_broker
from regency.cli.context import BROKER_ID, cluster_options, current, print_json, print_rows, say, show
from regency.cli.exits import CommandFailed
from regency.clients.nodes import Node
from regency.model.ids import BrokerId


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
    """A replica of a broker in `regency brokers describe`. `leader` is None while it has no leader."""

    topic: str
    partition: int
    role: str
    leader: int | None
    in_sync: bool
    offline: bool


class BrokerDetails(msgspec.Struct, frozen=True):
    """What `regency brokers describe -o json` prints: a broker as in `brokers list`, with its replicas one by one.

    `settings` are those that were changed while it ran, None of a broker that is not live and cannot be asked;
    `leaderless` are its replicas of partitions without a leader.
    """

    broker: int
    live: bool
    address: str | None
    controller_address: str | None
    rack: str | None
    rules: bool
    leads: int
    out_of_sync: int
    settings: dict[str, str | None] | None
    leaderless: int
    replicas: list[ReplicaRow]


@click.group()
@cluster_options
def brokers() -> None:
    """List and describe brokers, look at their disks, drain one, have one shut down, forget one that is gone for good.

    \b
    Examples:
      regency brokers list
      regency brokers drain 3 && regency brokers shutdown 3      it goes
      regency brokers drain 3 && regency brokers forget 3        it is gone
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
    with cluster_wire(current().bootstrap_servers()) as wire:
        rows = rows_of(wire.brokers(), newest_ruler(wire.controller_facts()), wire.topics())
    show(rows, ["broker", "live", "address", "rack", "rules", "leads", "replicas", "out_of_sync"])


@brokers.command("describe", short_help="Show a broker, its settings and its replicas.")
@click.argument("broker", type=BROKER_ID)
@cluster_options
def describe_broker(broker: int) -> None:
    """Show a broker's addresses, the settings it was given while it ran, and its replicas.

    Of a broker that is not registered (it is dead, or has not started yet), what assignments tell: its replicas, and
    how many of them have no leader. Exit status 1 where no partition is assigned to it either.

    \b
    Example:
      regency brokers describe 2
    """
    with cluster_wire(current().bootstrap_servers()) as wire:
        nodes, topics = wire.brokers(), wire.topics()
        rows = rows_of(nodes, newest_ruler(wire.controller_facts()), topics)
        row = next((each for each in rows if each.broker == broker), None)
        if row is None:
            listed = ", ".join(map(str, nodes)) or "none"
            raise CommandFailed(
                f"Broker {broker} is not registered, and no partition is assigned to it; live are {listed}.",
                hint="`regency doctor` tells whether anything waits for it.",
            )
        own = wire.controllers().get(BrokerId(broker))
        configs = describe(wire, Resource(BROKER, str(broker))) if row.live else None
    replicas = _replicas_of(broker, topics)
    details = BrokerDetails(
        row.broker,
        row.live,
        row.address,
        None if own is None else own.address,
        row.rack,
        row.rules,
        row.leads,
        row.out_of_sync,
        None
        if configs is None
        else {config.key: config.value for config in configs if config.source.startswith("DYNAMIC")},
        sum(each.leader is None for each in replicas),
        replicas,
    )
    if current().json:
        print_json(details)
    else:
        _show(details)
    if not row.live:
        say(
            f"Broker {broker} is not registered: it is dead, or was never started. Start it, or `regency brokers drain "
            f"{broker}` and, if it is gone for good, `regency brokers forget {broker}`."
        )


brokers.add_command(disk_of_brokers)
brokers.add_command(drain_broker)
brokers.add_command(shut_down_broker)
brokers.add_command(forget_broker)


def rows_of(
    nodes: Mapping[BrokerId, Node], ruler: ControllerFacts | None, topics: Sequence[TopicFacts]
) -> list[BrokerRow]:
    """What there is to say of every broker that lives or has replicas."""
    partitions = [partition for topic in topics for partition in topic.partitions]
    leads = Counter(partition.leader_id for partition in partitions)
    replicas = Counter(replica for partition in partitions for replica in partition.replica_nodes)
    behind = Counter(replica for partition in partitions for replica in partition.out_of_sync)
    rows = []
    for broker in sorted({*map(int, nodes), *replicas}):
        node = nodes.get(BrokerId(broker))
        address, rack = (None, None) if node is None else (node.address, node.rack)
        counts = (leads[broker], replicas[broker], behind[broker])
        rows.append(
            BrokerRow(broker, node is not None, address, rack, ruler is not None and broker == ruler.broker, *counts)
        )
    return rows


def _replicas_of(broker: int, topics: Sequence[TopicFacts]) -> list[ReplicaRow]:
    """The replicas of a broker."""
    return [
        ReplicaRow(
            topic.name,
            partition.partition_index,
            "leader" if partition.leader_id == broker else "follower",
            partition.leader,
            broker in partition.isr_nodes,
            broker in partition.offline_replicas,
        )
        for topic in topics
        for partition in topic.partitions
        if broker in partition.replica_nodes
    ]


def _show(row: BrokerDetails) -> None:
    words = ", rules" if row.rules else "" if row.live else ", not registered"
    settings = row.settings or {}
    click.echo(f"broker      {row.broker}{words}")
    click.echo(f"address     {row.address or '-'}")
    click.echo(f"controller  {row.controller_address or '-'}")
    click.echo(f"rack        {row.rack or '-'}")
    click.echo(f"settings    {', '.join(f'{key}={value}' for key, value in settings.items()) or '-'}")
    leaderless = f", without a leader {row.leaderless}" if row.leaderless else ""
    click.echo(f"replicas    {len(row.replicas)}, leads {row.leads}, out of sync {row.out_of_sync}{leaderless}")
    if row.replicas:
        click.echo()
        print_rows(row.replicas, ["topic", "partition", "role", "leader", "in_sync", "offline"])
