"""`regency up | down | status`: a cluster on this machine, in the foreground or left running."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import click
import msgspec

from regency.cli.context import (
    INT32_MAX,
    Seconds,
    current,
    directory_option,
    output_option,
    parse_pairs,
    print_json,
    print_table,
    say,
)
from regency.cli.exits import Exit, exit_on_termination
from regency.cluster.cluster import SESSION_TIMEOUT_MS, START_TIMEOUT_S, Cluster
from regency.cluster.plan import DEFAULT_BROKERS, MOST_BROKERS, MOST_LOG_DIRS
from regency.cluster.processes import ProcessState
from regency.cluster.state import agent_name, command_for
from regency.cluster.status import GRACE_S, ClusterStatus, cluster_status, end_cluster
from regency.model.ids import BrokerId

_LOOK_EVERY_S = 0.5


class Started(msgspec.Struct, frozen=True):
    """What `regency up -o json` prints."""

    directory: str
    bootstrap_servers: str
    zookeeper_connect: str
    brokers: list[BrokerId]
    detached: bool


@click.command()
@click.option(
    "--brokers",
    type=click.IntRange(1, MOST_BROKERS),
    help=f"Number of brokers.  [default: as before in this directory, else {DEFAULT_BROKERS}]",
)
@click.option(
    "--log-dirs",
    type=click.IntRange(1, MOST_LOG_DIRS),
    help="Log directories of every broker, as on machines with several disks.  [default: as before, else 1]",
)
@click.option("--detach", is_flag=True, help="Leave it running; end it with `regency down`.")
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="A key of server.properties, for all brokers.")
@click.option("--zookeeper-connect", metavar="HOST:PORT/CHROOT", help="Use this ZooKeeper, not one of its own.")
@click.option(
    "--session-timeout-ms", type=click.IntRange(1000, INT32_MAX), default=SESSION_TIMEOUT_MS, show_default=True
)
@click.option("--timeout", type=Seconds(1), default=START_TIMEOUT_S, show_default=True, help="Seconds to be ready in.")
@directory_option
@output_option
def up(
    brokers: int | None,
    log_dirs: int | None,
    detach: bool,
    pairs: tuple[str, ...],
    zookeeper_connect: str | None,
    session_timeout_ms: int,
    timeout: float,
) -> None:
    """Start ZooKeeper and broker agents, each with its controller, on this machine.

    The directory keeps data, logs and ports: started again in it, the cluster goes on where it ended.

    \b
    Examples:
      regency up                              until Ctrl-C
      regency up --detach --brokers 5         until `regency down`
      regency up --set min.insync.replicas=2 --dir /tmp/lab
      regency up --log-dirs 2                 two log directories for each broker
    """
    cluster = Cluster(
        brokers,
        settings=parse_pairs(pairs, "--set") if pairs else None,
        directory=current().directory,
        zookeeper_connect=zookeeper_connect,
        session_timeout_ms=session_timeout_ms,
        log_dirs=log_dirs,
        detached=detach,
        start_timeout_s=timeout,
    )
    with exit_on_termination(), cluster:
        _announce(cluster, detached=detach)
        if not detach:
            _watch(cluster)


def _announce(cluster: Cluster, *, detached: bool) -> None:
    started = Started(
        directory=str(cluster.directory),
        bootstrap_servers=cluster.bootstrap_servers,
        zookeeper_connect=cluster.zookeeper_connect,
        brokers=cluster.broker_ids,
        detached=detached,
    )
    if current().json:
        print_json(started)
    else:
        rows = [("bootstrap servers", started.bootstrap_servers), ("zookeeper", started.zookeeper_connect)]
        print_table([*rows, ("directory", started.directory)])
    count = len(started.brokers)
    ending = command_for(current().directory, "down") if detached else "Ctrl-C"
    say(f"{count} {'broker' if count == 1 else 'brokers'} up; {ending} ends it all.")


def _watch(cluster: Cluster) -> None:
    """Return when every broker was ended by someone else; say so when one dies."""
    dead: set[BrokerId] = set()
    while len(dead) < len(cluster.broker_ids):
        time.sleep(_LOOK_EVERY_S)
        now = {broker for broker in cluster.broker_ids if cluster.broker_state(broker) is ProcessState.DEAD}
        for broker in sorted(now - dead):
            say(f"Broker {broker} ended; its log is {cluster.log(broker)}.")
        dead = now


@click.command()
@click.option("--timeout", type=Seconds(0), default=GRACE_S, show_default=True, help="Seconds before SIGKILL.")
@directory_option
@output_option
def down(timeout: float) -> None:
    """End the cluster of a directory: agents first, then ZooKeeper. Its data stays. Harmless when nothing runs.

    Agents that were started by hand, with a server.properties of the directory, are ended too.

    \b
    Examples:
      regency down
      regency down --dir /tmp/lab --timeout 0      kill at once
    """
    directory = current().directory
    ended = end_cluster(directory, grace_s=timeout)
    if current().json:
        print_json({"ended": ended})
    for process in ended:
        say(f"Ended {process.name} (pid {process.pid}){', killed' if process.killed else ''}.")
    if not ended:
        say(f"Nothing runs in {directory}.")


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
    rows: list[tuple[object, ...]] = [("PROCESS", "PID", "STATE", "REGISTERED", "ADDRESS", "HTTP", "CONTROLLER")]
    zookeeper = found.zookeeper
    rows.append(("zookeeper", zookeeper.pid, zookeeper.state, None, zookeeper.connect, None, None))
    for broker in found.brokers:
        ports = [address.rpartition(":")[2] or None for address in (broker.agent_http, broker.controller_http)]
        rows.append((f"broker {broker.id}", broker.pid, broker.state, broker.registered, broker.address, *ports))
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
