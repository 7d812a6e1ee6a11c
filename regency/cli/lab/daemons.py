"""`regency zookeeper` and `agent`: one process in the foreground."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from regency.cli.context import DIRECTORY, NEW_FILE, say
from regency.cluster.agent import import_path
from regency.cluster.errors import ClusterStartFailed
from regency.cluster.process.processes import ProcessState
from regency.cluster.zookeeper import EmbeddedZooKeeper
from regency.runtime.daemon_options import SettingsOptions, settings_options

_LOOK_EVERY_S = 0.5


@click.command()
@click.option("--dir", "directory", type=DIRECTORY, help="Keep its data here.  [default: nowhere]")
@click.option("--port", type=click.IntRange(1, 65535), help="Port on 127.0.0.1.  [default: a free one]")
def zookeeper(directory: Path | None, port: int | None) -> None:
    """Run a ZooKeeper of one node on 127.0.0.1 until Ctrl-C, and print its address.

    \b
    Examples:
      regency zookeeper --port 2181
      regency zookeeper --dir /tmp/zk
    """
    with tempfile.TemporaryDirectory(prefix="regency-zookeeper-") as scratch:
        place = directory or Path(scratch)
        place.mkdir(parents=True, exist_ok=True)
        with EmbeddedZooKeeper(place, port=port) as server:
            click.echo(server.connect_string)
            say(f"ZooKeeper is up, its log is {server.log}; Ctrl-C ends it.")
            while server.state is not ProcessState.DEAD:
                time.sleep(_LOOK_EVERY_S)
            raise ClusterStartFailed("ZooKeeper ended.", hint=f"See {server.log}.")


@click.command()
@settings_options
@click.option(
    "--probe-file",
    type=NEW_FILE,
    envvar="REGENCY_PROBE_FILE",
    show_envvar=True,
    help="While it runs, this file says in JSON where it answers /readyz, for health checks of containers.",
)
def agent(probe_file: Path | None, **options: Any) -> None:
    """Run a broker agent with its controller until SIGTERM or Ctrl-C. Its log goes to stderr.

    \b
    Examples:
      regency agent --config server.properties --set broker.id=4
      KAFKA_BROKER_ID=4 regency agent --config server.properties --environment
    """
    source = SettingsOptions(**options)
    if source.config is None and not source.environment:
        raise click.UsageError("Say where the settings are: --config FILE, --environment, or both.")
    become("regency.broker_agent", source, probe_file)


def become(module: str, source: SettingsOptions, probe_file: Path | None = None) -> None:
    """Run a daemon in place of this process."""
    probe = ["--probe-file", str(probe_file)] if probe_file is not None else []
    command = [sys.executable, "-P", "-m", module, *source.words(), *probe]
    os.execve(command[0], command, {**os.environ, **import_path()})  # noqa: S606  (no shell is wanted)
