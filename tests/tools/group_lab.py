"""A shard of groups with a log, a clock and clients to drive it: for unit tests and for random histories."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec

from regency.broker_agent.groups.api import (
    Append,
    Caller,
    DescribedGroup,
    Effects,
    FetchedOffsets,
    JoinRequest,
    JoinResult,
    LeavingMember,
    OffsetResults,
    Record,
    SyncRequest,
    SyncResult,
)
from regency.broker_agent.groups.context import GroupCounters
from regency.broker_agent.groups.shard import GroupShard
from regency.kafka.groups.records import OffsetAndMetadata
from regency.model.clock import ManualClock
from regency.model.ids import LeaderEpoch, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings

T = TypeVar("T")

GROUP = "group"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000
TP = TopicPartition("t", 0)


def subscription(*topics: str) -> bytes:
    """What a consumer that wants these topics says of itself (version 0)."""
    names = b"".join(struct.pack(f">h{len(topic)}s", len(topic), topic.encode()) for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


RANGE = (("range", subscription("t")),)
ROUND = (("roundrobin", subscription("t")),)


class Call(Generic[T]):
    """A request of which the answer may come later, and comes once."""

    def __init__(self) -> None:
        self.answers: list[T] = []

    def __call__(self, answer: T) -> None:
        self.answers.append(answer)
        assert len(self.answers) == 1, f"answered more than once: {self.answers}"

    @property
    def is_waiting(self) -> bool:
        return not self.answers

    @property
    def result(self) -> T:
        assert self.answers, "not answered"
        return self.answers[0]


class Lab:
    """A coordinator of one partition: effects are carried out at once, but appends wait while `is_holding`.

    `log` is what the log has; an append that fails is in it or not, as the test says.
    """

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.settings = msgspec.structs.replace(BrokerSettings(), group_initial_rebalance_delay_ms=DELAY_MS, **settings)
        self.counters = GroupCounters()
        self.log: list[Record] = []
        self.appended: list[tuple[Record, ...]] = []
        self.held: list[Append] = []
        self.is_holding = False
        self.failing: ErrorCode = ErrorCode.NONE
        self._uuids = 0
        self.shard = self.new_shard()

    def new_shard(self) -> GroupShard:
        return GroupShard(7, self.settings, self._new_uuid, self.clock.wall_ms, self.counters)

    def _new_uuid(self) -> UUID:
        self._uuids += 1
        return UUID(int=self._uuids)

    @property
    def now_ms(self) -> int:
        return self.clock.monotonic_ms()

    # What follows from calls

    def do(self, effects: Effects) -> None:
        for append in effects.appends:
            self.begin(append)
        for answer in effects.answers:
            answer()

    def begin(self, append: Append) -> None:
        """What the log does with an append."""
        self.appended.append(append.records)
        if self.is_holding:
            self.held.append(append)
        else:
            self.finish(append, self.failing, is_kept=self.failing is ErrorCode.NONE)

    def finish(self, append: Append, error: ErrorCode = ErrorCode.NONE, *, is_kept: bool = True) -> None:
        if is_kept:
            self.log += append.records
        self.do(append.done(error, self.now_ms))

    def finish_next(self, error: ErrorCode = ErrorCode.NONE, *, is_kept: bool | None = None) -> None:
        self.finish(self.held.pop(0), error, is_kept=error is ErrorCode.NONE if is_kept is None else is_kept)

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass; what is due on the way happens at its time."""
        end_ms = self.now_ms + milliseconds
        while (due_ms := self.shard.next_deadline_ms) is not None and due_ms <= end_ms:
            self.clock.advance(max(due_ms - self.now_ms, 0))
            self.do(self.shard.on_time(self.now_ms))
        self.clock.advance(end_ms - self.now_ms)

    def reload(self, log: Iterable[Record] | None = None) -> None:
        """Give the partition up and take it over again."""
        self.do(self.shard.unload())
        self.take_over(self.log if log is None else log)

    def take_over(self, log: Iterable[Record]) -> None:
        self.shard = self.new_shard()
        for key, value in log:
            self.shard.load(key, value)
        self.do(self.shard.loaded(self.now_ms))

    # Requests

    def join(
        self,
        member_id: str = "",
        instance_id: str | None = None,
        *,
        group_id: str = GROUP,
        client_id: str = "c",
        protocol_type: str = "consumer",
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        requires_known_member_id: bool = False,
        supports_skipping_assignment: bool = True,
    ) -> Call[JoinResult]:
        call: Call[JoinResult] = Call()
        request = JoinRequest(
            group_id,
            member_id,
            instance_id,
            client_id,
            "/127.0.0.1",
            protocol_type,
            protocols,
            session_ms,
            rebalance_ms,
            requires_known_member_id,
            supports_skipping_assignment,
        )
        self.do(self.shard.join(request, call, self.now_ms))
        return call

    def ask_for_id(self, **kwargs: Any) -> str:
        """First join of a dynamic member, which is only given an id (KIP-394)."""
        result = self.join(requires_known_member_id=True, **kwargs).result
        assert result.error is ErrorCode.MEMBER_ID_REQUIRED
        return result.member_id

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        group_id: str = GROUP,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> Call[SyncResult]:
        call: Call[SyncResult] = Call()
        request = SyncRequest(group_id, member_id, instance_id, generation, protocol_type, protocol, assignments or {})
        self.do(self.shard.sync(request, call, self.now_ms))
        return call

    def heartbeat(
        self, member_id: str, generation: int, *, group_id: str = GROUP, instance_id: str | None = None
    ) -> ErrorCode:
        call: Call[ErrorCode] = Call()
        self.do(self.shard.heartbeat(group_id, Caller(member_id, instance_id, generation), call, self.now_ms))
        return call.result

    def leave(self, *members: str | tuple[str, str | None], group_id: str = GROUP) -> list[ErrorCode]:
        call: Call[list[tuple[LeavingMember, ErrorCode]]] = Call()
        leaving = [LeavingMember(*((each, None) if isinstance(each, str) else each)) for each in members]

        def respond(error: ErrorCode, outcome: list[tuple[LeavingMember, ErrorCode]]) -> None:
            assert error is ErrorCode.NONE
            call(outcome)

        self.do(self.shard.leave(group_id, leaving, respond, self.now_ms))
        assert [each for each, _ in call.result] == leaving
        return [error for _, error in call.result]

    def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        member_id: str = "",
        generation: int = -1,
        *,
        group_id: str = GROUP,
        instance_id: str | None = None,
    ) -> Call[OffsetResults]:
        call: Call[OffsetResults] = Call()
        values = {
            partition: self.offset(value) if isinstance(value, int) else value for partition, value in offsets.items()
        }
        caller = Caller(member_id, instance_id, generation)
        self.do(self.shard.commit(group_id, caller, values, call, self.now_ms))
        return call

    def offset(self, offset: int, *, expire_ms: int | None = None, metadata: str = "") -> OffsetAndMetadata:
        return OffsetAndMetadata(Offset(offset), LeaderEpoch(-1), metadata, self.clock.wall_ms(), expire_ms)

    def fetch(
        self, partitions: Collection[TopicPartition] | None = None, *, stable: bool = False, group_id: str = GROUP
    ) -> FetchedOffsets:
        return self.shard.fetch_offsets(group_id, partitions, stable)

    def committed(self, partition: TopicPartition = TP, *, group_id: str = GROUP) -> int | None:
        found = self.fetch([partition], group_id=group_id)[partition]
        return found.offset if isinstance(found, OffsetAndMetadata) else None

    def delete_offsets(
        self, *partitions: TopicPartition, group_id: str = GROUP
    ) -> Call[tuple[ErrorCode, OffsetResults]]:
        call: Call[tuple[ErrorCode, OffsetResults]] = Call()
        self.do(self.shard.delete_offsets(group_id, partitions, lambda error, results: call((error, results))))
        return call

    def delete(self, group_id: str = GROUP) -> Call[ErrorCode]:
        call: Call[ErrorCode] = Call()
        self.do(self.shard.delete_group(group_id, call))
        return call

    def expire(self) -> None:
        for effects in self.shard.expire(self.clock.wall_ms()):
            self.do(effects)

    def topics_gone(self, *topics: str) -> None:
        for effects in self.shard.topics_gone(topics):
            self.do(effects)

    def describe(self, group_id: str = GROUP) -> DescribedGroup:
        return self.shard.describe(group_id)

    def state(self, group_id: str = GROUP) -> str:
        return self.describe(group_id).state

    def member_ids(self, group_id: str = GROUP) -> list[str]:
        return [member.member_id for member in self.describe(group_id).members]

    # Groups in a known state

    def joined(self, count: int = 1, *, static: bool = False, **kwargs: Any) -> list[JoinResult]:
        """So many members that have joined together; the first one leads. Static ones are called i0, i1, …"""
        calls = [self.join(instance_id=f"i{number}" if static else None, **kwargs) for number in range(count)]
        self.pass_time(DELAY_MS * 2)
        return [call.result for call in calls]

    def stable(self, count: int = 1, **kwargs: Any) -> list[JoinResult]:
        """So many members that have their assignments: each its own id, as bytes."""
        joined = self.joined(count, **kwargs)
        group_id = kwargs.get("group_id", GROUP)
        assignments = {each.member_id: each.member_id.encode() for each in joined}
        for each in joined:
            self.sync(each.member_id, each.generation, assignments, group_id=group_id)
        assert self.state(group_id) == "Stable"
        return joined
