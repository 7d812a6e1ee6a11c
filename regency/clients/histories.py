"""The decision records on a host, asked from its controller process page by page."""

from __future__ import annotations

from collections.abc import Iterator

from regency.clients.controllers import ask_controller
from regency.protos import inspection_pb2 as pb
from regency.runtime.grpc.clients import InspectionClient

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
