"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: members of groups, in every version of the classic protocol.

A join and a sync may wait for the rest of the group. As in Kafka no later request of the connection is begun before.
"""

from __future__ import annotations

from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import Final

from regency.broker_agent.groups.api import (
    Caller,
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Exchange, guarded
from regency.kafka.codec import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    Message,
    Request,
    SyncGroupResponse,
)
from regency.model.kafka_errors import ErrorCode

_JOIN_WITH_REBALANCE_TIMEOUT: Final = 1
_JOIN_WITH_KNOWN_MEMBERS: Final = 4
_JOIN_WITH_INSTANCES: Final = 5
_JOIN_WITH_NO_PROTOCOL: Final = 7
_JOIN_WITH_REASON: Final = 8
_JOIN_WITH_SKIPPING: Final = 9
_SYNC_WITH_INSTANCES: Final = 3
_SYNC_WITH_PROTOCOL: Final = 5
_HEARTBEAT_WITH_INSTANCES: Final = 3
_LEAVE_WITH_MEMBERS: Final = 3
_LEAVE_WITH_REASON: Final = 5


# JoinGroup


def handle_join(services: Services, exchange: Exchange) -> None:
    """Have the coordinator take the member in; answered when its group is ready."""
    request = exchange.request
    message, version = request.message, request.version
    instance = message.group_instance_id if version >= _JOIN_WITH_INSTANCES else None
    session_ms = message.session_timeout_ms
    services.groups.join(
        JoinRequest(
            group_id=message.group_id,
            member_id=message.member_id,
            instance_id=instance,
            client_id=request.client_id or "",
            client_host=host_as_java(exchange.owner.peer_host),
            protocol_type=message.protocol_type,
            protocols=tuple((each.name, bytes(each.metadata)) for each in message.protocols),
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=(
                message.rebalance_timeout_ms if version >= _JOIN_WITH_REBALANCE_TIMEOUT else session_ms
            ),
            requires_known_member_id=version >= _JOIN_WITH_KNOWN_MEMBERS and instance is None,
            supports_skipping_assignment=version >= _JOIN_WITH_SKIPPING,
            reason=(message.reason or "") if version >= _JOIN_WITH_REASON else "",
        ),
        lambda result: guarded(exchange, lambda: exchange.take(partial(_joined, version, result))),
    )


def failure_of_join(request: Request) -> Message:
    """The answer when the handler of JoinGroup failed."""
    return _joined(request.version, JoinResult(ErrorCode.UNKNOWN_SERVER_ERROR, request.message.member_id))


def _joined(version: int, result: JoinResult) -> Message:
    return JoinGroupResponse(
        version=version,
        error_code=int(result.error),
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol if version >= _JOIN_WITH_NO_PROTOCOL else result.protocol or "",
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                version=version,
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in result.members
        ],
    )


# SyncGroup


def handle_sync(services: Services, exchange: Exchange) -> None:
    """Take the leader's assignment, and answer with the member's own when it is stored."""
    request = exchange.request
    message, version = request.message, request.version
    protocol_type = message.protocol_type if version >= _SYNC_WITH_PROTOCOL else None
    protocol = message.protocol_name if version >= _SYNC_WITH_PROTOCOL else None
    if version >= _SYNC_WITH_PROTOCOL and (protocol_type is None or protocol is None):
        exchange.answer(_synced(version, SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)))
        return
    services.groups.sync(
        SyncRequest(
            group_id=message.group_id,
            member_id=message.member_id,
            instance_id=message.group_instance_id if version >= _SYNC_WITH_INSTANCES else None,
            generation=message.generation_id,
            protocol_type=protocol_type,
            protocol=protocol,
            assignments={each.member_id: bytes(each.assignment) for each in message.assignments},
        ),
        lambda result: guarded(exchange, lambda: exchange.answer(_synced(version, result))),
    )


def failure_of_sync(request: Request) -> Message:
    """The answer when the handler of SyncGroup failed."""
    return _synced(request.version, SyncResult(ErrorCode.UNKNOWN_SERVER_ERROR))


def _synced(version: int, result: SyncResult) -> Message:
    return SyncGroupResponse(
        version=version,
        error_code=int(result.error),
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )


# Heartbeat


def handle_heartbeat(services: Services, exchange: Exchange) -> None:
    """Have the coordinator know that the member lives, and the member whether it has to join again."""
    message, version = exchange.request.message, exchange.request.version
    instance = message.group_instance_id if version >= _HEARTBEAT_WITH_INSTANCES else None
    services.groups.heartbeat(
        message.group_id,
        Caller(message.member_id, instance, message.generation_id),
        lambda error: guarded(exchange, lambda: exchange.answer(_heard(version, error))),
    )


def failure_of_heartbeat(request: Request) -> Message:
    """The answer when the handler of Heartbeat failed."""
    return _heard(request.version, ErrorCode.UNKNOWN_SERVER_ERROR)


def _heard(version: int, error: ErrorCode) -> Message:
    return HeartbeatResponse(version=version, error_code=int(error))


# LeaveGroup


def handle_leave(services: Services, exchange: Exchange) -> None:
    """Have members leave: one below version 3, whose error is that of the whole; then several, each with its own."""
    request = exchange.request
    services.groups.leave(
        request.message.group_id,
        _leaving(request),
        lambda error, outcome: guarded(
            exchange, lambda: exchange.take(partial(_left, request.version, error, outcome))
        ),
    )


def failure_of_leave(request: Request) -> Message:
    """The answer when the handler of LeaveGroup failed."""
    return _left(request.version, ErrorCode.UNKNOWN_SERVER_ERROR, [])


def _leaving(request: Request) -> list[LeavingMember]:
    message, version = request.message, request.version
    if version < _LEAVE_WITH_MEMBERS:
        return [LeavingMember(message.member_id, None)]
    return [
        LeavingMember(
            each.member_id, each.group_instance_id, (each.reason or "") if version >= _LEAVE_WITH_REASON else ""
        )
        for each in message.members
    ]


def _left(version: int, error: ErrorCode, outcome: list[tuple[LeavingMember, ErrorCode]]) -> Message:
    if version < _LEAVE_WITH_MEMBERS:
        if error is ErrorCode.NONE and outcome:
            error = outcome[0][1]
        return LeaveGroupResponse(version=version, error_code=int(error))
    return LeaveGroupResponse(
        version=version,
        error_code=int(error),
        members=[
            LeaveGroupResponse.MemberResponse(
                version=version,
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                error_code=int(found),
            )
            for member, found in outcome
        ],
    )


def host_as_java(host: str) -> str:
    """An address as Kafka keeps it with a member: Java's, a slash before it and no groups of zeros left out."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return f"/{host}"
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return f"/{address.ipv4_mapped}"
        return "/" + ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))
    return f"/{address}"
