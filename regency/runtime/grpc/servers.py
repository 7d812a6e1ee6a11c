"""Internal gRPC servers: bounded threads, typed handlers, and a port that only one process can have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import ClassVar, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from regency.model.errors import RegencyError
from regency.runtime.grpc.channels import KEEPALIVE_OPTIONS, MAX_MESSAGE_BYTES

LEAST_PING_INTERVAL_MS = 1_000
"""Peers that ask more often whether a quiet connection is still there are cut off. Far below what any version does."""

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.so_reuseport", 0),
    *KEEPALIVE_OPTIONS,
    ("grpc.http2.min_ping_interval_without_data_ms", LEAST_PING_INTERVAL_MS),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)

ANY_HOST = "0.0.0.0"  # noqa: S104 (Kafka's meaning of a listener without a host)

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)

MethodHandler: TypeAlias = "grpc.RpcMethodHandler[Message, Message]"
ServiceHandler: TypeAlias = "grpc.GenericRpcHandler[Message, Message]"


class PortUnavailable(RegencyError):
    """A port cannot be bound: another process has it, or the host is not one of this machine's."""

    code: ClassVar[str] = "port_unavailable"


def unary(handle: Callable[[Request], Reply], request: type[Request], reply: type[Reply]) -> MethodHandler:
    """A method that takes one message and answers one. `handle` runs on a thread of the server's pool."""

    def run(message: Message, _: grpc.ServicerContext) -> Message:
        assert isinstance(message, request)
        return handle(message)

    def serialize(message: Message) -> bytes:
        assert isinstance(message, reply)
        return message.SerializeToString()

    return grpc.unary_unary_rpc_method_handler(
        run, request_deserializer=request.FromString, response_serializer=serialize
    )


def service(name: str, methods: dict[str, MethodHandler]) -> ServiceHandler:
    """A service of the .proto files (whole name, as in `regency.control.v1.AgentControl`) with its methods by name."""
    return grpc.method_handlers_generic_handler(name, methods)


class GrpcServer:
    """A gRPC server with at most `threads` calls running; more than four times as many waiting are refused."""

    def __init__(self, services: Sequence[ServiceHandler], *, threads: int, name: str) -> None:
        import_module(
            "grpc._channel"
        )  # who serves calls too, maybe first when there is no descriptor to read code with
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._server = grpc.server(
            self._pool, handlers=list(services), options=SERVER_OPTIONS, maximum_concurrent_rpcs=threads * 5
        )
        self._started = False

    def bind(self, host: str, port: int) -> int:
        """Take a port (0: any free one; host "": all interfaces) and tell which. Raises PortUnavailable."""
        where = host or ANY_HOST
        address = f"[{where}]:{port}" if ":" in where else f"{where}:{port}"
        try:
            bound: int = self._server.add_insecure_port(address)
        except RuntimeError:
            bound = 0
        if bound == 0:
            raise PortUnavailable(
                f"Cannot listen on {address}.",
                hint="Another process may have the port; choose another one in listeners, or stop that process.",
            )
        return bound

    def start(self) -> None:
        """Take calls."""
        self._started = True
        self._server.start()

    def stop(self, grace_ms: int) -> None:
        """Take no more calls, give running ones `grace_ms` milliseconds, release the port. Harmless twice."""
        if self._started:
            self._server.stop(grace_ms / 1000).wait(grace_ms / 1000 + 1)
        self._pool.shutdown(wait=False, cancel_futures=True)
