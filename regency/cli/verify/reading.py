"""What `regency verify replicas` does: find who holds a topic, read all of them, compare."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from regency.cli.asking.naming import named
from regency.cli.asking.refusals import check_partition
from regency.cli.asking.wire import ClusterWire, TopicFacts, cluster_wire
from regency.cli.context import current, stderr_is_terminal
from regency.cli.exits import CommandFailed
from regency.cli.verify.report import report
from regency.clients.replicas.assignments import compacted_topics
from regency.clients.replicas.pace import Pace
from regency.clients.replicas.reading import Partition, PartitionResult, read_and_compare
from regency.clients.replicas.wire import Place, ReplicaWire, replica_wire
from regency.model.ids import BrokerId, TopicId, TopicPartition


def verify_replicas(topic: str, numbers: Collection[int], wait_s: float, timeout_s: float, throttle: int | None) -> int:
    """Compare the replicas of these partitions of a topic (none named: of all) and report; the exit status.

    `timeout_s` bounds a request; `throttle` is in bytes per second, None: without. Raises CommandFailed.
    """
    servers = current().bootstrap_servers()
    with cluster_wire(servers) as cluster:
        facts, topic_id, number = _describe(cluster, topic)
        nodes = cluster.brokers()
    topic = facts.name
    numbers = {*numbers, *(() if number is None else (number,))}
    there = [each.partition_index for each in facts.partitions]
    for wanted_number in numbers:
        check_partition(topic, there, wanted_number)
    is_compacted = topic in compacted_topics(servers, [topic], timeout_ms=int(timeout_s * 1000))
    chosen = [each for each in facts.partitions if not numbers or each.partition_index in numbers]
    with replica_wire(nodes, timeout_ms=int(timeout_s * 1000)) as wire:
        wanted: dict[BrokerId, list[TopicPartition]] = {}
        for each in chosen:
            for broker in each.replica_nodes:
                wanted.setdefault(BrokerId(broker), []).append(TopicPartition(topic, each.partition_index))
        places = wire.places(wanted, {topic: topic_id})
        partitions = []
        for each in chosen:
            name = TopicPartition(topic, each.partition_index)
            held = {BrokerId(broker): places[BrokerId(broker), name] for broker in each.replica_nodes}
            partitions.append(Partition(name, topic_id, each.leader, held, is_compacted=is_compacted))
        results = _read(wire, partitions, wait_s, Pace(throttle) if throttle is not None else None)
    return report(results)


def _describe(wire: ClusterWire, topic: str) -> tuple[TopicFacts, TopicId, int | None]:
    facts, number = named(wire, topic)
    if facts.topic_id is None:
        raise CommandFailed(f"Topic {topic} has no id yet.", hint="Try again when a controller rules.")
    return facts, facts.topic_id, number


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
