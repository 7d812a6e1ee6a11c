"""Sorts a history into partitions, one part for each life of a topic, and says what befell each. Decides nothing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import TypeVar

import msgspec

from regency.judge.operations import (
    UNKNOWN,
    Compacted,
    Drained,
    EpochBumped,
    FinalRead,
    HistoryMalformed,
    LeaderChanged,
    ListedEnd,
    LogStartMoved,
    LossyCrash,
    Operation,
    Outcome,
    Poll,
    Recreated,
    Seek,
    Send,
    UncleanElection,
)
from regency.judge.table import Allowance, Configuration, Facts, allowance_of
from regency.model.ids import TopicPartition

Numbered = TypeVar("Numbered", Send, Poll | Seek)
Session = tuple[str, int]
Configurations = Configuration | Sequence[Configuration]
"""Those of the producers that write to a topic: one for all, or each that there is."""


class Part:
    """One life of one partition: all that was done to it. Filled by `split`, then read only."""

    def __init__(self, topic: str, partition: int, topic_id: str) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.sends: dict[Session, list[Send]] = {}
        """By client and producer session, in order of `number`."""
        self.loose: set[int] = set()
        """Values whose sends may have gone to another life of the topic; they stand in `sends` as indeterminate."""
        self.polls: dict[Session, list[Poll | Seek]] = {}
        """By client and consumer session, in order of `number`."""
        self.ends: list[ListedEnd] = []
        self.compacted = False
        """Whether records may go that have a later one of their key."""
        self.final: FinalRead | None = None
        self.claims_complete = False
        """Whether this is the last life in a history that claims to have all that is to be judged by."""
        self.drained = False
        """Whether this is the last life in a history with `Drained`."""
        self.drained_sessions: frozenset[Session] = frozenset()
        """Consumer sessions that polled any partition after `Drained`; empty in all but the last life."""
        self._log_starts: list[LogStartMoved] = []
        self._start_times: list[int] = []
        self._start_values: list[int] = []

    @property
    def name(self) -> TopicPartition:
        """The partition, whichever life."""
        return TopicPartition(self.topic, self.partition)

    def enter(self, operation: Send | Poll | Seek | ListedEnd | FinalRead | LogStartMoved) -> None:
        """Add a record of this life."""
        if isinstance(operation, Send):
            self.sends.setdefault((operation.client, operation.session), []).append(operation)
        elif isinstance(operation, Poll | Seek):
            self.polls.setdefault((operation.client, operation.session), []).append(operation)
        elif isinstance(operation, ListedEnd):
            self.ends.append(operation)
        elif isinstance(operation, LogStartMoved):
            self._log_starts.append(operation)
        elif self.final is None:
            if any(after.offset < before.end for before, after in pairwise(operation.runs)):
                raise HistoryMalformed(f"the runs of the final read of {self.name} overlap or go back.")
            self.final = operation
        else:
            raise HistoryMalformed(f"{self.name} has two final reads; a final read is the whole log, once.")

    def close(self) -> None:
        """Put all of it into order, once it is complete. Raises HistoryMalformed where it contradicts itself."""
        self.sends = {session: _ordered(self.sends[session]) for session in sorted(self.sends)}
        self.polls = {session: _ordered(self.polls[session]) for session in sorted(self.polls)}
        start = 0
        for moved in sorted(self._log_starts, key=attrgetter("at_ms", "log_start")):
            start = max(start, moved.log_start)
            self._start_times.append(moved.at_ms)
            self._start_values.append(start)
        for session in self.sends.values():
            for send in session:
                if send.offset >= 0 and send.outcome is not Outcome.ACKNOWLEDGED:
                    raise HistoryMalformed(f"value {send.value} sent to {self.name} is {send.outcome} at an offset.")

    def log_start_by(self, time_ms: int) -> int:
        """The highest log start that is known to have been reached by then."""
        index = bisect_right(self._start_times, time_ms)
        return self._start_values[index - 1] if index else 0


class _Lives:
    """The lives of one topic, in their order."""

    def __init__(self, recreations: list[Recreated]) -> None:
        ordered = sorted(recreations, key=attrgetter("began_ms"))
        self.ids = [each.old_topic_id for each in ordered[:1]] + [each.topic_id for each in ordered] or [""]
        self._began = [each.began_ms for each in ordered]
        self._ended = [each.ended_ms for each in ordered]

    def at(self, began_ms: int, ended_ms: int) -> tuple[int, int]:
        """First and last life that something between the two times may have met."""
        return bisect_right(self._ended, began_ms), bisect_right(self._began, ended_ms)

    def of(self, topic_id: str, began_ms: int, ended_ms: int) -> int | None:
        """The life of an operation that names an id or, without one, lies within one life."""
        if len(self.ids) == 1:
            return 0
        if topic_id:
            if topic_id not in self.ids:
                raise HistoryMalformed(f"topic id {topic_id} is in no re-creation of its topic; known: {self.ids}.")
            return self.ids.index(topic_id)
        first, last = self.at(began_ms, ended_ms)
        return first if first == last else None


class Claims(msgspec.Struct, frozen=True):
    """What a history as a whole says of each of its partitions."""

    complete: bool
    """Whether it has all that is to be judged by: it has `Drained`, or a final read of any partition."""
    drained: bool
    """Whether it has `Drained`."""
    went_on: frozenset[Session]
    """Consumer sessions that polled any partition after the first `Drained`."""


def split(history: Iterable[Operation], claims: Claims | None = None) -> tuple[list[Part], int]:
    """The parts of a history by topic, partition and life, and how many operations could not be placed in one.

    `claims` are those of the history that this is a piece of; None = it is whole. A produce names no topic id, so sends
    are placed by time; what may arrive late (`_may_come_late`) may also appear in every later life.
    """
    recreations: dict[str, list[Recreated]] = {}
    by_partition: dict[tuple[str, int], list[Operation]] = {}
    drained: list[int] = []
    last_polls: dict[Session, int] = {}
    final = False
    for operation in history:
        if isinstance(operation, Recreated):
            recreations.setdefault(operation.topic, []).append(operation)
        elif isinstance(operation, Drained):
            drained.append(operation.at_ms)
        else:
            by_partition.setdefault((operation.topic, operation.partition), []).append(operation)
            if isinstance(operation, Poll):
                session = operation.client, operation.session
                last_polls[session] = max(operation.invoked_ms, last_polls.get(session, operation.invoked_ms))
            final = final or isinstance(operation, FinalRead)
    if claims is None:
        claims = _claims(drained, last_polls, final=final)
    parts: list[Part] = []
    unplaced = 0
    for (topic, partition), operations in sorted(by_partition.items()):
        lives = _Lives(recreations.get(topic, []))
        own = [Part(topic, partition, topic_id) for topic_id in lives.ids]
        unplaced += sum(not _place(operation, own, lives) for operation in operations)
        own[-1].claims_complete = claims.complete
        own[-1].drained = claims.drained
        own[-1].drained_sessions = claims.went_on
        for part in own:
            part.close()
        parts += own
    return parts, unplaced


def _claims(drained: list[int], last_polls: Mapping[Session, int], *, final: bool) -> Claims:
    since_ms = min(drained, default=None)
    went_on = (session for session, last_ms in last_polls.items() if since_ms is not None and last_ms >= since_ms)
    return Claims(complete=final or since_ms is not None, drained=since_ms is not None, went_on=frozenset(went_on))


def _place(operation: Operation, parts: list[Part], lives: _Lives) -> bool:
    """Enter an operation into the life it belongs to; False where that is not known."""
    if isinstance(operation, Send):
        return _place_send(operation, parts, lives)
    if isinstance(operation, Poll | ListedEnd):
        life = lives.of(operation.topic_id, operation.invoked_ms, operation.completed_ms)
    elif isinstance(operation, Seek | LogStartMoved):
        life = lives.of(operation.topic_id, operation.at_ms, operation.at_ms)
    elif isinstance(operation, Compacted):
        for part in parts:
            part.compacted = True
        return True
    elif isinstance(operation, FinalRead):
        life = lives.of(operation.topic_id, operation.completed_ms, operation.completed_ms)
    else:
        return True
    if life is not None:
        parts[life].enter(operation)
    return life is not None


def _place_send(send: Send, parts: list[Part], lives: _Lives) -> bool:
    if len(parts) == 1:
        parts[0].enter(send)
        return True
    first, last = lives.at(send.invoked_ms, send.completed_ms)
    latest = len(parts) - 1 if _may_come_late(send) else last
    is_placed = first == latest or (first == last and send.outcome is Outcome.ACKNOWLEDGED)
    if is_placed:
        parts[first].enter(send)
        first += 1
    maybe = send if send.outcome is Outcome.FAILED else _maybe(send)
    for part in parts[first : latest + 1]:
        part.enter(maybe)
        part.loose.add(send.value)
    return is_placed or send.outcome is not Outcome.ACKNOWLEDGED


def _may_come_late(send: Send) -> bool:
    """Whether a request of it may be carried out after all that the client was told, in whatever has that name by then.

    One that its client has given up is still in a socket of the broker, or on its way there, when the next one is
    acknowledged, and a produce below version 13 names no topic id (KIP-516). No caller waits for one with acks=0.
    """
    if send.outcome is Outcome.ACKNOWLEDGED:
        return send.attempts != 1 or send.acks == 0
    return send.outcome is Outcome.INDETERMINATE


def _maybe(send: Send) -> Send:
    return msgspec.structs.replace(send, outcome=Outcome.INDETERMINATE, offset=UNKNOWN)


def _ordered(operations: list[Numbered]) -> list[Numbered]:
    number: Callable[[Send | Poll | Seek], int] = attrgetter("number")
    numbers = list(map(number, operations))
    ordered = operations if numbers == sorted(numbers) else sorted(operations, key=number)
    if len(set(numbers)) < len(numbers):
        where = f"{ordered[0].client}, session {ordered[0].session}, {ordered[0].topic}-{ordered[0].partition}"
        raise HistoryMalformed(
            f"a number is there twice: {where}. Number what a session does from 0, polls with seeks."
        )
    return ordered


def facts_of(history: Iterable[Operation]) -> dict[TopicPartition, Facts]:
    """What befell each partition that a fact of the history names; for the others `Facts()` holds."""
    facts: dict[TopicPartition, Facts] = {}
    change = msgspec.structs.replace
    for each in history:
        if not isinstance(each, UncleanElection | LossyCrash | LeaderChanged | EpochBumped | Compacted):
            continue
        name = TopicPartition(each.topic, each.partition)
        old = facts.get(name, Facts())
        if isinstance(each, UncleanElection):
            facts[name] = change(old, unclean_elections=old.unclean_elections + 1)
        elif isinstance(each, LeaderChanged):
            facts[name] = change(old, leader_changes=old.leader_changes + 1)
        elif isinstance(each, EpochBumped):
            facts[name] = change(old, epoch_bumps=old.epoch_bumps + 1)
        elif isinstance(each, Compacted):
            facts[name] = change(old, compacted=True)
        else:
            facts[name] = change(
                old,
                lossy_replicas=max(old.lossy_replicas, each.replicas),
                whole_isr_lossy=old.whole_isr_lossy or each.replicas >= each.in_sync,
            )
    return facts


def allowed_by_partition(
    history: Iterable[Operation], configurations: Configurations | Mapping[str, Configurations]
) -> dict[TopicPartition, Allowance]:
    """What each partition of the history may show, from its facts and the configurations of all topics or of its own.

    Every producer's configuration is needed: a send with acks and idempotence that none has is allowed nothing.
    Raises HistoryMalformed for a topic without a configuration.
    """
    operations = list(history)
    facts = facts_of(operations)
    names = {
        TopicPartition(each.topic, each.partition) for each in operations if not isinstance(each, Recreated | Drained)
    }
    allowed = {}
    for name in sorted(names):
        own = configurations.get(name.topic) if isinstance(configurations, Mapping) else configurations
        if own is None:
            raise HistoryMalformed(f"topic {name.topic} has no configuration; give one for every topic of the history.")
        wanted = (own,) if isinstance(own, Configuration) else own
        allowed[name] = allowance_of(wanted, facts.get(name, Facts()))
    return allowed
