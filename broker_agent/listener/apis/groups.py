"""DescribeGroups, ListGroups and DeleteGroups: groups as tools see them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from regency.broker_agent.groups.api import DescribedGroup, ListedGroup
from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Building, Exchange, guarded
from regency.broker_agent.listener.turns import FEW_ROWS
from regency.broker_agent.steps import Steps
from regency.kafka.codec import DeleteGroupsResponse, DescribeGroupsResponse, ListGroupsResponse, Message, Request
from regency.model.kafka_errors import ErrorCode

GROUP_OPERATIONS: Final = frozenset({3, 6, 8})
"""Read, delete, describe: all, as there is no authorizer."""
CLASSIC: Final = "classic"
GROUPS_PER_STEP: Final = 100
"""Looked at before others have a turn."""
_LIST_WITH_STATES: Final = 4
_LIST_WITH_TYPES: Final = 5


def handle_describe(services: Services, exchange: Exchange) -> None:
    """State and members of groups; one that is not there is Dead."""
    exchange.work(_describe(services, exchange))


def _describe(services: Services, exchange: Exchange) -> Steps[Building]:
    request = exchange.request
    groups: list[DescribedGroup] = []
    for name in request.message.groups:
        groups.append(services.groups.describe(name))
        if len(groups) % GROUPS_PER_STEP == 0:
            yield
    if sum(1 + len(group.members) for group in groups) > FEW_ROWS:
        exchange.is_large = True
    return partial(_described, request, groups)


def failure_of_describe(request: Request) -> Message:
    """The answer when the handler of DescribeGroups failed."""
    failed = ErrorCode.UNKNOWN_SERVER_ERROR
    return _described(request, [DescribedGroup(failed, name, state="") for name in request.message.groups])


def _described(request: Request, groups: Iterable[DescribedGroup]) -> Message:
    version = request.version
    group_class = DescribeGroupsResponse.DescribedGroup
    asked = request.message.include_authorized_operations
    return DescribeGroupsResponse(
        version=version,
        groups=[
            group_class(
                version=version,
                error_code=int(group.error),
                group_id=group.group_id,
                group_state=group.state,
                protocol_type=group.protocol_type,
                protocol_data=group.protocol,
                members=[
                    group_class.DescribedGroupMember(
                        version=version,
                        member_id=member.member_id,
                        group_instance_id=member.instance_id,
                        client_id=member.client_id,
                        client_host=member.client_host,
                        member_metadata=member.metadata,
                        member_assignment=member.assignment,
                    )
                    for member in group.members
                ],
                authorized_operations=GROUP_OPERATIONS if asked and group.error is ErrorCode.NONE else None,
            )
            for group in groups
        ],
    )


def handle_list(services: Services, exchange: Exchange) -> None:
    """The groups that this broker keeps, of the states and types that are asked for, in any case."""
    request = exchange.request
    message = request.message
    types = message.types_filter if request.version >= _LIST_WITH_TYPES else ()
    states = message.states_filter if request.version >= _LIST_WITH_STATES else ()
    error, groups = services.groups.list_groups(states)
    if types and CLASSIC not in {each.lower() for each in types}:
        groups = ()
    if len(groups) > FEW_ROWS:
        exchange.is_large = True
    exchange.take(partial(_listed, request.version, error, groups))


def failure_of_list(request: Request) -> Message:
    """The answer when the handler of ListGroups failed."""
    return _listed(request.version, ErrorCode.UNKNOWN_SERVER_ERROR, ())


def _listed(version: int, error: ErrorCode, groups: Iterable[ListedGroup]) -> Message:
    return ListGroupsResponse(
        version=version,
        error_code=int(error),
        groups=[
            ListGroupsResponse.ListedGroup(
                version=version,
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=CLASSIC,
            )
            for group in groups
        ],
    )


def handle_delete(services: Services, exchange: Exchange) -> None:
    """Forget groups without members, with all that they have committed; answered when the last is gone."""
    exchange.change(_delete(services, exchange))


def _delete(services: Services, exchange: Exchange) -> Steps[None]:
    request = exchange.request
    names = list(dict.fromkeys(request.message.groups_names))
    results: dict[str, ErrorCode] = {}

    def respond(name: str, error: ErrorCode) -> None:
        results[name] = error
        if len(results) == len(names):
            guarded(exchange, lambda: exchange.take(partial(_deleted, request.version, results)))

    if not names:
        exchange.answer(_deleted(request.version, {}))
    for number, name in enumerate(names, 1):
        services.groups.delete_group(name, partial(respond, name))
        if number % GROUPS_PER_STEP == 0:
            yield


def failure_of_delete(request: Request) -> Message:
    """The answer when the handler of DeleteGroups failed."""
    return _deleted(request.version, dict.fromkeys(request.message.groups_names, ErrorCode.UNKNOWN_SERVER_ERROR))


def _deleted(version: int, results: dict[str, ErrorCode]) -> Message:
    return DeleteGroupsResponse(
        version=version,
        results=[
            DeleteGroupsResponse.DeletableGroupResult(version=version, group_id=name, error_code=int(error))
            for name, error in results.items()
        ],
    )
