"""Plans from what was asked for on the command line, and what they change: per partition, and per broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click
import msgspec

from regency.cli.asking.refusals import refusal
from regency.cli.context import INT32_MAX, conclude, print_rows, print_table, say
from regency.cli.exits import CommandFailed, Exit
from regency.cli.partitions.reassignments import Situation
from regency.clients.nodes import Node
from regency.model.ids import BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.words import counted, human_bytes, listed
from regency.planning.plan_file import PlanFile, fingerprints
from regency.planning.plans import Move, Replicas, change_replication_factor, count_replicas, drain, rebalance

_SHOWN = 20


class Wish(msgspec.Struct, frozen=True):
    """What a plan is asked for: of which topics (none: all), over which brokers (none: all live ones)."""

    topics: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    drain: tuple[int, ...] = ()
    replication_factor: int | None = None

    def words(self, out: Path | None) -> list[str]:
        """The options that ask for it."""
        words: list[str] = []
        if self.topics:
            words += ["--topics", ",".join(self.topics)]
        if self.brokers:
            words += ["--brokers", ",".join(map(str, self.brokers))]
        if self.drain:
            words += ["--drain", ",".join(map(str, self.drain))]
        if self.replication_factor is not None:
            words += ["--replication-factor", str(self.replication_factor)]
        return [*words, "--out", str(out or "plan.json")]


def ids(_: click.Context, parameter: click.Parameter, value: str | tuple[str, ...] | None) -> list[int]:
    """Brokers of an option: `1,2,3`, perhaps several times."""
    given = value if isinstance(value, tuple) else (value,) if value is not None else ()
    words = [word.strip() for each in given for word in each.split(",")]
    for word in words:
        if not word.isdecimal() or int(word) > INT32_MAX:
            raise click.BadParameter(f"{word!r} is not the id of a broker.", param=parameter)
    return list(dict.fromkeys(map(int, words)))


def make_plan(situation: Situation, wish: Wish, *, command: str) -> PlanFile:
    """The plan. Raises CommandFailed and PlanImpossible."""
    scope = _scope(situation, wish)
    moves = _moves(situation, wish, scope)
    gaining = sorted({replica for move in moves for replica in move.adding})
    racks = situation.racks
    return PlanFile(tuple(moves), command, {broker: racks[broker] for broker in gaining}, fingerprints(scope))


def _moves(situation: Situation, wish: Wish, scope: dict[TopicPartition, Replicas]) -> list[Move]:
    live = _live(situation, wish)
    elsewhere = count_replicas({each: replicas for each, replicas in situation.assignment.items() if each not in scope})
    factor = wish.replication_factor
    if wish.drain:
        _check_drained(situation, wish)
        leaving = frozenset(map(BrokerId, wish.drain))
        return drain(scope, live, leaving, replication_factor=factor, elsewhere=elsewhere)
    if factor is not None and not wish.brokers:
        return change_replication_factor(scope, live, factor, elsewhere=elsewhere)
    return rebalance(scope, live, replication_factor=factor)


def _scope(situation: Situation, wish: Wish) -> dict[TopicPartition, Replicas]:
    for topic in wish.topics:
        if topic not in situation.topics:
            raise refusal(f"topic {topic}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    chosen = set(wish.topics)
    scope = {
        partition: replicas
        for partition, replicas in situation.assignment.items()
        if (not chosen or partition.topic in chosen) and replicas
    }
    going = [str(partition) for partition in situation.moving if partition in scope]
    if going:
        raise CommandFailed(
            f"Partitions are being reassigned: {listed(going)}.",
            hint="Wait until `regency partitions list` shows none, end it with `regency partitions cancel`, or name "
            "other topics.",
            status=Exit.IN_PROGRESS,
        )
    return scope


def _live(situation: Situation, wish: Wish) -> dict[BrokerId, str | None]:
    racks = situation.racks
    missing = [str(broker) for broker in wish.brokers if broker not in racks]
    if missing:
        listed = ", ".join(map(str, racks)) or "none"
        raise CommandFailed(f"Not live: broker {', '.join(missing)}. Live are {listed}.")
    return {broker: rack for broker, rack in racks.items() if not wish.brokers or broker in wish.brokers}


def _check_drained(situation: Situation, wish: Wish) -> None:
    """Raises CommandFailed for an unknown broker: more probably mistyped than empty."""
    known = {*situation.nodes, *count_replicas(situation.assignment)}
    for broker in wish.drain:
        if broker not in known:
            listed = ", ".join(map(str, sorted(known))) or "none"
            raise CommandFailed(f"There is no broker {broker}: it is not live and has no replicas. There are {listed}.")


class MoveRow(msgspec.Struct, frozen=True, rename={"bytes": "bytes_copied"}):
    """What a plan does to a partition; `bytes` is what has to be copied, None where no broker tells."""

    topic: str
    partition: int
    before: Replicas
    after: Replicas
    adding: Replicas
    removing: Replicas
    bytes: int | None
    why: str


class BrokerRow(msgspec.Struct, frozen=True):
    """What a plan does to a broker. Leaders are preferred ones, which lead when all are well."""

    broker: int
    live: bool
    rack: str | None
    replicas_before: int
    replicas_after: int
    leaders_before: int
    leaders_after: int


class Report(msgspec.Struct, frozen=True):
    """What `regency partitions plan -o json` prints."""

    file: str | None
    partitions: int
    replicas_copied: int
    bytes_copied: int | None
    moves: list[MoveRow]
    brokers: list[BrokerRow]
    warnings: list[str]


def report(
    moves: Sequence[Move], situation: Situation, sizes: Mapping[TopicPartition, int] | None, file: str | None
) -> Report:
    """Figures of a plan. Replicas and leaders are counted over all topics."""
    after = dict(situation.assignment)
    after.update((move.partition, move.after) for move in moves)
    rows = [
        MoveRow(
            move.partition.topic,
            move.partition.partition,
            move.before,
            move.after,
            move.adding,
            move.removing,
            None if sizes is None else sizes.get(move.partition, 0) * len(move.adding),
            move.why,
        )
        for move in moves
    ]
    copied = None if sizes is None else sum(row.bytes or 0 for row in rows)
    return Report(
        file,
        len(moves),
        sum(len(row.adding) for row in rows),
        copied,
        rows,
        _broker_rows(situation, after),
        _warnings(moves, situation),
    )


def show_report(told: Report) -> None:
    """The report as tables."""
    if told.moves:
        print_rows(told.moves[:_SHOWN], ["topic", "partition", "before", "after", "why"])
        if len(told.moves) > _SHOWN:
            click.echo(f"... and {len(told.moves) - _SHOWN} more; -o json shows all")
        click.echo()
    figures: list[tuple[object, ...]] = [("BROKER", "RACK", "REPLICAS", "AFTER", "", "LEADERS", "AFTER", "")]
    for each in told.brokers:
        name = f"{each.broker}" if each.live else f"{each.broker} (not live)"
        replicas, leaders = (each.replicas_before, each.replicas_after), (each.leaders_before, each.leaders_after)
        figures.append((name, each.rack or None, *replicas, _change(*replicas), *leaders, _change(*leaders)))
    print_table(figures)
    for warning in told.warnings:
        say(f"Warning: {warning}")
    conclude(in_words(told))


def in_words(told: Report) -> str:
    """The sum of it."""
    if not told.moves:
        return "Nothing has to move."
    size = "" if told.bytes_copied is None else f" ({human_bytes(told.bytes_copied)})"
    only = sum(not row.adding for row in told.moves)
    words = (
        f"{counted(told.partitions, 'partition')} to change, {counted(told.replicas_copied, 'replica')} to copy{size}"
    )
    return words + (f"; nothing is copied for {counted(only, 'partition')}." if only else ".")


def sizes_of(nodes: Mapping[BrokerId, Node], moves: Iterable[Move]) -> dict[TopicPartition, int] | None:
    """Bytes of the largest replica of each partition that is copied; None where a broker does not tell."""
    from regency.clients.replicas.wire import replica_wire

    wanted: dict[BrokerId, list[TopicPartition]] = {}
    for move in moves:
        for broker in move.before if move.adding else ():
            wanted.setdefault(broker, []).append(move.partition)
    if not wanted:
        return {}
    with replica_wire(nodes) as wire:
        sizes = wire.sizes(wanted)
        if wire.silent:
            return None  # sizes are extra: the plan is as good without them
    found: dict[TopicPartition, int] = {}
    for (_, partition), size in sizes.items():
        found[partition] = max(found.get(partition, 0), size)
    return found


def _broker_rows(situation: Situation, after: Mapping[TopicPartition, Replicas]) -> list[BrokerRow]:
    had, has = count_replicas(situation.assignment), count_replicas(after)
    led = Counter(replicas[0] for replicas in situation.assignment.values() if replicas)
    leads = Counter(replicas[0] for replicas in after.values() if replicas)
    racks = situation.racks
    return [
        BrokerRow(broker, broker in racks, racks.get(broker), had[broker], has[broker], led[broker], leads[broker])
        for broker in sorted({*racks, *had, *has})
    ]


def _warnings(moves: Sequence[Move], situation: Situation) -> list[str]:
    live = set(situation.nodes)
    told: list[str] = []
    lost = []
    for move in moves:
        facts = situation.facts.get(move.partition)
        if move.adding and facts is not None and not any(BrokerId(each) in live for each in facts.isr_nodes):
            lost.append(f"{move.partition} (in sync: {_ids(facts.isr_nodes)})")
    if lost:
        told.append(
            f"no replica in sync is live of {listed(lost)}: nothing can be copied until one returns, or "
            "until `regency leaders elect --type unclean` lets another lead and loses what that lacks."
        )
    dead = sorted({each for move in moves for each in move.after if each not in live})
    if dead:
        told.append(
            f"replicas stay on brokers that are not live ({_ids(dead)}): the moves of their partitions end only when "
            f"these return. Where one is gone for ever, say --drain {_ids(dead)}."
        )
    racks = situation.racks
    if any(racks.values()) and not all(racks.values()):
        without = _ids(sorted(broker for broker, rack in racks.items() if not rack))
        told.append(f"brokers {without} have no rack, so racks do not count.")
    return told


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers)) or "-"


def _change(before: int, after: int) -> str:
    return f"{after - before:+d}" if after != before else ""
