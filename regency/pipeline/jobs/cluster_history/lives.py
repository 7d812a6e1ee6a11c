"""The states that a partition was in, one after another, and from when to when. Pure, no Spark.

Numbers in the words of decisions are found by regular expressions: ids and epochs, none longer than any of them is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from operator import itemgetter
from typing import NamedTuple

NUMBER = r"\d{1,10}"
NUMBERS = r"([\d, ]*)"
"""What stands in the brackets of a list, also of an empty one."""
LEADER_BEFORE = re.compile(rf"^leader (-?{NUMBER}),", re.ASCII)
ISR_BEFORE = re.compile(rf"isr \[{NUMBERS}\]", re.ASCII)
EPOCH_BEFORE = re.compile(rf"leader epoch ({NUMBER})$", re.ASCII)

MOVED = re.compile(rf"^replicas \[{NUMBERS}\] instead of \[", re.ASCII)
"""Why, of a reassignment that is done: all replicas."""
MOVING = re.compile(rf"^from \[[^\]]*\] to \[{NUMBERS}\], adding \[[^\]]*\], removing \[{NUMBERS}\]", re.ASCII)
"""Why, of a reassignment on its way: its target, and who is not of it; together all replicas."""
CHOSEN_OF = re.compile(rf"replica of (?:the target )?\[{NUMBERS}\]", re.ASCII)
"""Why, of an election: all replicas."""

REASSIGNMENTS = ("partition_reassignment", "alter_reassignments")
"""Events that only reassign: who leaves the ISR by them is no replica any more, whatever words they have."""

NOBODY = -1
BY_STATE, BY_DELETION, BY_NEW_LIFE = "next state", "deletion", "new life"
"""What ends a state: the next one; the order to delete the topic; that the topic is created again."""
Ids = Sequence[int]
_INT64 = 1 << 63
_WORDS = 4096
"""Texts whose numbers are remembered: partitions change for the same reasons."""


class End(NamedTuple):
    """A decision that a topic is to be deleted, or is gone."""

    at_ms: int
    controller_epoch: int
    number: int


class Noted(NamedTuple):
    """A decision that wrote the state of a partition: columns of table `decisions`, and `ends`.

    From `controller_epoch` to `why` they are in the order of MERGED, by which what differs though it has the same
    number stands somehow, and always so.
    """

    topic: str
    partition: int
    controller_epoch: int
    at_ms: int
    role: str
    source: int
    number: int
    time_ms: int
    version: int
    from_: str
    to: str
    why: str
    event: str
    leader: int
    isr: Ids | None
    leader_epoch: int | None
    ends: Sequence[End]
    """Of its topic, in the order of time."""


COLUMNS = tuple(name.rstrip("_") for name in Noted._fields)
_ORDER = slice(COLUMNS.index("controller_epoch"), COLUMNS.index("event"))
MERGED = COLUMNS[_ORDER]
"""The order of `merge_decisions`."""


@dataclass(slots=True)
class State:
    """A state of a partition. `was_...` is what the decision says was before, `replicas` those that its reason names.

    `following` is the next state of the same life; `complete` is whether that has the next version, so that none
    between them is missing.
    """

    noted: Noted
    life: int
    was_leader: int | None
    was_isr: Ids | None
    was_epoch: int | None
    replicas: Ids | None
    began_ms: int = 0
    place: int = 1
    following: State | None = None
    ended_ms: int | None = None
    ended_by: str | None = None

    @property
    def complete(self) -> bool:
        """See the class."""
        return self.following is None or self.following.noted.version == self.noted.version + 1


def lives(noted: Sequence[Noted]) -> list[list[State]]:
    """Every known state of one partition, a list per life, in the order of `in_order_of_states`.

    A life begins where the topic is created. `began_ms` does not go back from one state to the next; `ended_ms` is
    where the next one begins, in this life or the next, or where the topic is to be deleted, and None in the last.
    """
    found: list[list[State]] = []
    for each in sorted(noted, key=itemgetter(_ORDER)):
        if not found or (each.version == 0 and any(state.noted.version == 0 for state in found[-1])):
            found.append([])
        found[-1].append(_state(each, len(found)))
    latest = 0
    for states in found:
        states.sort(key=lambda state: state.noted.version)
        for place, state in enumerate(states, 1):
            state.began_ms = latest = max(latest, state.noted.at_ms)
            state.place = place
    every = [state for states in found for state in states]
    for state, after in zip_longest(every, every[1:]):
        _end(state, after)
    return found


def _state(noted: Noted, life: int) -> State:
    leader, isr, epoch = _before(noted.from_)
    if noted.role == "agent":
        leader, epoch = noted.leader, noted.leader_epoch
    return State(noted, life, leader, isr, epoch, _replicas(noted.why))


@lru_cache(_WORDS)
def _before(words_before: str) -> tuple[int | None, Ids | None, int | None]:
    """Leader, ISR and leader epoch before a state, as far as the words of a decision tell."""
    leader = LEADER_BEFORE.search(words_before)
    isr = ISR_BEFORE.search(words_before)
    epoch = EPOCH_BEFORE.search(words_before)
    return leader and int(leader[1]), isr and _ids(isr[1]), epoch and int(epoch[1])


def _end(state: State, after: State | None) -> None:
    """The next state, or the first order to delete the topic that was not taken back."""
    if after is not None:
        state.ended_ms = after.began_ms
        state.ended_by = BY_STATE if after.life == state.life else BY_NEW_LIFE
        state.following = after if after.life == state.life else None
    deleted = next(_later(state), None)
    if deleted is not None and (state.ended_ms is None or deleted <= state.ended_ms):
        state.ended_ms, state.ended_by = deleted, BY_DELETION


def _later(state: State) -> Iterator[int]:
    """Of the ends of a topic, those decided after a state: an earlier life's may be of the same millisecond."""
    noted = state.noted
    for end in noted.ends:
        if end.at_ms >= state.began_ms and (
            end.controller_epoch > noted.controller_epoch
            or (
                end.controller_epoch == noted.controller_epoch
                and (noted.role != "controller" or end.number > noted.number)
            )
        ):
            yield end.at_ms


@lru_cache(_WORDS)
def _replicas(why: str) -> Ids | None:
    """All replicas at the time of a state, where its reason names them."""
    for pattern in (MOVED, MOVING, CHOSEN_OF):
        found = pattern.search(why)
        named = found and [_ids(each) for each in found.groups()]
        if named and None not in named:
            return tuple(replica for each in named for replica in each or ())
    return None


def _ids(text: str) -> Ids | None:
    """Ids with commas between; None where one of them is none."""
    try:
        numbers = tuple(int(each) for each in text.split(",")) if text else ()
    except ValueError:
        return None
    return numbers if all(number < _INT64 for number in numbers) else None
