"""One group: its states, generations and timers, and what each request does to it.

Source: GroupCoordinator and GroupMetadata of Kafka 3.9. Where Kafka looks a group up again after a wait, its state and
generation are compared here: a group that has left the shard is Dead, and stays it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from regency.broker_agent.groups.api import (
    NO_MEMBER,
    Append,
    Caller,
    DescribedGroup,
    DescribedMember,
    Effects,
    JoinRequest,
    JoinResult,
    LeavingMember,
    ListedGroup,
    Record,
    SyncRequest,
    SyncResult,
)
from regency.broker_agent.groups.context import GroupContext, GroupState
from regency.broker_agent.groups.membership import (
    JoinRespond,
    Member,
    Membership,
    Protocols,
    SyncRespond,
    member_id_for,
)
from regency.broker_agent.groups.offsets import GroupOffsets, Retention
from regency.broker_agent.groups.timers import Timer
from regency.kafka.groups.records import NO_TIME, GroupValue, group_key, group_value
from regency.kafka.groups.subscriptions import CONSUMER, topics_of_all
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode

T = TypeVar("T")

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""How long a new member's first join is parked: its client may be gone, which nothing else would show."""

_ASK_AGAIN_MS: Final = 1_000
"""So long at least a rebalance that nobody has joined waits until the next look, whatever its members asked for."""

STORING_FAILED: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a member is told when the log refused its group's record. Source: GroupMetadataManager.storeGroup."""


class Group:
    """A group. Calls add to `out` what they want done; a parked call is answered by a later one, exactly once."""

    __slots__ = (
        "_context",
        "_delays_left_ms",
        "_is_storing",
        "_join_timer",
        "_member_came",
        "_owing_sync",
        "_pending",
        "_subscribed",
        "_sync_timer",
        "generation",
        "group_id",
        "members",
        "offsets",
        "protocol",
        "protocol_type",
        "state",
        "state_ms",
    )

    def __init__(self, group_id: str, context: GroupContext) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_ms: int | None = context.wall_ms()
        """When it came into its state (wall); None if it was stored without that."""
        self.generation = 0
        self.protocol_type: str | None = None
        """None while it has never had members: it only commits."""
        self.protocol: str | None = None
        self.members = Membership()
        self.offsets = GroupOffsets()
        self._context = context
        self._pending: dict[str, Timer] = {}
        """Ids that were given out (KIP-394), until their clients join with them."""
        self._owing_sync: set[str] = set()
        """Members of this generation that have not asked for their assignment."""
        self._subscribed: frozenset[str] | None = None
        self._is_storing = False
        """The assignment of this generation is on its way to the log."""
        self._join_timer = Timer(self._on_join_time)
        self._sync_timer = Timer(self._on_sync_time)
        self._delays_left_ms: int | None = None
        """Not None in a first rebalance: it ends when no more members come, and after so many ms more at the latest."""
        self._member_came = False
        context.states[self.state] += 1

    # Requests

    def join(self, request: JoinRequest, respond: JoinRespond, now_ms: int, out: Effects) -> None:
        """JoinGroup; its session timeout is one that is allowed."""
        if not self._has_room_for(request):
            self._turn_away(request.member_id, out)
            _answer(respond, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED), out)
        elif not self._supports(request.protocol_type, request.protocols):
            _answer(respond, JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id), out)
        elif request.member_id == NO_MEMBER:
            self._join_unknown(request, respond, now_ms, out)
        else:
            self._join_known(request, respond, now_ms, out)
        if self.state is GroupState.PREPARING_REBALANCE:
            self._try_complete_join(now_ms, out)

    def sync(self, request: SyncRequest, respond: SyncRespond, now_ms: int, out: Effects) -> None:
        """SyncGroup."""
        error = self._check(request.member_id, request.instance_id, request.generation)
        if error is ErrorCode.NONE:
            if request.protocol_type not in (None, self.protocol_type) or request.protocol not in (None, self.protocol):
                error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            elif self.state is GroupState.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is not ErrorCode.NONE:
            _answer(respond, SyncResult(error), out)
            return
        member = self.members.get(request.member_id)
        assert member is not None
        self._owing_sync.discard(member.member_id)
        if not self._owing_sync:
            self._context.timers.cancel(self._sync_timer)
        if self.state is GroupState.STABLE:
            _answer(respond, self._assigned(member), out)
            self._restart_session(member, now_ms)
            return
        self.members.park_sync(member, respond, out)
        if self.members.leader == member.member_id and not self._is_storing:
            self._is_storing = True
            self._context.counters.completed_rebalances += 1
            assignments = {member_id: request.assignments.get(member_id, b"") for member_id in self.members.ids}
            done = partial(self._on_assignment_stored, self.generation, assignments)
            out.appends.append(Append((self._record(assignments),), done))

    def heartbeat(self, caller: Caller, now_ms: int) -> ErrorCode:
        """Heartbeat."""
        error = self._check(caller.member_id, caller.instance_id, caller.generation)
        if error is not ErrorCode.NONE:
            return error
        self._restart_session_of(caller.member_id, now_ms)
        preparing = self.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE

    def leave(
        self, leaving: Sequence[LeavingMember], now_ms: int, out: Effects
    ) -> list[tuple[LeavingMember, ErrorCode]]:
        """LeaveGroup: members one after the other, each with its own outcome."""
        return [(each, self._leave(each, now_ms, out)) for each in leaving]

    def may_commit(self, caller: Caller, now_ms: int) -> ErrorCode:
        """NONE if the caller may commit offsets now; it has shown that it lives."""
        if caller.generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if caller.generation < 0 and caller.member_id == NO_MEMBER and caller.instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self._check(caller.member_id, caller.instance_id, caller.generation)
        if error is ErrorCode.NONE and self.state is GroupState.COMPLETING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is ErrorCode.NONE:
            self._restart_session_of(caller.member_id, now_ms)
        return error

    def reads(self, topic: str) -> bool:
        """Whether a member of a group of type `consumer` may read this topic."""
        return self._subscribed is None or topic in self._subscribed

    @property
    def retention(self) -> Retention | None:
        """Which of its offsets go by age; None: none do."""
        if self.protocol_type is None:
            return Retention(None, frozenset())
        if self.state is GroupState.EMPTY:
            return Retention(self.state_ms, frozenset())
        if self.protocol_type == CONSUMER and self.state is GroupState.STABLE and self._subscribed is not None:
            return Retention(None, self._subscribed)
        return None

    def is_vacant_without(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether nothing would be left of the group without these offsets."""
        return self.state is GroupState.EMPTY and not self.offsets.has_other_than(partitions)

    def describe(self) -> DescribedGroup:
        """A row of DescribeGroups; protocol, metadata and assignments while it is stable."""
        stable = self.state is GroupState.STABLE
        members = tuple(
            [
                DescribedMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata(self.protocol) if stable else b"",
                    member.assignment if stable else b"",
                )
                for member in self.members
            ]
        )
        protocol = (self.protocol or "") if stable else ""
        state = self.state.value
        return DescribedGroup(ErrorCode.NONE, self.group_id, state, self.protocol_type or "", protocol, members)

    def listed(self) -> ListedGroup:
        """A row of ListGroups."""
        return ListedGroup(self.group_id, self.protocol_type or "", self.state.value)

    # Loading and leaving

    def restore(self, value: GroupValue | None) -> None:
        """Be what a record says, or as new after a tombstone, whatever was before. Offsets stay."""
        self._context.states[self.state] -= 1
        self.members.clear()
        self.generation = 0 if value is None else value.generation
        self.protocol_type = (value.protocol_type or None) if value is not None else None
        self.protocol = None if value is None else value.protocol
        self.state_ms = None if value is None or value.state_ms == NO_TIME else value.state_ms
        self.state = GroupState.STABLE if value is not None and value.members else GroupState.EMPTY
        self._context.states[self.state] += 1
        for kept in () if value is None else value.members:
            member = Member(
                kept.member_id,
                kept.instance_id,
                kept.client_id,
                kept.client_host,
                ((self.protocol or "", kept.subscription),),
                kept.rebalance_timeout_ms,
                kept.session_timeout_ms,
                self._on_session_end,
            )
            member.assignment = kept.assignment
            self.members.add(member)
        if value is not None and value.leader is not None and value.leader in self.members:
            self.members.leader = value.leader
        self._note_subscriptions()

    def begin(self, now_ms: int, out: Effects) -> None:
        """It is loaded: every member's session begins. Too many members: some have to go."""
        for member in self.members:
            self._restart_session(member, now_ms)
        if len(self.members) > self._context.settings.group_max_size:
            self._prepare(now_ms, out)

    def die(self, out: Effects) -> None:
        """Leave the shard: what is parked is answered NOT_COORDINATOR."""
        for member in self.members:
            self.members.answer_join(member, JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id), out)
            self.members.answer_sync(member, SyncResult(ErrorCode.NOT_COORDINATOR), out)
            self._context.timers.cancel(member.session)
        for timer in (*self._pending.values(), self._join_timer, self._sync_timer):
            self._context.timers.cancel(timer)
        self._enter(GroupState.DEAD)
        self._context.offset_count -= len(self.offsets)

    # Joining

    def _has_room_for(self, request: JoinRequest) -> bool:
        """Against members above group.max.size, also where two join at once (KAFKA-9844).

        A static member that comes back takes its own place. While members join, those that have joined count: the last
        ones of a group that is too large do not get in again.
        """
        limit = self._context.settings.group_max_size
        known = self.members.get(request.member_id or self.members.static_id(request.instance_id) or NO_MEMBER)
        if self.state is GroupState.EMPTY:
            return True
        if self.state is GroupState.PREPARING_REBALANCE:
            return self.members.joining < limit or (known is not None and known.parked_join is not None)
        return known is not None or len(self.members) < limit

    def _turn_away(self, member_id: str, out: Effects) -> None:
        self._forget_pending(member_id)
        member = self.members.get(member_id)
        if member is not None:
            self._remove(member, out)

    def _supports(self, protocol_type: str, protocols: Protocols) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and self.members.supports(protocols)

    def _join_unknown(self, request: JoinRequest, respond: JoinRespond, now_ms: int, out: Effects) -> None:
        member_id = member_id_for(request, self._context.new_uuid())
        known_as = self.members.static_id(request.instance_id)
        if known_as is not None:
            self._replace(known_as, member_id, request, respond, now_ms, out)
        elif request.instance_id is None and request.requires_known_member_id:
            timer = self._pending[member_id] = Timer(partial(self._on_pending_time, member_id))
            self._context.timers.arm(timer, now_ms + request.session_timeout_ms)
            _answer(respond, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id), out)
        else:
            self._add(member_id, request, respond, now_ms, out)

    def _join_known(self, request: JoinRequest, respond: JoinRespond, now_ms: int, out: Effects) -> None:
        if request.member_id in self._pending and request.instance_id is None:
            self._add(request.member_id, request, respond, now_ms, out)
            return
        error = self.members.check(request.member_id, request.instance_id)
        member = self.members.get(request.member_id)
        if error is not ErrorCode.NONE or member is None:
            _answer(respond, JoinResult(error, request.member_id), out)
            return
        same = member.protocols == request.protocols
        leads = self.members.leader == member.member_id
        stays = {GroupState.COMPLETING_REBALANCE: same, GroupState.STABLE: same and not leads}
        if stays.get(self.state, False):
            _answer(respond, self._joined(member, leads=leads), out)
            return
        self.members.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        self.members.park_join(member, respond, out)
        self._rebalance(now_ms, out)

    def _add(self, member_id: str, request: JoinRequest, respond: JoinRespond, now_ms: int, out: Effects) -> None:
        self._forget_pending(member_id)
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.protocols,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            self._on_session_end,
        )
        member.is_new = True
        if self.state is GroupState.PREPARING_REBALANCE and self.generation == 0:
            self._member_came = True
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members.add(member)
        self.members.park_join(member, respond, out)
        self._restart_session(member, now_ms)
        self._rebalance(now_ms, out)

    def _replace(
        self, old_id: str, new_id: str, request: JoinRequest, respond: JoinRespond, now_ms: int, out: Effects
    ) -> None:
        """A static member has started again: it takes the place of what it was, under a new id (KIP-345).

        If the group stays as it is, only that is stored (KAFKA-10284), and the member need not assign (KIP-814).
        """
        member = self.members.get(old_id)
        assert member is not None
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        led_by = self.members.leader or NO_MEMBER
        self._rename(member, new_id, now_ms, out)
        self.members.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        self.members.park_join(member, respond, out)
        if self.state is not GroupState.STABLE or self.members.vote() != self.protocol:
            self._rebalance(now_ms, out)
            return

        def stored(error: ErrorCode, now_ms: int) -> Effects:
            out = Effects()
            if self.state is not GroupState.STABLE or self.generation != generation or member.member_id != new_id:
                return out  # who waits is answered by the rebalance, or has been
            if error is not ErrorCode.NONE:
                self.members.answer_join(member, JoinResult(STORING_FAILED.get(error, error)), out)
                self._rename(member, old_id, now_ms, out)
                self.members.update(member, *before)
                return out
            leads = self.members.leader == new_id
            if request.supports_skipping_assignment:
                answer = self._joined(member, leads=leads, skip_assignment=leads)
            else:
                answer = self._joined(member, leader=led_by)
            self.members.answer_join(member, answer, out)
            self._restart_session(member, now_ms)
            return out

        generation = self.generation
        record = self._record({each.member_id: each.assignment for each in self.members})
        out.appends.append(Append((record,), stored))

    def _rename(self, member: Member, member_id: str, now_ms: int, out: Effects) -> None:
        if member.member_id in self._owing_sync:
            self._owing_sync.remove(member.member_id)
            self._owing_sync.add(member_id)
        self.members.rename(member, member_id, out)
        self._restart_session(member, now_ms)

    def _joined(
        self, member: Member, *, leads: bool = False, leader: str | None = None, skip_assignment: bool = False
    ) -> JoinResult:
        """What a member of this generation is answered; a leader receives all members."""
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            leader if leader is not None else self.members.leader or NO_MEMBER,
            self.members.joined(self.protocol) if leads else (),
            skip_assignment,
        )

    # Rebalances

    def _rebalance(self, now_ms: int, out: Effects) -> None:
        """Begin a rebalance, unless one is waiting for members already."""
        if self.state in GroupState.PREPARING_REBALANCE.valid_previous:
            self._prepare(now_ms, out)

    def _prepare(self, now_ms: int, out: Effects) -> None:
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._cancel_syncs(ErrorCode.REBALANCE_IN_PROGRESS, now_ms, out)
        timers = self._context.timers
        timers.cancel(self._sync_timer)
        self._owing_sync.clear()
        self._is_storing = False
        rebalance_ms = self.members.longest_rebalance_ms()
        if self.state is GroupState.EMPTY:
            delay_ms = self._context.settings.group_initial_rebalance_delay_ms
            self._delays_left_ms = max(rebalance_ms - delay_ms, 0)
            self._enter(GroupState.PREPARING_REBALANCE)
            timers.arm(self._join_timer, now_ms + delay_ms)
        else:
            self._enter(GroupState.PREPARING_REBALANCE)
            timers.arm(self._join_timer, now_ms + rebalance_ms)
            self._try_complete_join(now_ms, out)

    def _try_complete_join(self, now_ms: int, out: Effects) -> None:
        everybody = self.members.joining == len(self.members) and not self._pending
        if everybody and self._delays_left_ms is None:
            self._complete_join(now_ms, out)

    def _on_join_time(self, now_ms: int, out: Effects) -> None:
        left_ms = self._delays_left_ms
        if left_ms and self._member_came:
            self._member_came = False
            delay_ms = min(self._context.settings.group_initial_rebalance_delay_ms, left_ms)
            self._delays_left_ms = left_ms - delay_ms
            self._context.timers.arm(self._join_timer, now_ms + delay_ms)
            return
        self._complete_join(now_ms, out)

    def _complete_join(self, now_ms: int, out: Effects) -> None:
        """Begin the next generation with those that have joined, and with static members (KIP-345)."""
        self._delays_left_ms = None
        self._context.timers.cancel(self._join_timer)
        for member in [each for each in self.members if each.parked_join is None and each.instance_id is None]:
            self._remove(member, out)
        if self.members and not self.members.elect_joined_leader():
            again_ms = max(self.members.longest_rebalance_ms(), _ASK_AGAIN_MS)
            self._context.timers.arm(self._join_timer, now_ms + again_ms)
            return
        self.generation += 1
        self._member_came = False
        if not self.members:
            self.protocol = None
            self._enter(GroupState.EMPTY)
            self._note_subscriptions()
            # If this is not stored, the generation before is loaded some day, and its members' sessions end.
            out.appends.append(Append((self._record({}),), _nothing_follows))
            return
        self.protocol = self.members.vote()
        self._enter(GroupState.COMPLETING_REBALANCE)
        self._note_subscriptions()
        for member in self.members:
            self.members.answer_join(member, self._joined(member, leads=self.members.leader == member.member_id), out)
            member.is_new = False
            self._restart_session(member, now_ms)
        self._owing_sync.update(self.members.ids)
        self._context.timers.arm(self._sync_timer, now_ms + self.members.longest_rebalance_ms())

    def _on_sync_time(self, now_ms: int, out: Effects) -> None:
        """Members that never ask for their assignment hold up the group (KAFKA-12890): they go."""
        for member_id in list(self._owing_sync):
            member = self.members.get(member_id)
            if member is not None:
                self._remove(member, out)
        self._prepare(now_ms, out)

    def _on_assignment_stored(
        self, generation: int, assignments: Mapping[str, bytes], error: ErrorCode, now_ms: int
    ) -> Effects:
        out = Effects()
        if self.state is not GroupState.COMPLETING_REBALANCE or self.generation != generation:
            return out
        self._is_storing = False
        if error is not ErrorCode.NONE:
            self._cancel_syncs(STORING_FAILED.get(error, error), now_ms, out)
            self._prepare(now_ms, out)
            return out
        for member in self.members:
            member.assignment = assignments[member.member_id]
            if self.members.answer_sync(member, self._assigned(member), out):
                self._restart_session(member, now_ms)
        self._enter(GroupState.STABLE)
        return out

    def _assigned(self, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    def _cancel_syncs(self, error: ErrorCode, now_ms: int, out: Effects) -> None:
        for member in self.members:
            member.assignment = b""
            if self.members.answer_sync(member, SyncResult(error), out):
                self._restart_session(member, now_ms)

    # Members that go

    def _leave(self, leaving: LeavingMember, now_ms: int, out: Effects) -> ErrorCode:
        member_id = leaving.member_id
        if member_id == NO_MEMBER:  # by an administrator
            member_id = self.members.static_id(leaving.instance_id) or NO_MEMBER
        elif self._forget_pending(member_id):
            if self.state is GroupState.PREPARING_REBALANCE:
                self._try_complete_join(now_ms, out)
            return ErrorCode.NONE
        error = self.members.check(member_id, leaving.instance_id)
        member = self.members.get(member_id)
        if error is ErrorCode.NONE and member is not None:
            self._lose(member, now_ms, out)
        return error

    def _lose(self, member: Member, now_ms: int, out: Effects) -> None:
        self._remove(member, out)
        if self.state is GroupState.PREPARING_REBALANCE:
            self._try_complete_join(now_ms, out)
        else:
            self._rebalance(now_ms, out)

    def _remove(self, member: Member, out: Effects) -> None:
        self.members.remove(member, out)
        self._owing_sync.discard(member.member_id)
        self._context.timers.cancel(member.session)

    def _forget_pending(self, member_id: str) -> bool:
        timer = self._pending.pop(member_id, None)
        if timer is not None:
            self._context.timers.cancel(timer)
        return timer is not None

    def _on_pending_time(self, member_id: str, now_ms: int, out: Effects) -> None:
        self._forget_pending(member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            self._try_complete_join(now_ms, out)

    def _on_session_end(self, member: Member, now_ms: int, out: Effects) -> None:
        """A new member has waited too long (KAFKA-9752). Others may: their sessions begin anew with the answer."""
        if not member.is_alive:
            self._lose(member, now_ms, out)

    def _restart_session(self, member: Member, now_ms: int) -> None:
        timeout_ms = NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms
        self._context.timers.arm(member.session, now_ms + timeout_ms)

    def _restart_session_of(self, member_id: str, now_ms: int) -> None:
        member = self.members.get(member_id)
        assert member is not None
        self._restart_session(member, now_ms)

    # What every call needs

    def _check(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        error = self.members.check(member_id, instance_id)
        if error is ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _enter(self, state: GroupState) -> None:
        if self.state not in state.valid_previous:
            names = ", ".join(sorted(each.value for each in state.valid_previous))
            raise AssertionError(
                f"group {self.group_id} cannot go from {self.state.value} to {state.value}, only from {names}"
            )
        self._context.states[self.state] -= 1
        if state is not GroupState.DEAD:  # then it is not there to be counted
            self._context.states[state] += 1
        self.state = state
        self.state_ms = self._context.wall_ms()

    def _note_subscriptions(self) -> None:
        """Remember what this generation reads; None: any topic, as far as is known."""
        self._subscribed = None
        if self.protocol_type == CONSUMER:
            self._subscribed = topics_of_all([member.metadata(self.protocol) for member in self.members])

    def _record(self, assignments: Mapping[str, bytes]) -> Record:
        value = GroupValue(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.members.leader,
            NO_TIME if self.state_ms is None else self.state_ms,
            tuple([member.kept(self.protocol, assignments[member.member_id]) for member in self.members]),
        )
        return group_key(self.group_id), group_value(value)


def _answer(respond: Callable[[T], None], result: T, out: Effects) -> None:
    out.answers.append(partial(respond, result))


def _nothing_follows(_: ErrorCode, __: int) -> Effects:
    return Effects()
