"""The job replica-audit: every replica of many partitions read up to the high watermark and compared, on Spark tasks.

The driver asks where every replica's log begins and ends and plans (`plan`), tasks read and compare as `regency
verify replicas` does (`regency.clients.replicas.reading`), the driver puts pieces together (`merge`). What travels to
a task is all it needs; it opens its own connections. Records stay where they were read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from regency.clients.nodes import Node
from regency.clients.replicas.assignments import Assignments, assignments, compacted_topics
from regency.clients.replicas.comparison import Divergence
from regency.clients.replicas.damages import Damaged, unread
from regency.clients.replicas.pace import BrokerPace
from regency.clients.replicas.reading import Partition, PartitionResult, Verdict, read_and_compare
from regency.clients.replicas.wire import Place, Replica, ReplicaWire, replica_wire
from regency.model.errors import RegencyError
from regency.model.ids import BrokerId, TopicPartition
from regency.model.words import counted
from regency.pipeline.files.publishing import published
from regency.pipeline.jobs.replica_audit.merge import after_another_look, is_worth_another_look, merged
from regency.pipeline.jobs.replica_audit.plan import Task, asked, pieces_of, tasks_of, weight

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PIECE_BYTES = 256 << 20
"""Of one replica, about. A task that is lost costs no more than its pieces."""
_POLL_S = 0.5


class TopicUnknown(RegencyError):
    """A topic that was named does not exist."""

    code = "topic_unknown"


class AuditOptions(msgspec.Struct, frozen=True):
    """`topics`: None for all. `wait_s`: how long a replica that is behind is waited for. `pace`: bytes a second of each
    broker, of all tasks together; None: as fast as brokers answer.
    """

    servers: str
    topics: tuple[str, ...] | None
    wait_s: float = 5.0
    timeout_ms: int = 10_000
    pace: int | None = None
    piece_bytes: int = PIECE_BYTES


class Audit(msgspec.Struct, frozen=True):
    """What was found. `again`: pieces that were read a second time."""

    partitions: list[PartitionResult]
    pieces: int
    tasks: int
    again: int
    bytes: int
    """Of all replicas' logs that were read, as their brokers tell; 0 where they do not."""


class _PieceResult(msgspec.Struct, frozen=True):
    number: int
    replicas: list[Verdict]
    divergences: list[Divergence]
    damages: list[Damaged]


class _Work(msgspec.Struct, frozen=True):
    """What a task needs."""

    nodes: Mapping[BrokerId, Node]
    timeout_ms: int
    wait_s: float
    pieces: Mapping[int, Partition]
    pace: Mapping[BrokerId, int] | None


def audit(session: SparkSession, options: AuditOptions, *, tell: Callable[[str], object]) -> Audit:
    """Compare all replicas. `tell` gets a line where something begins.

    Raises NobodyAnswers, TopicUnknown, and what Spark raises where tasks cannot run.
    """
    described = assignments(options.servers, options.topics, timeout_ms=options.timeout_ms)
    refuse_unknown(described, options.topics)
    compacted = compacted_topics(options.servers, described.topics, timeout_ms=options.timeout_ms)
    with replica_wire(described.nodes, timeout_ms=options.timeout_ms) as wire:
        partitions = [
            msgspec.structs.replace(each, is_compacted=each.name.topic in compacted)
            for each in _places(wire, described, options.wait_s)
        ]
        sizes = wire.sizes(_replicas(partitions))
    pieces = [piece for partition in partitions for piece in pieces_of(partition, sizes, options.piece_bytes)]
    slots = session.sparkContext.defaultParallelism
    tasks = _tasks(pieces, range(len(pieces)), sizes, slots, options.pace)
    tell(
        f"{counted(len(partitions), 'partition')} in {counted(len(pieces), 'piece')}, "
        f"read by {counted(len(tasks), 'task')}, {slots} at a time"
    )
    results = _run(session, described.nodes, options, pieces, tasks)

    again, nodes = _worth_another_look(results, options)
    if again:
        told = "piece is" if len(again) == 1 else "pieces are"
        tell(f"{len(again)} {told} read again: a replica was out of reach, behind or different")
        for number, piece in again.items():
            pieces[number] = piece
        later = _run(session, nodes, options, pieces, _tasks(pieces, again, sizes, slots, options.pace))
        results.update({number: after_another_look(results[number], second) for number, second in later.items()})
    return Audit(
        list(_merged(partitions, pieces, results)),
        len(pieces),
        len(tasks),
        len(again),
        sum(sizes.get((broker, each.name), 0) for each in partitions for broker in asked(each)),
    )


def refuse_unknown(described: Assignments, topics: Collection[str] | None) -> None:
    """Raises TopicUnknown for topics that are named and not there."""
    unknown = sorted(set(topics or ()) - described.topics)
    if unknown:
        raise TopicUnknown(
            f"There is no topic {', '.join(unknown)}.", hint="`regency topics list` shows what there is."
        )


def _replicas(partitions: Iterable[Partition]) -> dict[BrokerId, list[TopicPartition]]:
    """Partitions by the brokers whose replicas can be read."""
    wanted: dict[BrokerId, list[TopicPartition]] = {}
    for partition in partitions:
        for broker in asked(partition):
            wanted.setdefault(broker, []).append(partition.name)
    return wanted


def _places(wire: ReplicaWire, described: Assignments, wait_s: float) -> list[Partition]:
    """Where all replicas begin and end; those that are behind are asked again for `wait_s` seconds."""
    ids = {each.name.topic: each.topic_id for each in described.partitions.values()}
    wanted: dict[BrokerId, list[TopicPartition]] = {}
    for each in described.partitions.values():
        for broker in each.replicas:
            wanted.setdefault(broker, []).append(each.name)
    places = wire.places(wanted, ids)
    deadline = time.monotonic() + wait_s
    while True:
        partitions = [
            Partition(
                each.name, each.topic_id, each.leader, {broker: places[broker, each.name] for broker in each.replicas}
            )
            for each in described.partitions.values()
        ]
        behind: dict[BrokerId, list[TopicPartition]] = {}
        for partition in partitions:
            for broker, place in partition.places.items():
                if isinstance(place, Place) and place.high_watermark < partition.bound and broker != partition.leader:
                    behind.setdefault(broker, []).append(partition.name)
        if not behind or time.monotonic() >= deadline:
            return partitions
        time.sleep(_POLL_S)
        places.update(wire.places(behind, ids))


def _tasks(
    pieces: Sequence[Partition], numbers: Iterable[int], sizes: Mapping[Replica, int], slots: int, pace: int | None
) -> list[Task]:
    some = list(numbers)
    planned = tasks_of(
        [weight(pieces[number], sizes) for number in some], [asked(pieces[number]) for number in some], slots, pace
    )
    return [msgspec.structs.replace(task, pieces=tuple(some[at] for at in task.pieces)) for task in planned]


def _run(
    session: SparkSession,
    nodes: Mapping[BrokerId, Node],
    options: AuditOptions,
    pieces: Sequence[Partition],
    tasks: Sequence[Task],
) -> dict[int, PartitionResult]:
    if not tasks:
        return {}
    work = []
    for task in tasks:
        brokers = {broker for number in task.pieces for broker in asked(pieces[number])}
        reached = {broker: nodes[broker] for broker in sorted(brokers) if broker in nodes}
        its_pieces = {number: pieces[number] for number in task.pieces}
        work.append(_Work(reached, options.timeout_ms, options.wait_s, its_pieces, task.pace))
    told = session.sparkContext.parallelize(work, len(work)).flatMap(_read).collect()
    return {
        each.number: PartitionResult(pieces[each.number], each.replicas, each.divergences, each.damages)
        for each in told
    }


def _read(work: _Work) -> Iterator[_PieceResult]:
    """In a task: read and compare its pieces. Who was behind after the driver's waiting is not waited for again."""
    pace = BrokerPace(work.pace) if work.pace else None
    late = {number for number, piece in work.pieces.items() if _has_late(piece)}
    in_time = work.pieces.keys() - late
    rounds = [(some, work.wait_s) for some in _rounds(work.pieces, in_time)]
    rounds += [(some, 0.0) for some in _rounds(work.pieces, late)]
    with replica_wire(work.nodes, timeout_ms=work.timeout_ms) as wire:
        for numbers, wait_s in rounds:
            results = read_and_compare(
                wire,
                [work.pieces[number] for number in numbers],
                patience_s=wait_s,
                on_progress=lambda _: None,
                pace=pace,
            )
            for number, result in zip(numbers, results, strict=True):
                yield _PieceResult(number, result.replicas, result.divergences, result.damages)


def _rounds(pieces: Mapping[int, Partition], some: Collection[int]) -> list[list[int]]:
    """Pieces that can be read side by side, no two of one partition among them."""
    rounds: list[list[int]] = []
    seen = Counter[TopicPartition]()
    for number in sorted(some):
        name = pieces[number].name
        if seen[name] == len(rounds):
            rounds.append([])
        rounds[seen[name]].append(number)
        seen[name] += 1
    return rounds


def _has_late(piece: Partition) -> bool:
    return any(isinstance(place, Place) and place.high_watermark < piece.read_end for place in piece.places.values())


def _worth_another_look(
    results: Mapping[int, PartitionResult], options: AuditOptions
) -> tuple[dict[int, Partition], Mapping[BrokerId, Node]]:
    """Pieces to be read again, with where replicas are by now, and the brokers that live."""
    doubtful = {number: result for number, result in results.items() if not _agrees(result)}
    if not doubtful:
        return {}, {}
    topics = {result.partition.name.topic for result in doubtful.values()}
    described = assignments(options.servers, topics, timeout_ms=options.timeout_ms)
    names = {result.partition.name for result in doubtful.values()}
    described = Assignments(
        described.nodes, {name: each for name, each in described.partitions.items() if name in names}
    )
    with replica_wire(described.nodes, timeout_ms=options.timeout_ms) as wire:
        now = {partition.name: partition for partition in _places(wire, described, options.wait_s)}
    again: dict[int, Partition] = {}
    for number, result in doubtful.items():
        before = result.partition
        fresh = now.get(before.name)
        if fresh is None or fresh.topic_id != before.topic_id or fresh.places.keys() != before.places.keys():
            continue  # deleted, or moved to other brokers, meanwhile
        if is_worth_another_look(result, fresh):
            kept = {"begin": before.begin, "end": before.read_end, "is_compacted": before.is_compacted}
            again[number] = msgspec.structs.replace(fresh, **kept)
    return again, described.nodes


def _agrees(result: PartitionResult) -> bool:
    return all(verdict.state == "agrees" for verdict in result.replicas)


def _merged(
    partitions: Iterable[Partition], pieces: Sequence[Partition], results: Mapping[int, PartitionResult]
) -> Iterator[PartitionResult]:
    of_name: dict[TopicPartition, list[PartitionResult]] = {}
    for number in range(len(pieces)):
        of_name.setdefault(pieces[number].name, []).append(results[number])
    for partition in partitions:
        yield merged(partition, of_name[partition.name])


SCHEMA = """
    topic string not null, partition int not null, broker int not null, role string not null, state string not null,
    detail string, log_start bigint, read_to bigint, log_end bigint, high_watermark bigint,
    unread bigint not null, damages array<struct<offset: bigint, to_offset: bigint, what: string>> not null,
    divergences array<struct<
        from_offset: bigint, to_offset: bigint,
        base_offset: bigint, last_offset: bigint, leader_epoch: int, crc: bigint, size: int
    >> not null
"""
"""`divergences`: where replicas differ, and what this one has there; nulls for nothing."""


def write_parquet(session: SparkSession, results: Iterable[PartitionResult], directory: str) -> None:
    """Write the rows into a directory that must not be there yet. Raises PlaceTaken, and what Spark raises."""
    with published(session, directory) as staging:
        session.createDataFrame(list(rows(results)), SCHEMA).coalesce(1).write.mode("append").parquet(staging.directory)


def rows(results: Iterable[PartitionResult]) -> Iterator[tuple[Any, ...]]:
    """A row for each replica, in the order of SCHEMA."""
    for result in results:
        partition = result.partition
        for verdict in result.replicas:
            broker = BrokerId(verdict.broker)
            place = partition.places[broker]
            end, mark = (place.log_end, place.high_watermark) if isinstance(place, Place) else (None, None)
            yield (
                partition.name.topic,
                partition.name.partition,
                verdict.broker,
                "leader" if verdict.broker == partition.leader else "follower",
                verdict.state,
                verdict.detail or None,
                verdict.log_start,
                verdict.read_to,
                end,
                mark,
                unread(result.damages, broker),
                [(each.offset, each.to_offset, each.what) for each in result.damages if each.broker == broker],
                [
                    (each.from_offset, each.to_offset, *((None,) * 5 if batch is None else batch.facts))
                    for each in result.divergences
                    for batch in [each.first.get(broker)]
                    if broker in each.first
                ],
            )
