"""One event, one line: what was decided together, with counts in the place of partitions. Pure; no I/O.

A controller numbers its events, and its records say of which they are. Records of earlier versions do not: there, those
of one cause that follow each other within a second are taken for one event. A leader's records are of one event where
it takes the same brokers into ISRs, or out of them, within two seconds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from regency.history.records import Decision
from regency.model.words import counted, listed

OLD_MS, LEADER_MS = 1_000, 2_000
"""So far apart records of one event are at most: a controller's without an event number, and a leader's."""
_LEFT = "it left in order"
NOT_YET: Final = "it is not registered yet"
"""Why a controller that comes after no other, as at a start of the cluster, takes a broker for dead."""
_CANDIDATE = "a candidate"
_STATE = re.compile(r"(?:leader (?P<leader>-?\d+), )?isr \[(?P<isr>[\d, ]*)\]")
_OF_PARTITION = re.compile(r"(?P<topic>[^/ ]+)-\d+")


class Note(NamedTuple):
    """A decision about something else than leader and ISR of a partition."""

    subject: str
    before: str
    after: str
    why: str


class Change(NamedTuple):
    """Leader (-1: none) and ISR of a partition before an event and after it; `leader_before` None: it had no state."""

    leader_before: int | None
    isr_before: tuple[int, ...]
    leader: int
    isr: tuple[int, ...]


class Event:
    """Records of one event."""

    def __init__(self, cause: str, by: str, controller_epoch: int, time_ms: int) -> None:
        self.cause = cause
        self.by = by
        """`controller 2` or `leader 3`."""
        self.controller_epoch = controller_epoch
        self.time_ms = time_ms
        """When the first of it was decided, milliseconds since 1970."""
        self.decisions: list[Decision] = []
        self._notes: list[Note] = []
        self._changes: dict[str, Change] = {}
        self._why: dict[str, None] = {}

    def note(self, note: Note) -> None:
        """Take in a decision about something else than leader and ISR of a partition."""
        self._notes.append(note)

    def change(self, partition: str, change: Change, why: str) -> None:
        """Take in a new state of a partition."""
        first = self._changes.get(partition, change)
        self._changes[partition] = Change(first.leader_before, first.isr_before, change.leader, change.isr)
        if len(self._why) < 2:
            self._why[why] = None

    @property
    def told(self) -> str:
        """All of it in one sentence."""
        moves = Moves(
            Counter(self._changes.values()),
            next(iter(self._changes), ""),
            {name.rpartition("-")[0] for name in self._changes},
            set(self._why),
            self.cause,
            by_leader=self.by.startswith("leader "),
        )
        return tell(self._notes, moves)


class Moves(NamedTuple):
    """What became of the partitions of an event: of how many which, `first` of them by name, their topics, and why."""

    changes: Mapping[Change, int]
    first: str
    topics: Collection[str]
    why: Collection[str]
    cause: str = ""
    by_leader: bool = False
    """A leader changed its ISRs: the same brokers came or went in all of them."""


def tell(notes: Iterable[Note], moves: Moves) -> str:
    """An event in one sentence."""
    told = list(notes)
    begin = [note for note in told if note.subject == "controller" and _CANDIDATE in (note.before, note.after)]
    end = [note.why for note in told if note.subject == "controller" and _CANDIDATE not in (note.before, note.after)]
    others = _of_others([_seen(note, moves.cause) for note in told if note.subject != "controller"])
    words = "; ".join([*map(_of_controller, begin), *others])
    counts = _of_partitions(moves, alone=not others)
    words = f"{words}{': ' if others else '; '}{counts}" if words and counts else words or counts
    return "; ".join([words, *end] if words else end)


def _of_partitions(moves: Moves, *, alone: bool) -> str:
    """What became of partitions; `alone`: no note says of what that comes."""
    if not moves.changes:
        return ""
    why = f" ({next(iter(moves.why))})" if len(moves.why) == 1 and alone else ""
    many, change = sum(moves.changes.values()), next(iter(moves.changes))
    if many == 1 and alone:
        return f"{moves.first}: {_step(change)}{why}"
    of = f" of {next(iter(moves.topics)) if len(moves.topics) == 1 else counted(len(moves.topics), 'topic')}"
    of = of if alone else ""
    before, after = set(change.isr_before), set(change.isr)
    moved = sorted(after - before or before - after)
    if moves.by_leader and moved:
        brokers = f"broker{'s' if len(moved) > 1 else ''} {listed(moved)}"
        return f"{brokers} {'back in' if after - before else 'out of'} the ISR of {counted(many, 'partition')}{of}{why}"
    cause = f"{moves.cause.replace('_', ' ')}: " if alone and moves.cause and len(moves.why) > 1 else ""
    return cause + counts_of(moves.changes, of) + why


def counts_of(changes: Mapping[Change, int], of: str = "") -> str:
    """How many partitions lost or regained replicas, have a new leader, or none. `of` stands behind the first noun."""
    made = lost = back = led = none = fenced = unled = 0
    for each, many in changes.items():
        before, after = set(each.isr_before), set(each.isr)
        if each.leader_before is None:
            made += many
            unled += many * (each.leader < 0)
            continue
        lost += many * bool(before - after)
        back += many * bool(after - before)
        led += many * (each.leader >= 0 and each.leader != each.leader_before)
        none += many * (each.leader < 0)
        fenced += many * (before == after and each.leader == each.leader_before and each.leader >= 0)
    parts: list[str] = []
    for count, one, more in (
        (made, "was created", "were created"),
        (unled, "of them has no leader", "of them have no leader"),
        (lost, "lost a replica", "lost a replica"),
        (back, "regained a replica", "regained a replica"),
        (led, "has a new leader", "have a new leader"),
        (none, "has none" if led else "has no leader", "have none" if led else "have no leader"),
        (fenced, "has a new leader epoch", "have a new leader epoch"),
    ):
        if count:
            noun = str(count) if parts else counted(count, "partition") + of
            parts.append(f"{noun} {one if count == 1 else more}")
    return ", ".join(parts)


def change_of(decision: Decision) -> Change | None:
    """The states before and after a record that is about leader and ISR of a partition; None: it is about another."""
    if decision.leader is None or decision.isr is None:
        return None
    before = _STATE.match(decision.from_)
    if before is None:
        return Change(None, (), decision.leader, decision.isr)
    isr = tuple([int(each) for each in before["isr"].split(",") if each.strip()])
    leader = decision.leader if before["leader"] is None else int(before["leader"])
    return Change(leader, isr, decision.leader, decision.isr)


def step_of(decision: Decision) -> str:
    """What one record decided, in words."""
    change = change_of(decision)
    if change is not None:
        return _step(change)
    note = _seen(Note(decision.subject, decision.from_, decision.to, decision.why), decision.event)
    return f"{_plain(note.before)} -> {_plain(note.after)}"


def _seen(note: Note, cause: str) -> Note:
    """A note with no more than its controller could know: at its failover, a broker that is gone may be alive.

    Its session may have been lost with its predecessor's, or it has ended in order and that was not written down.
    """
    if cause != "failover" or not note.subject.startswith("broker ") or note.after != "dead":
        return note
    return note._replace(after="absent" if note.why == NOT_YET else "gone")


def events_of(decisions: Iterable[Decision]) -> list[Event]:
    """Decisions in their order, by event. Each event stands where its first decision does."""
    events: list[Event] = []
    going: dict[tuple[object, ...], Event] = {}
    for decision in decisions:
        change = change_of(decision)
        key = _key(decision, change)
        event = going.get(key)
        if event is None or _begins_another(event, decision):
            by = f"{'leader' if decision.role == 'agent' else decision.role} {decision.source}"
            event = going[key] = Event(decision.event, by, decision.controller_epoch, decision.time_ms)
            events.append(event)
        event.decisions.append(decision)
        if change is None:
            event.note(Note(decision.subject, decision.from_, decision.to, decision.why))
        else:
            event.change(decision.subject, change, decision.why)
    return events


def _key(decision: Decision, change: Change | None) -> tuple[object, ...]:
    decider = decision.role, decision.source, decision.controller_epoch
    if decision.event_number is not None:
        return *decider, decision.event_number
    if decision.role == "agent" and change is not None:
        before, after = set(change.isr_before), set(change.isr)
        return *decider, decision.event, frozenset(before ^ after)
    return *decider, decision.event


def _begins_another(event: Event, decision: Decision) -> bool:
    last = event.decisions[-1]
    if decision.event_number is not None:
        return False
    if decision.role == "agent":
        return decision.time_ms - last.time_ms > LEADER_MS
    names_a_cause = decision.subject.startswith("broker ") and last.leader is not None
    return decision.time_ms - last.time_ms > OLD_MS or (names_a_cause and decision.event != "failover")


def _of_controller(note: Note) -> str:
    if note.after == _CANDIDATE:
        return f"{note.before.partition(',')[0]} no longer rules ({note.why})"
    return f"{note.after.replace(', epoch', ' rules as controller in epoch')} ({note.why})"


def _of_others(notes: Sequence[Note]) -> list[str]:
    """Notes of one outcome and reason as one: `brokers 2, 3 dead (…)`."""
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for note in notes:
        kind, name = _kind(note.subject)
        alike.setdefault((kind, _plain(note.before), _plain(note.after), note.why), []).append(name)
    told = []
    for (kind, before, after, why), names in alike.items():
        subject = f"{kind}{'s' if len(names) > 1 else ''} {listed(names)}" if kind else listed(names)
        step = f" {after}" if kind == "broker" else f": {before} -> {after}"
        if kind == "broker" and after == "dead" and why.startswith(_LEFT):
            told.append(f"{subject} {why.removeprefix('it ')}")
            continue
        reason = _of_several(why) if kind == "broker" and len(names) > 1 else why
        told.append(f"{subject}{step}" + (f" ({reason})" if reason else ""))
    if len(told) > _TOLD:
        kinds = sorted({f"{_kind(note.subject)[0] or 'other'}s" for note in notes})
        return [*told[: _TOLD - 1], f"and {len(notes) - _TOLD + 1} more decisions about {', '.join(kinds)}"]
    return told


_TOLD = 4
"""Notes of one event that are told in full, at most."""


def _of_several(why: str) -> str:
    """The reason for one broker, for several."""
    for one, more in (("its registration is", "their registrations are"), ("it is ", "they are "), ("it ", "they ")):
        if why.startswith(one):
            return more + why.removeprefix(one)
    return why


def _kind(subject: str) -> tuple[str, str]:
    if subject.startswith(("broker ", "topic ")):
        kind, _, name = subject.partition(" ")
        return kind, name
    return ("partition", subject) if _OF_PARTITION.fullmatch(subject) else ("", subject)


def _plain(words: str) -> str:
    """Without the broker epoch, which tells registrations apart and nothing else."""
    return re.sub(r"^(live|shutting down), epoch \d+$", r"\1", words)


def _step(change: Change) -> str:
    leader = "no leader" if change.leader < 0 else f"leader {change.leader}"
    if change.leader_before is not None and change.leader_before != change.leader:
        leader += " (was none)" if change.leader_before < 0 else f" (was {change.leader_before})"
    lost = [each for each in change.isr_before if each not in change.isr]
    back = [each for each in change.isr if each not in change.isr_before]
    isr = f"ISR {','.join(map(str, change.isr)) or 'empty'}"
    if change.leader_before is not None and (lost or back):
        words = [f"without {','.join(map(str, lost))}"] if lost else []
        words += [f"with {','.join(map(str, back))}"] if back else []
        isr += f" ({', '.join(words)})"
    return f"{leader}, {isr}"
