"""All groups of one partition of `__consumer_offsets`, and their offsets. Pure: see the room's contract.

Calls come when the partition is led by this broker; until `loaded`, only `load` may be called. Every call that has a
`respond` calls it exactly once, through the effects of this call or of a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias
from uuid import UUID

from regency.broker_agent.groups.api import (
    NO_MEMBER,
    Append,
    Caller,
    DescribedGroup,
    Effects,
    FetchedOffsets,
    JoinRequest,
    JoinResult,
    LeavingMember,
    ListedGroup,
    OffsetResults,
    Record,
    SyncRequest,
    SyncResult,
)
from regency.broker_agent.groups.context import GroupContext, GroupCounters, GroupState
from regency.broker_agent.groups.group import Group
from regency.broker_agent.groups.membership import JoinRespond, SyncRespond
from regency.kafka.groups.records import (
    GroupKey,
    OffsetAndMetadata,
    OffsetKey,
    group_key,
    offset_key,
    offset_value,
    read_group_value,
    read_key,
    stored_offset,
)
from regency.kafka.groups.subscriptions import CONSUMER
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings

_STEP: Final = 2_000
"""Offsets or groups that are looked at in one step: some 10 ms where all of them go."""

_BATCH_BYTES: Final = 256 << 10
"""Keys of tombstones in one append: far below what a batch of the topic may have (`max.message.bytes`, 1 MiB)."""

_MINUTE_MS = 60_000

COMMITTING_FAILED: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""What a client is told when the log refused its offsets. Source: GroupMetadataManager.storeOffsets."""

OffsetsRespond: TypeAlias = Callable[[OffsetResults], None]


class GroupShard:
    """The groups of partition `partition` of `__consumer_offsets`.

    `wall_ms` gives the time that is stored with a group's state, `new_uuid` what makes a member id unlike any other.
    """

    def __init__(
        self,
        partition: int,
        settings: BrokerSettings,
        new_uuid: Callable[[], UUID],
        wall_ms: Callable[[], int],
        counters: GroupCounters,
    ) -> None:
        self.partition = partition
        self._settings = settings
        self._context = GroupContext(settings, new_uuid, wall_ms, counters)
        self._groups: dict[str, Group] = {}
        self._writes = 0
        """Appends of offsets begun: their order is that of the log."""
        self._is_unloaded = False

    # Membership

    def join(self, request: JoinRequest, respond: JoinRespond, now_ms: int) -> Effects:
        """JoinGroup; answered when the rebalance that it begins or takes part in is ready for it."""
        out = Effects()
        shortest, longest = self._settings.group_min_session_timeout_ms, self._settings.group_max_session_timeout_ms
        group = self._groups.get(request.group_id)
        if not shortest <= request.session_timeout_ms <= longest:
            out.answers.append(partial(respond, JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)))
        elif group is None and request.member_id != NO_MEMBER:
            out.answers.append(partial(respond, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)))
        else:
            (group or self._new_group(request.group_id)).join(request, respond, now_ms, out)
        return out

    def sync(self, request: SyncRequest, respond: SyncRespond, now_ms: int) -> Effects:
        """SyncGroup; answered when the leader's assignment is stored."""
        out = Effects()
        group = self._groups.get(request.group_id)
        if group is None:
            out.answers.append(partial(respond, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)))
        else:
            group.sync(request, respond, now_ms, out)
        return out

    def heartbeat(self, group_id: str, caller: Caller, respond: Callable[[ErrorCode], None], now_ms: int) -> Effects:
        """Heartbeat."""
        group = self._groups.get(group_id)
        error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else group.heartbeat(caller, now_ms)
        return Effects([partial(respond, error)])

    def leave(
        self,
        group_id: str,
        members: Sequence[LeavingMember],
        respond: Callable[[ErrorCode, list[tuple[LeavingMember, ErrorCode]]], None],
        now_ms: int,
    ) -> Effects:
        """LeaveGroup."""
        out = Effects()
        group = self._groups.get(group_id)
        if group is None:
            outcome = [(member, ErrorCode.UNKNOWN_MEMBER_ID) for member in members]
        else:
            outcome = group.leave(members, now_ms, out)
        out.answers.append(partial(respond, ErrorCode.NONE, outcome))
        return out

    # Offsets

    def commit(
        self,
        group_id: str,
        caller: Caller,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        respond: OffsetsRespond,
        now_ms: int,
    ) -> Effects:
        """OffsetCommit; answered when the offsets are in the log of all that are in sync."""
        group = self._groups.get(group_id)
        if group is not None:
            error = group.may_commit(caller, now_ms)
        else:
            error = ErrorCode.NONE if caller.generation < 0 else ErrorCode.ILLEGAL_GENERATION
        if error is not ErrorCode.NONE:
            return Effects([partial(respond, dict.fromkeys(offsets, error))])
        longest = self._settings.offset_metadata_max_bytes
        results = {
            partition: ErrorCode.OFFSET_METADATA_TOO_LARGE
            for partition, committed in offsets.items()
            if len(committed.metadata) > longest
        }
        values = {
            partition: offset_value(committed) for partition, committed in offsets.items() if partition not in results
        }
        if not values:
            return Effects([partial(respond, results)])
        number = self._begin_write()
        group = group or self._new_group(group_id)
        for partition in values:
            group.offsets.begin(partition)
        records = tuple([(offset_key(group_id, *partition), value) for partition, value in values.items()])
        done = partial(self._on_committed, group, number, values, results, respond)
        return Effects([], [Append(records, done)])

    def _on_committed(
        self,
        group: Group,
        number: int,
        values: Mapping[TopicPartition, bytes],
        results: OffsetResults,
        respond: OffsetsRespond,
        error: ErrorCode,
        _: int,
    ) -> Effects:
        written = error is ErrorCode.NONE
        change = 0
        for partition, value in values.items():
            change += group.offsets.decide(partition, number, value, written=written)
        self._note_change(group, change)
        if written:
            self._context.counters.commits += len(values)
        results.update(dict.fromkeys(values, COMMITTING_FAILED.get(error, error)))
        return Effects([partial(respond, results)])

    def fetch_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None, require_stable: bool
    ) -> FetchedOffsets:
        """OffsetFetch; None: of all partitions of which the group has committed an offset."""
        group = self._groups.get(group_id)
        if group is None:
            return dict.fromkeys(partitions or ())
        offsets = group.offsets
        wanted = offsets.committed() if partitions is None else partitions
        if not require_stable:
            return {partition: offsets.get(partition) for partition in wanted}
        return {
            partition: ErrorCode.UNSTABLE_OFFSET_COMMIT if offsets.is_undecided(partition) else offsets.get(partition)
            for partition in wanted
        }

    def delete_offsets(
        self,
        group_id: str,
        partitions: Collection[TopicPartition],
        respond: Callable[[ErrorCode, OffsetResults], None],
    ) -> Effects:
        """OffsetDelete; offsets of topics that a member reads stay (KIP-496). Answered when it is in the log."""
        group = self._groups.get(group_id)
        error = ErrorCode.NONE
        if group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER:
            error = ErrorCode.NON_EMPTY_GROUP
        if group is None or error is not ErrorCode.NONE:
            return Effects([partial(respond, error, {})])
        is_read = group.reads if group.state is not GroupState.EMPTY else _nobody_reads
        results = {
            partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read(partition.topic) else ErrorCode.NONE
            for partition in partitions
        }
        kept = {topic: set(group.offsets.of_topic(topic)) for topic in {partition.topic for partition in partitions}}
        going = [each for each, result in results.items() if result is ErrorCode.NONE and each in kept[each.topic]]
        left = dict.fromkeys(going)

        def done(error: ErrorCode) -> Effects:
            results.update(dict.fromkeys(left, error))
            return Effects([partial(respond, ErrorCode.NONE, results)])

        def forget(piece: list[TopicPartition]) -> None:
            for partition in piece:
                del left[partition]

        return self._erase_in_turn(group, _pieces(group_id, iter(going)), lambda: ErrorCode.NONE, forget, done)

    # Groups

    def describe(self, group_id: str) -> DescribedGroup:
        """DescribeGroups of one group."""
        group = self._groups.get(group_id)
        return DescribedGroup(ErrorCode.NONE, group_id) if group is None else group.describe()

    def list_groups(self, states: Collection[str] = ()) -> list[ListedGroup]:
        """ListGroups: those in one of these states, in any case; none named: all."""
        wanted = {state.lower() for state in states}
        return [group.listed() for group in self._groups.values() if not wanted or group.state.value.lower() in wanted]

    def delete_group(self, group_id: str, respond: Callable[[ErrorCode], None]) -> Effects:
        """DeleteGroups of one group; answered when all of it is gone from the log. Long ones go piece by piece."""
        group = self._groups.get(group_id)
        if group is None or group.state is not GroupState.EMPTY:
            error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else ErrorCode.NON_EMPTY_GROUP
            return Effects([partial(respond, error)])
        offsets = (partition for topic in group.offsets.topics() for partition in group.offsets.of_topic(topic))

        def still_empty() -> ErrorCode:
            return ErrorCode.NONE if group.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP

        def done(error: ErrorCode) -> Effects:
            return Effects([partial(respond, error)])

        return self._erase_in_turn(group, _pieces(group_id, offsets), still_empty, lambda _: None, done)

    def expire(self, wall_ms: int) -> Iterator[Effects]:
        """Have offsets go by age, and groups without anything; a step each time, to be carried out before the next."""
        retention_ms = self._settings.offsets_retention_minutes * _MINUTE_MS

        def expired(group: Group, topic: str) -> list[TopicPartition]:
            retention = group.retention
            return [] if retention is None else group.offsets.expired(topic, retention, wall_ms, retention_ms)

        def count(number: int) -> None:
            self._context.counters.expirations += number

        return self._sweep(lambda group: group.offsets.topics(), expired, count)

    def topics_gone(self, topics: Collection[str]) -> Iterator[Effects]:
        """Have the offsets of deleted topics go; a step each time, to be carried out before the next."""

        def chosen(group: Group) -> list[str]:
            return [topic for topic in group.offsets.topics() if topic in topics]

        return self._sweep(chosen, lambda group, topic: group.offsets.of_topic(topic), lambda _: None)

    # Taking over, and giving up

    def load(self, key: bytes, value: bytes | None) -> None:
        """Take in the next record of the log. Raises GroupRecordMalformed, and has taken in nothing then."""
        about = read_key(key)
        if isinstance(about, OffsetKey):
            stored = None if value is None else stored_offset(value)
            group = self._groups.get(about.group_id)
            if group is None:
                if stored is None:
                    return
                group = self._new_group(about.group_id)
            self._note_change(group, group.offsets.set(about.topic, about.partition, stored))
        elif isinstance(about, GroupKey):
            restored = None if value is None else read_group_value(value)
            group = self._groups.get(about.group_id)
            if group is None and restored is None:
                return
            (group or self._new_group(about.group_id)).restore(restored)
        else:
            return
        if value is None and group is not None and group.generation == 0 and group.is_vacant_without(()):
            self._bury(group)

    def loaded(self, now_ms: int) -> Effects:
        """All of the log is taken in: members' sessions begin."""
        out = Effects()
        for group in self._groups.values():
            if group.members:
                group.begin(now_ms, out)
        return out

    def unload(self) -> Effects:
        """Lead no more. Appends under way end as they end, and change nothing here. Only `release` may follow."""
        out = Effects()
        self._is_unloaded = True
        for group in self._groups.values():
            if group.state is not GroupState.EMPTY:
                group.die(out)
        return out

    def release(self) -> Iterator[None]:
        """Give the memory back, in steps of a few ms."""
        freed = 0
        while self._groups:
            _, group = self._groups.popitem()
            for topic in group.offsets.topics():
                freed += group.offsets.drop(topic)
                if freed >= _STEP:
                    yield
                    freed = 0
            freed += 1

    @property
    def next_deadline_ms(self) -> int | None:
        """When `on_time` wants to be called; it may find nothing to do."""
        return self._context.timers.next_deadline_ms

    def on_time(self, now_ms: int) -> Effects:
        """Do what is due."""
        out = Effects()
        self._context.timers.run_due(now_ms, out)
        return out

    @property
    def groups(self) -> list[Group]:
        """All of them as of now; one that is Dead when it is looked at has gone since."""
        return list(self._groups.values())

    @property
    def states(self) -> Mapping[GroupState, int]:
        """Groups by state."""
        return self._context.states

    @property
    def offset_count(self) -> int:
        """Committed offsets of all groups."""
        return self._context.offset_count

    # Going

    def _erase_in_turn(
        self,
        group: Group,
        pieces: Iterator[list[TopicPartition]],
        check: Callable[[], ErrorCode],
        erased: Callable[[list[TopicPartition]], None],
        done: Callable[[ErrorCode], Effects],
    ) -> Effects:
        """Erase piece after piece, each when the one before is in the log, as long as `check` says NONE."""
        piece = next(pieces, None)
        error = ErrorCode.NONE if piece is None else ErrorCode.NOT_COORDINATOR if self._is_unloaded else check()
        if piece is None or error is not ErrorCode.NONE:
            return done(error)

        def go_on(error: ErrorCode) -> Effects:
            if error is not ErrorCode.NONE:
                return done(error)
            self._context.counters.deletions += len(piece)
            erased(piece)
            return self._erase_in_turn(group, pieces, check, erased, done)

        return self._erase({group: piece}, go_on)

    def _sweep(
        self,
        topics: Callable[[Group], list[str]],
        select: Callable[[Group, str], list[TopicPartition]],
        count: Callable[[int], None],
    ) -> Iterator[Effects]:
        """Erase what is selected of these topics of all groups, and groups of which nothing is left."""
        batch = _Batch()
        for group_id in list(self._groups):
            group = self._groups.get(group_id)
            if group is None:
                continue
            for topic in topics(group):
                batch.looked_at += len(group.offsets.of_topic(topic))
                for partition in select(group, topic):
                    batch.add(group, partition)
                    if batch.is_full:
                        yield self._erase_batch(batch, count)
                if batch.is_full:
                    yield self._erase_batch(batch, count)
            batch.look_at(group)
            if batch.is_full:
                yield self._erase_batch(batch, count)
        yield self._erase_batch(batch, count)

    def _erase_batch(self, batch: _Batch, count: Callable[[int], None]) -> Effects:
        going = batch.take()
        number = sum(map(len, going.values()))

        def done(error: ErrorCode) -> Effects:
            if error is ErrorCode.NONE:
                count(number)
            return Effects()

        return self._erase(going, done)

    def _erase(self, going: Mapping[Group, list[TopicPartition]], done: Callable[[ErrorCode], Effects]) -> Effects:
        """Write tombstones for offsets of groups, and for groups of which nothing is left then. They go when those are
        in the log; what was written after them stays.
        """
        number = self._begin_write()
        vacant = {group: group.generation for group, partitions in going.items() if group.is_vacant_without(partitions)}
        records: list[Record] = []
        for group, partitions in going.items():
            for partition in partitions:
                group.offsets.begin(partition)
                records.append((offset_key(group.group_id, *partition), None))
            if vacant.get(group):  # without a generation it has no record
                records.append((group_key(group.group_id), None))

        def erased(error: ErrorCode, _: int) -> Effects:
            written = error is ErrorCode.NONE
            for group, partitions in going.items():
                for partition in partitions:
                    self._note_change(group, group.offsets.decide(partition, number, None, written=written))
                if written and vacant.get(group) == group.generation and group.is_vacant_without(()):
                    self._bury(group)
            return done(COMMITTING_FAILED.get(error, error))

        return Effects([], [Append(tuple(records), erased)]) if records else erased(ErrorCode.NONE, 0)

    def _new_group(self, group_id: str) -> Group:
        group = self._groups[group_id] = Group(group_id, self._context)
        return group

    def _bury(self, group: Group) -> None:
        if self._groups.get(group.group_id) is group:
            del self._groups[group.group_id]
            group.die(Effects())

    def _begin_write(self) -> int:
        self._writes += 1
        return self._writes

    def _note_change(self, group: Group, change: int) -> None:
        if group.state is not GroupState.DEAD:
            self._context.offset_count += change


class _Batch:
    """Offsets that are to go in one append, and groups that may."""

    def __init__(self) -> None:
        self.looked_at = 0
        self._going: dict[Group, list[TopicPartition]] = {}
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self.looked_at >= _STEP or self._bytes >= _BATCH_BYTES

    def add(self, group: Group, partition: TopicPartition) -> None:
        self._going.setdefault(group, []).append(partition)
        self._bytes += _key_bytes(group.group_id, partition)

    def look_at(self, group: Group) -> None:
        """All of the group that is to go is here, or erased already."""
        self.looked_at += 1
        if group.is_vacant_without(self._going.get(group, ())):
            self._going.setdefault(group, [])
            self._bytes += len(group.group_id)

    def take(self) -> dict[Group, list[TopicPartition]]:
        going, self._going = self._going, {}
        self.looked_at = self._bytes = 0
        return going


def _pieces(group_id: str, partitions: Iterator[TopicPartition]) -> Iterator[list[TopicPartition]]:
    """So many partitions at a time as one append and one step may have; the last ones may be none."""
    piece: list[TopicPartition] = []
    size = 0
    for partition in partitions:
        piece.append(partition)
        size += _key_bytes(group_id, partition)
        if len(piece) >= _STEP or size >= _BATCH_BYTES:
            yield piece
            piece, size = [], 0
    yield piece


def _key_bytes(group_id: str, partition: TopicPartition) -> int:
    return len(group_id) + len(partition.topic) + 20


def _nobody_reads(_: str) -> bool:
    return False
