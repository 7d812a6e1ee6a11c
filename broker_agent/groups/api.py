"""What handlers, the group coordinator and its shards say to each other. Values only.

Monotonic milliseconds are called `now_ms`, wall milliseconds `wall_ms`. Absent: generation -1, no instance id None.
Source: JoinGroupResult, SyncGroupResult, LeaveGroup and OffsetCommit handling of Kafka 3.9; KIP-345, 394, 814.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from regency.kafka.groups.records import OffsetAndMetadata
from regency.model.ids import Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

NO_GENERATION: Final = -1
NO_MEMBER: Final = ""


class JoinRequest(msgspec.Struct, frozen=True):
    """JoinGroup. Below version 1 the session timeout stands for the rebalance timeout."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    """As Kafka stores it: "/10.0.0.1"."""
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """Supported assignors with their metadata, the preferred one first."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    requires_known_member_id: bool
    """Version 4 and newer without an instance id: a first join is answered MEMBER_ID_REQUIRED."""
    supports_skipping_assignment: bool
    """Version 9 and newer (KIP-814)."""
    reason: str = ""


class JoinedMember(msgspec.Struct, frozen=True):
    """A member as its leader receives it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(msgspec.Struct, frozen=True):
    """Answer to a JoinGroup; `members` only for the leader."""

    error: ErrorCode
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncRequest(msgspec.Struct, frozen=True):
    """SyncGroup. Protocol type and name are None below version 5; the leader brings assignments."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]


class SyncResult(msgspec.Struct, frozen=True):
    """Answer to a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Caller(msgspec.Struct, frozen=True):
    """Who says it of itself: a member of a generation, or (empty, -1) a client outside any."""

    member_id: str = NO_MEMBER
    instance_id: str | None = None
    generation: int = NO_GENERATION


class LeavingMember(msgspec.Struct, frozen=True):
    """One member of a LeaveGroup (KIP-345: several, by instance id too)."""

    member_id: str
    instance_id: str | None
    reason: str = ""


class DescribedMember(msgspec.Struct, frozen=True):
    """A row of DescribeGroups. Metadata and assignment are empty unless the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(msgspec.Struct, frozen=True):
    """A group as DescribeGroups shows it; state Dead for one that is not there."""

    error: ErrorCode
    group_id: str
    state: str = "Dead"
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


class ListedGroup(msgspec.Struct, frozen=True):
    """A row of ListGroups."""

    group_id: str
    protocol_type: str
    state: str


Record: TypeAlias = tuple[bytes, bytes | None]
"""Key and value of a record of `__consumer_offsets`; no value is a tombstone."""


class Append(msgspec.Struct, frozen=True):
    """Records to append to the shard's partition as one batch with acks=all.

    `done` is called once, with the log's error code or NONE, and the time; it gives what follows. By then the group may
    have changed in any way, or be gone, the shard unloaded. What the log's error means to a client, `done` knows.
    """

    records: tuple[Record, ...]
    done: Callable[[ErrorCode, int], Effects]


class Effects(msgspec.Struct):
    """What a call wants done, in this order: appends are begun, then answers given.

    An answer is a call that is ready to run (it may call back into the shard, so it runs when nothing is half changed).
    """

    answers: list[Callable[[], None]] = []
    appends: list[Append] = []

    def add(self, other: Effects) -> None:
        """Do these too, afterwards."""
        self.answers += other.answers
        self.appends += other.appends


OffsetResults: TypeAlias = dict[TopicPartition, ErrorCode]
"""Outcomes of a commit or a deletion of offsets, by partition."""

FetchedOffsets: TypeAlias = dict[TopicPartition, OffsetAndMetadata | ErrorCode | None]
"""What is committed; None where nothing is, UNSTABLE_OFFSET_COMMIT where that is not decided yet."""


class Survey(msgspec.Struct):
    """Groups with what they have committed, for metrics."""

    members: dict[str, int] = {}
    offsets: dict[str, dict[TopicPartition, Offset]] = {}
    left_out: int = 0
    """Offsets of groups that did not fit any more."""
