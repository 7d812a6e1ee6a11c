"""`regency brokers drain`: everything off a broker."""

from __future__ import annotations

from pathlib import Path

import click

from regency.cli.context import INT32_MAX, cluster_options
from regency.cli.partitions import do_now, waiting
from regency.cli.plan_making import Wish


@click.command("drain")
@click.argument("broker", type=click.IntRange(0, INT32_MAX))
@click.option(
    "--rollback-file", "rollback", type=click.Path(dir_okay=False, path_type=Path), help="Write the way back."
)
@waiting
@cluster_options
def drain_broker(broker: int, rollback: Path | None, waits: bool, timeout: float) -> int:
    """Move all replicas off a broker, to the other live ones. It may be dead, and gone for ever.

    Exit status 1, and nothing moves, where too few others are live to hold as many replicas; 4 while partitions are
    being reassigned otherwise. With --wait: 5 when it takes longer than --timeout. New partitions can still be placed
    on it until it is shut down.

    \b
    Examples:
      regency brokers drain 3 --wait && regency brokers shutdown 3
      regency brokers drain 3 --wait && regency brokers forget 3   it is dead, and gone for good
      regency partitions plan --drain 3 --out drain-3.json         to look at it first
    """
    return do_now(Wish(drain=(broker,)), waits=waits, timeout=timeout, rollback=rollback)
