"""Connections that the simulated network forgets, under the channels of production code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from simulation.cluster.channels import dialing
from simulation.kernel.scheduler import Process, Scheduler
from simulation.kernel.threads import simulated_threads
from simulation.network import Network, Respond

from regency.controller.channel.channel_manager import GrpcAgent
from regency.model.facts import Endpoint
from regency.protos import control_pb2 as pb
from regency.runtime.grpc.channels import KEEPALIVE_TIME_MS, KEEPALIVE_TIMEOUT_MS, RpcFailed

pytestmark = pytest.mark.sim

CALLER, SERVER = "host-1", "host-2"
PAIR = ((CALLER, SERVER),)


class Bench:
    """A controller's port to an agent that answers every request at once."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(1)
        self.network = Network(self.scheduler)
        self.said: list[tuple[int, str]] = []
        """At which second each call ended, and how."""
        self.caller = Process(self.scheduler, "controller-1")
        self.server = Process(self.scheduler, "agent-2")
        self.network.listen(f"{SERVER}:1", SERVER, self.server, _serve)
        endpoint = Endpoint("CONTROL", SERVER, 1, "PLAINTEXT")
        dial = dialing(self.scheduler, self.network, self.caller, CALLER)
        self.port = GrpcAgent(endpoint, timeout_ms=20_000, dial=dial)

    def call(self, timeout_ms: int = 4_000) -> str:
        def run() -> None:
            try:
                self.port.describe(pb.DescribeReplicasRequest(), timeout_ms)
                how = "answered"
            except RpcFailed as error:
                how = "silent" if error.silent else "unsent" if error.unsent else str(error)
            self.said.append((self.scheduler.now_us // 1_000_000, how))

        self.scheduler.spawn(self.caller, "asks", run)
        self.scheduler.run_until(self.scheduler.now_us + 25_000_000)
        return self.said[-1][1]


def _serve(_request: object, respond: Respond) -> None:
    respond(pb.DescribeReplicasResponse().SerializeToString())


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    with simulated_threads(made.scheduler):
        yield made


def test_a_call_on_a_forgotten_connection_waits_in_vain_and_the_next_one_has_a_new_connection(bench: Bench) -> None:
    assert bench.network.forget(PAIR) == 0, "nothing is established yet"
    assert bench.call() == "answered"
    assert bench.network.forget(PAIR) == 1
    assert bench.call() == "silent"
    assert bench.call() == "answered"


def test_a_ping_finds_a_forgotten_connection_before_a_call_has_waited_its_time(bench: Bench) -> None:
    bench.call()
    bench.network.forget(PAIR)
    began = bench.scheduler.now_us // 1_000_000
    assert bench.call(timeout_ms=20_000) == "silent"
    ended, _ = bench.said[-1]
    assert ended - began <= (KEEPALIVE_TIME_MS + KEEPALIVE_TIMEOUT_MS) // 1_000


def test_the_end_of_a_peer_is_not_heard_on_a_forgotten_connection(bench: Bench) -> None:
    bench.call()
    bench.network.forget(PAIR)
    bench.server.kill()
    assert bench.call() == "silent"
    assert bench.call() == "unsent"
