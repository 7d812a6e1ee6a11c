"""What clients ask of the ruling controller through agents, over real channels to one that the test plays."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest
from admin_requests import creating, enveloped, new_topic
from breaking.tcp_proxy import TcpProxy

from regency.broker_agent.control import admin_forwarder
from regency.broker_agent.control.admin_forwarder import AdminForwarder, NotController
from regency.broker_agent.control.metadata_cache import MetadataCache, RulingController
from regency.model.clock import ManualClock, SystemClock
from regency.model.ids import BrokerId, ControllerEpoch
from regency.model.kafka_errors import ErrorCode
from regency.protos.admin_pb2 import Envelope, EnvelopeReply, Outcome
from regency.runtime.grpc.channels import RpcFailed
from regency.runtime.grpc.servers import GrpcServer, service, unary

T = TypeVar("T")

ME = BrokerId(1)
FLIGHTS = enveloped(creating(new_topic("flights", 1, 2)), 7)
DONE = EnvelopeReply(response=b"done")
DEPOSED = EnvelopeReply(outcome=Outcome(error_code=ErrorCode.NOT_CONTROLLER))


def forward(metadata: MetadataCache, own_port: int, use: Callable[[AdminForwarder], Awaitable[T]]) -> T:
    async def scenario() -> T:
        forwarder = AdminForwarder(ME, metadata, lambda: own_port, SystemClock())
        try:
            return await use(forwarder)
        finally:
            forwarder.close()

    return asyncio.run(scenario())


class PlayedAdmin:
    """Service Admin of a controller that answers as the test says, `first` before it does."""

    def __init__(self, answer: Callable[[Envelope], EnvelopeReply] = lambda _: DONE) -> None:
        self.answer = answer
        self.first: list[EnvelopeReply] = []
        self.asked: list[Envelope] = []
        methods = {"Forward": unary(self._forward, Envelope, EnvelopeReply)}
        self.server = GrpcServer([service("regency.admin.v1.Admin", methods)], threads=4, name="admin")
        self.port = self.server.bind("127.0.0.1", 0)
        self.server.start()

    def _forward(self, envelope: Envelope) -> EnvelopeReply:
        self.asked.append(envelope)
        return self.first.pop(0) if self.first else self.answer(envelope)

    def known(self, broker: int = 1, epoch: int = 3) -> MetadataCache:
        """Metadata by which this controller rules."""
        cache = MetadataCache()
        self.follows(cache, broker, epoch)
        return cache

    def follows(self, cache: MetadataCache, broker: int = 2, epoch: int = 4) -> None:
        """Metadata learns that it rules."""
        cache.saw_controller(RulingController(BrokerId(broker), ControllerEpoch(epoch), f"127.0.0.1:{self.port}"))


@contextmanager
def played_admin(answer: Callable[[Envelope], EnvelopeReply] = lambda _: DONE) -> Iterator[PlayedAdmin]:
    played = PlayedAdmin(answer)
    try:
        yield played
    finally:
        played.server.stop(0)


@pytest.fixture
def controller() -> Iterator[PlayedAdmin]:
    with played_admin() as played:
        yield played


def create(
    *, timeout_ms: int = 60_000, require_local: bool = True, repeatable: bool = False
) -> Callable[[AdminForwarder], Awaitable[EnvelopeReply]]:
    return lambda forwarder: forwarder.forward(
        FLIGHTS, timeout_ms=timeout_ms, require_local=require_local, repeatable=repeatable
    )


def test_the_own_child_answers(controller: PlayedAdmin) -> None:
    assert forward(controller.known(), controller.port, create()) == DONE
    assert controller.asked == [FLIGHTS]


@pytest.mark.parametrize("own_port_differs", [True, False])
def test_a_client_that_asks_the_wrong_broker_is_sent_on(controller: PlayedAdmin, own_port_differs: bool) -> None:
    metadata = controller.known(broker=1 if own_port_differs else 2)
    with pytest.raises(NotController):
        forward(metadata, 1 if own_port_differs else controller.port, create(timeout_ms=1000))
    assert controller.asked == []


def test_a_client_that_asks_the_broker_that_ruled_last_is_served(controller: PlayedAdmin) -> None:
    metadata = MetadataCache()
    metadata.saw_controller(RulingController(ME, ControllerEpoch(3), "127.0.0.1:1234"))
    controller.follows(metadata)
    assert forward(metadata, 1234, create(timeout_ms=1000)) == DONE


def test_what_may_be_asked_of_any_broker_goes_to_the_controller(controller: PlayedAdmin) -> None:
    assert forward(controller.known(broker=2), 1, create(require_local=False)) == DONE


def test_a_controller_that_lost_its_office_meanwhile_means_not_controller(controller: PlayedAdmin) -> None:
    controller.answer = lambda _: DEPOSED
    with pytest.raises(NotController):
        forward(controller.known(), controller.port, create(timeout_ms=50))


@pytest.mark.parametrize("state", ["deposed", "dead", "of an older version"])
def test_the_successor_is_asked_where_the_controller_did_nothing(controller: PlayedAdmin, state: str) -> None:
    metadata = controller.known()
    controller.answer = lambda _: DEPOSED
    if state == "dead":
        controller.server.stop(0)
    older = GrpcServer([service("regency.admin.v1.Admin", {})], threads=1, name="older")
    if state == "of an older version":
        port = older.bind("127.0.0.1", 0)
        older.start()
        metadata.saw_controller(RulingController(ME, ControllerEpoch(4), f"127.0.0.1:{port}"))

    with played_admin() as successor:

        async def ask(forwarder: AdminForwarder) -> EnvelopeReply:
            asking = asyncio.ensure_future(create()(forwarder))
            while state == "deposed" and not controller.asked:
                await asyncio.sleep(0)
            await asyncio.sleep(0.1 if state == "of an older version" else 0)
            successor.follows(metadata, epoch=5)
            return await asking

        own = metadata.ruling.endpoint.rpartition(":")[2]
        assert forward(metadata, int(own), ask) == DONE
        assert successor.asked == [FLIGHTS]
    older.stop(0)


def test_all_requests_under_way_to_a_deposed_controller_follow_to_its_successor(controller) -> None:
    """The first that follows opens another channel; it takes nothing from the others."""
    followed, deposition = threading.Event(), threading.Event()
    all_asked = threading.Barrier(3, action=deposition.set)

    def depose(_: Envelope) -> EnvelopeReply:
        if all_asked.wait(30) > 0:
            assert followed.wait(30)
        return DEPOSED

    def answer(_: Envelope) -> EnvelopeReply:
        followed.set()
        return DONE

    with played_admin(depose) as deposed, played_admin(answer) as successor:
        metadata = deposed.known()

        async def ask(forwarder: AdminForwarder) -> list[EnvelopeReply]:
            asking = [asyncio.ensure_future(create()(forwarder)) for _ in range(3)]
            await asyncio.to_thread(deposition.wait, 30)
            successor.follows(metadata)
            return await asyncio.gather(*asking)

        assert forward(metadata, deposed.port, ask) == [DONE] * 3


@pytest.mark.parametrize("repeatable", [True, False])
def test_only_what_may_run_twice_follows_from_a_controller_that_fell_silent(repeatable: bool) -> None:
    arrived, over = threading.Event(), threading.Event()

    def keep(_: Envelope) -> EnvelopeReply:
        arrived.set()
        over.wait(30)
        return DONE

    with played_admin(keep) as dying, played_admin() as successor:
        with TcpProxy(("127.0.0.1", dying.port)) as wire:
            metadata = MetadataCache()
            metadata.saw_controller(RulingController(ME, ControllerEpoch(3), f"127.0.0.1:{wire.port}"))

            async def ask(forwarder: AdminForwarder) -> object:
                asking = asyncio.ensure_future(create(repeatable=repeatable)(forwarder))
                await asyncio.to_thread(arrived.wait, 30)
                successor.follows(metadata)
                wire.reset_all()
                return await asking

            if repeatable:
                assert forward(metadata, wire.port, ask) == DONE
            else:
                with pytest.raises(RpcFailed):
                    forward(metadata, wire.port, ask)
        over.set()


def test_a_controller_that_is_known_before_it_rules_is_asked_again(controller: PlayedAdmin) -> None:
    """Its metadata comes while it takes over."""
    controller.first.append(DEPOSED)
    assert forward(controller.known(), controller.port, create()) == DONE
    assert len(controller.asked) == 2


def test_a_controller_that_cannot_be_reached_is_a_retriable_error(controller: PlayedAdmin) -> None:
    controller.server.stop(0)
    with pytest.raises(RpcFailed):
        forward(controller.known(), controller.port, create(timeout_ms=50, require_local=False))


def test_without_zookeeper_nobody_waits_for_an_election(
    controller: PlayedAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_forwarder, "LOOK_EVERY_MS", 1)
    controller.answer = lambda _: DEPOSED
    metadata, clock = controller.known(), ManualClock()
    asked: list[int] = []

    def in_contact() -> bool:
        asked.append(clock.monotonic_ms())
        clock.advance(admin_forwarder.OUT_OF_CONTACT_MS // 2)
        return len(asked) == 1

    async def ask() -> EnvelopeReply:
        forwarder = AdminForwarder(ME, metadata, lambda: controller.port, clock, in_contact)
        try:
            return await create(timeout_ms=10**9)(forwarder)
        finally:
            forwarder.close()

    with pytest.raises(RpcFailed, match="Broker 1 has no contact with ZooKeeper"):
        asyncio.run(ask())
    assert len(asked) == 4
