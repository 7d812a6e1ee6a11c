"""What must hold of consumer groups, whatever befalls their coordinators: of commits and what readers see of them, of
generations and their assignments, and of members' sessions.

Commits are judged at the end, all else at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

from regency.broker_agent.groups.api import Caller
from regency.kafka.groups.placement import OFFSETS_TOPIC, partition_of
from regency.model import znodes
from regency.model.ids import TopicPartition, ZkVersion
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths as znode_paths
from simulation.cluster.agent import SimAgent
from simulation.judging.facts import Facts
from simulation.judging.invariants import broken
from simulation.judging.picture import Committed

NOTHING: Final = -1
"""Committed where nothing is."""

NOT_WRITTEN: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    }
)
"""Answers which say that a commit was not even tried."""

SURE: Final = 0.75
"""By the fastest clock a session lasts this share of its time."""

_Key = tuple[str, TopicPartition]


class Commit:
    """A commit of one offset. Times in virtual microseconds; it ends never where nobody knows what became of it."""

    __slots__ = ("began_us", "ended_us", "offset", "refused")

    def __init__(self, offset: int, began_us: int) -> None:
        self.offset = offset
        self.began_us = began_us
        self.ended_us: float = math.inf
        self.refused = False

    def answered(self, error: ErrorCode, at_us: int) -> None:
        """What its client was told."""
        if error is ErrorCode.NONE:
            self.ended_us = at_us
        self.refused = error in NOT_WRITTEN


class _Value:
    """What happened to one value: its commit, and the reads that brought it."""

    __slots__ = ("first_end_us", "last_begin_us", "offset", "reads")

    def __init__(self, offset: int, began_us: float, ended_us: float) -> None:
        self.offset = offset
        self.first_end_us = ended_us
        self.last_begin_us = began_us
        self.reads = 0

    def read(self, began_us: int, ended_us: int) -> None:
        self.reads += 1
        self.first_end_us = min(self.first_end_us, ended_us)
        self.last_begin_us = max(self.last_begin_us, began_us)


class GroupRules:
    """Judges groups. `count` is how many partitions their topic has."""

    def __init__(self, zookeeper: Committed, facts: Facts, count: int) -> None:
        self.gone_topics: set[str] = set()
        """Topics that were deleted at some time: offsets of them go."""
        self._zookeeper = zookeeper
        self._facts = facts
        self._count = count
        self._offsets: dict[_Key, int] = {}
        self._commits: dict[_Key, list[Commit]] = {}
        self._reads: dict[_Key, list[tuple[int, int, int]]] = {}
        self._generations: dict[tuple[str, int], dict[str, frozenset[TopicPartition]]] = {}
        self._made: dict[tuple[str, int], list[Mapping[str, frozenset[TopicPartition]]]] = {}
        """What leaders have sent off, by instance or member."""
        self._newest: dict[str, tuple[int, int]] = {}
        """The last generation that somebody was assigned something in, and since when, by group."""
        self._alive: dict[tuple[str, str], tuple[int, int]] = {}

    # Who answers

    def is_rightful(self, agent: SimAgent, group_id: str) -> bool:
        """Whether ZooKeeper has the agent lead the group's partition, in the epoch in which it serves the group."""
        parts = agent.parts
        led = None if parts is None else parts.groups._led.get(partition_of(group_id, self._count))
        if led is None:
            return False
        path = znode_paths.partition_state(led.partition)
        held = self._zookeeper.read(path)
        if held is None:
            return False
        state = znodes.decode_state(path, held.data, zk_version=ZkVersion(held.stat.version)).leader_and_isr
        return state.leader == agent.broker_id and state.leader_epoch == led.epoch

    def home(self, group_id: str) -> TopicPartition:
        """Where the group is kept."""
        return TopicPartition(OFFSETS_TOPIC, partition_of(group_id, self._count))

    # Commits

    def commits(self, group_id: str, partition: TopicPartition, now_us: int) -> Commit:
        """A member is about to commit the next offset of a partition; nobody commits it a second time."""
        key = (group_id, partition)
        offset = self._offsets[key] = self._offsets.get(key, 0) + 1
        commit = Commit(offset, now_us)
        self._commits.setdefault(key, []).append(commit)
        return commit

    def read(self, group_id: str, partition: TopicPartition, offset: int, began_us: int, now_us: int) -> None:
        """Who leads the group's partition has told what is committed."""
        self._reads.setdefault((group_id, partition), []).append((offset, began_us, now_us))

    def check_commits(self) -> None:
        """Every partition's commits and reads fit one order. Raises InvariantBroken."""
        for key, reads in sorted(self._reads.items()):
            group_id, partition = key
            if partition.topic not in self.gone_topics and not self._facts.excused(self.home(group_id)):
                _check_order(f"{group_id}: {partition}", self._commits.get(key, ()), reads)

    def deleted(self, group_id: str, held: int) -> None:
        """So many offsets are there of a group that was deleted, as who leads tells. Raises InvariantBroken."""
        if held and not self._facts.excused(self.home(group_id)):
            raise broken("commits-kept", f"{group_id} was deleted, and has {held} offsets")

    # Generations

    def made(self, group_id: str, generation: int, shares: Mapping[str, Iterable[TopicPartition]]) -> None:
        """The leader of a generation is about to assign partitions, by instance or member; it may do so again."""
        made = {name: frozenset(share) for name, share in shares.items()}
        self._made.setdefault((group_id, generation), []).append(made)

    def assigned(
        self, group_id: str, caller: Caller, made_in: int, partitions: Iterable[TopicPartition], now_us: int
    ) -> None:
        """A member has got its assignment, which its leader has made in a generation. Raises InvariantBroken."""
        generation, owned = caller.generation, frozenset(partitions)
        if self._facts.excused(self.home(group_id)):
            return
        if generation > self._newest.get(group_id, (-1, 0))[0]:
            self._newest[group_id] = generation, now_us
        who = f"{caller.member_id} of generation {generation} of {group_id}"
        if owned and made_in != generation:
            raise broken("one-assignment-per-generation", f"{who} gets what was made in generation {made_in}")
        members = self._generations.setdefault((group_id, generation), {})
        name = caller.instance_id or caller.member_id
        meant = [each[name] for each in self._made.get((group_id, generation), ()) if name in each]
        if meant and owned not in meant:
            raise broken(
                "one-assignment-per-generation", f"{who} gets {_told(owned)}, and was assigned {_told(meant[-1])}"
            )
        before = members.setdefault(name, owned)
        if before != owned:
            raise broken("one-assignment-per-generation", f"{who} gets {_told(owned)}, and got {_told(before)}")
        for other, theirs in members.items():
            if other != name and theirs & owned:
                raise broken("owned-once", f"{who} gets {_told(theirs & owned)}, which {other} has")

    def taken(self, group_id: str, caller: Caller, began_us: int) -> None:
        """Who leads has taken what a member asked then, or keeps it for alive. Raises InvariantBroken."""
        newest, since_us = self._newest.get(group_id, (-1, 0))
        if caller.generation < newest and since_us < began_us and not self._facts.excused(self.home(group_id)):
            raise broken(
                "old-generations-refused",
                f"{caller.member_id} of generation {caller.generation} of {group_id} is not told that {newest} began",
            )

    def fenced(self, group_id: str, caller: Caller) -> None:
        """Who leads takes another one for the member, which is the only one of its name. Raises InvariantBroken."""
        if not self._facts.excused(self.home(group_id)):
            raise broken("sessions-kept", f"{caller.member_id} of {group_id} is fenced, as if it had a successor")

    def replaced(self, group_id: str, caller: Caller, answers: Iterable[ErrorCode]) -> None:
        """What who leads has told a static member, in whose place another one has got its assignment. Raises
        InvariantBroken.
        """
        wrong = [error.name for error in answers if error is not ErrorCode.FENCED_INSTANCE_ID]
        if wrong and not self._facts.excused(self.home(group_id)):
            raise broken(
                "replaced-are-fenced", f"{caller.member_id} of {group_id} is told {wrong[0]}, and has a successor"
            )

    # Sessions

    def lives(self, group_id: str, caller: Caller, since_us: int, within_ms: int) -> None:
        """A heartbeat sent then was answered well by who leads; so long the member need not be heard of."""
        self._alive[group_id, caller.member_id] = since_us, within_ms

    def moves(self, group_id: str, member_id: str) -> None:
        """The member leaves, or joins again."""
        self._alive.pop((group_id, member_id), None)

    def unknown(self, group_id: str, caller: Caller, error: ErrorCode, now_us: int) -> None:
        """Who leads does not know the member, or its generation, any more. Raises InvariantBroken."""
        known = self._alive.pop((group_id, caller.member_id), None)
        if known is None or self._facts.excused(self.home(group_id)):
            return
        since_us, within_ms = known
        if now_us - since_us < within_ms * 1_000 * SURE:
            raise broken(
                "sessions-kept",
                f"{caller.member_id} of {group_id} is told {error.name} in generation {caller.generation}, "
                f"{(now_us - since_us) // 1_000} ms after a heartbeat that was answered well",
            )


def _check_order(about: str, commits: Iterable[Commit], reads: Iterable[tuple[int, int, int]]) -> None:
    """Whether commits of different values, and reads, can have happened one after another.

    Source: Gibbons and Korach, Testing shared memories (1997). A value whose first end lies before its last begin is
    there in between; two such times must not overlap, and no other value fits wholly into one.
    """
    values = {NOTHING: _Value(NOTHING, -math.inf, -math.inf)}
    begun = {NOTHING: -math.inf}
    for commit in commits:
        if not commit.refused:
            values[commit.offset] = _Value(commit.offset, commit.began_us, commit.ended_us)
            begun[commit.offset] = commit.began_us
    for offset, began_us, ended_us in reads:
        value = values.get(offset)
        if value is None or ended_us < begun[offset]:
            raise broken("commits-kept", f"{about}: {offset} is read, which nobody has committed")
        value.read(began_us, ended_us)
    known = [value for value in values.values() if value.reads or value.first_end_us < math.inf]
    held = [value for value in known if value.first_end_us < value.last_begin_us]
    held.sort(key=lambda value: value.first_end_us)
    for one, next_one in pairwise(held):
        if next_one.first_end_us < one.last_begin_us:
            raise broken("commits-kept", _both(about, one, next_one))
    passing = (value for value in known if value.first_end_us >= value.last_begin_us)
    for value in passing:
        for one in held:
            if one.first_end_us < value.last_begin_us and value.first_end_us < one.last_begin_us:
                raise broken("commits-kept", _both(about, one, value))


def _both(about: str, one: _Value, other: _Value) -> str:
    lasts = f"from {_seconds(one.first_end_us)} to {_seconds(one.last_begin_us)}"
    first_us, last_us = sorted((other.first_end_us, other.last_begin_us))
    within = f"from {_seconds(first_us)} to {_seconds(last_us)}"
    return f"{about}: {one.offset} is committed {lasts}, and {other.offset} {within}"


def _seconds(us: float) -> str:
    return f"{us / 1_000_000:.6f} s" if math.isfinite(us) else "the beginning"


def _told(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "nothing"
