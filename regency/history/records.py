"""Decision records: what controllers and leaders decided, and why. Values, their JSON form, and their merge; no I/O."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from regency.model.ids import BrokerId, ControllerEpoch


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """One decision. In the files it is one line of JSON with the field names used here (`from_` as "from").

    `number` counts from 1: within the epoch for a controller, over its whole life for an agent.
    """

    controller_epoch: ControllerEpoch
    """Epoch of the deciding controller, or the newest one the deciding agent had seen."""
    number: int
    event: str
    """What made it necessary, for example `broker_failure` or `isr_shrink`."""
    subject: str
    """What it is about: `flights-3`, `broker 2`, `controller`."""
    from_: str = msgspec.field(name="from")
    to: str
    why: str
    time_ms: int
    """Wall clock of the decider, milliseconds since 1970."""
    source: BrokerId
    """Broker whose agent or controller process decided."""
    role: str = "controller"
    """`controller` or `agent`: the two processes of one broker number their decisions apart."""
    leader: BrokerId | None = None
    """Who leads a partition after the decision, -1 for none; None where it is about something else, as below."""
    isr: tuple[BrokerId, ...] | None = None
    leader_epoch: int | None = None
    version: int | None = None
    """Of the state znode that the decision wrote."""
    phases: tuple[tuple[str, int], ...] | None = None
    """Of a failover that is over: its parts in order, and how many milliseconds each took."""
    event_number: int | None = None
    """Which event of this controller's epoch it was, counted from 1: decisions that share it were made together. None
    in records of agents and of earlier versions."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Decision)


def encode_decisions(decisions: Iterable[Decision]) -> bytes:
    """One line per decision, each ending in a newline."""
    return _encoder.encode_lines(list(decisions))


def decode_decision(line: bytes | str) -> Decision | None:
    """The decision on a line; None where the line is torn or is not a decision."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def merge_decisions(histories: Iterable[Iterable[Decision]]) -> list[Decision]:
    """All decisions in one order: by controller epoch, then by time, each decider's own by number.

    Clocks of hosts differ and step, so a decider's times are first made non-decreasing along its numbers. A decision
    found twice, for example in two copies of one file, is kept once. Decisions that differ are all kept, also where
    they have one number (see `numbered_twice`); then that decider's numbers in that epoch say nothing of the order.
    """
    by_decider: dict[tuple[str, BrokerId], dict[int, dict[Decision, None]]] = {}
    for history in histories:
        for decision in history:
            own = by_decider.setdefault((decision.role, decision.source), {})
            own.setdefault(decision.controller_epoch, {})[decision] = None
    ordered = (_with_order(own) for _, own in sorted(by_decider.items()))
    return [decision for *_, decision in heapq.merge(*ordered, key=lambda entry: entry[:2])]


class NumberedTwice(msgspec.Struct, frozen=True):
    """A process that gave one number to different decisions, as one does that lost its files and counts again."""

    role: str
    source: BrokerId
    times: int
    """Such numbers."""
    controller_epoch: int
    """Of the first of them, and the number."""
    number: int

    @property
    def why(self) -> str:
        """What is wrong, in words."""
        numbers = "1 number stands" if self.times == 1 else f"{self.times} numbers stand"
        return (
            f"{numbers} for different decisions (number {self.number} in controller epoch {self.controller_epoch} is "
            "the first), as where it lost its files and counted again, or a record was altered; all of them are shown"
        )


def numbered_twice(merged: Iterable[Decision]) -> list[NumberedTwice]:
    """Processes of whose decisions, each given once, some have the same number."""
    known: set[tuple[str, BrokerId, int, int]] = set()
    several: dict[tuple[str, BrokerId], set[tuple[int, int]]] = {}
    for each in merged:
        identity = each.role, each.source, each.controller_epoch, each.number
        if identity in known:
            several.setdefault(identity[:2], set()).add(identity[2:])
        known.add(identity)
    return [NumberedTwice(*process, len(those), *min(those)) for process, those in sorted(several.items())]


def in_order_of_states(decisions: Iterable[Decision]) -> list[Decision]:
    """Decisions about one partition, merged; those that wrote its state stand in the order of its versions.

    That order is certain where clocks differ: between a controller and the leaders under it. It begins again when the
    partition is created again.
    """
    ordered = list(decisions)
    begin, created = 0, False
    for index, decision in enumerate(ordered):
        if decision.version == 0:
            if created:
                _sort_states(ordered, begin, index)
                begin = index
            created = True
    _sort_states(ordered, begin, len(ordered))
    return ordered


def _sort_states(decisions: list[Decision], begin: int, end: int) -> None:
    places = [index for index in range(begin, end) if decisions[index].version is not None]
    states = sorted((decisions[index] for index in places), key=lambda each: each.version or 0)
    for index, decision in zip(places, states, strict=True):
        decisions[index] = decision


def _with_order(by_epoch: Mapping[int, Collection[Decision]]) -> Iterator[tuple[int, int, Decision]]:
    for epoch, decisions in sorted(by_epoch.items()):
        if len({each.number for each in decisions}) < len(decisions):
            for decision in sorted(decisions, key=lambda each: (each.time_ms, each.number)):
                yield epoch, decision.time_ms, decision
            continue
        latest = -1
        for decision in sorted(decisions, key=lambda each: each.number):
            latest = max(latest, decision.time_ms)
            yield epoch, latest, decision
