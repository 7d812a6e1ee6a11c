"""`regency logs`: what the processes of the cluster in a directory wrote, merged by time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

import click
import msgspec

from regency.cli.context import completed, current, directory_option, output_option
from regency.cli.moments import Moment
from regency.cluster.errors import ClusterNotRunning
from regency.cluster.logs import Entry, Wanted, log_files, merged
from regency.cluster.state import ZOOKEEPER, ClusterState, command_for, read_state
from regency.cluster.verbs import ALL, CONTROLLER, parse_targets

_LOOK_EVERY_S = 0.3
_FOLLOWED = 20
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green", "bright_yellow")
_WIDTH = 10


@click.command()
@click.argument("who", nargs=-1, metavar="[WHO]...", shell_complete=completed("lab_parts"))
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now, until Ctrl-C.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0),
    help=f"Only the last so many entries.  [default: all; with -f {_FOLLOWED}]",
)
@click.option("--since", type=Moment(), default=0, help="Only from then on: 10m ago, 14:30, 2026-05-04T14:30.")
@directory_option
@output_option
def logs(who: tuple[str, ...], follow: bool, lines: int | None, since: int) -> None:
    """Show the logs of all processes of the lab, merged by time; also of a cluster that is down.

    WHO is a broker's id (its agent and its controller process), `controller` (the controller processes of all brokers)
    or `zookeeper`. Lines without a time, such as a traceback's, stay below the line that they belong to.

    \b
    Examples:
      regency logs -f
      regency logs -n 50 2
      regency logs controller --since 5m
      regency logs -o json | jq -r 'select(.process == "broker 1").text'
    """
    current().refuse_without_lab("each machine has its own log: `journalctl --unit regency-agent`")
    directory = current().directory
    state = read_state(directory)
    if state is None:
        raise ClusterNotRunning(
            f"There is no cluster in {directory}.", hint=f"Start one with {command_for(directory, 'up --detach')}."
        )
    wanted = _wanted(who, state, since)
    files = log_files(directory, state)
    last = lines if lines is not None else _FOLLOWED if follow and not since else None
    if last is not None and not who:
        for file in files:
            file.skip_to_last(last)
    found: Iterable[Entry] = (entry for entry in merged(files, finished=not follow) if wanted.has(entry))
    _print(found if last is None else deque(found, maxlen=last))
    while follow:
        time.sleep(_LOOK_EVERY_S)
        known = {file.path for file in files}
        files += [file for file in log_files(directory, read_state(directory) or state) if file.path not in known]
        _print(entry for entry in merged(files, finished=False) if wanted.has(entry))


def _wanted(who: tuple[str, ...], state: ClusterState, since_ms: int) -> Wanted:
    """Raises UnknownBroker, and ClusterError for other words."""
    if not who or ALL in who:
        return Wanted(since_ms=since_ms)
    brokers, own = [broker.id for broker in state.brokers], bool(state.zookeeper_port)
    targets = parse_targets(who, brokers, own_zookeeper=own, partitions=False)
    return Wanted(
        brokers=frozenset(broker.id for broker in state.brokers if broker.id in targets),
        controllers=CONTROLLER in targets,
        zookeeper=ZOOKEEPER in targets,
        since_ms=since_ms,
    )


def _print(entries: Iterable[Entry]) -> None:
    for entry in entries:
        if current().json:
            click.echo(msgspec.json.encode(entry).decode())
            continue
        name = click.style(f"{entry.source:<{_WIDTH}}", fg=_colour(entry.source))
        for line in entry.text.split("\n"):
            click.echo(f"{name} {line}")


def _colour(source: str) -> str:
    number = source.rpartition(" ")[2]
    return _COLOURS[int(number) % len(_COLOURS)] if number.isdecimal() else "white"
