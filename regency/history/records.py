"""Decision records: what controllers and leaders decided, and why. Values, their JSON form, and their merge; no I/O."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

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
    """Who leads a partition after the decision, -1 for nobody; None where it is about something else, as below."""
    isr: tuple[BrokerId, ...] | None = None
    leader_epoch: int | None = None
    version: int | None = None
    """Of the state znode that the decision wrote."""
    phases: tuple[tuple[str, int], ...] | None = None
    """Of a failover that is over: its parts in order, and how many milliseconds each took."""


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
    found twice, for example in two copies of one file, is kept once.
    """
    by_decider: dict[tuple[str, BrokerId], dict[tuple[int, int], Decision]] = {}
    for history in histories:
        for decision in history:
            own = by_decider.setdefault((decision.role, decision.source), {})
            own.setdefault((decision.controller_epoch, decision.number), decision)
    ordered = (_with_order(own.values()) for _, own in sorted(by_decider.items()))
    return [decision for *_, decision in heapq.merge(*ordered, key=lambda entry: entry[:2])]


def in_order_of_states(decisions: Iterable[Decision]) -> list[Decision]:
    """Decisions about one partition, merged; those that wrote its state stand in the order of its versions.

    That order is certain where clocks differ: between a controller and the leaders under it. It begins anew when the
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


def _with_order(decisions: Iterable[Decision]) -> Iterator[tuple[int, int, Decision]]:
    latest, epoch = 0, -1
    for decision in sorted(decisions, key=lambda each: (each.controller_epoch, each.number)):
        latest = decision.time_ms if decision.controller_epoch != epoch else max(latest, decision.time_ms)
        epoch = decision.controller_epoch
        yield epoch, latest, decision
