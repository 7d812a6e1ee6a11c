"""Channels that the network forgets: the next call has a connection of its own, and nothing is left of the old one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from breaking.tcp_proxy import TcpProxy

from regency.protos import controller_pb2 as pb
from regency.runtime.grpc import channels as grpc_channels
from regency.runtime.grpc.channels import ControllerClient, RenewedChannel, RpcFailed
from regency.runtime.grpc.servers import GrpcServer, service, unary

ANSWER = pb.DescribeControllerResponse(broker_id=7)


class Peer:
    """Answers Describe; ReportReplicas once the test lets it."""

    def __init__(self) -> None:
        self.reported = threading.Event()
        self.may_answer = threading.Event()
        describe = unary(lambda _: ANSWER, pb.DescribeControllerRequest, pb.DescribeControllerResponse)
        report = unary(self._report, pb.ReportReplicasRequest, pb.ReportReplicasResponse)
        methods = {"Describe": describe, "ReportReplicas": report}
        self.server = GrpcServer([service("regency.controller.v1.Controller", methods)], threads=4, name="peer")
        self.wire = TcpProxy(("127.0.0.1", self.server.bind("127.0.0.1", 0)))
        self.server.start()
        self.channel = RenewedChannel()

    def describe(self, timeout_ms: int = 30_000) -> pb.DescribeControllerResponse:
        request = pb.DescribeControllerRequest()
        method = lambda channel: ControllerClient(channel).describe  # noqa: E731
        return self.channel.call(self.wire.address, method, request, timeout_ms=timeout_ms)

    def report(self) -> pb.ReportReplicasResponse:
        request = pb.ReportReplicasRequest()
        method = lambda channel: ControllerClient(channel).report_replicas  # noqa: E731
        return self.channel.call(self.wire.address, method, request, timeout_ms=30_000)

    def _report(self, _: pb.ReportReplicasRequest) -> pb.ReportReplicasResponse:
        self.reported.set()
        assert self.may_answer.wait(30)
        return pb.ReportReplicasResponse()


@pytest.fixture
def peer() -> Iterator[Peer]:
    played = Peer()
    yield played
    played.may_answer.set()
    played.channel.close()
    played.wire.close()
    played.server.stop(0)


def test_the_call_after_one_that_met_silence_has_a_connection_of_its_own(peer: Peer, eventually) -> None:
    assert peer.describe() == ANSWER
    peer.wire.black_hole_established()
    with pytest.raises(RpcFailed) as failed:
        peer.describe(timeout_ms=200)
    assert failed.value.silent
    assert peer.describe() == ANSWER
    peer.wire.heal()
    eventually(lambda: peer.wire.connections == 1, what="the old connection is closed")


def test_a_call_under_way_is_answered_on_the_channel_that_others_have_left(peer: Peer, eventually) -> None:
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(peer.report)
        assert peer.reported.wait(30)
        peer.wire.delay(0.5)
        with pytest.raises(RpcFailed):
            peer.describe(timeout_ms=100)
        peer.wire.heal()
        assert peer.describe() == ANSWER
        assert peer.wire.connections == 2
        peer.may_answer.set()
        assert slow.result(30) == pb.ReportReplicasResponse()
    eventually(lambda: peer.wire.connections == 1, what="the left channel closes with its last call")


def test_closing_cancels_what_runs_and_nothing_is_sent_afterwards(peer: Peer, eventually) -> None:
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(peer.report)
        assert peer.reported.wait(30)
        peer.channel.close()
        assert isinstance(slow.exception(30), RpcFailed)
    with pytest.raises(RpcFailed, match="closed"):  # a sender that was about to call must not reach anybody any more
        peer.describe()
    eventually(lambda: not peer.wire.connections, what="gRPC's own threads have closed the connection")


def test_a_forgotten_connection_is_found_by_pings_long_before_the_deadline(peer: Peer, monkeypatch) -> None:
    sooner = {name: 500 for name, value in grpc_channels.KEEPALIVE_OPTIONS if value > 1}
    options = tuple((name, sooner.get(name, value)) for name, value in grpc_channels.CHANNEL_OPTIONS)
    monkeypatch.setattr(grpc_channels, "CHANNEL_OPTIONS", options)
    assert peer.describe() == ANSWER
    peer.wire.black_hole_established()
    with pytest.raises(RpcFailed, match="unavailable"):
        peer.describe(timeout_ms=60_000)
    assert peer.describe() == ANSWER


def test_renewals_leave_no_descriptor_and_no_thread(peer: Peer, eventually) -> None:
    def used() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), len(list(Path("/proc/self/task").iterdir()))

    def renew(times: int) -> None:
        for _ in range(times):
            assert peer.describe() == ANSWER
            peer.wire.black_hole_established()
            with pytest.raises(RpcFailed):
                peer.describe(timeout_ms=10)
        peer.wire.heal()  # what the proxy holds for them is closed too

    renew(10)
    before = used()
    renew(50)
    eventually(lambda: all(now <= then + 5 for now, then in zip(used(), before, strict=True)), what="no leak")
