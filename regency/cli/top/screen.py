"""How a snapshot looks on a screen of so many columns and lines. Pure: no terminal, no clock."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from rich.console import Group
from rich.text import Text

from regency.cli.asking.disks import FULL_USED, WARN_USED
from regency.cli.asking.rates import CatchUp, span
from regency.cli.top.keys import HELP
from regency.cli.top.snapshot import (
    BrokerLine,
    ControllerLine,
    EventLine,
    GroupLine,
    PartitionCounts,
    Snapshot,
    TroubleLine,
)
from regency.model.words import human_bytes

HEAD = "bold"
QUIET = "dim"
GOOD, WARN, BAD = "green", "yellow", "bold red"
LEAST_NAME = 16
"""Columns that the name of a partition has at least, where names are long."""
TWO_COLUMNS = 160
"""From so many columns on decisions stand beside brokers and partitions."""
ALL_COLUMNS = 110
"""A narrower table of brokers is without FOLLOWS, OFFLINE, RECORDS/S and CONNS."""
LEAST_FOLDED = 40
"""Narrower screens show the begin of what is too long; others go on in a second line."""
OLD_S = 5.0
"""What is older is said to be."""
_STATES = {"live": GOOD, "leaving": WARN, "silent": WARN, "dead": BAD}
_KINDS = {
    "well": ("well", GOOD),
    "offline": ("offline", BAD),
    "under_min_isr": ("under min ISR", BAD),
    "under_replicated": ("lacks ISR", WARN),
}


class _Cell(NamedTuple):
    text: str
    style: str = ""
    right: bool = False


class _Row(NamedTuple):
    """`told` stands behind the last cell, or in a line of its own where that leaves no room for it."""

    cells: Sequence[_Cell]
    told: str = ""


_Block = list[Text]
"""The lines of a heading, a row or a decision: one or two."""


def render(snapshot: Snapshot, width: int, height: int | None = None, *, hint: str = "") -> Group:
    """Lines of at most `width` columns, exactly `height` of them at most; None: as many as there is to tell."""
    lines = [_title(snapshot, width, hint)]
    lines += [_fit(Text(_clean(note), style=BAD), width) for note in _wrapped(snapshot.notes, width)]
    if snapshot.age_s is None:
        lines.append(_fit(Text("Nothing is known yet.", style=QUIET), width))
        return Group(*_cut(lines, height))
    if snapshot.age_s > OLD_S:
        lines.append(_fit(Text(f"What follows was so {span(snapshot.age_s)} ago.", style=WARN), width))
    if snapshot.controller is not None:
        lines += _controller(snapshot.controller, snapshot, width)
    if snapshot.partitions is not None:
        (heads, counts) = _table(_PARTITIONS, [_Row(_counted(snapshot.partitions))], width)
        lines += [*heads, *counts]
        if snapshot.partitions.topics_to_count:
            words = f"counting: {snapshot.partitions.topics_to_count:,} topics are not in these numbers yet"
            lines.append(_fit(Text(words, style=WARN), width))
    if snapshot.focus:
        flow = f"topic {snapshot.focus}: {_flow(snapshot.focus_in_per_s, snapshot.focus_out_per_s)}"
        lines.append(_fit(Text(_clean(flow), style=HEAD), width))
    left = None if height is None else max(0, height - len(lines))
    beside = width >= TWO_COLUMNS and bool(snapshot.events)
    table = width * 3 // 5 if beside else width
    kept = [place for place, head in enumerate(_BROKERS) if table >= ALL_COLUMNS or head.text not in _WIDE]
    brokers = _table([_BROKERS[place] for place in kept], [_broker(each, kept) for each in snapshot.brokers], table)
    worst = _table(_WORST, [_Row(_trouble(each)) for each in snapshot.worst], table)
    groups = _table(_GROUPS, [_Row(_group(each)) for each in snapshot.groups], table)
    parts = ((brokers, "brokers"), (worst, "of those named"), (groups, "groups"))
    if beside:
        shares = _shares([_lines_of(each) for each, _ in parts], left)
        tables = [
            line for (part, what), share in zip(parts, shares, strict=True) for line in _first(part, share, what, table)
        ]
        events = _events(snapshot.events, width - table - 2)
        told = _newest(events, _lines_of(events) if left is None else left, width - table - 2)
        return Group(*_cut([*lines, *_side_by_side(tables, told, table, width)], height))
    events = _events(snapshot.events, width)
    *shares, for_events = _shares([_lines_of(each) for each in (*(part for part, _ in parts), events)], left)
    for (part, what), share in zip(parts, shares, strict=True):
        lines += _first(part, share, what, width)
    lines += _newest(events, for_events, width)
    return Group(*_cut(lines, height))


def render_help(width: int, height: int) -> Group:
    """What keys there are."""
    return Group(*_cut([_fit(Text(line), width) for line in ("regency top: keys", "", *HELP)], height))


def _side_by_side(left: Sequence[Text], right: Sequence[Text], room: int, width: int) -> list[Text]:
    """Two columns of lines; the left one in so many columns of the screen."""
    both = []
    for place in range(max(len(left), len(right))):
        line = left[place].copy() if place < len(left) else Text()
        if place < len(right):
            line.pad_right(room + 2 - len(line))
            line = Text.assemble(line, right[place])
        both.append(_fit(line, width))
    return both


# How the lines are shared out


def _shares(wanted: Sequence[int], left: int | None) -> list[int]:
    """Lines for each part, headings included: alike for all, and what one leaves the others."""
    if left is None:
        return list(wanted)
    given = [0] * len(wanted)
    for _ in range(left):
        open_ones = [place for place, lines in enumerate(wanted) if given[place] < lines]
        if not open_ones:
            break
        least = min(open_ones, key=lambda place: given[place])
        given[least] += 1
    return given


def _lines_of(blocks: Sequence[_Block]) -> int:
    return sum(map(len, blocks))


def _first(table: Sequence[_Block], lines: int, what: str, width: int) -> list[Text]:
    """A table in so many lines, heading first; the last says what did not fit."""
    if lines >= _lines_of(table):
        return [line for block in table for line in block]
    shown: list[Text] = []
    for place, block in enumerate(table):
        if len(shown) + len(block) >= lines:
            more = _fit(Text(f"and {len(table) - max(place, 1)} more {what}", style=QUIET), width)
            return [*(shown or table[0]), more][:lines]
        shown += block
    return shown


def _newest(blocks: Sequence[_Block], lines: int, width: int) -> list[Text]:
    """A heading and the last of what follows, in so many lines: those that fit whole, of the newest at least a part."""
    if lines == 0 or not blocks:
        return []
    told: list[Text] = []
    for block in reversed(blocks[1:]):
        if len(told) + len(block) > lines - 1:
            if not told and lines > 1:
                told = [*block[: lines - 2], _fit(Text.assemble(block[lines - 2], " …"), width)]
            break
        told = [*block, *told]
    return [*blocks[0], *told]


# Parts


def _title(snapshot: Snapshot, width: int, hint: str) -> Text:
    when = _time(snapshot.time_ms)
    left = f"regency top  {_clean(snapshot.servers)}"
    right = f"{hint}  {when}" if hint else when
    room = width - len(right) - 2
    return _fit(Text(f"{left[: max(room, 0)]:<{max(room, 0)}}  {right}", style=HEAD), width)


def _controller(line: ControllerLine, snapshot: Snapshot, width: int) -> list[Text]:
    """Who rules, and what flows: in the same line where there is room."""
    text = Text(f"controller {line.broker}, epoch {line.epoch}", style=HEAD)
    busy = line.state != "Idle" or bool(line.queued)
    doing = f": {line.state}" + (f", {line.queued:,} queued" if line.queued else "")
    text.append(_clean(doing), style=WARN if busy else "not bold")
    if line.ruling_s is not None:
        text.append(f"; for {span(line.ruling_s)}", style="not bold")
    if line.failover_s is not None:
        text.append(f", failover {line.failover_s:.2f} s", style="not bold")
    flows = [] if snapshot.records_per_s is None else [f"{_rate(snapshot.records_per_s)} records/s"]
    flows += [] if snapshot.bytes_in_per_s is None else [_flow(snapshot.bytes_in_per_s, snapshot.bytes_out_per_s)]
    flow = ", ".join(flows)
    if flow and len(text) + 2 + len(flow) > width:
        return [_fit(text, width), _fit(Text(flow), width)]
    text.append(f"; {flow}" if flow else "", style="not bold")
    return [_fit(text, width)]


_PARTITIONS = [
    _Cell(each, right=True)
    for each in ("PARTITIONS", "HEALTHY", "LACK-ISR", "UNDER-MIN", "OFFLINE", "MOVING", "TOPICS", "DELETING")
]
_BROKERS = [
    _Cell("BROKER", right=True),
    _Cell("STATE"),
    _Cell("LEADS", right=True),
    _Cell("FOLLOWS", right=True),
    _Cell("OFFLINE", right=True),
    _Cell("RECORDS/S", right=True),
    _Cell("IN/S", right=True),
    _Cell("OUT/S", right=True),
    _Cell("LAG", right=True),
    _Cell("DISK", right=True),
    _Cell("CONNS", right=True),
    _Cell("UNACKED", right=True),
    _Cell("ADDRESS"),
]
_WIDE = ("FOLLOWS", "OFFLINE", "RECORDS/S", "CONNS")
_WORST = [
    *(_Cell("PARTITION"), _Cell("IS"), _Cell("LEADER", right=True), _Cell("REPLICAS"), _Cell("ISR")),
    *(_Cell("LAG"), _Cell("CATCHES UP")),
]

_GROUPS = [
    *(_Cell("GROUP"), _Cell("MEMBERS", right=True), _Cell("LAG", right=True)),
    *(_Cell("CATCHES UP"), _Cell("COORDINATOR", right=True)),
]


def _counted(counts: PartitionCounts) -> list[_Cell]:
    return [
        _number(counts.partitions),
        _number(counts.healthy),
        _number(counts.under_replicated, WARN),
        _number(counts.under_min_isr, BAD),
        _number(counts.offline, BAD),
        _number(counts.reassigning, WARN),
        _number(counts.topics),
        _number(counts.topics_in_deletion, WARN),
    ]


def _broker(line: BrokerLine, kept: Sequence[int]) -> _Row:
    waits = f"waits {span(line.waiting_s)}" if line.waiting_s >= 1 else ""
    used = "?" if line.disk_used is None else f"{line.disk_used:.0%}"
    full = BAD if (line.disk_used or 0) >= FULL_USED else WARN if (line.disk_used or 0) >= WARN_USED else ""
    cells = [
        _Cell(str(line.broker), right=True),
        _Cell(line.state + (" *" if line.rules else ""), _STATES.get(line.state, "")),
        _number(line.leads),
        _number(line.follows),
        _number(line.offline_replicas, BAD),
        _Cell("-" if line.records_per_s is None else _rate(line.records_per_s), right=True),
        _Cell(_bytes(line.bytes_in_per_s), right=True),
        _Cell(_bytes(line.bytes_out_per_s), right=True),
        _Cell(_lag(line.lag, partial=line.lag_partial), WARN if line.catch_up and line.lag else "", right=True),
        _Cell(used, full, right=True),
        _Cell("?" if line.connections is None else f"{line.connections:,}", right=True),
        _number(line.unacknowledged, WARN),
        _Cell(line.address or "-", BAD if line.failure else ""),
    ]
    told = [": ".join(filter(None, (waits, line.failure)))]
    told += [f"refuses {_rate(rate)} produces/s: {error}" for error, rate in (line.refused_per_s or {}).items()]
    if line.offline_replicas and len(kept) < len(_BROKERS):
        told.append(f"{line.offline_replicas:,} replicas offline")
    if line.catch_up is not None and line.lag:
        told.append(line.catch_up.told if line.catch_up.told != "?" else "")
    return _Row([cells[place] for place in kept], "; ".join(filter(None, told)))


def _trouble(line: TroubleLine) -> list[_Cell]:
    words, style = _KINDS.get(line.kind, (line.kind, WARN))
    return [
        _Cell(f"{line.topic}-{line.partition}"),
        _Cell(words + (", moving" if line.reassigning else ""), style),
        _Cell("none" if line.leader is None else str(line.leader), right=True),
        _Cell(",".join(map(str, line.replicas)) or "-"),
        _Cell(",".join(map(str, line.isr)) or "-"),
        _Cell(",".join(map(_lag, line.lags)) or "-"),
        _catching_up(line.catch_up),
    ]


def _group(line: GroupLine) -> list[_Cell]:
    behind = bool(line.lag or line.lag_partial)
    return [
        _Cell(line.group),
        _number(line.members) if line.members else _Cell("none", WARN if behind else "", right=True),
        _Cell(_lag(line.lag, partial=line.lag_partial), right=True),
        _going(line.catch_up) if behind else _Cell("-"),
        _Cell(str(line.coordinator), right=True),
    ]


def _going(found: CatchUp) -> _Cell:
    """Of a group: a lag that stays as it is, is no trouble."""
    if found.per_s is None:
        return _Cell("?")
    if found.per_s < 0:
        return _Cell(f"grows by {_rate(-found.per_s)}/s", WARN)
    return _Cell(f"in {span(found.in_s)}" if found.in_s else "now") if found.in_s is not None else _Cell("stays so")


def _catching_up(found: CatchUp | None) -> _Cell:
    """Of the replica out of sync that takes longest."""
    if found is None:
        return _Cell("-")
    if found.in_s is not None:
        return _Cell(f"in {span(found.in_s)}" if found.in_s else "now", WARN)
    return _Cell("?") if found.per_s is None else _Cell("does not", BAD)


def _events(events: Sequence[EventLine], width: int) -> list[_Block]:
    """The newest last, so that it stands where the eye comes to rest; broken between words."""
    if not events:
        return []
    told = [[_fit(Text("LAST DECISIONS", style=HEAD), width)]]
    for each in events:
        when = f"{_time(each.time_ms)} "
        room = width - len(when) if width >= LEAST_FOLDED else 10**6
        first, *others = textwrap.wrap(_clean(each.told), room, break_on_hyphens=False) or [""]
        lines = [Text.assemble((when, QUIET), first), *(Text(" " * len(when) + other) for other in others)]
        told.append([_fit(line, width) for line in lines])
    return told


# Words and lines


def _number(count: int | None, style: str = "") -> _Cell:
    return _Cell("-" if count is None else f"{count:,}", style if count else "", right=True)


def _lag(records: int | None, *, partial: bool = False) -> str:
    return "?" if records is None else f">{records}" if partial else str(records)


def _bytes(per_s: float | None) -> str:
    return "?" if per_s is None else human_bytes(round(per_s))


def _flow(bytes_in: float | None, bytes_out: float | None) -> str:
    return f"{_bytes(bytes_in)}/s in, {_bytes(bytes_out)}/s out"


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s >= 10 or per_s == 0 else f"{per_s:.1f}"


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000).astimezone().strftime("%H:%M:%S")


def _table(heads: Sequence[_Cell], rows: Sequence[_Row], width: int) -> list[_Block]:
    """A block of headings and one per row: columns as wide as they have to be, the last as wide as there is room.

    Where names are so long that columns would not be seen, the middle of the names is left out; of addresses as well.
    """
    if not rows:
        return []
    all_cells = [heads, *(row.cells for row in rows)]
    widths = [max(len(cells[place].text) for cells in all_cells) for place in range(len(heads))]
    beyond = max(0, sum(widths) + 2 * (len(widths) - 1) - width)
    place, least = (-1, len(heads[-1].text)) if heads[0].right else (0, LEAST_NAME)
    widths[place] = max(min(widths[place], least), widths[place] - beyond)
    table = []
    for row, whole in [(_Row(heads), HEAD), *((row, "") for row in rows)]:
        text = Text(style=whole)
        for cell, room in zip(row.cells, widths, strict=True):
            shown = _shortened(_clean(cell.text), room)
            text.append(shown.rjust(room) if cell.right else shown.ljust(room), style=cell.style)
            text.append("  ")
        text.rstrip()
        told = Text(_clean(row.told), style=row.cells[-1].style)
        table.append(_folded(text, told, widths[0] + 2, width))
    return table


def _folded(text: Text, rest: Text, indent: int, width: int) -> _Block:
    """`text` and `rest` in one line; where that is too long, `rest` in a second, indented one."""
    if not rest:
        return [_fit(text, width)]
    together = Text.assemble(text, " ", rest)
    if len(together) <= width or width < LEAST_FOLDED:
        return [_fit(together, width)]
    return [_fit(text, width), _fit(Text.assemble(" " * indent, rest), width)]


def _shortened(words: str, room: int) -> str:
    """In so many columns: the begin and the end, where the number of a partition stands."""
    if len(words) <= room:
        return words
    tail = (room - 1) // 2
    return f"{words[: room - 1 - tail]}…{words[len(words) - tail :]}" if room > 2 else words[:room]


def _wrapped(notes: Sequence[str], width: int) -> list[str]:
    """Notes, in lines cut between words; no more than three for all of them."""
    lines: list[str] = []
    for note in notes:
        line = ""
        for word in note.split():
            if line and len(line) + 1 + len(word) > width:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}".strip()
        lines.append(line)
    return lines[:3]


def _fit(text: Text, width: int) -> Text:
    text.no_wrap = True
    text.overflow = "ellipsis"
    text.truncate(max(width, 1), overflow="ellipsis")
    return text


def _cut(lines: list[Text], height: int | None) -> list[Text]:
    return lines if height is None else lines[:height]


def _clean(words: str) -> str:
    """Without what a terminal would take for an order: names and reasons come from others."""
    return "".join(each if each.isprintable() else "?" for each in words)
