"""`regency log`: looking at what brokers keep on their disks."""

from __future__ import annotations

import click

from regency.cli.dump.command import dump


@click.group()
def log() -> None:
    """Look at log files and log directories.

    \b
    Example:
      regency log dump .run/agent-1/data/flights-0
    """


log.add_command(dump)
