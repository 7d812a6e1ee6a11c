"""AlterConfigs and IncrementalAlterConfigs: forwarded to the controller, whichever broker the client has asked."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from regency.broker_agent.control.admin_forwarder import NotController
from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Building, Exchange
from regency.kafka.apis import ApiKey
from regency.kafka.codec import AlterConfigsResponse, IncrementalAlterConfigsResponse, Message, Request
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.dynamic import Operation
from regency.protos import admin_pb2
from regency.runtime.grpc.channels import RpcFailed
from regency.runtime.grpc.clients import AdminClient

TIMEOUT_MS = 20_000
"""How long the controller may take: these requests bring no timeout, and clients give up after 30 s."""

_Resource = tuple[int, str]
"""Type and name."""


class _Result(NamedTuple):
    error: ErrorCode
    message: str = ""


def handle(services: Services, exchange: Exchange) -> None:
    """Let the controller validate and write the changes."""
    exchange.run(_alter(services, exchange.request))


def failure(request: Request) -> Message:
    """The answer when the handler failed."""
    return _answer(request, _for_all(request, ErrorCode.UNKNOWN_SERVER_ERROR, ""))


async def _alter(services: Services, request: Request) -> Building:
    forwarded, results = await services.build(request, partial(_encode, request))
    if forwarded.resources:
        try:
            reply = await services.admin.forward(
                lambda channel: AdminClient(channel).alter_configs,
                forwarded,
                timeout_ms=TIMEOUT_MS,
                require_local=False,
            )
        except NotController as error:
            return partial(_answer, request, _for_all(request, ErrorCode.NOT_CONTROLLER, str(error)))
        except RpcFailed as error:
            return partial(_answer, request, _for_all(request, ErrorCode.REQUEST_TIMED_OUT, str(error)))
        if reply.outcome.error_code != ErrorCode.NONE:
            return partial(
                _answer, request, _for_all(request, ErrorCode(reply.outcome.error_code), reply.outcome.message)
            )
        for each in reply.resources:
            results[each.resource_type, each.name] = _Result(ErrorCode(each.error_code), each.message)
    return partial(_answer, request, results)


def _encode(request: Request) -> tuple[admin_pb2.AlterConfigsRequest, dict[_Resource, _Result]]:
    """What is asked of the controller, and what is refused here."""
    incremental = request.api_key is ApiKey.INCREMENTAL_ALTER_CONFIGS
    forwarded = admin_pb2.AlterConfigsRequest(incremental=incremental, validate_only=request.message.validate_only)
    results: dict[_Resource, _Result] = {}
    for resource in request.message.resources:
        problem = _problem(resource, incremental)
        if problem:
            results[_key(resource)] = _Result(ErrorCode.INVALID_REQUEST, problem)
            continue
        wanted = forwarded.resources.add(resource_type=resource.resource_type, name=resource.resource_name)
        for config in resource.configs:
            operation = config.config_operation if incremental else int(Operation.SET)
            wanted.changes.add(key=config.name, operation=operation, value=config.value or "")
    return forwarded, results


def _problem(resource: Message, incremental: bool) -> str:
    """What of a resource cannot even be said to the controller."""
    for config in resource.configs:
        if incremental and config.config_operation not in tuple(Operation):
            return f"{config.name}: there is no operation {config.config_operation}."
        deleted = incremental and config.config_operation == Operation.DELETE
        if config.value is None and not deleted:
            return f"{config.name} has no value; to return to the default, delete it."
    return ""


def _key(resource: Message) -> _Resource:
    return resource.resource_type, resource.resource_name


def _for_all(request: Request, error: ErrorCode, message: str) -> dict[_Resource, _Result]:
    return {_key(resource): _Result(error, message) for resource in request.message.resources}


def _answer(request: Request, results: Mapping[_Resource, _Result]) -> Message:
    incremental = request.api_key is ApiKey.INCREMENTAL_ALTER_CONFIGS
    response_class = IncrementalAlterConfigsResponse if incremental else AlterConfigsResponse
    return response_class(
        version=request.version,
        responses=[
            response_class.AlterConfigsResourceResponse(
                version=request.version,
                error_code=int(result.error),
                error_message=None if result.error is ErrorCode.NONE else result.message or result.error.name,
                resource_type=resource_type,
                resource_name=name,
            )
            for (resource_type, name), result in results.items()
        ],
    )
