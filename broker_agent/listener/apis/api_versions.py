"""ApiVersions: which APIs in which versions are offered."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Exchange
from regency.kafka.apis import OFFERED, ApiKey
from regency.kafka.codec import ApiVersionsResponse, Message, Request, encode_response
from regency.model.kafka_errors import ErrorCode

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(services: Services, exchange: Exchange) -> None:  # noqa: ARG001 - the shape of every handler
    """Answer the version table; INVALID_REQUEST to client names Kafka does not take either (KIP-511)."""
    request = exchange.request
    message = request.message
    named = request.version < 3 or all(
        _SOFTWARE.fullmatch(text) for text in (message.client_software_name, message.client_software_version)
    )
    exchange.answer(_answer(request.version, ErrorCode.NONE if named else ErrorCode.INVALID_REQUEST))


def failure(request: Request) -> Message:
    """The answer when the handler failed."""
    return _answer(request.version, ErrorCode.UNKNOWN_SERVER_ERROR)


def unsupported_version(correlation_id: int) -> bytearray:
    """The answer to a version above ours: version 0, the error and what is offered of ApiVersions itself, so that the
    client can ask again (KIP-511).
    """
    answer = _answer(0, ErrorCode.UNSUPPORTED_VERSION, [ApiKey.API_VERSIONS])
    return encode_response(ApiKey.API_VERSIONS, 0, correlation_id, answer)


def _answer(version: int, error: ErrorCode, apis: Iterable[ApiKey] = OFFERED) -> Message:
    entry = ApiVersionsResponse.ApiVersion
    keys = [
        entry(version=version, api_key=int(api), min_version=OFFERED[api].lowest, max_version=OFFERED[api].highest)
        for api in sorted(apis)
    ]
    return ApiVersionsResponse(version=version, error_code=int(error), api_keys=keys)
