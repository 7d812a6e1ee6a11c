"""`regency log`: looking at what brokers keep on their disks."""

from __future__ import annotations

import click

from regency.cli.dump.command import dump


@click.group()
def log() -> None:
    """Look at log files and log directories."""


log.add_command(dump)
