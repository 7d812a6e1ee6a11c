"""What a plan changes, for people and as JSON: per partition, and per broker before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import click
import msgspec

from regency.cli.asking.kafka_clients import admin_client
from regency.cli.context import print_table, say
from regency.cli.exits import CommandFailed
from regency.cli.partitions.reassignments import Situation
from regency.model.ids import BrokerId, TopicPartition
from regency.model.words import counted
from regency.planning.plans import Move, Replicas, count_replicas

_SHOWN = 20


class MoveRow(msgspec.Struct, frozen=True):
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
        table = [("TOPIC", "PARTITION", "BEFORE", "AFTER", "WHY")]
        for row in told.moves[:_SHOWN]:
            table.append((row.topic, str(row.partition), _ids(row.before), _ids(row.after), row.why))
        print_table(table)
        if len(told.moves) > _SHOWN:
            click.echo(f"... and {len(told.moves) - _SHOWN} more; -o json shows all")
        click.echo()
    figures = [("BROKER", "RACK", "REPLICAS", "AFTER", "", "LEADERS", "AFTER", "")]
    for each in told.brokers:
        name = f"{each.broker}" if each.live else f"{each.broker} (not live)"
        replicas = (
            str(each.replicas_before),
            str(each.replicas_after),
            _change(each.replicas_before, each.replicas_after),
        )
        leaders = (str(each.leaders_before), str(each.leaders_after), _change(each.leaders_before, each.leaders_after))
        figures.append((name, each.rack or "-", *replicas, *leaders))
    print_table(figures)
    for warning in told.warnings:
        say(f"Warning: {warning}")
    say(in_words(told))


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


def sizes_of(servers: str, moves: Iterable[Move]) -> dict[TopicPartition, int] | None:
    """Bytes of the largest replica of each partition that is copied; None where the brokers do not tell."""
    copied: dict[str, list[int]] = {}
    for move in moves:
        if move.adding:
            copied.setdefault(move.partition.topic, []).append(move.partition.partition)
    if not copied:
        return {}
    try:
        with admin_client(servers) as client:
            answers = client.describe_log_dirs(copied)
    except CommandFailed:
        return None  # a cluster that does not serve DescribeLogDirs, or a broker that did not answer: sizes are extra
    found: dict[TopicPartition, int] = {}
    for directory in (directory for answer in answers for directory in answer["log_dirs"]):
        for topic in directory["topics"]:
            for each in topic["partitions"]:
                partition = TopicPartition(topic["name"], each["partition_index"])
                found[partition] = max(found.get(partition, 0), each["partition_size"])
    return found


def human_bytes(count: int) -> str:
    """1536 as 1.5 KiB."""
    size, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


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
        more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
        told.append(
            f"no replica in sync is live of {', '.join(lost[:5])}{more}: nothing can be copied until one returns, or "
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
