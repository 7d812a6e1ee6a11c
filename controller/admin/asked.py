"""What a decoded request of a client becomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from regency.controller.events import Request
from regency.kafka.apis import Message
from regency.model.errors import RegencyError
from regency.model.kafka_errors import ErrorCode
from regency.protos.admin_pb2 import Awaited

T = TypeVar("T")


class RequestRefused(RegencyError):
    """A request that makes no sense as a whole; `error` goes to the client, for everything it names."""

    code = "request_refused"

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


class Asked(NamedTuple, Generic[T]):
    """An event for the controller's thread; the response to its outcome, with what the client is to see before it."""

    event: Request[T]
    respond: Callable[[T], tuple[Message, Sequence[Awaited]]]
