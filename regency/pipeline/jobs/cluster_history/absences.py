"""When replicas were out of the ISR, and how often: from the state that took them out until one that shows them in it.

Pure, no Spark.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from regency.pipeline.jobs.cluster_history.lives import BY_DELETION, BY_NEW_LIFE, REASSIGNMENTS, Ids, State

BY_RETURN, BY_UNSEEN_RETURN, BY_REASSIGNMENT = "return", "unrecorded return", "reassignment"
"""What ends an absence, beside the end of the topic's life (BY_DELETION, BY_NEW_LIFE)."""


class Absence(NamedTuple):
    """A row of table `isr_absences`: a replica that left the ISR, until it came back or was a replica no more.

    `back_ms` is when it came back, where that is recorded; `ended_ms`, `ended_by`: when and how it ended, None where it
    was still out at the end of the history (`open`). An unrecorded return was before `ended_ms`, where a state shows
    the replica in the ISR: `out_ms` is then up to the last state that shows it out, so the least it can be. `complete`:
    no state between is missing. A replica that leaves because it is moved away is not absent.
    """

    topic: str
    partition: int
    broker: int
    life: int
    left_ms: int
    back_ms: int | None
    ended_ms: int | None
    out_ms: int
    open: bool
    ended_by: str | None
    complete: bool
    left_by: str
    left_why: str
    back_by: str | None


class _End(NamedTuple):
    ms: int
    by: str
    known_ms: int
    """Until when it is known to have been out."""
    event: str
    gaps: int


class _Seen(NamedTuple):
    """A state, the ISR before it where that is known, and how many times states are missing before it in its life."""

    state: State
    before: Ids | None
    gaps: int

    def is_in(self, broker: int) -> bool:
        isr = self.state.noted.isr
        return isr is not None and broker in isr

    def moves(self, broker: int) -> bool:
        """Whether one that is not in the ISR is no replica any more, as far as the state says."""
        if self.state.replicas is not None:
            return broker not in self.state.replicas
        return self.state.noted.event in REASSIGNMENTS and broker in (self.before or ())


def absences(states: Sequence[State], end_ms: int) -> Iterator[Absence]:
    """Each time that a replica left the ISR in one life of a partition, whose states these are, in their order."""
    out: dict[int, _Seen] = {}
    last: _Seen | None = None
    for state in states:
        seen = _seen(state, last)
        isr = state.noted.isr
        before = () if isr is None else dict.fromkeys(seen.before or ())
        gone = [each for each in before if not seen.is_in(each) and not seen.moves(each)]
        if last is not None:
            for broker in list(out):
                end = _end(broker, seen, last, again=broker in gone)
                if end is not None:
                    yield _absence(broker, out.pop(broker), end, end.gaps, end_ms)
        for broker in gone:
            end = _with_life(seen)
            if end is None:
                out[broker] = seen
            else:
                yield _absence(broker, seen, end, end.gaps, end_ms)
        last = seen
    if last is not None:
        for broker, left in out.items():
            yield _absence(broker, left, None, last.gaps, end_ms)


def _seen(state: State, last: _Seen | None) -> _Seen:
    if last is None:
        return _Seen(state, state.was_isr, 0)
    steps = state.noted.version - last.state.noted.version
    follows = last.state.noted.isr if steps == 1 else None
    return _Seen(state, follows if state.was_isr is None else state.was_isr, last.gaps + (steps > 1))


def _end(broker: int, seen: _Seen, last: _Seen, *, again: bool) -> _End | None:
    """How the absence that lasts when a state begins ends in it, or with it; None where it goes on."""
    state, known_ms = seen.state, last.state.began_ms
    began, event = state.began_ms, state.noted.event
    if again:
        return _End(began, BY_UNSEEN_RETURN, known_ms, event, last.gaps)
    is_in = seen.is_in(broker)
    was_in = None if seen.before is None else broker in seen.before
    if is_in and was_in is False:
        return _End(began, BY_RETURN, began, event, seen.gaps)
    if is_in or was_in:
        return _End(began, BY_UNSEEN_RETURN, known_ms, event, seen.gaps)
    if state.noted.isr is not None and seen.moves(broker):
        return _End(began, BY_REASSIGNMENT, began if was_in is False else known_ms, event, seen.gaps)
    return _with_life(seen)


def _with_life(seen: _Seen) -> _End | None:
    state = seen.state
    if state.ended_ms is None or state.ended_by not in (BY_DELETION, BY_NEW_LIFE):
        return None
    return _End(state.ended_ms, state.ended_by, state.ended_ms, state.noted.event, seen.gaps)


def _absence(broker: int, left: _Seen, end: _End | None, gaps: int, end_ms: int) -> Absence:
    state = left.state
    noted = state.noted
    began = state.began_ms
    back = end is not None and end.by == BY_RETURN
    unseen = end is not None and end.by == BY_UNSEEN_RETURN
    until = max(end_ms, began) if end is None else end.known_ms
    return Absence(
        noted.topic,
        noted.partition,
        broker,
        state.life,
        began,
        end.ms if end is not None and back else None,
        None if end is None else end.ms,
        until - began,
        end is None,
        None if end is None else end.by,
        gaps == left.gaps and not unseen,
        noted.event,
        noted.why,
        end.event if end is not None and back else None,
    )


HOUR_MS = 3_600_000
FELL_BEHIND = "isr_shrink"
"""The event by which a leader takes out a replica that is behind for longer than replica.lag.time.max.ms."""


def flapping(found: Iterable[Absence]) -> list[tuple[object, ...]]:
    """Rows of table `isr_flapping`, of all absences of some partitions."""
    replicas: dict[tuple[str, int, int], list[Absence]] = {}
    for each in found:
        replicas.setdefault((each.topic, each.partition, each.broker), []).append(each)
    return [(*replica, *_told(own)) for replica, own in replicas.items()]


def _told(own: list[Absence]) -> tuple[int, ...]:
    left = sorted(each.left_ms for each in own)
    return (
        len(own),
        sum(each.left_by == FELL_BEHIND for each in own),
        sum(each.ended_by in (BY_RETURN, BY_UNSEEN_RETURN) for each in own),
        max(bisect_right(left, last) - bisect_left(left, last - HOUR_MS) for last in left),
        sum(each.out_ms for each in own),
        max(each.out_ms for each in own),
    )
