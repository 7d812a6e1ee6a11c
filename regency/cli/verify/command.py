"""The command `regency verify replicas`."""

from __future__ import annotations

import click

from regency.cli.context import ID, TOPIC_NAME, Count, Seconds, cluster_options


@click.group()
@cluster_options
def verify() -> None:
    """Check what brokers hold.

    \b
    Example:
      regency verify replicas flights
    """


@verify.command(short_help="Compare all replicas of a topic up to the high watermark.")
@click.argument("topic", type=TOPIC_NAME)
@click.argument("partitions", nargs=-1, type=ID)
@click.option("--partition", "numbers", type=ID, multiple=True, help="Only this one, as PARTITION; repeatable.")
@click.option(
    "--wait", type=Seconds(0), default=5.0, show_default=True, help="Seconds to wait for a replica that is behind."
)
@click.option("--timeout", type=Seconds(0.1), default=10.0, show_default=True, help="Seconds per request.")
@click.option(
    "--throttle",
    type=Count(min=1),
    metavar="BYTES_PER_S",
    help="Read no more than that, of all replicas together.  [default: as fast as brokers answer]",
)
@cluster_options
def replicas(
    topic: str, partitions: tuple[int, ...], numbers: tuple[int, ...], wait: float, timeout: float, throttle: int | None
) -> int:
    """Read every replica of TOPIC, or of its PARTITIONs, from its own broker, and compare them batch by batch.

    All is read up to the high watermark. Replicas agree where offsets, leader epochs, sizes and checksums of all
    batches are the same; each checksum is worked out again from what was read. A replica that is behind or out of reach
    is named, and is not said to differ. All records travel to where this runs. Nothing is changed, and no follower
    counts as more in sync for it.

    Exit status 0: all replicas agree; 1: some differ, are damaged, or cannot be read; 3: those that could be compared
    agree, and others are behind or offline.

    \b
    Examples:
      regency verify replicas flights
      regency verify replicas flights-3
      regency verify replicas flights --throttle 20000000
      regency verify replicas flights -o json | jq '.partitions[].divergences'
    """
    from regency.cli.verify.reading import verify_replicas

    return verify_replicas(topic, (*partitions, *numbers), wait, timeout, throttle)
