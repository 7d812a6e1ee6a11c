"""The connection to one incarnation of an agent, for what its controller orders and asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from grpc import insecure_channel

from regency.controller.channel.sender import Message
from regency.model.facts import Endpoint
from regency.protos import control_pb2 as pb
from regency.runtime.grpc.channels import AgentControlClient, Dial, Method, RenewedChannel

Request = TypeVar("Request")
Reply = TypeVar("Reply")


class GrpcAgent:
    """Calls of one agent over gRPC."""

    def __init__(self, endpoint: Endpoint, *, timeout_ms: int, dial: Dial = insecure_channel) -> None:
        self._target = f"{endpoint.host}:{endpoint.port}"
        self._timeout_ms = timeout_ms
        self._channel = RenewedChannel(dial)

    def call(self, message: Message) -> pb.ControlResponse:
        """Send a request and wait for its answer. Raises RpcFailed."""
        if isinstance(message, pb.LeaderAndIsrRequest):
            return self._ask(lambda client: client.leader_and_isr, message, self._timeout_ms)
        if isinstance(message, pb.UpdateMetadataRequest):
            return self._ask(lambda client: client.update_metadata, message, self._timeout_ms)
        return self._ask(lambda client: client.stop_replica, message, self._timeout_ms)

    def describe(self, request: pb.DescribeReplicasRequest, timeout_ms: int) -> pb.DescribeReplicasResponse:
        """Ask and wait. Raises RpcFailed."""
        return self._ask(lambda client: client.describe_replicas, request, timeout_ms)

    def close(self) -> None:
        """End the connection, and whatever call runs on it."""
        self._channel.close()

    def _ask(
        self, method: Callable[[AgentControlClient], Method[Request, Reply]], request: Request, timeout_ms: int
    ) -> Reply:
        return self._channel.call(
            self._target, lambda channel: method(AgentControlClient(channel)), request, timeout_ms=timeout_ms
        )


Connect = Callable[[Endpoint], GrpcAgent]
