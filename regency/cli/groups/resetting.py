"""`regency groups reset-offsets`: where a group without members goes on. Shows it first; --execute does it."""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from regency.cli.asking.naming import named
from regency.cli.asking.refusals import check_partition, refusal
from regency.cli.asking.wire import ClusterWire, cluster_wire
from regency.cli.context import (
    FILE,
    GROUP_NAME,
    INT64_MAX,
    Count,
    cluster_options,
    completed,
    conclude,
    current,
    print_json,
    print_rows,
    say,
)
from regency.cli.exits import CommandFailed, Exit
from regency.cli.groups.coordinators import coordinated, missing
from regency.cli.groups.facts import (
    DEAD,
    EARLIEST,
    LATEST,
    QUIET_STATES,
    committed,
    describe_groups,
    offsets_at,
)
from regency.cli.groups.removing import in_use
from regency.cli.moments import Moment
from regency.kafka.apis import Message
from regency.model.ids import BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode, error_code
from regency.model.words import counted, listed

_COMMIT_VERSION = 8
_NO_GENERATION = -1
_LENGTH = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_SPOKEN = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class ResetRow(msgspec.Struct, frozen=True):
    """A partition in a reset; `current_offset` is None where nothing was committed."""

    topic: str
    partition: int
    current_offset: int | None
    new_offset: int


class Reset(msgspec.Struct, frozen=True):
    """What `regency groups reset-offsets -o json` prints; `executed` is false after a dry run."""

    group: str
    executed: bool
    partitions: list[ResetRow]


class Length(click.ParamType[int]):
    """A length of time: `2h`, or as ISO 8601 has it, `P1DT2H30M`."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Milliseconds."""
        text = str(value)
        if spoken := _SPOKEN.fullmatch(text):
            return int(float(spoken[1]) * _SECONDS[spoken[2]] * 1000)
        parts = _LENGTH.fullmatch(text)
        if parts is None or text.endswith("T") or not any(parts.groups()):
            self.fail(f"{text!r} is no length of time. Say for example 2h, 30m or P1DT2H30M.", param, ctx)
        amounts = [float(each or 0) for each in parts.groups()]
        return int(sum(each * unit for each, unit in zip(amounts, (86400, 3600, 60, 1), strict=True)) * 1000)


class Wanted(msgspec.Struct, frozen=True):
    """Where to go on; one of these."""

    earliest: bool = False
    latest: bool = False
    current: bool = False
    offset: int | None = None
    shift: int | None = None
    time_ms: int | None = None
    listed: Mapping[TopicPartition, int] | None = None


@click.command("reset-offsets", short_help="Have a group go on somewhere else.")
@click.argument("group", type=GROUP_NAME)
@click.option(
    "--topic",
    "scope",
    multiple=True,
    metavar="TOPIC[:N,N]",
    shell_complete=completed("topics"),
    help="Only this one, or these partitions of it; repeatable.  [default: what it has committed]",
)
@click.option("--to-earliest", is_flag=True, help="Where the logs begin.")
@click.option("--to-latest", is_flag=True, help="Where they end.")
@click.option("--to-current", is_flag=True, help="Where it is; where it has committed nothing, at the end.")
@click.option("--to-offset", type=Count(0, INT64_MAX), metavar="N", help="At this offset of each partition.")
@click.option("--shift-by", type=click.IntRange(-INT64_MAX, INT64_MAX), metavar="N", help="So many further; -N: back.")
@click.option(
    "--to-datetime", type=Moment(), metavar="TIME", help="At the first record since, such as 2026-05-04T14:30."
)
@click.option("--by-duration", type=Length(), metavar="LENGTH", help="At the first record so long ago: 2h, P1DT2H.")
@click.option("--from-file", type=FILE, help="As this CSV says: lines of topic,partition,offset.")
@click.option("--export", is_flag=True, help="Print CSV for --from-file in place of the table.")
@click.option("--create", is_flag=True, help="Make the group where it is not there.")
@click.option("--execute", is_flag=True, help="Do it.  [default: only show it]")
@cluster_options
def reset_offsets(
    group: str,
    scope: tuple[str, ...],
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: int | None,
    by_duration: int | None,
    from_file: Path | None,
    export: bool,
    create: bool,
    execute: bool,
) -> int:
    """Have GROUP go on at other offsets, in all partitions that it has committed, or those of --topic.

    Without --execute it only shows what would be. Only a group without members can be reset (exit status 6 else): its
    consumers would go on where they are, and commit over it. An offset that a log does not have becomes the nearest
    that it has.

    \b
    Examples:
      regency groups reset-offsets etl --to-earliest
      regency groups reset-offsets etl --topic flights:0,1 --shift-by -100 --execute
      regency groups reset-offsets etl --to-datetime 2026-05-04T14:30 --execute
      regency groups reset-offsets etl --to-current --export > etl.csv
      regency groups reset-offsets etl --from-file etl.csv --execute
    """
    ways = [to_earliest, to_latest, to_current]
    given = [to_offset, shift_by, to_datetime, by_duration, from_file]
    if sum(ways) + sum(each is not None for each in given) != 1:
        raise click.UsageError(
            "Say one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --to-datetime, "
            "--by-duration, --from-file."
        )
    if from_file is not None and scope:
        raise click.UsageError("--from-file says which partitions; leave --topic out.")
    if export and current().json:
        raise click.UsageError("--export and -o json exclude each other.")
    since = to_datetime if by_duration is None else time.time_ns() // 1_000_000 - by_duration
    listed_offsets = None if from_file is None else _read(from_file, group)
    wanted = Wanted(to_earliest, to_latest, to_current, to_offset, shift_by, since, listed_offsets)
    with cluster_wire(current().bootstrap_servers()) as wire:
        details = describe_groups(wire, [group])[group]
        if details.state == DEAD and create and not (scope or from_file):
            raise click.UsageError(f"Group {group} is not there: --create needs --topic or --from-file.")
        if details.state == DEAD and not create:
            raise _no_group(wire, group, has_scope=bool(scope or from_file))
        rows, notes = _plan(wire, group, _scoped(wire, scope), wanted)
        refused = None if details.state in QUIET_STATES else in_use(wire, group, "offsets can be reset")
        if execute and refused is not None:
            raise refused
        if execute:
            _commit(wire, group, rows)
    _show(Reset(group, execute, rows), export=export)
    for each in notes:
        say(f"Note: {each}.")
    _conclude(group, rows, refused, execute=execute, export=export)
    return Exit.DONE


def _no_group(wire: ClusterWire, group: str, *, has_scope: bool) -> CommandFailed:
    error = missing(wire, group)
    return CommandFailed(error.message, hint=f"{error.hint} --create makes it.") if has_scope else error


def _show(reset: Reset, *, export: bool) -> None:
    if current().json:
        print_json(reset)
    elif export:
        for row in reset.partitions:
            click.echo(f"{row.topic},{row.partition},{row.new_offset}")
    else:
        print_rows(reset.partitions, ["topic", "partition", "current_offset", "new_offset"])


def _conclude(
    group: str, rows: Sequence[ResetRow], refused: CommandFailed | None, *, execute: bool, export: bool
) -> None:
    tell: Callable[[str], None] = say if export else conclude
    what = f"{counted(len(rows), 'partition')} of group {group}"
    if execute:
        tell(f"Reset {what}.")
    elif refused is not None:
        tell(f"Nothing was changed, and cannot be now: {refused}")
    else:
        tell(f"Nothing was changed. --execute resets {what}.")


# Which partitions


def _scoped(wire: ClusterWire, scope: Sequence[str]) -> list[TopicPartition] | None:
    """Partitions of `flights`, `flights:0,1` and `flights-3`; None: what the group has committed."""
    if not scope:
        return None
    found: list[TopicPartition] = []
    for text in scope:
        name, colon, numbers = text.partition(":")
        chosen = numbers.split(",") if colon else []
        if not name or not all(each.isdecimal() and len(each) < 10 for each in chosen):
            raise click.BadParameter(f"{text!r} is not TOPIC or TOPIC:N,N.", param_hint="--topic")
        topic, number = named(wire, name)
        there = [each.partition_index for each in topic.partitions]
        for each in chosen:
            check_partition(topic.name, there, int(each))
        wanted = [int(each) for each in chosen] or ([number] if number is not None else there)
        found += [TopicPartition(topic.name, each) for each in wanted]
    return sorted(set(found))


def _read(path: Path, group: str) -> dict[TopicPartition, int]:
    """Offsets of a CSV as --export, and Kafka's tool, write it: topic,partition,offset, or group before them.

    Raises CommandFailed naming file and line.
    """
    found: dict[TopicPartition, int] = {}
    with path.open(encoding="utf-8", newline="") as lines:
        try:
            for number, row in enumerate(csv.reader(lines), 1):
                if not row or (len(row) == 4 and row[0] != group):
                    continue
                topic, *numbers = (each.strip() for each in row[-3:])
                if len(row) not in (3, 4) or not topic or not all(each.isdecimal() for each in numbers):
                    raise _malformed(path, number, "it is not topic,partition,offset")
                name = TopicPartition(topic, int(numbers[0]))
                if name in found:
                    raise _malformed(path, number, f"{name} stands there twice")
                if int(numbers[1]) > INT64_MAX:
                    raise _malformed(path, number, f"{numbers[1]} is no offset")
                found[name] = int(numbers[1])
        except (UnicodeDecodeError, csv.Error) as error:
            raise CommandFailed(f"{path} is no CSV: {error}.", status=Exit.USAGE) from error
    if not found:
        raise CommandFailed(f"{path} has no offsets of group {group}.", status=Exit.USAGE)
    return found


def _malformed(path: Path, number: int, why: str) -> CommandFailed:
    return CommandFailed(f"{path}, line {number}: {why}.", hint="Nothing was changed.", status=Exit.USAGE)


# Where to


def _plan(
    wire: ClusterWire, group: str, scope: Sequence[TopicPartition] | None, wanted: Wanted
) -> tuple[list[ResetRow], list[str]]:
    """What is committed by a reset, and where that is not what was asked for. Raises CommandFailed."""
    now = {name: each.offset for name, each in committed(wire, [group])[group].items()}
    partitions = sorted(wanted.listed) if wanted.listed is not None else scope if scope is not None else sorted(now)
    if not partitions:
        raise CommandFailed(f"Group {group} has committed no offsets.", hint="Say which topic with --topic.")
    if wanted.shift is not None and (lacking := [str(each) for each in partitions if each not in now]):
        raise CommandFailed(
            f"Group {group} has committed nothing in {listed(lacking)}: there is nothing to shift.",
            hint="Say --to-earliest or --to-latest for these.",
        )
    starts, ends = (_told(wire, partitions, each) for each in (EARLIEST, LATEST))
    asked = _asked(wire, partitions, wanted, now, starts, ends)
    rows, notes = [], []
    for name in partitions:
        new = min(max(asked[name], starts[name]), ends[name])
        if new != asked[name]:
            notes.append(f"{name} has no offset {asked[name]}, it has {starts[name]} to {ends[name]}")
        rows.append(ResetRow(name.topic, name.partition, now.get(name), new))
    return rows, notes


def _asked(
    wire: ClusterWire,
    partitions: Sequence[TopicPartition],
    wanted: Wanted,
    now: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> Mapping[TopicPartition, int]:
    if wanted.listed is not None:
        return wanted.listed
    if wanted.offset is not None:
        return dict.fromkeys(partitions, wanted.offset)
    if wanted.shift is not None:
        return {name: now[name] + wanted.shift for name in partitions}
    if wanted.time_ms is not None:
        found = _told(wire, partitions, max(0, wanted.time_ms))
        return {name: offset if offset >= 0 else ends[name] for name, offset in found.items()}
    if wanted.current:
        return {name: now.get(name, ends[name]) for name in partitions}
    return starts if wanted.earliest else ends


def _told(wire: ClusterWire, partitions: Collection[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
    """Offsets of all of these. Raises CommandFailed where a leader does not tell: no group is reset in part."""
    found = offsets_at(wire, partitions, timestamp)
    if found.why:
        raise CommandFailed(
            f"Nothing was changed: {listed(sorted(set(found.why.values())))}.",
            hint="`regency cluster health` shows what is missing; --topic leaves partitions out.",
        )
    return found.offsets


# Doing it


def _commit(wire: ClusterWire, group: str, rows: Sequence[ResetRow]) -> None:
    """As a client outside the group, which is allowed while it has no members. Raises CommandFailed."""
    from regency.kafka.codec import OffsetCommitRequest

    topic_class = OffsetCommitRequest.OffsetCommitRequestTopic
    by_topic: dict[str, list[Message]] = {}
    for row in rows:
        entry = topic_class.OffsetCommitRequestPartition(
            version=_COMMIT_VERSION,
            partition_index=row.partition,
            committed_offset=row.new_offset,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        by_topic.setdefault(row.topic, []).append(entry)
    request = OffsetCommitRequest(
        version=_COMMIT_VERSION,
        group_id=group,
        generation_id_or_member_epoch=_NO_GENERATION,
        member_id="",
        group_instance_id=None,
        topics=[topic_class(version=_COMMIT_VERSION, name=topic, partitions=some) for topic, some in by_topic.items()],
    )

    def ask(broker: BrokerId, _: Sequence[str]) -> dict[str, tuple[int, dict[TopicPartition, int]]]:
        answer = wire.ask(request, _COMMIT_VERSION, broker=broker)
        codes = {
            TopicPartition(topic.name, each.partition_index): each.error_code
            for topic in answer.topics
            for each in topic.partitions
        }
        passing = (code for code in codes.values() if code in _OF_THE_GROUP)
        return {group: (next(passing, ErrorCode.NONE), codes)}

    error, codes = coordinated(wire, [group], ask)[group]
    if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
        raise in_use(wire, group, "offsets can be reset")
    if error is not ErrorCode.NONE:
        raise refusal(f"group {group}", error)
    failed = {name: error_code(code).name for name, code in codes.items() if code != ErrorCode.NONE}
    if failed:
        told = listed([f"{name} {code}" for name, code in failed.items()])
        raise CommandFailed(
            f"{len(codes) - len(failed)} of {counted(len(codes), 'partition')} were reset, the others not: {told}.",
            hint="Say it again; `regency groups describe` shows where the group is.",
        )


_OF_THE_GROUP = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
    }
)
"""Errors that a coordinator answers of all partitions of a commit alike."""
