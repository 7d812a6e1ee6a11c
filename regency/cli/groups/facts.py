"""What a group is: members, what each of them reads, how far it is, and how far there is to go."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from regency.cli.asking.refusals import refusal
from regency.cli.asking.wire import ClusterWire
from regency.cli.groups.coordinators import coordinated, missing
from regency.kafka.apis import Message
from regency.model.ids import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, TopicPartition
from regency.model.kafka_errors import ErrorCode

CONSUMERS: Final = "consumer"
"""Protocol type of consumers; others, such as Connect's, have assignments of their own."""
DEAD: Final = "Dead"
QUIET_STATES: Final = ("Empty", DEAD)
"""In which a group has no members."""
STATES: Final = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", DEAD)
LATEST, EARLIEST = -1, -2
_DESCRIBE_VERSION, _FETCH_VERSION = 5, 8
_CONSUMER: Final = BrokerId(-1)
_PARTITIONS_AT_ONCE: Final = 2_000


class Committed(msgspec.Struct, frozen=True):
    """An offset that a group has committed, as its coordinator tells."""

    offset: int
    leader_epoch: int | None
    metadata: str


class AssignedPartition(msgspec.Struct, frozen=True, order=True):
    """A partition that a member reads."""

    topic: str
    partition: int


class MemberRow(msgspec.Struct, frozen=True):
    """A member. `partitions` is None where its assignment is no consumer's; `instance_id` that of a static member."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[AssignedPartition] | None


class OffsetRow(msgspec.Struct, frozen=True):
    """How far a group is in a partition.

    `current_offset` is None where nothing is committed, `log_end` (the high watermark) where no leader tells it, `lag`
    where one of them is; the member, where nobody reads it.
    """

    topic: str
    partition: int
    current_offset: int | None
    log_end: int | None
    lag: int | None
    member_id: str | None = None
    client_id: str | None = None
    host: str | None = None


class GroupDetails(msgspec.Struct, frozen=True):
    """A group. `offsets` and `lag`, their sum as far as it is known, are None where they were not asked for."""

    group: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: list[MemberRow]
    offsets: list[OffsetRow] | None = None
    lag: int | None = None


def describe_groups(wire: ClusterWire, groups: Sequence[str]) -> dict[str, GroupDetails]:
    """Groups as coordinators describe them; those that are not there have the state Dead. Raises CommandFailed."""
    from regency.kafka.codec import DescribeGroupsRequest

    def ask(broker: BrokerId, some: Sequence[str]) -> dict[str, tuple[int, tuple[BrokerId, Message]]]:
        request = DescribeGroupsRequest(
            version=_DESCRIBE_VERSION, groups=list(some), include_authorized_operations=False
        )
        answer = wire.ask(request, _DESCRIBE_VERSION, broker=broker)
        return {each.group_id: (each.error_code, (broker, each)) for each in answer.groups}

    found = {}
    for group, (error, (broker, told)) in coordinated(wire, groups, ask).items():
        if error is not ErrorCode.NONE:
            raise refusal(f"group {group}", error)
        found[group] = _details(broker, told)
    return found


def describe_group(wire: ClusterWire, group: str) -> GroupDetails:
    """One that is there. Raises CommandFailed, GroupMissing."""
    found = describe_groups(wire, [group])[group]
    if found.state == DEAD:
        raise missing(wire, group)
    return found


def _details(broker: BrokerId, told: Message) -> GroupDetails:
    of_consumers = told.protocol_type == CONSUMERS
    members = [
        MemberRow(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host.removeprefix("/"),
            _assigned(bytes(each.member_assignment)) if of_consumers else None,
        )
        for each in told.members
    ]
    members.sort(key=lambda member: (member.client_id, member.member_id))
    return GroupDetails(told.group_id, told.group_state, told.protocol_type, told.protocol_data, int(broker), members)


def _assigned(assignment: bytes) -> list[AssignedPartition] | None:
    """Partitions of an assignment of Kafka's consumer protocol, any version; None for what is none."""
    if not assignment:
        return []
    try:
        (topics,) = struct.unpack_from(">xxi", assignment)  # after the version: each only appends fields
        place, found = 6, []
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", assignment, place)
            topic = assignment[place + 2 : place + 2 + length].decode()
            (count,) = struct.unpack_from(">i", assignment, place + 2 + length)
            place += 6 + length
            found += [
                AssignedPartition(topic, number) for number in struct.unpack_from(f">{count}i", assignment, place)
            ]
            place += 4 * count
    except (struct.error, UnicodeDecodeError):
        return None
    return sorted(found)


def committed(wire: ClusterWire, groups: Sequence[str]) -> dict[str, dict[TopicPartition, Committed]]:
    """All offsets that these groups have committed. Raises CommandFailed."""
    from regency.kafka.codec import OffsetFetchRequest

    asked = OffsetFetchRequest.OffsetFetchRequestGroup

    def ask(broker: BrokerId, some: Sequence[str]) -> dict[str, tuple[int, Message]]:
        request = OffsetFetchRequest(
            version=_FETCH_VERSION,
            groups=[asked(version=_FETCH_VERSION, group_id=group, topics=None) for group in some],
            require_stable=False,
        )
        answer = wire.ask(request, _FETCH_VERSION, broker=broker)
        return {each.group_id: (each.error_code, each) for each in answer.groups}

    found = {}
    for group, (error, told) in coordinated(wire, groups, ask).items():
        if error is not ErrorCode.NONE:
            raise refusal(f"group {group}", error)
        found[group] = {
            TopicPartition(topic.name, each.partition_index): Committed(
                each.committed_offset,
                None if each.committed_leader_epoch == NO_LEADER_EPOCH else each.committed_leader_epoch,
                each.metadata or "",
            )
            for topic in told.topics
            for each in topic.partitions
            if each.committed_offset >= 0
        }
    return found


class Listed(msgspec.Struct, frozen=True):
    """Offsets of partitions, and of those that no leader tells, why."""

    offsets: dict[TopicPartition, int]
    why: dict[TopicPartition, str]


def offsets_at(wire: ClusterWire, partitions: Collection[TopicPartition], timestamp: int) -> Listed:
    """Of each partition the first offset as late as that, -1 where there is none; LATEST and EARLIEST are timestamps.

    A leader that does not answer is not waited for.
    """
    from regency.kafka.fetching.values import OffsetsPlan
    from regency.kafka.fetching.wire import LIST_OFFSETS_VERSION, offsets_reply, offsets_request

    leaders = {
        TopicPartition(topic.name, each.partition_index): each.leader
        for topic in wire.topics(sorted({each.topic for each in partitions}))
        for each in topic.partitions
    }
    found = Listed({}, {})
    by_leader: dict[BrokerId, list[TopicPartition]] = {}
    for name in sorted(partitions):
        leader = leaders.get(name)
        if leader is None:
            found.why[name] = f"{name} has no leader" if name in leaders else f"there is no partition {name}"
        else:
            by_leader.setdefault(BrokerId(leader), []).append(name)
    silent = set(wire.silent_brokers()) if by_leader else ()
    for broker, some in by_leader.items():
        for start in range(0, len(some), _PARTITIONS_AT_ONCE):
            asked = some[start : start + _PARTITIONS_AT_ONCE]
            if broker in silent:
                found.why.update({name: f"broker {broker}, which leads {name}, does not answer" for name in asked})
                continue
            plan = OffsetsPlan(timestamp, [(name, LeaderEpoch(NO_LEADER_EPOCH)) for name in asked])
            answer = wire.ask(offsets_request(plan, _CONSUMER), LIST_OFFSETS_VERSION, broker=broker)
            for name, told in offsets_reply(answer).partitions:
                if told.error is ErrorCode.NONE:
                    found.offsets[name] = int(told.offset)
                else:
                    found.why[name] = f"broker {broker} answers {told.error.name} for {name}"
    return found


def with_offsets(
    details: GroupDetails, offsets: Mapping[TopicPartition, Committed], ends: Mapping[TopicPartition, int]
) -> GroupDetails:
    """The group with how far it is, in every partition that it has committed or reads."""
    readers = {
        TopicPartition(each.topic, each.partition): member
        for member in details.members
        for each in member.partitions or ()
    }
    rows = []
    for name in sorted({*offsets, *readers}):
        reader, at, end = readers.get(name), offsets.get(name), ends.get(name)
        lag = None if at is None or end is None else max(0, end - at.offset)
        row = OffsetRow(name.topic, name.partition, None if at is None else at.offset, end, lag)
        if reader is not None:
            row = msgspec.structs.replace(row, member_id=reader.member_id, client_id=reader.client_id, host=reader.host)
        rows.append(row)
    lags = [row.lag for row in rows if row.lag is not None]
    return msgspec.structs.replace(details, offsets=rows, lag=sum(lags) if lags else None)
