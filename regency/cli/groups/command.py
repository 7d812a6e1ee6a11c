"""`regency groups list | describe`: groups, their members, and how far they are behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click
import msgspec

from regency.cli.asking.wire import ClusterWire, cluster_wire
from regency.cli.context import (
    GROUP_NAME,
    cluster_options,
    conclude,
    current,
    print_json,
    print_table,
    say,
    show,
)
from regency.cli.exits import Exit
from regency.cli.groups.coordinators import list_groups, missing, tell
from regency.cli.groups.facts import (
    DEAD,
    LATEST,
    QUIET_STATES,
    STATES,
    GroupDetails,
    MemberRow,
    committed,
    describe_groups,
    offsets_at,
    with_offsets,
)
from regency.cli.groups.removing import delete_groups, group_offsets
from regency.cli.groups.resetting import reset_offsets
from regency.model.ids import TopicPartition
from regency.model.words import counted, listed


class GroupRow(msgspec.Struct, frozen=True):
    """A group in `regency groups list`."""

    group: str
    state: str
    protocol_type: str
    coordinator: int


@click.group()
@cluster_options
def groups() -> None:
    """List and describe consumer groups, reset and delete their offsets, delete them.

    \b
    Examples:
      regency groups list
      regency groups describe etl
      regency groups reset-offsets etl --to-earliest
    """


groups.add_command(reset_offsets)
groups.add_command(delete_groups)
groups.add_command(group_offsets)


@groups.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES, case_sensitive=False),
    multiple=True,
    help="Only groups in this state; repeatable.",
)
@cluster_options
def list_all(states: tuple[str, ...]) -> int:
    """List all groups, as their coordinators know them.

    Every broker is asked. Exit status 3 where one does not answer, or a partition of __consumer_offsets has no leader:
    groups there are missing then.

    \b
    Examples:
      regency groups list
      regency groups list --state Empty -o json | jq -r '.[].group'
    """
    with cluster_wire(current().bootstrap_servers()) as wire:
        found = list_groups(wire, states)
    told = sorted((each.group_id, int(broker), each) for broker, some in found.rows.items() for each in some)
    rows = [GroupRow(group, each.group_state, each.protocol_type, broker) for group, broker, each in told]
    show(rows, ["group", "state", "protocol_type", "coordinator"])
    return tell(found.notes)


@groups.command(short_help="Show how far groups are behind, and their members.")
@click.argument("names", nargs=-1, metavar="[NAME]...", type=GROUP_NAME)
@click.option("--offsets", is_flag=True, help="Offsets and lag by partition (default).")
@click.option("--members", is_flag=True, help="Members, and how many partitions each reads.")
@click.option("--state", is_flag=True, help="State, coordinator and assignor.")
@click.option("--verbose", is_flag=True, help="With --members: which partitions each reads.")
@cluster_options
def describe(names: tuple[str, ...], offsets: bool, members: bool, state: bool, verbose: bool) -> int:
    """Show groups, all of them or those named: offsets and lag of each partition, members, or states.

    LOG-END is the high watermark: what a consumer can read ends there. LAG is the way from the committed offset to it;
    a dash is not known: nothing is committed, or no leader answers. Exit status 1 where a named group is not there, 3
    where not all groups could be listed.

    \b
    Examples:
      regency groups describe
      regency groups describe etl --members --verbose
      regency groups describe etl -o json | jq '.[] | {group, lag}'
    """
    views = [name for name, said in (("offsets", offsets), ("members", members), ("state", state)) if said]
    if len(views) > 1:
        raise click.UsageError(f"--{views[0]} and --{views[1]} exclude each other.")
    view = views[0] if views else "offsets"
    if verbose and view != "members":
        raise click.UsageError("--verbose goes with --members.")
    with cluster_wire(current().bootstrap_servers()) as wire:
        notes: Sequence[str] = ()
        wanted = list(dict.fromkeys(names))
        if not wanted:
            listing = list_groups(wire)
            wanted, notes = listing.names, listing.notes
        found = describe_groups(wire, wanted)
        gone = [missing(wire, each) for each in wanted if names and found[each].state == DEAD]
        there = [found[each] for each in wanted if found[each].state != DEAD]
        if view == "offsets":
            there, unknown = _measured(wire, there)
            notes = [*notes, *unknown]
    if current().json:
        print_json(there)
    else:
        _print(there, view, verbose=verbose, empty=not gone)
    status = tell(notes)
    for error in gone:
        say(f"Error: {error}")
    return Exit.FAILED if gone else status


def _measured(wire: ClusterWire, groups: Sequence[GroupDetails]) -> tuple[list[GroupDetails], list[str]]:
    """With offsets and lag; and why some of that is not known."""
    offsets = committed(wire, [each.group for each in groups])
    assigned = {
        TopicPartition(each.topic, each.partition)
        for group in groups
        for member in group.members
        for each in member.partitions or ()
    }
    ends = offsets_at(wire, assigned.union(*offsets.values()), LATEST)
    whys = sorted(set(ends.why.values()))
    notes = [f"Where some logs end is not known: {listed(whys)}."] if whys else []
    return [with_offsets(each, offsets[each.group], ends.offsets) for each in groups], notes


_HEADS = {
    "offsets": "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END LAG MEMBER-ID HOST CLIENT-ID",
    "members": "GROUP MEMBER-ID INSTANCE-ID HOST CLIENT-ID PARTITIONS",
    "state": "GROUP COORDINATOR ASSIGNOR STATE MEMBERS",
}


def _print(groups: Sequence[GroupDetails], view: str, *, verbose: bool, empty: bool) -> None:
    make: dict[str, Callable[[GroupDetails], list[list[object]]]] = {
        "offsets": _offset_cells,
        "members": lambda group: [[group.group, *_member_cells(each, verbose=verbose)] for each in group.members],
        "state": lambda group: [
            [group.group, group.coordinator, group.assignor or None, group.state, len(group.members)]
        ],
    }
    rows = [row for group in groups for row in make[view](group)]
    heads: list[object] = [*_HEADS[view].split(), *(["ASSIGNMENT"] if verbose else [])]
    if rows or (empty and not groups):
        print_table([heads, *rows])
    for group in groups:
        _conclude(group, view)


def _conclude(group: GroupDetails, view: str) -> None:
    """What the rows of a group do not say."""
    if group.state in QUIET_STATES and view != "state":
        conclude(f"Group {group.group} has no members.")
    elif group.state not in (*QUIET_STATES, "Stable"):
        conclude(f"Group {group.group} is rebalancing ({group.state}): who reads what is being decided.")
    if view == "offsets" and not group.offsets:
        conclude(f"Group {group.group} has committed no offsets.")
    elif view == "offsets" and group.offsets and len(group.offsets) > 1 and group.lag is not None:
        conclude(f"Group {group.group} is {counted(group.lag, 'record')} behind.")


def _offset_cells(group: GroupDetails) -> list[list[object]]:
    return [
        [
            *(group.group, row.topic, row.partition, row.current_offset, row.log_end, row.lag),
            *(row.member_id, row.host, row.client_id),
        ]
        for row in group.offsets or ()
    ]


def _member_cells(member: MemberRow, *, verbose: bool) -> list[object]:
    partitions = member.partitions
    cells: list[object] = [member.member_id, member.instance_id, member.host, member.client_id]
    cells.append(None if partitions is None else len(partitions))
    if verbose:
        by_topic: dict[str, list[str]] = {}
        for each in partitions or ():
            by_topic.setdefault(each.topic, []).append(str(each.partition))
        cells.append(" ".join(f"{topic}({','.join(numbers)})" for topic, numbers in by_topic.items()) or None)
    return cells
