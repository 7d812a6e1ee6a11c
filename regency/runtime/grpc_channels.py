"""Internal gRPC channels, tuned to find a restarted peer within half a second (gRPC's defaults needed 15 s).

Every call through here has a deadline. A channel belongs to one incarnation of a peer: open a new one per broker epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar, Generic, Protocol, TypeVar

import grpc

from regency.model.errors import RegencyError

MAX_MESSAGE_BYTES = 64 << 20
"""Largest message sent or taken on an internal channel, 64 MiB."""

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
ResponseT_co = TypeVar("ResponseT_co", covariant=True)
Request = TypeVar("Request")
Reply = TypeVar("Reply")


class RpcFailed(RegencyError):
    """A call to another process of the cluster got no answer: it is away, too slow, or broke off.

    The call may have run all the same, unless `unsent`: nobody could be connected to.
    """

    code: ClassVar[str] = "rpc_failed"
    retriable: ClassVar[bool] = True

    def __init__(self, message: str, *, unsent: bool = False) -> None:
        super().__init__(message)
        self.unsent = unsent


class _Future(Protocol[ResponseT_co]):
    def add_done_callback(self, callback: Callable[[object], None], /) -> None: ...
    def result(self) -> ResponseT_co: ...
    def cancel(self) -> bool: ...


class Method(Protocol[RequestT_contra, ResponseT_co]):
    """A unary method of a generated stub."""

    def __call__(self, request: RequestT_contra, timeout: float | None = None) -> ResponseT_co:
        """Call and wait."""
        ...

    def future(self, request: RequestT_contra, timeout: float | None = None) -> _Future[ResponseT_co]:
        """Call; the answer comes later."""
        ...


def open_channel(target: str) -> grpc.Channel:
    """A channel to `host:port`. Connects on first use; the caller closes it."""
    return grpc.insecure_channel(target, options=CHANNEL_OPTIONS)


def call(method: Method[Request, Reply], request: Request, *, timeout_ms: int, target: str) -> Reply:
    """Call and wait, at most `timeout_ms` milliseconds. Raises RpcFailed, which names `target`."""
    try:
        return method(request, timeout=timeout_ms / 1000)
    except grpc.RpcError as error:
        raise failure(error, target) from error


class AsyncCall(Generic[Reply]):
    """A call whose answer is awaited on an asyncio loop without a thread of its own."""

    def __init__(self, future: _Future[Reply], target: str) -> None:
        self._future = future
        self._target = target

    async def result(self) -> Reply:
        """The answer. Raises RpcFailed. Cancelling the wait cancels the call."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not done.done():
                done.set_result(None)

        def on_done(_: object) -> None:
            try:
                loop.call_soon_threadsafe(wake)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return

        self._future.add_done_callback(on_done)
        try:
            await done
        except asyncio.CancelledError:
            self._future.cancel()
            raise
        try:
            return self._future.result()
        except grpc.RpcError as error:
            raise failure(error, self._target) from error
        except grpc.FutureCancelledError as error:
            raise RpcFailed(f"The call to {self._target} was cancelled.") from error


async def call_async(method: Method[Request, Reply], request: Request, *, timeout_ms: int, target: str) -> Reply:
    """Call from an asyncio loop, at most `timeout_ms` milliseconds. Raises RpcFailed, which names `target`."""
    return await AsyncCall(method.future(request, timeout=timeout_ms / 1000), target).result()


def failure(error: object, target: str) -> RpcFailed:
    """What an RpcError means, in words."""
    if isinstance(error, grpc.Call):
        code, details = error.code(), error.details() or "no details"
        unsent = code is grpc.StatusCode.UNAVAILABLE and details.startswith("failed to connect")
        status = code.name.lower().replace("_", " ")
        return RpcFailed(f"No answer from {target}: {status} ({details}).", unsent=unsent)
    return RpcFailed(f"No answer from {target}: {error}.")
