"""Why records do not come or go, from metadata and settings: librdkafka only says that their time was over."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from regency.cli.asking.config_requests import MIN_ISR, TOPIC, Resource, describe
from regency.cli.asking.naming import existing
from regency.cli.asking.wire import ClusterWire, PartitionFacts, cluster_wire
from regency.cli.context import say
from regency.cli.exits import CommandFailed
from regency.model.words import counted, listed


def why_unread(servers: str, topic: str, partitions: Collection[int]) -> dict[int, str]:
    """Partitions of these that nothing can be read of now, and why. Raises CommandFailed."""
    with cluster_wire(servers) as wire:
        facts = [each for each in existing(wire, topic).partitions if each.partition_index in partitions]
        return _unled(wire, topic, facts)


def why_unwritten(servers: str, topic: str, acks: str, partition: int | None = None) -> list[str]:
    """Why records of this topic, or of one partition of it, cannot be written now; empty where that is not known."""
    try:
        with cluster_wire(servers) as wire:
            found = existing(wire, topic)
            facts = [each for each in found.partitions if partition in (None, each.partition_index)]
            unled = _unled(wire, topic, facts)
            return [*unled.values(), *(_too_few(wire, topic, facts, unled) if acks == "all" else ())]
    except CommandFailed as error:
        return [str(error)]


def never_writable(wire: ClusterWire, topic: str, replication_factor: int) -> str | None:
    """Why no record can ever be written with acks=all, in a sentence; None where it can be."""
    least = _min_isr(wire, topic)
    if least is None or replication_factor >= least:
        return None
    more = f"`regency topics set-rf {topic} {least}`, or " if least <= len(wire.brokers()) else ""
    return (
        f"Topic {topic} has {counted(replication_factor, 'replica')} and {MIN_ISR}={least}: nothing can ever be "
        f"written to it with acks=all. Say {more}"
        f"`regency configs set topic {topic} {MIN_ISR}={max(1, replication_factor - 1)}`."
    )


def warn_of_min_isr(wire: ClusterWire, topic: str, changed: Collection[str]) -> None:
    """Say it where a change of the topic's settings was that of min.insync.replicas. Raises CommandFailed."""
    if MIN_ISR in changed and (never := never_writable(wire, topic, existing(wire, topic).replication_factor)):
        say(f"Warning: {never}")


def _unled(wire: ClusterWire, topic: str, facts: Sequence[PartitionFacts]) -> dict[int, str]:
    frozen = set(wire.silent_brokers())
    found = {}
    for each in facts:
        name, replicas = f"{topic}-{each.partition_index}", ", ".join(map(str, each.replica_nodes))
        if each.leader is None:
            found[each.partition_index] = f"{name} has no leader (its replicas are on {replicas})"
        elif each.leader in frozen:
            found[each.partition_index] = f"broker {each.leader}, which leads {name}, does not answer"
    return found


def _too_few(wire: ClusterWire, topic: str, facts: Sequence[PartitionFacts], unled: Collection[int]) -> list[str]:
    least = _min_isr(wire, topic) or 0
    few = [each for each in facts if len(each.isr_nodes) < least and each.partition_index not in unled]
    if not few:
        return []
    told = [f"{topic}-{each.partition_index} has {len(each.isr_nodes)} in sync" for each in few]
    return [f"NOT_ENOUGH_REPLICAS: {listed(told)}, {MIN_ISR} is {least}"]


def _min_isr(wire: ClusterWire, topic: str) -> int | None:
    try:
        rows = describe(wire, Resource(TOPIC, topic), [MIN_ISR])
    except CommandFailed:
        return None  # what was asked for goes on without the advice
    return next((int(row.value) for row in rows if row.value), None)
