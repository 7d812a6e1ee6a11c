"""When partitions were without a leader, and for how long, also by day (UTC). Pure, no Spark.

A partition is without a leader while its state names none, and from the moment in which a controller notices that the
broker its state names is dead, until a state names a leader that lives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from regency.pipeline.jobs.cluster_history.lives import NOBODY, State


class Interval(NamedTuple):
    """A row of table `leaderless`; `ended_ms` None = still so at the end of the history.

    `broker` led before, None where none ever did; `complete`: no state within it is missing from the history.
    """

    topic: str
    partition: int
    life: int
    began_ms: int
    ended_ms: int | None
    broker: int | None
    began_by: str
    why: str
    ended_by: str | None
    new_leader: int | None
    complete: bool
    open: bool
    ms: int


class Note(NamedTuple):
    """What a controller noted of a broker: that it is dead, or lives."""

    controller_epoch: int
    broker: int
    number: int
    at_ms: int
    dead: bool


class Death(NamedTuple):
    """When a controller noted a broker dead, and with which number it noted anything else of it in the same epoch."""

    number: int
    at_ms: int
    next_number: int | None


class Noticed(NamedTuple):
    """What controllers knew of brokers, and when each of their epochs began."""

    deaths: Mapping[tuple[int, int], Sequence[Death]]
    """By controller epoch and broker."""
    wins: Mapping[int, int]

    def death(self, state: State) -> int | None:
        """When the leader of a state was found dead, because of which a controller wrote the state after it.

        A death that a controller finds when it takes over is from its election on, whatever it had read by then.
        """
        by = state.following
        if by is None or by.noted.role != "controller":
            return None
        epoch, number = by.noted.controller_epoch, by.noted.number
        for death in self.deaths.get((epoch, state.noted.leader), ()):
            if death.number < number and (death.next_number is None or number < death.next_number):
                return self.wins.get(epoch, death.at_ms) if by.noted.event == "failover" else death.at_ms
        same = by.noted.leader == state.noted.leader
        unseen = same or (by.noted.isr is not None and state.noted.leader not in by.noted.isr)
        return self.wins.get(epoch) if unseen and by.noted.event == "failover" else None


def deaths(notes: Iterable[Note]) -> dict[tuple[int, int], list[Death]]:
    """The deaths among notes, by controller epoch and broker."""
    found: dict[tuple[int, int], list[Death]] = {}
    for key, own in groupby(sorted(notes), key=lambda note: (note.controller_epoch, note.broker)):
        for note, after in pairwise([*own, None]):
            if note is not None and note.dead:
                found.setdefault(key, []).append(Death(note.number, note.at_ms, after and after.number))
    return found


def intervals(states: Sequence[State], noticed: Noticed, end_ms: int) -> Iterator[Interval]:
    """The times without a leader in one life of a partition, whose states these are, in their order."""
    began: int | None = None
    first = last = states[0]
    complete = True
    for state in states:
        part = _since(state, noticed)
        if began is not None and state.noted.leader != NOBODY:
            yield _interval(began, first, last, complete, end_ms)
            began = None
        if part is None:
            continue
        if began is None:
            began, first, complete = part, state, True
        last = state
        complete &= state.complete
    if began is not None:
        yield _interval(began, first, last, complete, end_ms)


def _since(state: State, noticed: Noticed) -> int | None:
    """From when, in that state, no broker led; None where one led through all of it."""
    own, after = state.noted, state.following
    if own.leader == NOBODY:
        return state.began_ms
    if after is None or (after.noted.leader == own.leader and not _newer(after.noted.leader_epoch, own.leader_epoch)):
        return None
    found = noticed.death(state)
    if found is None or state.ended_ms is None:
        return None
    return max(state.began_ms, min(found, state.ended_ms))


def _newer(epoch: int | None, before: int | None) -> bool:
    return epoch is not None and before is not None and epoch > before


def _interval(began: int, first: State, last: State, complete: bool, end_ms: int) -> Interval:
    led = first.noted.leader != NOBODY
    broker = first.noted.leader if led else first.was_leader
    by = first.following.noted if led and first.following is not None else first.noted
    ended = last.ended_ms
    after = None if last.following is None else last.following.noted
    return Interval(
        first.noted.topic,
        first.noted.partition,
        first.life,
        began,
        ended,
        None if broker == NOBODY else broker,
        by.event,
        by.why,
        None if after is None else after.event,
        None if after is None else after.leader,
        complete,
        ended is None,
        max(end_ms if ended is None else ended, began) - began,
    )


DAY_MS = 86_400_000


def by_partition(found: Iterable[Interval]) -> list[tuple[object, ...]]:
    """Rows of table `leaderless_by_partition_day`: topic, partition, day since 1970, milliseconds on it, intervals."""
    sums: dict[tuple[object, ...], list[int]] = {}
    for each in found:
        for day, ms in _days(each):
            of = sums.setdefault((each.topic, each.partition, day), [0, 0])
            of[0] += ms
            of[1] += 1
    return [(*key, *of) for key, of in sums.items()]


def by_broker(found: Iterable[Interval]) -> list[tuple[object, ...]]:
    """Rows of table `leaderless_by_broker_day`: broker, day, milliseconds, intervals, partitions."""
    sums: dict[tuple[object, ...], tuple[list[int], set[tuple[str, int]]]] = {}
    for each in found:
        for day, ms in _days(each):
            spans, partitions = sums.setdefault((each.broker, day), ([], set()))
            spans.append(ms)
            partitions.add((each.topic, each.partition))
    return [(*key, sum(spans), len(spans), len(partitions)) for key, (spans, partitions) in sums.items()]


def _days(interval: Interval) -> Iterator[tuple[int, int]]:
    """Each day that an interval touches, and the milliseconds on it."""
    began, end = interval.began_ms, interval.began_ms + interval.ms
    for day in range(began // DAY_MS, max(began, end - 1) // DAY_MS + 1):
        yield day, min(end, (day + 1) * DAY_MS) - max(began, day * DAY_MS)
