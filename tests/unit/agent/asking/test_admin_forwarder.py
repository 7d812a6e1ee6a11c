"""What clients ask of the ruling controller through agents, over real channels to one that the test plays."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from uuid import UUID

import pytest
from breaking.tcp_proxy import TcpProxy

from regency.broker_agent.control import admin_forwarder
from regency.broker_agent.control.admin_forwarder import AdminForwarder, CreatedTopicResult, NewTopicSpec, NotController
from regency.broker_agent.control.metadata import PartitionMetadata
from regency.broker_agent.control.metadata_cache import (
    MetadataCache,
    MetadataChange,
    MetadataUpdate,
    RulingController,
    TopicDelta,
)
from regency.model.clock import ManualClock, SystemClock
from regency.model.ids import (
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicId,
    ZkVersion,
)
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2
from regency.protos import controller_pb2 as pb
from regency.runtime.grpc.channels import RpcFailed
from regency.runtime.grpc.clients import AdminClient
from regency.runtime.grpc.servers import GrpcServer, service, unary

T = TypeVar("T")

ME = BrokerId(1)
T1 = TopicId(UUID(int=1))


def forward(metadata: MetadataCache, own_port: int, use: Callable[[AdminForwarder], Awaitable[T]]) -> T:
    async def scenario() -> T:
        forwarder = AdminForwarder(ME, metadata, lambda: own_port, SystemClock())
        try:
            return await use(forwarder)
        finally:
            forwarder.close()

    return asyncio.run(scenario())


@contextmanager
def played_admin(
    answer: Callable[[admin_pb2.ListReassignmentsRequest], admin_pb2.ListReassignmentsResponse],
) -> Iterator[int]:
    """Service Admin of a controller that lists reassignments as the test says; its port."""
    method = unary(answer, admin_pb2.ListReassignmentsRequest, admin_pb2.ListReassignmentsResponse)
    server = GrpcServer([service("regency.admin.v1.Admin", {"ListReassignments": method})], threads=4, name="admin")
    port = server.bind("127.0.0.1", 0)
    server.start()
    try:
        yield port
    finally:
        server.stop(0)


def ruled_by(port: int) -> MetadataCache:
    cache = MetadataCache()
    cache.saw_controller(RulingController(ME, ControllerEpoch(3), f"127.0.0.1:{port}"))
    return cache


async def list_reassignments(
    forwarder: AdminForwarder, *, repeatable: bool = False
) -> admin_pb2.ListReassignmentsResponse:
    request = admin_pb2.ListReassignmentsRequest()
    method = lambda channel: AdminClient(channel).list_reassignments  # noqa: E731
    return await forwarder.forward(method, request, timeout_ms=60_000, require_local=False, repeatable=repeatable)


FLIGHTS = NewTopicSpec("flights", assignments={0: (ME, BrokerId(2))}, configs={"retention.ms": "5"})


def test_a_topic_is_created_by_the_own_child_and_answered_when_its_leader_is_known(
    controller,
) -> None:
    metadata = controller.known()
    controller.created_answer.topics.add(name="flights", topic_id=T1.bytes, num_partitions=1, replication_factor=2)

    def led() -> None:
        partition = PartitionMetadata(0, ME, LeaderEpoch(0), ZkVersion(0), (ME,), (ME,))
        change = MetadataChange(topics=[TopicDelta("flights", T1, [partition])])
        metadata.apply(MetadataUpdate(ControllerEpoch(3), ME, [change], 1, True, True, True))

    async def create(forwarder: AdminForwarder) -> list[CreatedTopicResult]:
        creating = asyncio.ensure_future(
            forwarder.create_topics([FLIGHTS], validate_only=False, timeout_ms=60_000, require_local=True)
        )
        while not controller.created:
            await asyncio.sleep(0)
        led()
        return await creating

    (result,) = forward(metadata, controller.port, create)
    assert result == CreatedTopicResult("flights", ErrorCode.NONE, "", T1, 1, 2)
    (asked,) = controller.created[0].topics
    assert (asked.num_partitions, asked.replication_factor, dict(asked.configs)) == (-1, -1, {"retention.ms": "5"})
    assert list(asked.assignments[0].replicas) == [1, 2]


def test_a_topic_whose_leader_does_not_show_up_is_reported_as_created_late(controller) -> None:
    controller.created_answer.topics.add(name="flights", topic_id=T1.bytes, num_partitions=1, replication_factor=2)
    controller.created_answer.topics.add(name="bad", error_code=ErrorCode.TOPIC_ALREADY_EXISTS, message="it is there")

    async def create(forwarder: AdminForwarder) -> list[CreatedTopicResult]:
        return await forwarder.create_topics([FLIGHTS], validate_only=False, timeout_ms=1, require_local=True)

    late, refused = forward(controller.known(), controller.port, create)
    assert (late.error, late.topic_id) == (ErrorCode.REQUEST_TIMED_OUT, T1)
    assert (refused.error, refused.message) == (ErrorCode.TOPIC_ALREADY_EXISTS, "it is there")


@pytest.mark.parametrize("own_port_differs", [True, False])
def test_a_client_that_asks_the_wrong_broker_is_sent_on(controller, own_port_differs: bool) -> None:
    metadata = controller.known(broker=1 if own_port_differs else 2)

    async def create(forwarder: AdminForwarder) -> list[CreatedTopicResult]:
        return await forwarder.create_topics([FLIGHTS], validate_only=False, timeout_ms=1000, require_local=True)

    with pytest.raises(NotController):
        forward(metadata, 1 if own_port_differs else controller.port, create)
    assert controller.created == []


def test_a_client_that_asks_the_broker_that_ruled_last_is_served(controller) -> None:
    metadata = MetadataCache()
    metadata.saw_controller(RulingController(ME, ControllerEpoch(3), "127.0.0.1:1234"))
    metadata.saw_controller(RulingController(BrokerId(2), ControllerEpoch(4), f"127.0.0.1:{controller.port}"))
    controller.created_answer.topics.add(name="flights", topic_id=T1.bytes, num_partitions=1, replication_factor=2)

    async def create(forwarder: AdminForwarder) -> list[CreatedTopicResult]:
        return await forwarder.create_topics([FLIGHTS], validate_only=True, timeout_ms=1000, require_local=True)

    (result,) = forward(metadata, 1234, create)
    assert result.error is ErrorCode.NONE


def test_auto_creation_goes_to_whoever_rules_and_does_not_wait_for_leaders(controller) -> None:
    controller.created_answer.topics.add(name="flights", topic_id=T1.bytes, num_partitions=1, replication_factor=2)

    async def create(forwarder: AdminForwarder) -> list[CreatedTopicResult]:
        return await forwarder.create_topics([FLIGHTS], validate_only=False, timeout_ms=60_000, require_local=False)

    (result,) = forward(controller.known(broker=2), 1, create)
    assert result.error is ErrorCode.NONE


def test_a_controller_that_lost_its_office_meanwhile_means_not_controller(controller) -> None:
    controller.created_answer.error_code = ErrorCode.NOT_CONTROLLER

    async def create(forwarder: AdminForwarder) -> list[CreatedTopicResult]:
        return await forwarder.create_topics([FLIGHTS], validate_only=False, timeout_ms=50, require_local=True)

    with pytest.raises(NotController):
        forward(controller.known(), controller.port, create)


@pytest.mark.parametrize("died", [True, False])
def test_the_successor_is_asked_where_the_controller_was_deposed_or_died(controller, died: bool) -> None:
    metadata = controller.known()
    successor = type(controller)()
    successor.created_answer.topics.add(name="flights", topic_id=T1.bytes, num_partitions=1, replication_factor=2)
    controller.created_answer.error_code = ErrorCode.NOT_CONTROLLER
    if died:
        controller.server.stop(0)

    async def create(forwarder: AdminForwarder) -> list[CreatedTopicResult]:
        creating = asyncio.ensure_future(
            forwarder.create_topics([FLIGHTS], validate_only=True, timeout_ms=60_000, require_local=True)
        )
        while not died and not controller.created:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        metadata.saw_controller(RulingController(BrokerId(2), ControllerEpoch(4), f"127.0.0.1:{successor.port}"))
        return await creating

    (result,) = forward(metadata, controller.port, create)
    successor.server.stop(0)
    assert result.error is ErrorCode.NONE
    assert len(successor.created) == 1


def test_all_requests_under_way_to_a_deposed_controller_follow_to_its_successor(controller) -> None:
    """The first that follows opens another channel; it takes nothing from the others."""
    followed, deposition = threading.Event(), threading.Event()
    all_asked = threading.Barrier(3, action=deposition.set)

    def depose(_: admin_pb2.ListReassignmentsRequest) -> admin_pb2.ListReassignmentsResponse:
        if all_asked.wait(30) > 0:
            assert followed.wait(30)
        return admin_pb2.ListReassignmentsResponse(outcome=admin_pb2.Outcome(error_code=ErrorCode.NOT_CONTROLLER))

    def answer(_: admin_pb2.ListReassignmentsRequest) -> admin_pb2.ListReassignmentsResponse:
        followed.set()
        return admin_pb2.ListReassignmentsResponse()

    with played_admin(depose) as deposed, played_admin(answer) as successor:
        metadata = ruled_by(deposed)

        async def ask(forwarder: AdminForwarder) -> list[admin_pb2.ListReassignmentsResponse]:
            asking = [asyncio.ensure_future(list_reassignments(forwarder)) for _ in range(3)]
            await asyncio.to_thread(deposition.wait, 30)
            metadata.saw_controller(RulingController(BrokerId(2), ControllerEpoch(4), f"127.0.0.1:{successor}"))
            return await asyncio.gather(*asking)

        assert forward(metadata, deposed, ask) == [admin_pb2.ListReassignmentsResponse()] * 3


@pytest.mark.parametrize("repeatable", [True, False])
def test_only_what_may_run_twice_follows_from_a_controller_that_fell_silent(repeatable: bool) -> None:
    arrived, over = threading.Event(), threading.Event()

    def keep(_: admin_pb2.ListReassignmentsRequest) -> admin_pb2.ListReassignmentsResponse:
        arrived.set()
        over.wait(30)
        return admin_pb2.ListReassignmentsResponse()

    with played_admin(keep) as dying, played_admin(lambda _: admin_pb2.ListReassignmentsResponse()) as successor:
        with TcpProxy(("127.0.0.1", dying)) as wire:
            metadata = ruled_by(wire.port)

            async def ask(forwarder: AdminForwarder) -> object:
                asking = asyncio.ensure_future(list_reassignments(forwarder, repeatable=repeatable))
                await asyncio.to_thread(arrived.wait, 30)
                metadata.saw_controller(RulingController(BrokerId(2), ControllerEpoch(4), f"127.0.0.1:{successor}"))
                wire.reset_all()
                return await asking

            if repeatable:
                assert forward(metadata, wire.port, ask) == admin_pb2.ListReassignmentsResponse()
            else:
                with pytest.raises(RpcFailed):
                    forward(metadata, wire.port, ask)
        over.set()


def test_a_controller_that_is_known_before_it_rules_is_asked_again(controller) -> None:
    """Its metadata comes while it takes over."""
    controller.created_first.append(pb.CreateTopicsResponse(error_code=ErrorCode.NOT_CONTROLLER))
    controller.created_answer.topics.add(name="flights", topic_id=T1.bytes, num_partitions=1, replication_factor=2)

    async def create(forwarder: AdminForwarder) -> list[CreatedTopicResult]:
        return await forwarder.create_topics([FLIGHTS], validate_only=True, timeout_ms=60_000, require_local=True)

    (result,) = forward(controller.known(), controller.port, create)
    assert result.error is ErrorCode.NONE
    assert len(controller.created) == 2


def test_a_controller_that_cannot_be_reached_is_a_retriable_error(controller) -> None:
    controller.server.stop(0)

    async def create(forwarder: AdminForwarder) -> list[CreatedTopicResult]:
        return await forwarder.create_topics([FLIGHTS], validate_only=False, timeout_ms=50, require_local=False)

    (result,) = forward(controller.known(), controller.port, create)
    assert result.error.retriable


def test_without_zookeeper_nobody_waits_for_an_election(controller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_forwarder, "LOOK_EVERY_MS", 1)
    controller.created_answer.error_code = ErrorCode.NOT_CONTROLLER
    metadata, clock = controller.known(), ManualClock()
    asked: list[int] = []

    def in_contact() -> bool:
        asked.append(clock.monotonic_ms())
        clock.advance(admin_forwarder.OUT_OF_CONTACT_MS // 2)
        return len(asked) == 1

    async def create() -> list[CreatedTopicResult]:
        forwarder = AdminForwarder(ME, metadata, lambda: controller.port, clock, in_contact)
        try:
            return await forwarder.create_topics([FLIGHTS], validate_only=False, timeout_ms=10**9, require_local=True)
        finally:
            forwarder.close()

    (result,) = asyncio.run(create())
    assert result.error is ErrorCode.REQUEST_TIMED_OUT
    assert "Broker 1 has no contact with ZooKeeper" in result.message
    assert len(asked) == 4
