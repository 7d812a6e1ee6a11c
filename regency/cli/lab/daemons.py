"""`regency zookeeper` and `agent`: one process in the foreground."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import click

from regency.cli.context import say
from regency.cluster.agent import import_path
from regency.cluster.errors import ClusterStartFailed
from regency.cluster.processes import ProcessState
from regency.cluster.zookeeper import EmbeddedZooKeeper
from regency.runtime.daemon_options import SettingsOptions

_LOOK_EVERY_S = 0.5


@click.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep its data here.  [default: nowhere]",
)
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


_CONFIG = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A server.properties with Kafka's keys.",
)
_OVERRIDE = click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Replaces a key of the file."
)
_ENVIRONMENT = click.option(
    "--environment",
    is_flag=True,
    help="Variables replace keys of the file, as in images of Kafka: KAFKA_BROKER_ID is broker.id.",
)


@click.command()
@_CONFIG
@_OVERRIDE
@_ENVIRONMENT
@click.option(
    "--probe-file",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="REGENCY_PROBE_FILE",
    show_envvar=True,
    help="While it runs, this file says in JSON where it answers /readyz, for health checks of containers.",
)
def agent(config: Path | None, overrides: tuple[str, ...], environment: bool, probe_file: Path | None) -> None:
    """Run a broker agent with its controller until SIGTERM or Ctrl-C. Its log goes to stderr.

    \b
    Examples:
      regency agent --config server.properties --override broker.id=4
      regency agent --config .run/agent-2/server.properties     a dead broker of `regency up` comes back
      KAFKA_BROKER_ID=4 regency agent --config server.properties --environment
    """
    if config is None and not environment:
        raise click.UsageError("Say where the settings are: --config FILE, --environment, or both.")
    become("regency.broker_agent", config, overrides, environment=environment, probe_file=probe_file)


def become(
    module: str,
    config: Path | None,
    overrides: tuple[str, ...],
    *,
    environment: bool = False,
    probe_file: Path | None = None,
) -> None:
    """Run a daemon in place of this process."""
    for pair in overrides:
        if "=" not in pair:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE.", param_hint="--override")
    words = SettingsOptions(config, overrides, environment).words()
    words += ["--probe-file", str(probe_file)] if probe_file is not None else []
    command = [sys.executable, "-P", "-m", module, *words]
    os.execve(command[0], command, {**os.environ, **import_path()})  # noqa: S606  (no shell is wanted)
