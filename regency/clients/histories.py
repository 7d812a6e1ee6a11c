"""The decision records on a host, asked from its controller process page by page."""

from __future__ import annotations

from collections.abc import Iterator

from regency.protos import inspection_pb2 as pb
from regency.runtime.grpc_channels import call, open_channel
from regency.runtime.grpc_clients import InspectionClient

PAGE_TIMEOUT_MS = 20_000


def history_lines(address: str, request: pb.ReadHistoryRequest | None = None) -> Iterator[bytes]:
    """Lines of JSON as they stand in the files of the host, in the order they were decided. Raises RpcFailed."""
    asked = pb.ReadHistoryRequest()
    if request is not None:
        asked.CopyFrom(request)
    channel = open_channel(address)
    try:
        client = InspectionClient(channel)
        while True:
            target = f"the controller at {address}"
            page = call(client.read_history, asked, timeout_ms=PAGE_TIMEOUT_MS, target=target)
            yield from page.decisions
            if not page.HasField("next"):
                return
            asked.after.CopyFrom(page.next)
    finally:
        channel.close()
