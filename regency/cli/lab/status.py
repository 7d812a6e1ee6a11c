"""`regency status`: what runs, who rules, what is missing."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from regency.cli.context import current, directory_option, output_option, print_json, print_table, say
from regency.cli.exits import Exit
from regency.cluster.processes import ProcessState
from regency.cluster.state import agent_name
from regency.cluster.status import ClusterStatus, cluster_status

_SHOWN = 20
"""What is missing, at most, without -o json."""


@click.command()
@directory_option
@output_option
def status() -> int:
    """Show ZooKeeper, brokers, controller and partitions of the cluster in a directory. Exit status 3 if unhealthy.

    HTTP and CONTROLLER are the ports at which agent and controller of a broker serve /metrics and /readyz.
    Agents that were started by hand count: who has locked the log directory of a broker runs as that broker.

    \b
    Examples:
      regency status
      regency status -o json | jq .missing
    """
    found = cluster_status(current().directory)
    if current().json:
        print_json(found)
    else:
        _print(found)
    return Exit.DONE if found.healthy else Exit.UNHEALTHY


def _print(found: ClusterStatus) -> None:
    rows = [("PROCESS", "PID", "STATE", "REGISTERED", "ADDRESS", "HTTP", "CONTROLLER")]
    zookeeper = found.zookeeper
    rows.append(("zookeeper", _text(zookeeper.pid), zookeeper.state, "-", zookeeper.connect, "-", "-"))
    for broker in found.brokers:
        registered = {True: "yes", False: "no", None: "-"}[broker.registered]
        ports = (_port(broker.agent_http), _port(broker.controller_http))
        rows.append((f"broker {broker.id}", _text(broker.pid), broker.state, registered, broker.address, *ports))
    print_table(rows)
    if found.controller is not None:
        rules = "nobody" if found.controller.id is None else f"broker {found.controller.id}"
        click.echo(f"controller: {rules}, epoch {found.controller.epoch}")
        click.echo(
            f"topics: {found.topics}, partitions: {found.partitions}, "
            f"under-replicated: {found.under_replicated}, without leader: {found.leaderless}"
        )
    for phrase in found.missing[:_SHOWN]:
        say(f"Missing: {phrase}.")
    if len(found.missing) > _SHOWN:
        say(f"... and {len(found.missing) - _SHOWN} more; -o json names all.")
    if found.controller is not None:  # where nothing else runs, `up` starts all of it
        for broker in found.brokers:
            if broker.state == ProcessState.DEAD.value:
                config = Path(found.directory, agent_name(broker.id), "server.properties")
                say(f"Broker {broker.id} comes back with `regency agent --config {shlex.quote(str(config))}`.")


def _port(address: str) -> str:
    return address.rpartition(":")[2] or "-"


def _text(pid: int | None) -> str:
    return "-" if pid is None else str(pid)
