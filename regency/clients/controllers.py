"""Questions to the controller process of a broker, whether it rules or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import grpc

from regency.runtime.grpc.channels import Method, call, open_channel

REQUEST_TIMEOUT_MS = 30_000

RequestT = TypeVar("RequestT")
ReplyT = TypeVar("ReplyT")


def ask_controller(
    address: str,
    method: Callable[[grpc.Channel], Method[RequestT, ReplyT]],
    request: RequestT,
    *,
    timeout_ms: int = REQUEST_TIMEOUT_MS,
) -> ReplyT:
    """A controller's answer. Raises RpcFailed."""
    channel = open_channel(address)
    try:
        return call(method(channel), request, timeout_ms=timeout_ms, target=f"the controller at {address}")
    finally:
        channel.close()
