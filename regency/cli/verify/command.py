"""The command `regency verify replicas`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from regency.cli.context import (
    INT32_MAX,
    TOPIC_NAME,
    Seconds,
    cluster_options,
    current,
    print_json,
    print_table,
    say,
    stderr_is_terminal,
)
from regency.cli.deletions import refuse_if_going
from regency.cli.exits import CommandFailed, Exit
from regency.cli.kafka_clients import admin_client, check_partition
from regency.cli.metadata import TopicFacts, decode_topics
from regency.cli.refusals import refusal
from regency.cli.wire import cluster_wire
from regency.clients.comparison import Batch, Divergence
from regency.clients.pace import Pace
from regency.clients.reading import (
    BEHIND,
    DAMAGED,
    DIVERGES,
    FAILED,
    MISSING,
    OFFLINE,
    Damaged,
    Partition,
    PartitionResult,
    read_and_compare,
)
from regency.clients.replica_wire import REQUEST_TIMEOUT_MS, Place, ReplicaWire, replica_wire
from regency.model.ids import BrokerId, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode

_WRONG = (DIVERGES, DAMAGED, FAILED)
_NOT_COMPARED = (BEHIND, OFFLINE, MISSING)


class ReplicaFacts(msgspec.Struct, frozen=True):
    """A replica; offsets are None where it could not be asked. `state` is one of seven stable words."""

    broker: int
    state: str
    detail: str
    log_start: int | None
    read_to: int | None
    log_end: int | None
    high_watermark: int | None


class BatchFacts(msgspec.Struct, frozen=True):
    """What a broker has where replicas begin to differ."""

    broker: int
    base_offset: int | None
    last_offset: int | None
    leader_epoch: int | None
    crc: int | None
    size: int | None


class DivergenceFacts(msgspec.Struct, frozen=True):
    """Offsets on which replicas differ, both ends included."""

    from_offset: int
    to_offset: int
    there: list[BatchFacts]


class PartitionFacts(msgspec.Struct, frozen=True):
    """A partition."""

    topic: str
    partition: int
    leader: int | None
    high_watermark: int
    replicas: list[ReplicaFacts]
    divergences: list[DivergenceFacts]
    damaged: list[Damaged]


class Verification(msgspec.Struct, frozen=True):
    """What `regency verify replicas -o json` prints. `complete`: no replica was behind or out of reach."""

    agrees: bool
    complete: bool
    partitions: list[PartitionFacts]


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
    found = Verification(
        agrees=not any(verdict.state in _WRONG for result in results for verdict in result.replicas),
        complete=not any(verdict.state in _NOT_COMPARED for result in results for verdict in result.replicas),
        partitions=[_facts(result) for result in results],
    )
    if current().json:
        print_json(found)
    else:
        _tell(found)
    if not found.agrees:
        return Exit.FAILED
    return Exit.DONE if found.complete else Exit.UNHEALTHY


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


def _facts(result: PartitionResult) -> PartitionFacts:
    partition = result.partition
    rows = []
    for verdict in result.replicas:
        place = partition.places[BrokerId(verdict.broker)]
        end, mark = (place.log_end, place.high_watermark) if isinstance(place, Place) else (None, None)
        rows.append(
            ReplicaFacts(verdict.broker, verdict.state, verdict.detail, verdict.log_start, verdict.read_to, end, mark)
        )
    return PartitionFacts(
        partition.name.topic,
        partition.name.partition,
        partition.leader,
        partition.bound,
        rows,
        [_divergence(each) for each in result.divergences],
        result.damages,
    )


def _divergence(divergence: Divergence) -> DivergenceFacts:
    there = [
        BatchFacts(broker, None, None, None, None, None) if batch is None else BatchFacts(broker, *batch)
        for broker, batch in sorted(divergence.first.items())
    ]
    return DivergenceFacts(divergence.from_offset, divergence.to_offset, there)


def _tell(found: Verification) -> None:
    table = [["PARTITION", "BROKER", "ROLE", "LOG-START", "READ-TO", "HW", "LEO", "STATE", "DETAIL"]]
    for partition in found.partitions:
        for replica in partition.replicas:
            offsets = (replica.log_start, replica.read_to, replica.high_watermark, replica.log_end)
            table.append(
                [
                    f"{partition.topic}-{partition.partition}",
                    str(replica.broker),
                    "leader" if replica.broker == partition.leader else "follower",
                    *("-" if offset is None else str(offset) for offset in offsets),
                    replica.state,
                    replica.detail or "-",
                ]
            )
    print_table(table)
    for partition in found.partitions:
        for divergence in partition.divergences:
            _tell_divergence(f"{partition.topic}-{partition.partition}", divergence)
        for damage in partition.damaged:
            where = f"{partition.topic}-{partition.partition}, offset {damage.offset}, broker {damage.broker}"
            click.echo(f"\n{where}: {damage.what}.")
    _sum_up(found)


def _tell_divergence(name: str, divergence: DivergenceFacts) -> None:
    click.echo(f"\n{name}, offsets {divergence.from_offset} to {divergence.to_offset}: the replicas differ.")
    for each in divergence.there:
        if each.base_offset is None or each.last_offset is None:
            click.echo(f"  broker {each.broker}: nothing there")
        else:
            assert each.leader_epoch is not None and each.crc is not None and each.size is not None
            batch = Batch(each.base_offset, each.last_offset, each.leader_epoch, each.crc, each.size)
            click.echo(f"  broker {each.broker}: {batch}")


def _sum_up(found: Verification) -> None:
    states = [replica.state for partition in found.partitions for replica in partition.replicas]
    counted = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states)))
    many = "partition" if len(found.partitions) == 1 else "partitions"
    say(f"{len(found.partitions)} {many}, replicas: {counted or 'none'}.")
    if not found.agrees:
        say("docs/tools.md tells how a replica is mended.")
