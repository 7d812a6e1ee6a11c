"""`regency brokers describe`: a broker, also one that is dead and has replicas."""

from __future__ import annotations

import click
import msgspec

from regency.cli.asking.config_requests import BROKER, Resource, describe
from regency.cli.asking.metadata import all_topics
from regency.cli.asking.wire import cluster_wire
from regency.cli.brokers.rows import BrokerRow, ReplicaRow, replicas_of, rows_of, ruler_of
from regency.cli.context import INT32_MAX, cluster_options, current, print_json, print_table, say
from regency.cli.exits import CommandFailed
from regency.model.ids import BrokerId


class BrokerDetails(msgspec.Struct, frozen=True):
    """What `regency brokers describe -o json` prints.

    `settings` are those that were changed while it ran, None of a broker that is not live and cannot be asked;
    `leaderless` are its replicas of partitions without a leader.
    """

    broker: BrokerRow
    controller: str | None
    settings: dict[str, str | None] | None
    leaderless: int
    replicas: list[ReplicaRow]


@click.command("describe", short_help="Show a broker, its settings and its replicas.")
@click.argument("broker", type=click.IntRange(0, INT32_MAX))
@cluster_options
def describe_broker(broker: int) -> None:
    """Show a broker's addresses, the settings it was given while it ran, and its replicas.

    Of a broker that is not registered (it is dead, or has not started yet), what assignments tell: its replicas, and
    how many of them nobody leads. Exit status 1 where no partition is assigned to it either.

    \b
    Example:
      regency brokers describe 2
    """
    servers = current().bootstrap_servers()
    number = BrokerId(broker)
    with cluster_wire(servers) as wire:
        nodes, topics = wire.brokers(), all_topics(servers)
        row = next((each for each in rows_of(nodes, ruler_of(wire), topics) if each.broker == broker), None)
        if row is None:
            listed = ", ".join(map(str, nodes)) or "none"
            raise CommandFailed(
                f"Broker {broker} is not registered, and no partition is assigned to it; live are {listed}.",
                hint="`regency doctor` tells whether anything waits for it.",
            )
        own = wire.controllers().get(number)
        configs = describe(wire, Resource(BROKER, str(broker))) if row.live else None
    replicas = replicas_of(broker, topics)
    details = BrokerDetails(
        row,
        None if own is None else own.address,
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


def _show(details: BrokerDetails) -> None:
    row = details.broker
    words = ", rules" if row.rules else "" if row.live else ", not registered"
    settings = details.settings or {}
    click.echo(f"broker      {row.broker}{words}")
    click.echo(f"address     {row.address or '-'}")
    click.echo(f"controller  {details.controller or '-'}")
    click.echo(f"rack        {row.rack or '-'}")
    click.echo(f"settings    {', '.join(f'{key}={value}' for key, value in settings.items()) or '-'}")
    leaderless = f", without a leader {details.leaderless}" if details.leaderless else ""
    click.echo(f"replicas    {row.replicas}, leads {row.leads}, out of sync {row.out_of_sync}{leaderless}")
    if details.replicas:
        click.echo()
        yes = {True: "yes", False: "no"}
        table = [("TOPIC", "PARTITION", "ROLE", "LEADER", "IN-SYNC", "OFFLINE")]
        for each in details.replicas:
            leader = "-" if each.leader is None else str(each.leader)
            table.append((each.topic, str(each.partition), each.role, leader, yes[each.in_sync], yes[each.offline]))
        print_table(table)
