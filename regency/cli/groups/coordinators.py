"""Coordinators of groups: found, asked, and asked again while a group moves from one broker to another."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, TypeVar

from regency.cli.asking.refusals import refusal
from regency.cli.asking.wire import ClusterWire, cluster_wire
from regency.cli.context import say
from regency.cli.exits import CommandFailed, Exit
from regency.cli.waiting import waiting
from regency.kafka.apis import Message
from regency.model.ids import BrokerId
from regency.model.kafka_errors import ErrorCode, error_code
from regency.model.words import counted, listed

WITHIN_S: Final = 20.0
"""For so long a group may have no coordinator, or one that still reads its offsets, before it is given up."""
LOOK_EVERY_S: Final = 0.3
OFFSETS_TOPIC: Final = "__consumer_offsets"
_FIND_VERSION, _LIST_VERSION = 4, 4
_AT_ONCE: Final = 200
"""Groups in one request: a coordinator serves its members in between."""
_PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_WHY: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "its coordinator still reads the offsets",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "it has no coordinator now",
    ErrorCode.NOT_COORDINATOR: "its coordinator has changed",
}

T = TypeVar("T")
Ask = Callable[[BrokerId, Sequence[str]], Mapping[str, tuple[int, T]]]
"""Asks a coordinator about groups: of each the error code, and what else was answered."""


class GroupMissing(CommandFailed):
    """There is no group of the name; says which is perhaps meant."""


def coordinated(wire: ClusterWire, groups: Sequence[str], ask: Ask[T]) -> dict[str, tuple[ErrorCode, T]]:
    """What coordinators answer of each group, after errors that pass have passed. May ask the same thing twice.

    Raises CommandFailed with TIMED_OUT or IN_PROGRESS where that takes longer than 20 s.
    """
    found: dict[str, tuple[ErrorCode, T]] = {}
    why: dict[str, str] = {}
    deadline = time.monotonic() + WITHIN_S
    left = list(dict.fromkeys(groups))
    with waiting(lambda: f"Waiting for the coordinator of {listed(left)}: {next(iter(why.values()), 'asking')}"):
        while left:
            for broker, some in _by_coordinator(wire, left, why).items():
                for start in range(0, len(some), _AT_ONCE):
                    try:
                        told = ask(broker, some[start : start + _AT_ONCE])
                    except CommandFailed as error:  # it may have died with the question on its way
                        why.update(dict.fromkeys(some, str(error).rstrip(".")))
                        break
                    for group, (code, answer) in told.items():
                        known = error_code(code)
                        if known in _PASSING:
                            why[group] = _WHY[known]
                        else:
                            found[group] = known, answer
            left = [group for group in left if group not in found]
            if left and time.monotonic() >= deadline:
                raise _none(wire, left[0], why.get(left[0], ""))
            if left:
                time.sleep(LOOK_EVERY_S)
    return found


def _by_coordinator(wire: ClusterWire, groups: Sequence[str], why: dict[str, str]) -> dict[BrokerId, list[str]]:
    """Groups whose coordinator is known, by it; of the others the reason in `why`."""
    from regency.kafka.codec import FindCoordinatorRequest

    by_broker: dict[BrokerId, list[str]] = {}
    for start in range(0, len(groups), _AT_ONCE):
        request = FindCoordinatorRequest(
            version=_FIND_VERSION, key_type=0, coordinator_keys=list(groups[start : start + _AT_ONCE])
        )
        for each in wire.ask(request, _FIND_VERSION).coordinators:
            known = error_code(each.error_code)
            if known is ErrorCode.NONE:
                by_broker.setdefault(BrokerId(each.node_id), []).append(each.key)
            elif known in _PASSING:
                why[each.key] = _WHY[known]
            else:
                raise refusal(f"group {each.key}", known, each.error_message)
    return by_broker


def why_none(servers: str, group: str) -> str | None:
    """Why a group has no coordinator at this moment, in words; None where it has one."""
    why: dict[str, str] = {}
    try:
        with cluster_wire(servers) as wire:
            _by_coordinator(wire, [group], why)
    except CommandFailed as error:
        return str(error).rstrip(".")
    return why.get(group)


def _none(wire: ClusterWire, group: str, why: str) -> CommandFailed:
    """Why a group has no coordinator: the partitions of the offsets topic without a leader, where that is it."""
    unled = leaderless(wire)
    words = f"Group {group} cannot be asked for: {why or 'no coordinator was told'} for {WITHIN_S:.0f} s."
    if unled is None:
        return CommandFailed(
            words,
            hint=f"There is no topic {OFFSETS_TOPIC}, and it could not be made; the logs of the brokers say why.",
            status=Exit.IN_PROGRESS,
        )
    hint = f"{OFFSETS_TOPIC} lacks leaders: {listed(unled)}." if unled else "`regency status` shows who is up."
    return CommandFailed(words, hint=hint, status=Exit.IN_PROGRESS)


def leaderless(wire: ClusterWire) -> list[str] | None:
    """Partitions of the offsets topic without a leader; None where there is no such topic."""
    [topic] = wire.topics([OFFSETS_TOPIC])
    if not topic.partitions:
        return None
    return [f"{OFFSETS_TOPIC}-{each.partition_index}" for each in topic.partitions if each.leader is None]


class Listing:
    """All groups as their coordinators list them, by broker; `notes` says whose may be missing."""

    def __init__(self) -> None:
        self.rows: dict[BrokerId, list[Message]] = {}
        self.notes: list[str] = []

    @property
    def names(self) -> list[str]:
        """Of all groups, in order."""
        return sorted({row.group_id for rows in self.rows.values() for row in rows})


def list_groups(wire: ClusterWire, states: Collection[str] = ()) -> Listing:
    """Ask every live broker; `states` empty: groups in any."""
    from regency.kafka.codec import ListGroupsRequest

    found = Listing()
    silent = wire.silent_brokers()
    request = ListGroupsRequest(version=_LIST_VERSION, states_filter=list(states))
    deadline = time.monotonic() + WITHIN_S
    for broker in wire.brokers():
        if broker in silent:
            found.notes.append(f"Broker {broker} does not answer; the groups that it coordinates are missing.")
            continue
        while True:
            answer = wire.ask(request, _LIST_VERSION, broker=broker)
            if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS or time.monotonic() >= deadline:
                break
            time.sleep(LOOK_EVERY_S)
        found.rows[broker] = list(answer.groups)
        if answer.error_code != ErrorCode.NONE:
            error = error_code(answer.error_code)
            told = _WHY.get(error, error.name)
            found.notes.append(f"Groups of broker {broker} may be missing: {told.removeprefix('its coordinator ')}.")
    unled = leaderless(wire)
    if unled:
        found.notes.append(
            f"Groups of {counted(len(unled), 'partition')} without a leader are missing: {listed(unled)}."
        )
    return found


def missing(wire: ClusterWire, group: str) -> GroupMissing:
    """The error for a group that is not there, with the name that was perhaps meant."""
    near = get_close_matches(group[:100], list_groups(wire).names, n=1, cutoff=0.6)
    hint = f"Did you mean {near[0]}?" if near else "`regency groups list` shows which there are."
    return GroupMissing(f"There is no group {group}.", hint=hint)


def tell(notes: Collection[str]) -> int:
    """Say what is missing; the exit status for it."""
    for each in notes:
        say(f"Note: {each}")
    return Exit.UNHEALTHY if notes else Exit.DONE
