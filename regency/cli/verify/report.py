"""What replicas hold, as it is printed: by `regency verify replicas`, and by the job that does the same on Spark."""

from __future__ import annotations

from collections.abc import Iterable

import click
import msgspec

from regency.cli.context import conclude, current, print_json, print_table, say
from regency.cli.exits import Exit
from regency.clients.replicas.compacted import Batch
from regency.clients.replicas.comparison import Divergence
from regency.clients.replicas.damages import Damaged, unread
from regency.clients.replicas.reading import (
    AGREES,
    BEHIND,
    DAMAGED,
    DIVERGES,
    FAILED,
    MISSING,
    OFFLINE,
    PartitionResult,
)
from regency.clients.replicas.wire import Place
from regency.model.ids import BrokerId
from regency.model.words import counted

_COLUMNS: list[object] = ["PARTITION", "BROKER", "ROLE", "LOG-START", "READ-TO", "HW", "LEO", "STATE", "DETAIL"]
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
    unread: int
    """Offsets that its broker does not hand out, or that were not found behind such."""


class BatchFacts(msgspec.Struct, frozen=True, rename={"size": "size_bytes"}):
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


def report(results: Iterable[PartitionResult], *, most_rows: int | None = None, effort: str = "") -> Exit:
    """Print what was found and give the exit status.

    Of more than `most_rows` replicas a table has those that do not agree, and a line says so. `effort`: what reading
    took, for the line that sums up, which is printed with JSON then, too.
    """
    partitions = [_facts(result) for result in results]
    states = {replica.state for partition in partitions for replica in partition.replicas}
    found = Verification(
        agrees=states.isdisjoint(_WRONG), complete=states.isdisjoint(_NOT_COMPARED), partitions=partitions
    )
    if current().json:
        print_json(found)
    else:
        _tell(found, most_rows)
    if effort or not current().json:
        _sum_up(found, effort)
    if not found.agrees:
        return Exit.FAILED
    return Exit.DONE if found.complete else Exit.UNHEALTHY


def _facts(result: PartitionResult) -> PartitionFacts:
    partition = result.partition
    rows = []
    for verdict in result.replicas:
        missed = unread(result.damages, verdict.broker)
        place = partition.places[BrokerId(verdict.broker)]
        end, mark = (place.log_end, place.high_watermark) if isinstance(place, Place) else (None, None)
        rows.append(
            ReplicaFacts(
                verdict.broker, verdict.state, verdict.detail, verdict.log_start, verdict.read_to, end, mark, missed
            )
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
        BatchFacts(broker, None, None, None, None, None) if batch is None else BatchFacts(broker, *batch.facts)
        for broker, batch in sorted(divergence.first.items())
    ]
    return DivergenceFacts(divergence.from_offset, divergence.to_offset, there)


def _tell(found: Verification, most_rows: int | None) -> None:
    table = [_COLUMNS]
    count = sum(len(partition.replicas) for partition in found.partitions)
    too_many = most_rows is not None and count > most_rows
    for partition in found.partitions:
        for replica in partition.replicas:
            if too_many and replica.state == AGREES:
                continue
            role = "leader" if replica.broker == partition.leader else "follower"
            offsets = (replica.log_start, replica.read_to, replica.high_watermark, replica.log_end)
            name = f"{partition.topic}-{partition.partition}"
            table.append([name, replica.broker, role, *offsets, replica.state, _detail(replica)])
    if too_many:
        say(f"Of {count} replicas those are shown that do not agree; -o json has all.")
    if len(table) > 1 or not too_many:
        print_table(table)
    for partition in found.partitions:
        for divergence in partition.divergences:
            _tell_divergence(f"{partition.topic}-{partition.partition}", divergence)
        for damage in partition.damaged:
            where = f"{partition.topic}-{partition.partition}, {_offsets(damage)}, broker {damage.broker}"
            click.echo(f"\n{where}: {damage.what}.")


def _detail(replica: ReplicaFacts) -> str:
    missed = [f"{counted(replica.unread, 'offset')} not read"] if replica.unread else []
    return "; ".join([*missed, *([replica.detail] if replica.detail else [])]) or "-"


def _offsets(damage: Damaged) -> str:
    if damage.to_offset is None or damage.to_offset == damage.offset:
        return f"offset {damage.offset}"
    return f"offsets {damage.offset} to {damage.to_offset}"


def _tell_divergence(name: str, divergence: DivergenceFacts) -> None:
    click.echo(f"\n{name}, offsets {divergence.from_offset} to {divergence.to_offset}: the replicas differ.")
    for each in divergence.there:
        if each.base_offset is None or each.last_offset is None:
            click.echo(f"  broker {each.broker}: nothing there")
        else:
            assert each.leader_epoch is not None and each.crc is not None and each.size is not None
            batch = Batch(each.base_offset, each.last_offset, each.leader_epoch, each.crc, each.size)
            click.echo(f"  broker {each.broker}: {batch}")


def _sum_up(found: Verification, effort: str) -> None:
    states = [replica.state for partition in found.partitions for replica in partition.replicas]
    tally = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states)))
    conclude(f"{counted(len(found.partitions), 'partition')}, replicas: {tally or 'none'}{effort and f'; {effort}'}.")
    if not found.agrees:
        say("docs/operate/tools.md says how to mend a replica.")
