"""A client's connections, one for each broker: answers come in order, and one failure fails all that is under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulation.cluster.addresses import CLIENTS
from simulation.kernel.scheduler import Process
from simulation.network import Call, Channel, NetFailed, Network

Done = Callable[[Any], None]

LOST = NetFailed("the connection was lost")


class _Connection:
    __slots__ = ("channel", "under_way")

    def __init__(self) -> None:
        self.channel = Channel()
        self.under_way: dict[Call, Done] = {}


class Connections:
    """Opens a connection when there is none; after a failure the next request opens a new one."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process
        self._open: dict[str, _Connection] = {}

    def ask(self, address: str, request: Any, done: Done, timeout_ms: int) -> None:
        """Send a request behind those that are under way; `done` gets the answer or NetFailed, once."""
        connection = self._open.get(address)
        if connection is None:
            connection = self._open[address] = _Connection()
        ours = connection

        def answered(answer: Any) -> None:
            done = ours.under_way.pop(call)
            if isinstance(answer, NetFailed):
                self._fail(address, ours, answer, done)
            else:
                done(answer)

        call = self._network.call(
            self._process,
            CLIENTS,
            address,
            request,
            answered,
            timeout_us=self._process.clock.delay_us(timeout_ms),
            channel=connection.channel,
        )
        connection.under_way[call] = done

    def close(self) -> None:
        for connection in self._open.values():
            for call in connection.under_way:
                call.close()
            connection.under_way.clear()
        self._open.clear()

    def _fail(self, address: str, connection: _Connection, failed: NetFailed, first: Done) -> None:
        if self._open.get(address) is connection:
            del self._open[address]
        others = list(connection.under_way.items())
        connection.under_way.clear()
        first(failed)
        for call, done in others:
            call.close()
            done(LOST)
