"""What the tables of `cluster-history` are to hold, told again in plain Python: each partition's states in turn.

It shares no code with the job but the record.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pyarrow.parquet as pq

from regency.history.records import Decision

Key = tuple[str, int, int]
"""Topic, partition, life."""


@dataclass
class State:
    """A state of a partition, and from when to when."""

    decision: Decision
    began: int
    ended: int | None = None
    ended_by: str | None = None

    @property
    def leader(self) -> int:
        assert self.decision.leader is not None
        return self.decision.leader

    @property
    def isr(self) -> set[int]:
        return set(self.decision.isr or ())

    @property
    def version(self) -> int:
        assert self.decision.version is not None
        return self.decision.version

    @property
    def isr_said_before(self) -> set[int] | None:
        found = re.search(r"isr \[([\d, ]*)\]", self.decision.from_)
        return None if found is None else _numbers(found[1])

    @property
    def leader_said_before(self) -> int | None:
        if self.decision.role == "agent":
            return self.leader
        found = re.match(r"leader (-?\d+),", self.decision.from_)
        return None if found is None else int(found[1])

    @property
    def replicas_said(self) -> set[int] | None:
        why = self.decision.why
        if why.startswith("replicas ["):
            return _numbers(why[10 : why.index("]")])
        if why.startswith("from ["):
            _, target, _, removing = re.findall(r"\[([\d, ]*)\]", why)
            return _numbers(target) | _numbers(removing)
        found = re.search(r"replica of \[([\d, ]*)\]", why)
        return None if found is None else _numbers(found[1])

    def keeps(self, broker: int) -> bool:
        """Whether who left the ISR by it is a replica still."""
        if self.replicas_said is None:
            return self.decision.event not in ("partition_reassignment", "alter_reassignments")
        return broker in self.replicas_said


@dataclass
class Absence:
    """A replica out of the ISR. `out_until`: until when it is known to be out."""

    key: Key
    broker: int
    left: int
    by: str
    whole: bool = True
    out_until: int = 0
    ended: int | None = None
    ended_by: str | None = None
    back_by: str | None = None


class Reference:
    """Tables as lists of rows, of decisions some of which may be given twice."""

    def __init__(self, decisions: Iterable[Decision]) -> None:
        self.decisions = list(dict.fromkeys(decisions))
        self._at = _times(self.decisions)
        self._ordered = sorted(self.decisions, key=self._merged)
        self.end = max(self._at.values())
        self.lives = self._lives()
        for (topic, partition, life), states in self.lives.items():
            following = self.lives.get((topic, partition, life + 1))
            self._end_states(topic, states, None if following is None else following[0].began)

    def _merged(self, each: Decision) -> tuple[int, int, str, int, int]:
        return each.controller_epoch, self._at[each], each.role, each.source, each.number

    def _lives(self) -> dict[Key, list[State]]:
        lives: dict[Key, list[State]] = defaultdict(list)
        life: Counter[tuple[str, int]] = Counter()
        for each in self._ordered:
            about = re.fullmatch(r"(.*)-([0-9]+)", each.subject)
            if each.version is None or each.leader is None or about is None:
                continue
            partition = about[1], int(about[2])
            life[partition] += each.version == 0
            lives[*partition, max(1, life[partition])].append(State(each, self._at[each]))
        latest: dict[tuple[str, int], int] = {}
        for key in sorted(lives):
            lives[key].sort(key=lambda state: state.version)
            for state in lives[key]:
                state.began = latest[key[:2]] = max(state.began, latest.get(key[:2], 0))
        return lives

    def _end_states(self, topic: str, states: list[State], next_life: int | None) -> None:
        for number, state in enumerate(states):
            last = number + 1 == len(states)
            state.ended = next_life if last else states[number + 1].began
            state.ended_by = None if state.ended is None else "new life" if last else "next state"
            order = self._ordered.index(state.decision)
            for each in self._ordered[order + 1 :]:
                if each.subject != f"topic {topic}" or each.to not in ("to be deleted", "gone"):
                    continue
                if each.to == "to be deleted" and self._is_taken_back(each):
                    continue
                if state.began <= self._at[each] and (state.ended is None or self._at[each] <= state.ended):
                    state.ended, state.ended_by = self._at[each], "deletion"
                break

    def _is_taken_back(self, order: Decision) -> bool:
        for each in self._ordered[self._ordered.index(order) + 1 :]:
            if each.subject == order.subject and each.to in ("to be deleted", "not to be deleted", "gone"):
                return each.to == "not to be deleted"
        return False

    def states(self) -> list[tuple[object, ...]]:
        """Of table `states`: topic, partition, life, place, version, began_ms, ended_ms, ended_by."""
        return [
            (*key, place, state.version, state.began, state.ended, state.ended_by)
            for key, states in self.lives.items()
            for place, state in enumerate(states, 1)
        ]

    def found_absences(self) -> Iterator[Absence]:
        """Each replica that left, by walking through its partition's states."""
        for key, states in self.lives.items():
            out: dict[int, Absence] = {}
            before: State | None = None
            for state in states:
                follows = before is not None and state.version == before.version + 1
                was = state.isr_said_before
                if was is None and follows and before is not None:
                    was = before.isr
                for broker, absence in list(out.items()):
                    absence.whole &= before is None or state.version <= before.version + 1
                    how = _how_it_ends(broker, state, was)
                    if how is None:
                        continue
                    absence.ended, absence.ended_by = state.began, how
                    if was is not None and broker not in was:
                        absence.out_until = state.began
                    absence.back_by = state.decision.event if how == "return" else None
                    absence.whole &= how != "unrecorded return"
                    yield out.pop(broker)
                for broker in sorted((was or set()) - state.isr):
                    if state.keeps(broker):
                        out[broker] = Absence(key, broker, state.began, state.decision.event)
                for broker, absence in list(out.items()):
                    absence.out_until = state.began
                    if state.ended is not None and state.ended_by in ("deletion", "new life"):
                        absence.ended, absence.ended_by, absence.out_until = state.ended, state.ended_by, state.ended
                        yield out.pop(broker)
                before = state
            for absence in out.values():
                absence.out_until = self.end
                yield absence

    def absences(self) -> list[tuple[object, ...]]:
        return [
            (
                *each.key,
                each.broker,
                each.left,
                each.ended if each.ended_by == "return" else None,
                each.ended,
                each.out_until - each.left,
                each.ended is None,
                each.ended_by,
                each.whole,
                each.by,
                each.back_by,
            )
            for each in self.found_absences()
        ]

    def flapping(self) -> list[tuple[object, ...]]:
        replicas: dict[tuple[str, int, int], list[Absence]] = defaultdict(list)
        for each in self.found_absences():
            replicas[each.key[0], each.key[1], each.broker].append(each)
        return [
            (
                *replica,
                len(those),
                sum(each.by == "isr_shrink" for each in those),
                sum(each.ended_by in ("return", "unrecorded return") for each in those),
                max(sum(0 <= each.left - other.left <= 3_600_000 for other in those) for each in those),
                sum(each.out_until - each.left for each in those),
                max(each.out_until - each.left for each in those),
            )
            for replica, those in replicas.items()
        ]

    def behind(self) -> list[tuple[object, ...]]:
        """Of table `brokers`, of those that left an ISR: broker, left_isr, fell_behind, and the three of behind_..."""
        brokers: dict[int, list[Absence]] = defaultdict(list)
        for each in self.found_absences():
            brokers[each.broker].append(each)
        rows: list[tuple[object, ...]] = []
        for broker, those in brokers.items():
            slow = [each for each in those if each.by == "isr_shrink"]
            out = [each.out_until - each.left for each in slow]
            sure = [each.out_until - each.left for each in slow if each.ended_by != "unrecorded return"]
            middle = float(median(sure)) if sure else None
            rows.append((broker, len(those), len(slow), sum(out), middle, max(out, default=None)))
        return rows

    def leaderless(self) -> list[tuple[object, ...]]:
        """Of table `leaderless`: topic, partition, life, broker, began_ms, ended_ms, ms, open."""
        rows: list[tuple[object, ...]] = []
        for key, states in self.lives.items():
            since: int | None = None
            led: int | None = None
            ended: int | None = None
            for state, following in zip(states, [*states[1:], None], strict=True):
                if since is not None and state.leader != -1:
                    rows.append(self._interval(key, led, since, ended))
                    since = None
                noticed = None if state.leader == -1 or following is None else self._noticed(state, following)
                if state.leader == -1 and since is None:
                    since, led = state.began, state.leader_said_before
                elif noticed is not None:
                    assert state.ended is not None
                    since, led = max(state.began, min(noticed, state.ended)), state.leader
                ended = state.ended
            if since is not None:
                rows.append(self._interval(key, led, since, ended))
        return rows

    def _interval(self, key: Key, led: int | None, began: int, ended: int | None) -> tuple[object, ...]:
        until = max(began, self.end) if ended is None else ended
        return (*key, None if led == -1 else led, began, ended, until - began, ended is None)

    def _noticed(self, state: State, following: State) -> int | None:
        """When a controller found that the leader of a state was dead, because of which it wrote the next one."""
        by = following.decision
        if by.role != "controller" or (
            following.leader == state.leader and (by.leader_epoch or 0) <= (state.decision.leader_epoch or 0)
        ):
            return None
        found: int | None = None
        for each in self._ordered:
            if each.role != "controller" or each.controller_epoch != by.controller_epoch or each.number >= by.number:
                continue
            if each.subject == f"broker {state.leader}":
                found = self._at[each] if each.to == "dead" else None if each.to.startswith("live, epoch") else found
        if by.event == "failover":
            unseen = found is not None or state.leader not in following.isr or following.leader == state.leader
            won = [
                self._at[each]
                for each in self.decisions
                if each.subject == "controller"
                and each.from_ == "a candidate"
                and each.controller_epoch == by.controller_epoch
            ]
            return min(won) if unseen and won else found
        return found


def check_tables(directory: Path, reference: Reference) -> None:
    """Fails where what the job has written differs from the reference. Reads the files without Spark."""
    columns = "topic partition life place version began_ms ended_ms ended_by"
    assert rows_of(directory / "states", columns) == _sorted(reference.states())
    columns = "topic partition life broker left_ms back_ms ended_ms out_ms open ended_by complete left_by back_by"
    assert rows_of(directory / "isr_absences", columns) == _sorted(reference.absences())
    columns = "topic partition broker left fell_behind came_back most_in_an_hour out_ms longest_ms"
    assert rows_of(directory / "isr_flapping", columns) == _sorted(reference.flapping())
    columns = "topic partition life broker began_ms ended_ms ms open"
    assert rows_of(directory / "leaderless", columns) == _sorted(reference.leaderless())
    columns = "broker left_isr fell_behind behind_ms behind_median_ms behind_longest_ms"
    behind = [row for row in rows_of(directory / "brokers", columns) if row[1]]
    assert behind == _sorted(reference.behind())


def rows_of(table: Path, columns: str) -> list[tuple[object, ...]]:
    names = columns.split()
    return _sorted(tuple(row[name] for name in names) for row in pq.read_table(table, columns=names).to_pylist())


def _sorted(rows: Iterable[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(rows, key=lambda row: [(value is not None, str(value)) for value in row])


def _how_it_ends(broker: int, state: State, was: set[int] | None) -> str | None:
    """By which a replica that was out when last seen is so no more; `was`: the ISR before, where it is known."""
    if was is not None and broker in was:
        return "unrecorded return"
    if broker in state.isr:
        return "return" if was is not None else "unrecorded return"
    if state.replicas_said is not None and broker not in state.replicas_said:
        return "reassignment"
    return None


def _times(decisions: Iterable[Decision]) -> dict[Decision, int]:
    deciders: dict[tuple[str, int, int], list[Decision]] = defaultdict(list)
    for each in decisions:
        deciders[each.role, each.source, each.controller_epoch].append(each)
    at: dict[Decision, int] = {}
    for own in deciders.values():
        ordered = len({each.number for each in own}) == len(own)
        latest = 0
        for each in sorted(own, key=lambda each: each.number):
            latest = max(latest, each.time_ms)
            at[each] = latest if ordered else each.time_ms
    return at


def _numbers(text: str) -> set[int]:
    return {int(each) for each in text.split(",") if each.strip()}
