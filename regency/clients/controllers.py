"""Questions to the controller process of a broker, whether it rules or not; decision records come in pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import grpc

from regency.protos import inspection_pb2 as pb
from regency.runtime.grpc.channels import InspectionClient, Method, call, open_channel

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


PAGE_TIMEOUT_MS = 20_000


def history_lines(address: str, request: pb.ReadHistoryRequest | None = None) -> Iterator[bytes]:
    """Lines of JSON as they stand in the files of the host, in the order they were decided. Raises RpcFailed."""
    asked = pb.ReadHistoryRequest()
    if request is not None:
        asked.CopyFrom(request)
    while True:
        page = ask_controller(
            address, lambda channel: InspectionClient(channel).read_history, asked, timeout_ms=PAGE_TIMEOUT_MS
        )
        yield from page.decisions
        if not page.HasField("next"):
            return
        asked.after.CopyFrom(page.next)
