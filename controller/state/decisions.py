"""What was decided in one event, for the log and for the history. Nothing here changes what is decided.

Formatting waits until the requests are on their way: a failover may decide for a hundred thousand partitions.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

import msgspec

from regency.history.events import Change, Moves, Note, tell
from regency.history.files import HistoryWriter
from regency.history.records import Decision
from regency.model.clock import Clock
from regency.model.facts import LeaderAndIsr
from regency.model.ids import BrokerId, ControllerEpoch, TopicPartition

logger = logging.getLogger(__name__)

LINES_PER_EVENT = 100
"""More decisions of one event than this are logged as one summary."""
REMEMBERED = 100
"""The last decisions, for who looks at the cluster at a glance."""


class Outcome(Enum):
    """What a decision did, in a word for summaries."""

    CREATED = "created"
    ELECTED = "elected"
    LEFT_LEADERLESS = "left without a leader"
    SHRUNK = "out of the ISR"
    FENCED = "with a new leader epoch"
    REASSIGNING = "being reassigned"
    REASSIGNED = "reassigned"


class _Leadership(NamedTuple):
    partition: TopicPartition
    outcome: Outcome
    before: LeaderAndIsr | None
    after: LeaderAndIsr
    why: str


class ToldEvent(NamedTuple):
    """An event of a controller epoch in a sentence; `time_ms`: when it was decided first, since 1970."""

    number: int
    time_ms: int
    told: str


class _Going:
    """What was decided in one event so far. Reading it costs the more the more partitions it has: it waits for that."""

    def __init__(self, number: int, cause: str, time_ms: int) -> None:
        self.number = number
        self.cause = cause
        self.time_ms = time_ms
        self.notes: list[Note] = []
        self.states: dict[TopicPartition, tuple[LeaderAndIsr | None, LeaderAndIsr]] = {}
        self.why: set[str] = set()

    def take(self, decided: Iterable[_Leadership]) -> None:
        """Take in new states; of a partition that has been decided about before, the state before that stays."""
        states = self.states
        for partition, _, before, after, why in decided:
            known = states.get(partition)
            states[partition] = (before if known is None else known[0], after)
            if len(self.why) < 2:
                self.why.add(why)

    def tell(self) -> ToldEvent:
        """Any thread: what is decided meanwhile is in it or not."""
        states = list(self.states.items())
        changes = Counter(_change(*moved) for _, moved in states)
        topics = {partition.topic for partition, _ in states}
        moves = Moves(changes, str(states[0][0]) if states else "", topics, list(self.why), self.cause)
        return ToldEvent(self.number, self.time_ms, tell(list(self.notes), moves))


def _change(before: LeaderAndIsr | None, after: LeaderAndIsr) -> Change:
    if before is None:
        return Change(None, (), after.leader, after.isr)
    return Change(before.leader, before.isr, after.leader, after.isr)


class DecisionLog:
    """Decisions of one controller epoch, numbered from 1. `writer` None: only the log."""

    def __init__(self, writer: HistoryWriter | None, epoch: ControllerEpoch, broker: BrokerId, clock: Clock) -> None:
        self._writer = writer
        self._epoch = epoch
        self.broker = broker
        """Where this controller runs."""
        self._clock = clock
        self._number = 0
        self._event = ""
        self._event_number = 0
        self._pending: list[_Leadership] = []
        self._last: deque[Decision] = deque(maxlen=REMEMBERED)
        self._told: deque[ToldEvent] = deque(maxlen=REMEMBERED)
        self._going: _Going | None = None
        """The last event that decided something; those before it are in `_told`."""

    def last(self, count: int) -> list[Decision]:
        """The last decisions that are recorded, at most so many. Any thread.

        One call copies the deque: no other Python code runs meanwhile, so it never changes under the iteration (which
        would raise). What it holds is immutable.
        """
        return list(self._last)[-count:] if count > 0 else []

    def events(self, count: int) -> list[ToldEvent]:
        """The last events that decided something, at most so many, each in a sentence. Any thread."""
        going, told = self._going, list(self._told)  # in this order: one that ends meanwhile is in both, or in `going`
        if going is not None:
            told = [*(each for each in told if each.number < going.number), going.tell()]
        return told[-count:] if count > 0 else []

    def begin(self, event: str) -> None:
        """What is decided from now on is because of this event."""
        self._event = event
        self._event_number += 1

    def leadership(
        self, partition: TopicPartition, outcome: Outcome, before: LeaderAndIsr | None, after: LeaderAndIsr, why: str
    ) -> None:
        """Note a committed decision about a partition."""
        self._pending.append(_Leadership(partition, outcome, before, after, why))

    def note(self, subject: str, before: str, after: str, why: str) -> None:
        """Record and log a decision about something else than a partition, at once."""
        self.note_each([(subject, before, after, why)])

    def failed_over(self, state: str, phases: tuple[tuple[str, int], ...], why: str) -> None:
        """Record, without a line in the log, that a failover is over, and how long its parts took."""
        if self._writer is not None:
            record = self._record("controller", state, "took over", why, self._clock.wall_ms())
            self._keep([msgspec.structs.replace(record, phases=phases)])
            self._event_now().notes.append(Note("controller", state, "took over", why))

    def note_each(self, decisions: Iterable[tuple[str, str, str, str]]) -> None:
        """Record decisions (subject, before, after, why) about something else than leadership; many as one line."""
        texts = list(decisions)
        if len(texts) > LINES_PER_EVENT:
            counts = Counter(after for _, _, after, _ in texts)
            listed = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
            logger.info("%s decided about %d, such as %s: %s", self._event, len(texts), texts[0][0], listed)
        else:
            for subject, before, after, why in texts:
                logger.info("%s: %s (was %s): %s", subject, after, before, why)
        if texts and self._writer is not None:
            now = self._clock.wall_ms()
            self._keep([self._record(subject, before, after, why, now) for subject, before, after, why in texts])
            self._event_now().notes.extend(Note(*text) for text in texts)

    def commit(self) -> None:
        """Write what was noted since the last commit: a line each, or one block and a summary."""
        pending, self._pending = self._pending, []
        if len(pending) > LINES_PER_EVENT:
            counts = Counter(decision.outcome.value for decision in pending)
            listed = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
            logger.info("%s decided for %d partitions: %s", self._event, len(pending), listed)
        else:
            for decision in pending:
                logger.info("%s", _line(decision))
        if pending and self._writer is not None:
            now = self._clock.wall_ms()
            self._keep([self._record_of(decision, now) for decision in pending])
            self._event_now().take(pending)

    def _event_now(self) -> _Going:
        """The event that goes on. The one before it is put into words by now: it keeps no partitions."""
        going = self._going
        if going is None or going.number != self._event_number:
            if going is not None:
                self._told.append(going.tell())
            self._going = going = _Going(self._event_number, self._event, self._clock.wall_ms())
        return going

    def _keep(self, decided: list[Decision]) -> None:
        assert self._writer is not None, "nothing is recorded without a history"
        self._last.extend(decided[-REMEMBERED:])
        self._writer.write(decided)

    def _record(self, subject: str, before: str, after: str, why: str, now_ms: int) -> Decision:
        self._number += 1
        return Decision(
            self._epoch,
            self._number,
            self._event,
            subject,
            before,
            after,
            why,
            now_ms,
            self.broker,
            event_number=self._event_number,
        )

    def _record_of(self, decision: _Leadership, now_ms: int) -> Decision:
        before = "nothing" if decision.before is None else _describe(decision.before)
        after, partition = decision.after, str(decision.partition)
        return msgspec.structs.replace(
            self._record(partition, before, _describe(after), decision.why, now_ms),
            leader=after.leader,
            isr=after.isr,
            leader_epoch=after.leader_epoch,
            version=after.zk_version,
        )


def _describe(state: LeaderAndIsr) -> str:
    return f"leader {state.leader}, isr {list(state.isr)}, leader epoch {state.leader_epoch}"


def _line(decision: _Leadership) -> str:
    partition, outcome, before, after, why = decision
    was = ""
    if before is not None and before.leader != after.leader:
        was = f" (was {before.leader})" if before.has_leader else " (was none)"
    rest = f"{why}; isr {list(after.isr)}, leader epoch {after.leader_epoch}"
    match outcome:
        case Outcome.CREATED:
            return f"created {partition} with leader {after.leader}: {rest}"
        case Outcome.ELECTED:
            return f"elected {after.leader} for {partition}{was}: {rest}"
        case Outcome.LEFT_LEADERLESS:
            return f"no leader for {partition}{was}: {rest}"
        case Outcome.SHRUNK:
            return f"shrank the ISR of {partition}: {rest}"
        case Outcome.FENCED:
            return f"fenced {partition}: {rest}"
        case Outcome.REASSIGNING:
            return f"reassigning {partition}, leader {after.leader}{was}: {rest}"
        case Outcome.REASSIGNED:
            return f"reassigned {partition}, leader {after.leader}{was}: {rest}"
