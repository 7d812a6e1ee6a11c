"""`regency up | down | status`: a cluster on this machine, in the foreground or left running."""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec

from regency.cli.context import (
    INT32_MAX,
    Seconds,
    completed,
    conclude,
    current,
    directory_option,
    output_option,
    parse_pairs,
    print_json,
    print_table,
    say,
)
from regency.cli.exits import CommandFailed, Exit, exit_on_termination
from regency.cli.lab.verbs import attached
from regency.cli.waiting import waiting
from regency.cluster.cluster import Cluster
from regency.cluster.lab import START_TIMEOUT_S, Lab
from regency.cluster.plan import (
    DEFAULT_BROKERS,
    MOST_BROKERS,
    MOST_LOG_DIRS,
    PORT_STEP,
    SESSION_TIMEOUT_MS,
    ZOOKEEPER_OFFSET,
    plan_cluster,
)
from regency.cluster.process.endings import ending
from regency.cluster.process.processes import ProcessState
from regency.cluster.state import ZOOKEEPER, agent_name, command_for, in_words, read_state, refuse_if_running
from regency.cluster.status import (
    GRACE_S,
    BrokerStatus,
    ClusterStatus,
    Ended,
    ZooKeeperStatus,
    cluster_status,
    end_cluster,
)
from regency.model.ids import BrokerId
from regency.model.words import counted

_LOOK_EVERY_S = 0.5
_LAST_FIRST_PORT = 65_535 - ZOOKEEPER_OFFSET


class Started(msgspec.Struct, frozen=True):
    """What `regency up -o json` prints."""

    directory: str
    bootstrap_servers: str
    zookeeper_connect: str
    brokers: list[BrokerId]
    detached: bool
    started: list[str]
    """Names of the processes that this command started: all, or those that were dead or are new."""


@click.command()
@click.option(
    "--brokers",
    type=click.IntRange(1, MOST_BROKERS),
    help=f"Number of brokers; more than run already are added.  [default: as before, else {DEFAULT_BROKERS}]",
)
@click.option(
    "--port",
    type=click.IntRange(1, _LAST_FIRST_PORT),
    help=f"Port of broker 1 for Kafka clients; broker 2 has {PORT_STEP} more, and so on. The four ports after each are "
    f"the broker's own, ZooKeeper has the one {ZOOKEEPER_OFFSET} after the first.  [default: as before, else free]",
)
@click.option(
    "--log-dirs",
    type=click.IntRange(1, MOST_LOG_DIRS),
    help="Log directories of every broker, as on machines with several disks.  [default: as before, else 1]",
)
@click.option("--detach", is_flag=True, help="Leave it running; end it with `regency down`.")
@click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=completed("broker_pairs"),
    help="A key of server.properties, for all brokers.",
)
@click.option("--zookeeper-connect", metavar="HOST:PORT/CHROOT", help="Use this ZooKeeper, not one of its own.")
@click.option(
    "--session-timeout-ms",
    type=click.IntRange(1000, INT32_MAX),
    help=f"After so long without a word a broker counts as dead.  [default: as before, else {SESSION_TIMEOUT_MS}]",
)
@click.option("--timeout", type=Seconds(1), default=START_TIMEOUT_S, show_default=True, help="Seconds to be ready in.")
@directory_option
@output_option
def up(
    brokers: int | None,
    port: int | None,
    log_dirs: int | None,
    detach: bool,
    pairs: tuple[str, ...],
    zookeeper_connect: str | None,
    session_timeout_ms: int | None,
    timeout: float,
) -> None:
    """Start ZooKeeper and broker agents, each with its controller, on this machine.

    The directory keeps data, logs and ports: started again in it, the cluster goes on where it ended. Where a part of
    it runs, the rest is started in the background; what is paused stays paused. More --brokers are added.

    \b
    Examples:
      regency up                              until Ctrl-C
      regency up --detach --brokers 5         until `regency down`
      regency up --detach --port 9092         brokers at 9092, 9192, 9292
      regency up --set min.insync.replicas=2 --dir /tmp/lab
      regency up --log-dirs 2                 two log directories for each broker
    """
    directory = current().directory
    wishes: dict[str, object] = {
        "settings": parse_pairs(pairs, "--set") if pairs else None,
        "zookeeper_connect": zookeeper_connect,
        "session_timeout_ms": session_timeout_ms,
        "log_dirs": log_dirs,
        "port": port,
    }
    state = read_state(directory)
    if state is not None and state.alive(directory):
        _refuse_other_settings(directory, wishes)
        _make_whole(brokers)
        return
    cluster = Cluster(brokers, directory=directory, detached=detach, start_timeout_s=timeout, **wishes)  # type: ignore[arg-type]
    with exit_on_termination():
        with waiting(lambda: _starting(directory)):
            cluster.start()
        with cluster:
            try:
                _announce(cluster, [ref.name for ref in cluster.state.processes], detached=detach)
                if not detach:
                    _watch(cluster)
            except BaseException:
                if not detach:
                    say(f"Ending it all; the data stays in {directory}.")
                raise


def _starting(directory: Path) -> str:
    """What a start has come to, for one who waits."""
    state = read_state(directory)
    if state is None or not state.processes:
        return "Waiting for the directory, or for ports"
    if not any(ref.name != ZOOKEEPER for ref in state.processes):
        return "Starting ZooKeeper"
    return f"Waiting for {counted(len(state.brokers), 'broker')} to register"


def _refuse_other_settings(directory: Path, wishes: dict[str, object]) -> None:
    """Raises CommandFailed where a cluster that runs would have to be started again to be as it is wished."""
    now = read_state(directory)
    planned = plan_cluster(directory, **wishes)  # type: ignore[arg-type]
    if now is not None and planned != now:
        raise CommandFailed(
            f"A cluster runs in {directory}, and its settings and ports are read when it starts.",
            hint=f"Stop it with {command_for(directory, 'down')} first, then it starts as you said.",
            status=Exit.REFUSED,
        )


def _make_whole(brokers: int | None) -> None:
    """Start what is dead of a cluster that runs in part. Raises ClusterRunning where nothing is."""
    with attached() as lab:
        paused = [agent_name(broker) for broker in lab.broker_ids if lab.broker_state(broker) is ProcessState.PAUSED]
        if lab.state.zookeeper_port and lab.zookeeper.state is ProcessState.PAUSED:
            paused.insert(0, ZOOKEEPER)
        if paused:
            resume = command_for(
                current().directory, " ".join(["lab resume", *(name.removeprefix("agent-") for name in paused)])
            )
            say(f"What is paused stays so: {', '.join(map(in_words, paused))}; {resume} resumes it.")
        with waiting("Waiting for what was dead to register"):
            started = lab.make_whole(brokers)
        if started:
            _announce(lab, [each.name for each in started], detached=True)
        for each in started:
            say(each.words)
        if not started:
            refuse_if_running(current().directory, lab.state)


def _announce(cluster: Lab, started_now: list[str], *, detached: bool) -> None:
    started = Started(
        directory=str(cluster.directory),
        bootstrap_servers=cluster.bootstrap_servers,
        zookeeper_connect=cluster.zookeeper_connect,
        brokers=cluster.broker_ids,
        detached=detached,
        started=started_now,
    )
    if current().json:
        print_json(started)
    else:
        rows = [("bootstrap servers", started.bootstrap_servers), ("zookeeper", started.zookeeper_connect)]
        print_table([*rows, ("directory", started.directory)])
    count = len(started.brokers)
    ending = command_for(current().directory, "down") if detached else "Ctrl-C"
    conclude(f"{count} {'broker' if count == 1 else 'brokers'} up; {ending} ends it all.")


def _watch(cluster: Cluster) -> None:
    """Return when another command has ended the cluster, or nothing of it is left; say so when a process dies."""
    dead: set[str] = set()
    while True:
        time.sleep(_LOOK_EVERY_S)
        broker_states = {agent_name(broker): cluster.broker_state(broker) for broker in cluster.broker_ids}
        state = cluster.state
        if state.zookeeper_port:
            broker_states[ZOOKEEPER] = cluster.zookeeper.state
        now = {name for name, found in broker_states.items() if found is ProcessState.DEAD}
        if state.stopped is not None:
            return
        for name in sorted(now - dead):
            say(_obituary(cluster, name))
        dead = now
        if len(dead) == len(broker_states):
            say("Nothing of the cluster is left.")
            return


def _obituary(cluster: Cluster, name: str) -> str:
    life = cluster.last_life(name)
    how = "ended" if life is None else ending(life, cluster.directory / name).how
    target, who = name.removeprefix("agent-"), in_words(name)
    again, logs = (command_for(current().directory, f"{words} {target}") for words in ("lab start", "logs"))
    return f"{who[0].upper()}{who[1:]} {how}. Start it again with {again}; its log: {logs}."


class Down(msgspec.Struct, frozen=True):
    """What `regency down -o json` prints: the processes that it ended, none where nothing ran."""

    ended: list[Ended]


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
    with waiting("Waiting for brokers to leave in order"):
        ended = end_cluster(directory, grace_s=timeout)
    if current().json:
        print_json(Down(ended))
    for process in ended:
        conclude(f"Ended {in_words(process.name)} (pid {process.pid}){', killed' if process.killed else ''}.")
    if not ended:
        conclude(f"Nothing runs in {directory}.")


_SHOWN = 20
"""What is missing, at most, without -o json."""


@click.command()
@directory_option
@output_option
def status() -> int:
    """Show ZooKeeper, brokers, controller and partitions of the cluster in a directory. Exit status 3 if unhealthy.

    HTTP and CONTROLLER are the ports at which agent and controller of a broker serve /metrics and /readyz.
    Agents that were started by hand count: the process that has locked the log directory of a broker is that broker.
    Of what does not run it tells how it ended.

    \b
    Examples:
      regency status
      regency status -o json | jq .problems
    """
    current().refuse_without_lab("`regency cluster health` and `regency top --once` tell")
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
        rows.append((f"broker {broker.broker}", broker.pid, broker.state, broker.registered, broker.address, *ports))
    print_table(rows)
    if found.stopped is not None:
        click.echo(f"The cluster was {found.problems[0]}; {command_for(Path(found.directory), 'up')} starts it again.")
        return
    if found.controller_epoch is not None:
        rules = "none" if found.controller is None else f"broker {found.controller}"
        click.echo(f"controller: {rules}, epoch {found.controller_epoch}")
        click.echo(
            f"topics: {found.topics}, partitions: {found.partitions}, "
            f"under-replicated: {found.under_replicated}, without leader: {found.leaderless}"
        )
    for phrase in found.problems[:_SHOWN]:
        click.echo(f"Problem: {phrase}.")
    if len(found.problems) > _SHOWN:
        click.echo(f"... and {len(found.problems) - _SHOWN} more; -o json names all.")
    if repair := _repair([zookeeper, *found.brokers]):
        click.echo(repair)


def _repair(parts: list[ZooKeeperStatus | BrokerStatus]) -> str:
    """What to type where processes do not run; empty where all do."""
    names = [str(part.broker) if isinstance(part, BrokerStatus) else ZOOKEEPER for part in parts]
    dead = [name for name, part in zip(names, parts, strict=True) if part.state in ("dead", "stopped")]
    paused = [name for name, part in zip(names, parts, strict=True) if part.state == "paused"]
    directory = current().directory
    if len(dead) == len([part for part in parts if part.state != "external"]):
        return f"{command_for(directory, 'up')} starts it all again."
    if dead:
        start = command_for(directory, " ".join(["lab start", *dead]))
        return f"{command_for(directory, 'up')} starts what is dead, as does {start}."
    return f"{command_for(directory, ' '.join(['lab resume', *paused]))} resumes what is paused." if paused else ""
