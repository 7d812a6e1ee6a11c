"""The command `regency verify replicas`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from regency.cli.context import (
    INT32_MAX,
    TOPIC_NAME,
    Seconds,
    cluster_options,
    current,
    stderr_is_terminal,
)
from regency.cli.deletions import refuse_if_going
from regency.cli.exits import CommandFailed
from regency.cli.kafka_clients import admin_client, check_partition
from regency.cli.metadata import TopicFacts, decode_topics
from regency.cli.refusals import refusal
from regency.cli.verify.report import report
from regency.cli.wire import cluster_wire
from regency.clients.pace import Pace
from regency.clients.reading import Partition, PartitionResult, read_and_compare
from regency.clients.replica_wire import REQUEST_TIMEOUT_MS, Place, ReplicaWire, replica_wire
from regency.model.ids import BrokerId, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode


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
@click.option(
    "--partition", "numbers", type=click.IntRange(0, INT32_MAX), multiple=True, help="Only this one; repeatable."
)
@click.option(
    "--wait", type=Seconds(0), default=5.0, show_default=True, help="Seconds to wait for a replica that is behind."
)
@click.option(
    "--timeout", type=Seconds(0.1), default=REQUEST_TIMEOUT_MS / 1000, show_default=True, help="Seconds per request."
)
@click.option(
    "--throttle",
    type=click.IntRange(min=1),
    metavar="BYTES_PER_S",
    help="Read no more than that, of all replicas together.  [default: as fast as brokers answer]",
)
@cluster_options
def replicas(topic: str, numbers: tuple[int, ...], wait: float, timeout: float, throttle: int | None) -> int:
    """Read every replica of a topic, from its own broker, up to the high watermark, and compare them batch by batch.

    Replicas agree where offsets, leader epochs, sizes and checksums of all batches are the same; each checksum is
    worked out again from what was read. A replica that is behind or out of reach is named, and is not said to differ.
    All records travel to where this runs. Nothing is changed, and no follower counts as more in sync for it.

    Exit status 0: all replicas agree; 1: some differ, are damaged, or cannot be read; 3: those that could be compared
    agree, and others are behind or offline.

    \b
    Examples:
      regency verify replicas flights
      regency verify replicas flights --partition 3
      regency verify replicas flights --throttle 20000000
      regency verify replicas flights -o json | jq '.partitions[].divergences'
    """
    servers = current().bootstrap_servers()
    facts, topic_id = _describe(servers, topic)
    for number in numbers:
        check_partition(topic, [each.partition_index for each in facts.partitions], number)
    chosen = [each for each in facts.partitions if not numbers or each.partition_index in numbers]
    with cluster_wire(servers) as cluster:
        nodes = cluster.brokers()
    with replica_wire(nodes, timeout_ms=int(timeout * 1000)) as wire:
        wanted: dict[BrokerId, list[TopicPartition]] = {}
        for each in chosen:
            for broker in each.replica_nodes:
                wanted.setdefault(BrokerId(broker), []).append(TopicPartition(topic, each.partition_index))
        places = wire.places(wanted, {topic: topic_id})
        partitions = []
        for each in chosen:
            name = TopicPartition(topic, each.partition_index)
            held = {BrokerId(broker): places[BrokerId(broker), name] for broker in each.replica_nodes}
            partitions.append(Partition(name, topic_id, each.leader_id if each.leader_id >= 0 else None, held))
        results = _read(wire, partitions, wait, Pace(throttle) if throttle is not None else None)
    return report(results)


def _describe(servers: str, topic: str) -> tuple[TopicFacts, TopicId]:
    with admin_client(servers) as client:
        [facts] = decode_topics(client.describe_topics([topic]))
    if facts.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        refuse_if_going(servers, topic)
    if facts.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
        raise refusal(f"topic {topic}", facts.error_code, None)
    if facts.topic_id is None:
        raise CommandFailed(f"Topic {topic} has no id yet.", hint="Try again when a controller rules.")
    return facts, TopicId(facts.topic_id)


def _read(
    wire: ReplicaWire, partitions: Sequence[Partition], wait_s: float, pace: Pace | None
) -> list[PartitionResult]:
    total = sum(
        max(0, partition.bound - place.log_start)
        for partition in partitions
        for place in partition.places.values()
        if isinstance(place, Place)
    )
    with _progress() as bar:
        task = bar.add_task("offsets read", total=total)
        return list(
            read_and_compare(
                wire,
                partitions,
                patience_s=wait_s,
                on_progress=lambda count: bar.update(task, advance=count),
                pace=pace,
            )
        )


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on stderr, where someone looks at it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not stderr_is_terminal()) as bar:
        yield bar
