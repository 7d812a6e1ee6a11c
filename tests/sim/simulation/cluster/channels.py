"""gRPC channels over the simulated network: what production code dials, closes and takes anew is its own.

And the hosts and ports of a cluster: an agent and its controller share a host, as they share a machine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import grpc

from regency.model.crash_points import crash_point
from regency.model.facts import Endpoint
from regency.model.ids import BrokerId
from regency.protos.controller_pb2 import ReportReplicasRequest
from regency.runtime.grpc.channels import Dial
from simulation.kernel.scheduler import Process, Scheduler
from simulation.network import Call, Connection, NetFailed, Network

MS_US: Final = 1_000


class ControlAsked(NamedTuple):
    """A control request on its way to an agent, encoded."""

    rpc: type[Any]
    data: bytes


class ReportAsked(NamedTuple):
    """ReportReplicas on its way to a controller, encoded."""

    data: bytes


class Failed(grpc.RpcError):
    """A call that has no answer, as gRPC puts it."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self._code = code
        self._details = details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


_CALL: Any = grpc.Call
_CALL.register(Failed)  # as what production looks at tells it what failed


def dialing(scheduler: Scheduler, network: Network, process: Process, host: str) -> Dial:
    """Makes channels of a process on a host."""

    def dial(target: str, /, *, options: tuple[tuple[str, int], ...]) -> Any:
        return SimChannel(scheduler, network, process, host, target, dict(options))

    return dial


class SimChannel:
    """What is used of a grpc.Channel: unary calls from actors, and `close`. It has one connection at a time."""

    def __init__(
        self, scheduler: Scheduler, network: Network, process: Process, host: str, target: str, options: dict[str, int]
    ) -> None:
        self._scheduler = scheduler
        self._network = network
        self._process = process
        self._host = host
        self._target = target
        every_ms, wait_ms = options.get("grpc.keepalive_time_ms"), options.get("grpc.keepalive_timeout_ms")
        pings = None if every_ms is None or wait_ms is None else (every_ms * MS_US, wait_ms * MS_US)
        self._connection = Connection(process, pings)
        self._running: dict[Call, Callable[[Any], None]] = {}
        self._closed = False

    def unary_unary(
        self, path: str, *, request_serializer: Callable[[Any], bytes], response_deserializer: Callable[[bytes], Any]
    ) -> Callable[..., Any]:
        del path, request_serializer  # the type of a request says both
        return partial(self._call, response_deserializer)

    def close(self) -> None:
        """End the connection; calls that run are cancelled. Harmless twice."""
        self._closed = True
        self._network.hung_up(self._connection)
        running, self._running = self._running, {}
        for call, resume in running.items():
            call.close()
            resume(None)

    def _call(self, decode: Callable[[bytes], Any], message: Any, timeout: float) -> Any:
        """Send a request and wait for its answer. Raises Failed; ValueError where the channel is closed."""
        self._scheduler.compute()
        if self._closed:
            raise ValueError("Cannot invoke RPC on closed channel!")
        crash_point("grpc.call.before_call")
        network = self._network
        request: ControlAsked | ReportAsked
        if isinstance(message, ReportReplicasRequest):
            request = ReportAsked(message.SerializeToString())
        else:
            request = ControlAsked(type(message), message.SerializeToString())
            if network.on_ask is not None:
                network.on_ask(self._process, self._target, request)
        calls: list[Call] = []

        def register(resume: Callable[[Any], None]) -> None:
            timeout_us = self._process.clock.delay_us(round(timeout * 1_000))
            call = network.call(
                self._process,
                self._host,
                self._target,
                request,
                resume,
                timeout_us=timeout_us,
                connection=self._connection,
            )
            calls.append(call)
            self._running[call] = resume

        answer = self._scheduler.wait(register)
        self._running.pop(calls[0], None)
        crash_point("grpc.call.after_reply")
        if answer is None:
            raise Failed(grpc.StatusCode.CANCELLED, "Channel closed!")
        if isinstance(answer, NetFailed):
            raise _failed(answer)
        return decode(answer)


def _failed(failed: NetFailed) -> Failed:
    if failed.late:
        return Failed(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
    why = "failed to connect to all addresses" if failed.unsent else failed.why
    return Failed(grpc.StatusCode.UNAVAILABLE, why)


KAFKA = 9092
CONTROL = 9093
CONTROLLER = 9094
CLIENTS = "clients"


def host_of(broker: BrokerId) -> str:
    return f"h{broker}"


def broker_at(address: str) -> BrokerId:
    return BrokerId(int(address.partition(":")[0].removeprefix("h")))


def endpoints_of(broker: BrokerId) -> tuple[Endpoint, ...]:
    host = host_of(broker)
    return (
        Endpoint("PLAINTEXT", host, KAFKA),
        Endpoint("CONTROL", host, CONTROL),
        Endpoint("CONTROLLER", host, CONTROLLER),
    )
