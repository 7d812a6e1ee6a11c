"""Decision records as commands ask for them and print them: from all live hosts, in lines that fit the terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

import click
import msgspec

from regency.cli.asking.controllers import newest_ruler
from regency.cli.asking.wire import ClusterWire
from regency.cli.context import conclude, current, print_json, say
from regency.cli.exits import CommandFailed
from regency.clients.controllers import ask_controller, history_lines
from regency.history.records import Decision, NumberedTwice, decode_decision, merge_decisions, numbered_twice
from regency.protos import inspection_pb2 as pb
from regency.runtime.grpc.channels import InspectionClient, RpcFailed

LEAST_TEXT = 30
"""Columns that are enough for the last cell of a line; with fewer it stands below the others."""
WIDE = 120
"""From so many columns on, every line has its date and all cells; narrower ones have a line for each day."""


class Missing(msgspec.Struct, frozen=True):
    """A host whose decisions could not be read."""

    broker: int
    why: str


class Histories(msgspec.Struct, frozen=True):
    """What all hosts that answered have written, merged, and who did not answer."""

    decisions: list[Decision]
    missing: list[Missing]


class DecisionRow(Decision, frozen=True, kw_only=True, omit_defaults=True):
    """A record with the field names of history files, and its moment as ISO 8601 in UTC."""

    time: str


class Told(msgspec.Struct, frozen=True):
    """What `regency history` and `explain` print with -o json. `silent`: brokers whose histories are missing in it."""

    decisions: list[DecisionRow]
    silent: list[Missing]
    numbered_twice: list[NumberedTwice]


def read_histories(wire: ClusterWire, request: pb.ReadHistoryRequest) -> Histories:
    """Ask every live host; `with_dead_hosts` adds the others. Raises CommandFailed where none answers."""
    read: list[list[Decision]] = []
    missing: list[Missing] = []
    nodes = wire.controllers()
    for broker, node in sorted(nodes.items()):
        try:
            decisions = map(decode_decision, history_lines(node.address, request))
            read.append([each for each in decisions if each is not None])
        except RpcFailed as error:
            missing.append(Missing(broker, str(error)))
    if not read:
        why = missing[0].why if missing else "there are no live brokers."
        raise CommandFailed(f"No host can be asked for its history: {why}")
    return Histories(merge_decisions(read), missing)


def with_dead_hosts(wire: ClusterWire, found: Histories) -> Histories:
    """Name the brokers that are not live too: their controllers and leaders may have decided what is not shown.

    Known are those to which a replica is assigned, and those that the ruling controller knows to have registered once.
    """
    known = {replica for topic in wire.topics() for each in topic.partitions for replica in each.replica_nodes}
    ruler = newest_ruler(wire.controller_facts())
    if ruler is not None:
        with suppress(RpcFailed):  # then what is assigned is all that is known
            summary = ask_controller(
                ruler.address, lambda channel: InspectionClient(channel).summarise, pb.SummariseRequest()
            )
            known.update(each.broker_id for each in summary.brokers)
    dead = sorted(known - wire.controllers().keys() - {each.broker for each in found.missing})
    missing = [*found.missing, *(Missing(each, f"broker {each} is not live.") for each in dead)]
    return msgspec.structs.replace(found, missing=sorted(missing, key=lambda each: each.broker))


def print_histories(found: Histories, heads: Sequence[str], lines: Sequence[Sequence[object]], nothing: str) -> None:
    """Records as JSON, or lines of cells: the first is a time in milliseconds since 1970, the last a text that wraps.

    `nothing` is said where there are no lines. Hosts whose histories are missing are named.
    """
    doubts = numbered_twice(found.decisions)
    if current().json:
        rows = [DecisionRow(**msgspec.structs.asdict(each), time=_iso(each.time_ms)) for each in found.decisions]
        print_json(Told(rows, found.missing, list(doubts)))
    elif lines:
        click.echo("\n".join(fitted(heads, lines, terminal_width())))
    else:
        conclude(f"{nothing}, as far as the histories of the live brokers go.")
    for each in found.missing:
        say(f"Without the history of broker {each.broker}: {each.why}")
    for doubt in doubts:
        say(f"The {doubt.role} process of broker {doubt.source}: {doubt.why}.")


def terminal_width() -> int | None:
    """Columns of the terminal; None where stdout is none: then a line is as long as it gets."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def by_line(decision: Decision) -> list[object]:
    """When, in which controller epoch and by whom it was decided."""
    by = f"{'leader' if decision.role == 'agent' else decision.role} {decision.source}"
    return [decision.time_ms, decision.controller_epoch, by]


def fitted(heads: Sequence[str], lines: Sequence[Sequence[object]], width: int | None) -> list[str]:
    """Columns, two spaces apart; the last one wraps between words. `width` None: as wide as it gets, as in a pipe."""
    dated = width is None or width >= WIDE
    moments = [datetime.fromtimestamp(int(str(line[0])) / 1000).astimezone() for line in lines]
    clock = "%Y-%m-%d %H:%M:%S." if dated else "%H:%M:%S."
    whens = [f"{moment.strftime(clock)}{moment.microsecond // 1000:03}" for moment in moments]
    table = [[*heads], *([when, *map(_cell, line[1:])] for when, line in zip(whens, lines, strict=True))]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)][:-1]
    indent = sum(widths) + 2 * len(widths)
    beside = width is None or width - indent >= LEAST_TEXT
    fit, day = [], ""
    for place, cells in enumerate(table):
        if place and not dated and (today := moments[place - 1].strftime("%Y-%m-%d")) != day:
            day = today
            fit.append(day)
        begin = "  ".join(cell.ljust(room) for cell, room in zip(cells, widths, strict=False))
        if width is None:
            fit.append(f"{begin}  {cells[-1]}".rstrip())
        elif beside:
            fit += textwrap.wrap(
                cells[-1], width, initial_indent=f"{begin}  ", subsequent_indent=" " * indent, break_on_hyphens=False
            ) or [begin.rstrip()]
        else:
            fit.append(begin.rstrip())
            room = max(width, LEAST_TEXT)
            fit += textwrap.wrap(
                cells[-1], room, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
            )
    return fit


def _cell(value: object) -> str:
    if value is None or value == ():
        return "-"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
