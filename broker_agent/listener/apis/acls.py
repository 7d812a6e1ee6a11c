"""DescribeAcls: there is no authorizer, and a tool is told so as by Kafka without one."""

from __future__ import annotations

from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Exchange
from regency.kafka.codec import DescribeAclsResponse, Message, Request
from regency.model.kafka_errors import ErrorCode


def handle(services: Services, exchange: Exchange) -> None:  # noqa: ARG001 - the shape of every handler
    """SECURITY_DISABLED."""
    exchange.answer(_answer(exchange.request, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker"))


def failure(request: Request) -> Message:
    """The answer when the handler failed."""
    return _answer(request, ErrorCode.UNKNOWN_SERVER_ERROR, None)


def _answer(request: Request, error: ErrorCode, message: str | None) -> Message:
    return DescribeAclsResponse(version=request.version, error_code=int(error), error_message=message, resources=[])
