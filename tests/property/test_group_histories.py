"""Groups keep their promises, whatever members, the log and the clock do.

Random histories of one coordinator after the other: joins, syncs, heartbeats, departures, commits, deletions, time,
appends that fail, time out or are lost with a change of the leader. Judges (a) to (c) of what is promised: offsets that
were confirmed stay, a generation has one assignment, and no two members of it own the same partition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from group_lab import GROUP, RANGE, REBALANCE_MS, ROUND, SESSION_MS, Call, Lab
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from regency.broker_agent.groups.api import Append, JoinResult, SyncResult
from regency.broker_agent.groups.shard import GroupShard
from regency.kafka.groups.records import OffsetAndMetadata, OffsetKey, read_key, read_offset_value
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode

OWNED = [TopicPartition("t", number) for number in range(4)]
ELSEWHERE = TopicPartition("u", 0)
CLIENTS = 4
BOTH = (RANGE[0], ROUND[0])


class Log:
    """A replicated log: what is appended is confirmed in order; what is not confirmed may be lost with the leader."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.entries: list[Append] = []
        self.confirmed = 0
        self.waiting: set[int] = set()
        self.refuses = False
        self.has_doubts = False
        """An append has failed for its caller and may count all the same."""

    def begin(self, append: Append) -> None:
        if self.refuses:
            self._lab.do(append.done(ErrorCode.NOT_ENOUGH_REPLICAS, self._lab.now_ms))
            return
        self.waiting.add(len(self.entries))
        self.entries.append(append)

    def confirm(self, up_to: int) -> None:
        while self.confirmed < min(up_to, len(self.entries)):
            self.confirmed += 1
            self._end(self.confirmed - 1, ErrorCode.NONE)

    def time_out(self, number: int) -> None:
        if number in self.waiting:
            self.has_doubts = True
            self._end(number, ErrorCode.REQUEST_TIMED_OUT)

    def lose_leader(self, kept: int) -> list[Append]:
        """The next leader has so many of the unconfirmed entries; those who wait are told after it has taken over."""
        lost = [self.entries[number] for number in sorted(self.waiting)]
        self.waiting.clear()
        del self.entries[self.confirmed + kept :]
        self.confirmed = len(self.entries)
        self.has_doubts = False
        return lost

    def _end(self, number: int, error: ErrorCode) -> None:
        if number in self.waiting:
            self.waiting.remove(number)
            self._lab.do(self.entries[number].done(error, self._lab.now_ms))

    def records(self) -> list[tuple[bytes, bytes | None]]:
        return [record for append in self.entries for record in append.records]

    def offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for key, value in self.records():
            about = read_key(key)
            if isinstance(about, OffsetKey):
                found.pop(about.topic_partition, None)
                if value is not None:
                    found[about.topic_partition] = read_offset_value(value)
        return found


class Replicated(Lab):
    """A lab whose appends go to a replicated log."""

    def __init__(self, **kwargs: Any) -> None:
        self.replicated = Log(self)
        super().__init__(**kwargs)

    def begin(self, append: Append) -> None:
        self.replicated.begin(append)


class Client:
    """A member that knows what it was answered last; it may give up a call and repeat it."""

    def __init__(self, instance_id: str | None) -> None:
        self.instance_id = instance_id
        self.forget()

    def forget(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.others: tuple[str, ...] | None = None
        self.joining: Call[JoinResult] | None = None
        self.syncing: Call[SyncResult] | None = None
        self.is_assigned = False


class GroupHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.lab = Replicated(group_max_size=3)
        self.log = self.lab.replicated
        self.clients = [Client(f"i{number}" if number % 2 else None) for number in range(CLIENTS)]
        self.calls: list[Call[Any]] = []
        self.assigned: dict[int, dict[str, bytes]] = {}
        self.next_offset = 0

    # Members

    @rule(number=st.integers(0, CLIENTS - 1), protocols=st.sampled_from([RANGE, BOTH, BOTH]), asks=st.booleans())
    def join(self, number: int, protocols: tuple[tuple[str, bytes], ...], asks: bool) -> None:
        client = self.clients[number]
        client.is_assigned = False
        call = self.lab.join(
            client.member_id,
            client.instance_id,
            protocols=protocols,
            requires_known_member_id=asks and client.instance_id is None,
        )
        client.joining = self.note(call)

    @rule(number=st.integers(0, CLIENTS - 1), turn=st.integers(0, 3))
    def sync(self, number: int, turn: int) -> None:
        client = self.clients[number]
        assignments: dict[str, bytes] = {}
        for place, member_id in enumerate(client.others or ()):
            owned = [each for each in OWNED if (each.partition + turn) % len(client.others or ()) == place]
            assignments[member_id] = bytes([each.partition for each in owned])
        call = self.lab.sync(client.member_id, client.generation, assignments, instance_id=client.instance_id)
        client.syncing = self.note(call)

    @rule(number=st.integers(0, CLIENTS - 1))
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        error = self.lab.heartbeat(client.member_id, client.generation, instance_id=client.instance_id)
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.forget()

    @rule(number=st.integers(0, CLIENTS - 1), by_instance=st.booleans())
    def leave(self, number: int, by_instance: bool) -> None:
        client = self.clients[number]
        member_id = "" if by_instance and client.instance_id else client.member_id
        self.lab.leave((member_id, client.instance_id))

    @rule(number=st.integers(0, CLIENTS - 1))
    def start_again(self, number: int) -> None:
        self.clients[number].forget()

    # Offsets

    @rule(number=st.integers(0, CLIENTS - 1), partition=st.sampled_from([*OWNED, ELSEWHERE]), simple=st.booleans())
    def commit(self, number: int, partition: TopicPartition, simple: bool) -> None:
        client = self.clients[number]
        self.next_offset += 1
        if simple:
            self.note(self.lab.commit({partition: self.next_offset}))
        else:
            offsets = {partition: self.next_offset}
            self.note(self.lab.commit(offsets, client.member_id, client.generation, instance_id=client.instance_id))

    @rule(partition=st.sampled_from([*OWNED, ELSEWHERE]))
    def delete_offsets(self, partition: TopicPartition) -> None:
        self.note(self.lab.delete_offsets(partition))

    @rule()
    def delete(self) -> None:
        self.note(self.lab.delete())

    @rule(topic=st.sampled_from(["t", "u"]))
    def topic_gone(self, topic: str) -> None:
        self.lab.topics_gone(topic)

    @rule(days=st.sampled_from([0, 8]))
    def expire(self, days: int) -> None:
        self.lab.clock.advance(days * 86_400_000)
        self.lab.do(self.lab.shard.on_time(self.lab.now_ms))
        self.lab.expire()

    # The world

    @rule(milliseconds=st.sampled_from([1, 3_000, SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
    def pass_time(self, milliseconds: int) -> None:
        self.lab.pass_time(milliseconds)

    @rule(entries=st.integers(1, 5))
    def confirm(self, entries: int) -> None:
        self.log.confirm(self.log.confirmed + entries)

    @rule()
    def confirm_all(self) -> None:
        self.log.confirm(len(self.log.entries))

    @rule(back=st.integers(1, 3))
    def time_out(self, back: int) -> None:
        self.log.time_out(len(self.log.entries) - back)

    @precondition(lambda self: not self.log.refuses)
    @rule()
    def refuse(self) -> None:
        self.log.refuses = True

    @precondition(lambda self: self.log.refuses)
    @rule()
    def accept(self) -> None:
        self.log.refuses = False

    @rule(kept=st.integers(0, 4))
    def move(self, kept: int) -> None:
        self.lab.do(self.lab.shard.unload())
        lost = self.log.lose_leader(kept)
        self.lab.take_over(self.log.records())
        for append in lost:
            self.lab.do(append.done(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.lab.now_ms))
        assert self.stored_offsets(self.lab.shard) == self.log.offsets()

    # What must hold

    def note(self, call: Call[Any]) -> Call[Any]:
        self.calls.append(call)
        return call

    @invariant()
    def answers_are_taken_in(self) -> None:
        group = self.lab.shard._groups.get(GROUP)
        if group is None or group.generation == 0:
            self.assigned.clear()  # the next generation is the first one of another group
        for client in self.clients:
            self.take_join(client)
            self.take_sync(client)

    def take_join(self, client: Client) -> None:
        if client.joining is None or client.joining.is_waiting:
            return
        result, client.joining = client.joining.result, None
        if result.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            client.member_id, client.generation = result.member_id, result.generation
            client.others = tuple(member.member_id for member in result.members) or None
            if result.leader == result.member_id and not result.skip_assignment:
                assert client.member_id in (client.others or ())
        elif result.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.forget()

    def take_sync(self, client: Client) -> None:
        if client.syncing is None or client.syncing.is_waiting:
            return
        result, client.syncing = client.syncing.result, None
        if result.error is not ErrorCode.NONE:
            return
        client.is_assigned = True
        owner = client.instance_id or client.member_id
        generation = self.assigned.setdefault(client.generation, {})
        assert generation.setdefault(owner, result.assignment) == result.assignment, "one generation, two assignments"
        owned = [partition for each in generation.values() for partition in each]
        assert len(owned) == len(set(owned)), f"a partition has two owners in generation {client.generation}"

    @invariant()
    def numbers_are_right(self) -> None:
        groups = self.lab.shard._groups.values()
        assert sum(self.lab.shard.states.values()) == len(groups)
        assert self.lab.shard.offset_count == sum(len(group.offsets) for group in groups)
        for group in groups:
            members = group.members
            assert members.joining == sum(member.parked_join is not None for member in members)
            assert (members.leader in members) == bool(members)
            assert set(group._owing_sync) <= set(members.ids)
            assert len(members) <= 3 or group.state.value == "PreparingRebalance"

    @invariant()
    def what_is_confirmed_is_what_a_successor_finds(self) -> None:
        if self.log.waiting or self.log.has_doubts or self.log.refuses:
            return
        assert self.stored_offsets(self.lab.shard) == self.log.offsets()
        if self.lab.state() == "Stable":
            successor = self.lab.new_shard()
            for key, value in self.log.records():
                successor.load(key, value)
            assert sorted(successor.describe(GROUP).members, key=by_id) == sorted(
                self.lab.describe().members, key=by_id
            )

    @staticmethod
    def stored_offsets(shard: GroupShard) -> dict[TopicPartition, Any]:
        return dict(shard.fetch_offsets(GROUP, None, False))

    def teardown(self) -> None:
        """When nothing is broken any more, the members agree; and every call is answered, also those of the end."""
        self.log.refuses = False
        for _ in range(30):
            self.log.confirm(len(self.log.entries))
            self.answers_are_taken_in()
            if self.step_towards_stability():
                break
            self.lab.pass_time(3_000)
        else:
            raise AssertionError(f"members do not agree: {self.lab.describe()}")
        self.lab.do(self.lab.shard.unload())
        self.log.confirm(len(self.log.entries))
        assert all(not call.is_waiting for call in self.calls), "a call is never answered"

    def step_towards_stability(self) -> bool:
        """What three real clients would do next; whether they have nothing more to do."""
        members = self.clients[:3]
        if self.clients[3].member_id:
            self.lab.leave((self.clients[3].member_id, self.clients[3].instance_id))
            self.clients[3].forget()
        agreed = self.lab.state() == "Stable" and len(self.lab.member_ids()) == len(members)
        for number, client in enumerate(members):
            if client.joining is not None or client.syncing is not None:
                agreed = False
                continue
            if client.generation < 0:
                agreed = False
                self.join(number, BOTH, True)
                continue
            error = self.lab.heartbeat(client.member_id, client.generation, instance_id=client.instance_id)
            if error is ErrorCode.NONE and client.is_assigned:
                continue
            agreed = False
            if error is ErrorCode.NONE:
                self.sync(number, 0)
            else:
                if error is not ErrorCode.REBALANCE_IN_PROGRESS:
                    client.forget()
                self.join(number, BOTH, True)
        return agreed


by_id: Callable[[Any], str] = lambda member: member.member_id  # noqa: E731

TestGroupHistories = GroupHistory.TestCase
TestGroupHistories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
