"""`regency down`: ends the cluster of a directory."""

from __future__ import annotations

import click

from regency.cli.context import Seconds, current, directory_option, output_option, print_json, say
from regency.cluster.down import GRACE_S, end_cluster


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
