"""Finds the desired content of whole topics, each distinct one as one value. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regency.controller.channel.rows import Rows
from regency.controller.state.context import ControllerContext
from regency.controller.state.states import ReplicaState
from regency.controller.state.topic_entry import ReplicaStates, TopicEntry
from regency.model.facts import LeaderIsrAndControllerEpoch, ReplicaAssignment
from regency.model.ids import BrokerId

_Identities = tuple[int, ...]


class RowPool:
    """Made for one look at a context that does not change meanwhile: facts are compared by identity.

    That is quick, and finds nearly all that is equal, because the context shares what it holds.
    """

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._known: dict[tuple[object, ...], Rows] = {}
        self._of_brokers: dict[tuple[_Identities, ...], Mapping[BrokerId, Rows]] = {}
        self._of_all: dict[tuple[_Identities, ...], Rows] = {}
        self._online: dict[int, tuple[BrokerId, ...]] = {}
        self._offline: dict[int, tuple[BrokerId, ...]] = {}

    def of_brokers(self, entry: TopicEntry) -> Mapping[BrokerId, Rows]:
        """What each broker shall host of a topic: the partitions with a leadership its replica of is Online."""
        key = (*_identities(entry), tuple(map(id, entry.replica_states)))
        found = self._of_brokers.get(key)
        if found is None:
            indexes: dict[BrokerId, list[int]] = {}
            for number, states in enumerate(entry.replica_states):
                if entry.leadership[number] is not None:
                    for broker in self._online_of(states):
                        indexes.setdefault(broker, []).append(number)
            found = self._of_brokers[key] = {broker: self.of_some(entry, own) for broker, own in indexes.items()}
        return found

    def of_all(self, entry: TopicEntry) -> Rows:
        """What metadata has of a topic, for all brokers."""
        key = _identities(entry)
        rows = self._of_all.get(key)
        if rows is None:
            rows = self.of_some(entry, range(len(entry.names)), offline=True)
            if not self._context.offline_replicas:
                self._of_all[key] = rows
        return rows

    def of_some(self, entry: TopicEntry, numbers: Sequence[int], *, offline: bool = False) -> Rows:
        """The content of those of these partitions that have a leadership, in order; with `offline` also who is."""
        leaderships: list[LeaderIsrAndControllerEpoch] = []
        assignments: list[ReplicaAssignment] = []
        told = []
        last = len(entry.names) - 1
        for number in numbers:
            if number > last:
                break  # the topic was created again, with fewer partitions
            leadership, assignment = entry.leadership[number], entry.assignments[number]
            if leadership is not None and assignment is not None:
                told.append(number)
                leaderships.append(leadership)
                assignments.append(assignment)
        gone: Sequence[tuple[BrokerId, ...]] = ()
        if offline and self._context.offline_replicas:
            gone = tuple(self._context.offline(entry.names[number]) for number in told)
        elif offline:
            gone = tuple(map(self._offline_of, assignments))
        if not any(gone):
            gone = ()
        key = (tuple(told), tuple(map(id, leaderships)), tuple(map(id, assignments)), gone)
        rows = self._known.get(key)
        if rows is None:
            rows = self._known[key] = Rows(tuple(told), leaderships, assignments, gone)
        return rows

    def _online_of(self, states: ReplicaStates) -> tuple[BrokerId, ...]:
        online = self._online.get(id(states))
        if online is None:
            online = self._online[id(states)] = tuple(each for each, state in states if state is ReplicaState.ONLINE)
        return online

    def _offline_of(self, assignment: ReplicaAssignment) -> tuple[BrokerId, ...]:
        offline = self._offline.get(id(assignment))
        if offline is None:
            usable = self._context.usable
            offline = tuple(each for each in assignment.replicas if each not in usable)
            self._offline[id(assignment)] = offline
        return offline


def _identities(entry: TopicEntry) -> tuple[_Identities, _Identities]:
    return tuple(map(id, entry.leadership)), tuple(map(id, entry.assignments))
