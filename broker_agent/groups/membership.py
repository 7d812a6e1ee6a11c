"""Members of a group: who they are, what they support, who leads, and whose answers are parked. No time, no states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, TypeAlias

from regency.broker_agent.groups.api import Effects, JoinedMember, JoinRequest, JoinResult, SyncResult
from regency.broker_agent.groups.timers import Timer
from regency.kafka.groups.records import MemberValue
from regency.model.kafka_errors import ErrorCode

JoinRespond: TypeAlias = Callable[[JoinResult], None]
SyncRespond: TypeAlias = Callable[[SyncResult], None]
Protocols: TypeAlias = tuple[tuple[str, bytes], ...]

_PREFIX_CHARACTERS: Final = 8_000
"""Of a client's or instance's name in a member id: with its UUID it must fit a text of the protocol, 32,767 bytes."""


def member_id_for(request: JoinRequest, uuid: object) -> str:
    """Id for a new member: readable by people, unlike any other."""
    name = request.client_id if request.instance_id is None else request.instance_id
    return f"{name[:_PREFIX_CHARACTERS]}-{uuid}"


class Member:
    """A member of a group. At most one join and one sync of it are parked."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "member_id",
        "parked_join",
        "parked_sync",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        on_session_end: Callable[[Member, int, Effects], None],
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.protocols = protocols
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.assignment = b""
        self.is_new = False
        """Its first join is not answered yet, so that it cannot send heartbeats."""
        self.parked_join: JoinRespond | None = None
        self.parked_sync: SyncRespond | None = None
        self.session = Timer(partial(on_session_end, self))

    @property
    def is_alive(self) -> bool:
        """Whether it need not send heartbeats now: it waits for the others. Not true of a new member."""
        return not self.is_new and (self.parked_join is not None or self.parked_sync is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """What it said along with this protocol; nothing if it does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def kept(self, protocol: str | None, assignment: bytes) -> MemberValue:
        """The member as a record keeps it."""
        return MemberValue(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )


class Membership:
    """The members of a group by id, in the order in which they came. Costs per call do not grow with their number,
    but for what says so.
    """

    __slots__ = ("_by_id", "_static", "_supporters", "joining", "leader")

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._static: dict[str, str] = {}
        self._supporters: dict[str, int] = {}
        self.joining = 0
        """Members whose join is parked."""
        self.leader: str | None = None

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    @property
    def ids(self) -> Iterable[str]:
        """Ids of all members."""
        return self._by_id.keys()

    def get(self, member_id: str) -> Member | None:
        """The member with this id."""
        return self._by_id.get(member_id)

    def static_id(self, instance_id: str | None) -> str | None:
        """Id of the static member with this instance id (KIP-345)."""
        return None if instance_id is None else self._static.get(instance_id)

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE if the member is the one that it says it is. Source: GroupCoordinator.validateCurrentMember."""
        if instance_id is not None:
            current = self._static.get(instance_id)
            if current is not None and current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            return ErrorCode.UNKNOWN_MEMBER_ID if current is None else ErrorCode.NONE
        return ErrorCode.NONE if member_id in self._by_id else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: Member) -> None:
        """Take a member in; the first one leads."""
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self._count(member.protocols, 1)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: Member, out: Effects) -> None:
        """Let a member go; what it waits for is answered UNKNOWN_MEMBER_ID, and another one leads if it did."""
        self.answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID), out)
        self.answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID), out)
        del self._by_id[member.member_id]
        if member.instance_id is not None:
            del self._static[member.instance_id]
        self._count(member.protocols, -1)
        if self.leader == member.member_id:
            self.leader = next(iter(self._by_id), None)

    def clear(self) -> None:
        """Forget all members; none may have anything parked."""
        self._by_id, self._static, self._supporters, self.leader = {}, {}, {}, None

    def rename(self, member: Member, member_id: str, out: Effects) -> None:
        """Give a static member a new id; whoever waits under the old one is fenced."""
        assert member.instance_id is not None
        self.answer_join(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, member.member_id), out)
        self.answer_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID), out)
        del self._by_id[member.member_id]
        if self.leader == member.member_id:
            self.leader = member_id
        member.member_id = self._static[member.instance_id] = member_id
        self._by_id[member_id] = member

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        """Take in what a member says when it joins again."""
        if protocols != member.protocols:
            self._count(member.protocols, -1)
            self._count(protocols, 1)
            member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    # Parked calls: each is answered once.

    def park_join(self, member: Member, respond: JoinRespond, out: Effects) -> None:
        """Answer later. A join of the same member that is parked already was given up by its client."""
        self.answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id), out)
        member.parked_join = respond
        self.joining += 1

    def answer_join(self, member: Member, result: JoinResult, out: Effects) -> None:
        """Answer the member's join if one is parked."""
        if member.parked_join is not None:
            out.answers.append(partial(member.parked_join, result))
            member.parked_join = None
            self.joining -= 1

    def park_sync(self, member: Member, respond: SyncRespond, out: Effects) -> None:
        """Answer later, as `park_join` does."""
        self.answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS), out)
        member.parked_sync = respond

    def answer_sync(self, member: Member, result: SyncResult, out: Effects) -> bool:
        """Answer the member's sync if one is parked; whether one was."""
        if member.parked_sync is None:
            return False
        out.answers.append(partial(member.parked_sync, result))
        member.parked_sync = None
        return True

    # Of all members.

    def supports(self, protocols: Protocols) -> bool:
        """Whether all members support one of these."""
        return any(self._supporters.get(name, 0) == len(self._by_id) for name, _ in protocols)

    def vote(self) -> str:
        """The protocol that most members like best among those that all support. Looks at all members.

        Of two with as many votes, the one that was voted for first, in the order of members.
        """
        candidates = {name for name, supporters in self._supporters.items() if supporters == len(self._by_id)}
        votes: dict[str, int] = {}
        for member in self:
            liked = next(name for name, _ in member.protocols if name in candidates)
            votes[liked] = votes.get(liked, 0) + 1
        return max(votes, key=votes.__getitem__)

    def elect_joined_leader(self) -> bool:
        """Have one that has joined lead; whether there is one. May look at all members."""
        leader = None if self.leader is None else self._by_id[self.leader]
        if leader is not None and leader.parked_join is None:
            leader = next((member for member in self if member.parked_join is not None), None)
        if leader is None:
            return False
        self.leader = leader.member_id
        return True

    def longest_rebalance_ms(self) -> int:
        """How long members take to join, by their own words. Looks at all members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def joined(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        """All members, for their leader."""
        return tuple([JoinedMember(member.member_id, member.instance_id, member.metadata(protocol)) for member in self])

    def _count(self, protocols: Protocols, change: int) -> None:
        for name in {name for name, _ in protocols}:
            supporters = self._supporters.get(name, 0) + change
            if supporters:
                self._supporters[name] = supporters
            else:
                del self._supporters[name]
