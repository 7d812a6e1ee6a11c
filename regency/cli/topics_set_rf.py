"""`regency topics set-rf`: more or fewer replicas of a topic."""

from __future__ import annotations

from pathlib import Path

import click

from regency.cli.context import TOPIC_NAME, cluster_options
from regency.cli.partitions import do_now, waiting
from regency.cli.plan_making import Wish


@click.command("set-rf")
@click.argument("name", type=TOPIC_NAME)
@click.argument("factor", type=click.IntRange(1, 32767), metavar="N")
@click.option(
    "--rollback-file", "rollback", type=click.Path(dir_okay=False, path_type=Path), help="Write the way back."
)
@waiting
@cluster_options
def set_rf(name: str, factor: int, rollback: Path | None, waits: bool, timeout: float) -> int:
    """Give every partition of a topic N replicas. Those that stay do not move.

    New ones go where least is, apart on racks; those that are too many go from where most is, and from the dead first.
    With --wait: exit status 5 when it takes longer than --timeout.

    \b
    Example:
      regency topics set-rf flights 3 --wait
    """
    return do_now(Wish(topics=(name,), replication_factor=factor), waits=waits, timeout=timeout, rollback=rollback)
