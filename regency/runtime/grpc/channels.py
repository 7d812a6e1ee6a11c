"""Internal gRPC channels and the control plane's services as typed methods over them.

Channels are tuned to find a restarted peer within half a second (gRPC's defaults needed 15 s).

Every call through here has a deadline. Where a network forgets a connection without a word, pings end it; and a call
that was not answered is the last one of its channel (`RenewedChannel`): the next one has a TCP connection of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Final, Generic, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from regency.model.errors import RegencyError
from regency.protos import admin_pb2, control_pb2, controller_pb2, inspection_pb2

MAX_MESSAGE_BYTES = 64 << 20
"""Largest message sent or taken on an internal channel, 64 MiB."""

KEEPALIVE_TIME_MS = 8_000
"""A connection on which nothing was heard for so long is asked whether it is still there."""

KEEPALIVE_TIMEOUT_MS = 5_000
"""So long it may take to answer; then it is closed, and the calls on it fail as UNAVAILABLE."""

KEEPALIVE_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
)
"""Of both ends: the calls of a quiet cluster are minutes apart, longer than firewalls and NAT remember a connection.

The ping timeout is needed too: while another ping of gRPC's own is under way, no keepalive ping is sent, and that one
has a minute. A server of an older version takes the fourth ping without data, after 24 s, for abuse and closes the
connection; the next call opens another one, and one under way is repeated by who may repeat it.
"""

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    *KEEPALIVE_OPTIONS,
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)

_SILENT: Final = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
ResponseT_co = TypeVar("ResponseT_co", covariant=True)
Request = TypeVar("Request")
Reply = TypeVar("Reply")


class RpcFailed(RegencyError):
    """A call to another process of the cluster got no answer: it is away, too slow, or broke off.

    The call may have run all the same, unless `unsent`: there was no connection, or the other process is of a
    version that does not have the method. With `silent` nothing was heard
    although there was a connection: it may be one that the network has forgotten.
    """

    code: ClassVar[str] = "rpc_failed"
    retriable: ClassVar[bool] = True

    def __init__(self, message: str, *, unsent: bool = False, silent: bool = False) -> None:
        super().__init__(message)
        self.unsent = unsent
        self.silent = silent


class _Future(Protocol[ResponseT_co]):
    def add_done_callback(self, callback: Callable[[object], None], /) -> None: ...
    def result(self) -> ResponseT_co: ...
    def cancel(self) -> bool: ...


class Method(Protocol[RequestT_contra, ResponseT_co]):
    """A unary method of a channel."""

    def __call__(self, request: RequestT_contra, timeout: float | None = None) -> ResponseT_co:
        """Call and wait."""
        ...

    def future(self, request: RequestT_contra, timeout: float | None = None) -> _Future[ResponseT_co]:
        """Call; the answer comes later."""
        ...


class Dial(Protocol):
    """Makes channels: gRPC, or what stands in for it."""

    def __call__(self, target: str, /, *, options: tuple[tuple[str, int], ...]) -> grpc.Channel:
        """A channel to `host:port` that has not connected yet."""
        ...


def open_channel(target: str, dial: Dial = grpc.insecure_channel) -> grpc.Channel:
    """A channel to `host:port`. Connects on first use; the caller closes it."""
    return dial(target, options=CHANNEL_OPTIONS)


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
            except RuntimeError:  # the loop is closed: no caller waits any more
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


class _Shared:
    """A channel, how many calls run on it, and whether it is the one that calls begin on."""

    def __init__(self, target: str, dial: Dial) -> None:
        self.target = target
        self.channel = open_channel(target, dial)
        self.calls = 0


class RenewedChannel:
    """Calls to one target at a time, on a channel that is opened for the first one and kept until one is not answered.

    A call to another target, and a call after one that met silence, begins on a new channel. Calls under way stay where
    they are, and their channel closes with the last one of them. Any thread.
    """

    def __init__(self, dial: Dial = grpc.insecure_channel) -> None:
        self._dial = dial
        self._lock = threading.Lock()
        self._newest: _Shared | None = None
        self._open: set[_Shared] = set()
        self._closed = False

    def call(
        self,
        target: str,
        method: Callable[[grpc.Channel], Method[Request, Reply]],
        request: Request,
        *,
        timeout_ms: int,
        name: str = "",
    ) -> Reply:
        """Call `host:port` and wait. Raises RpcFailed, which names `name` or the target."""
        with self._channel(target) as channel:
            return call(method(channel), request, timeout_ms=timeout_ms, target=name or target)

    async def call_async(
        self,
        target: str,
        method: Callable[[grpc.Channel], Method[Request, Reply]],
        request: Request,
        *,
        timeout_ms: int,
        name: str = "",
    ) -> Reply:
        """The same from an asyncio loop."""
        with self._channel(target) as channel:
            return await call_async(method(channel), request, timeout_ms=timeout_ms, target=name or target)

    def close(self) -> None:
        """Close every channel for good; calls that run are cancelled, later ones fail. Harmless twice."""
        with self._lock:
            self._closed = True
            self._newest = None
            closing, self._open = self._open, set()
        for shared in closing:
            shared.channel.close()

    @contextmanager
    def _channel(self, target: str) -> Iterator[grpc.Channel]:
        shared = self._join(target)
        silent = False
        try:
            yield shared.channel
        except RpcFailed as error:
            silent = error.silent
            raise
        finally:
            self._leave(shared, silent=silent)

    def _join(self, target: str) -> _Shared:
        with self._lock:
            if self._closed:
                raise RpcFailed(f"Nothing is sent to {target} any more: the channel is closed.", unsent=True)
            before, shared = self._newest, self._newest
            if shared is None or shared.target != target:
                shared = self._newest = _Shared(target, self._dial)
                self._open.add(shared)
            shared.calls += 1
        if before is not None and before is not shared:
            self._close_if_over(before)
        return shared

    def _leave(self, shared: _Shared, *, silent: bool) -> None:
        with self._lock:
            shared.calls -= 1
            if silent and self._newest is shared:
                self._newest = None
        self._close_if_over(shared)

    def _close_if_over(self, shared: _Shared) -> None:
        with self._lock:
            if shared.calls or shared is self._newest or shared not in self._open:
                return
            self._open.remove(shared)
        shared.channel.close()


def failure(error: object, target: str) -> RpcFailed:
    """What an RpcError means, in words."""
    if isinstance(error, grpc.Call):
        code, details = error.code(), error.details() or "no details"
        unsent = code is grpc.StatusCode.UNAVAILABLE and details.startswith("failed to connect")
        unsent = unsent or code is grpc.StatusCode.UNIMPLEMENTED
        silent = code in _SILENT and not unsent
        status = code.name.lower().replace("_", " ")
        return RpcFailed(f"No answer from {target}: {status} ({details}).", unsent=unsent, silent=silent)
    return RpcFailed(f"No answer from {target}: {error}.")


MessageT = TypeVar("MessageT", bound=Message)
AnswerT = TypeVar("AnswerT", bound=Message)


def _unary(
    channel: grpc.Channel, path: str, request: type[MessageT], reply: type[AnswerT]
) -> Method[MessageT, AnswerT]:
    return channel.unary_unary(
        path, request_serializer=request.SerializeToString, response_deserializer=reply.FromString
    )


class AgentControlClient:
    """What a controller asks of an agent (control.proto, AgentControl)."""

    def __init__(self, channel: grpc.Channel) -> None:
        service = "/regency.control.v1.AgentControl/"
        pb, response = control_pb2, control_pb2.ControlResponse
        self.leader_and_isr = _unary(channel, service + "LeaderAndIsr", pb.LeaderAndIsrRequest, response)
        self.update_metadata = _unary(channel, service + "UpdateMetadata", pb.UpdateMetadataRequest, response)
        self.stop_replica = _unary(channel, service + "StopReplica", pb.StopReplicaRequest, response)
        self.describe_replicas = _unary(
            channel, service + "DescribeReplicas", pb.DescribeReplicasRequest, pb.DescribeReplicasResponse
        )
        self.shut_down = _unary(channel, service + "ShutDown", pb.ShutDownRequest, response)


class ControllerClient:
    """What agents and tools ask of a controller (controller.proto, Controller)."""

    def __init__(self, channel: grpc.Channel) -> None:
        service = "/regency.controller.v1.Controller/"
        pb = controller_pb2
        self.report_replicas = _unary(
            channel, service + "ReportReplicas", pb.ReportReplicasRequest, pb.ReportReplicasResponse
        )
        self.controlled_shutdown = _unary(
            channel, service + "ControlledShutdown", pb.ControlledShutdownRequest, pb.ControlledShutdownResponse
        )
        self.describe = _unary(
            channel, service + "Describe", pb.DescribeControllerRequest, pb.DescribeControllerResponse
        )


class AdminClient:
    """What clients ask through agents, and our own tools ask of a controller (admin.proto, Admin)."""

    def __init__(self, channel: grpc.Channel) -> None:
        service = "/regency.admin.v1.Admin/"
        pb = admin_pb2
        self.forward = _unary(channel, service + "Forward", pb.Envelope, pb.EnvelopeReply)
        self.list_deletions = _unary(
            channel, service + "ListDeletions", pb.ListDeletionsRequest, pb.ListDeletionsResponse
        )
        self.resign = _unary(channel, service + "Resign", pb.ResignRequest, pb.ResignResponse)
        self.shut_down_broker = _unary(
            channel, service + "ShutDownBroker", pb.ShutDownBrokerRequest, pb.ShutDownBrokerResponse
        )
        self.forget_broker = _unary(channel, service + "ForgetBroker", pb.ForgetBrokerRequest, pb.ForgetBrokerResponse)


class InspectionClient:
    """What people ask of a controller process (inspection.proto, Inspection)."""

    def __init__(self, channel: grpc.Channel) -> None:
        service = "/regency.inspection.v1.Inspection/"
        pb = inspection_pb2
        self.read_history = _unary(channel, service + "ReadHistory", pb.ReadHistoryRequest, pb.ReadHistoryResponse)
        self.examine = _unary(channel, service + "Examine", pb.ExamineRequest, pb.ExamineResponse)
        self.summarise = _unary(channel, service + "Summarise", pb.SummariseRequest, pb.SummariseResponse)
