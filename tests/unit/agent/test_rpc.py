"""What agents ask of the ruling controller, over real channels to a controller that the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from uuid import UUID

import msgspec
import pytest

from regency.broker_agent import admin_forwarder, controlled_shutdown
from regency.broker_agent.admin_forwarder import AdminForwarder, CreatedTopicResult, NewTopicSpec, NotController
from regency.broker_agent.metadata import PartitionMetadata
from regency.broker_agent.metadata_cache import (
    MetadataCache,
    MetadataChange,
    MetadataUpdate,
    RulingController,
    TopicDelta,
)
from regency.broker_agent.replication.api import ReplicaDescription
from regency.broker_agent.reporter import SIGN_OF_LIFE_MS, GrpcReports, Reporter
from regency.model.clock import ManualClock, SystemClock
from regency.model.hosting import HostedRole, replica_number, topic_number
from regency.model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
    ZkVersion,
)
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings
from regency.protos import controller_pb2 as pb
from regency.runtime.grpc_channels import RpcFailed, call, open_channel
from regency.runtime.grpc_clients import ControllerClient
from regency.runtime.grpc_servers import GrpcServer, PortUnavailable, service, unary

ME = BrokerId(1)
T1 = TopicId(UUID(int=1))


class PlayedController:
    """Answers what the test put there; remembers what it was asked."""

    def __init__(self) -> None:
        self.reports: list[pb.ReportReplicasRequest] = []
        self.report_answer = pb.ReportReplicasResponse()
        self.shutdowns: list[pb.ControlledShutdownRequest] = []
        self.shutdown_answers: list[pb.ControlledShutdownResponse] = []
        self.created: list[pb.CreateTopicsRequest] = []
        self.created_first: list[pb.CreateTopicsResponse] = []
        self.created_answer = pb.CreateTopicsResponse()
        self.server = GrpcServer(
            [
                service(
                    "regency.controller.v1.Controller",
                    {
                        "ReportReplicas": unary(self._report, pb.ReportReplicasRequest, pb.ReportReplicasResponse),
                        "CreateTopics": unary(self._create, pb.CreateTopicsRequest, pb.CreateTopicsResponse),
                        "ControlledShutdown": unary(
                            self._shutdown, pb.ControlledShutdownRequest, pb.ControlledShutdownResponse
                        ),
                    },
                )
            ],
            threads=2,
            name="played",
        )
        self.port = self.server.bind("127.0.0.1", 0)
        self.server.start()

    def _report(self, request: pb.ReportReplicasRequest) -> pb.ReportReplicasResponse:
        self.reports.append(request)
        return self.report_answer

    def _create(self, request: pb.CreateTopicsRequest) -> pb.CreateTopicsResponse:
        self.created.append(request)
        return self.created_first.pop(0) if self.created_first else self.created_answer

    def _shutdown(self, request: pb.ControlledShutdownRequest) -> pb.ControlledShutdownResponse:
        self.shutdowns.append(request)
        return self.shutdown_answers.pop(0)


@pytest.fixture
def controller() -> Iterator[PlayedController]:
    played = PlayedController()
    yield played
    played.server.stop(0)


def ruled_by(port: int, broker: int = 1, epoch: int = 3) -> MetadataCache:
    cache = MetadataCache()
    cache.saw_controller(RulingController(BrokerId(broker), ControllerEpoch(epoch), f"127.0.0.1:{port}"))
    return cache


def replica(number: int, high_watermark: int = 5) -> ReplicaDescription:
    return ReplicaDescription(
        TopicPartition("flights", number),
        T1,
        ME,
        LeaderEpoch(4),
        ZkVersion(2),
        (ME, BrokerId(2)),
        Offset(high_watermark),
        Offset(9),
        Offset(0),
        LeaderEpoch(4),
        "/data",
        role=HostedRole.LEADER,
    )


class Reporting:
    """A reporter of replicas that the test moves."""

    def __init__(self, metadata: MetadataCache) -> None:
        self.replicas = {TopicPartition("flights", number): replica(number) for number in range(2)}
        self.epoch = BrokerEpoch(50)
        self.clock = ManualClock()
        self.port = GrpcReports()
        self.reporter = Reporter(ME, self, metadata, lambda: self.epoch, self.port, self.clock)

    @property
    def partitions(self) -> dict[TopicPartition, ReplicaDescription]:
        return self.replicas

    def describe(self, tps=None) -> list[ReplicaDescription]:
        return [self.replicas[partition] for partition in tps]

    def run(self, *steps: Callable[[], None]) -> None:
        async def scenario() -> None:
            await self.reporter.report()
            for step in steps:
                step()
                await self.reporter.report()
            self.port.close()

        asyncio.run(scenario())


def test_the_first_report_is_full_and_the_next_names_only_what_changed(controller: PlayedController) -> None:
    reporting = Reporting(ruled_by(controller.port))
    partition = TopicPartition("flights", 1)
    reporting.run(lambda: None, lambda: reporting.replicas.update({partition: replica(1, high_watermark=6)}))
    first, second = controller.reports
    assert (first.full, first.broker_epoch, first.controller_epoch) == (True, 50, 3)
    assert list(first.changes[0].partition) == [0, 1]
    assert (list(first.changes[0].isr_len), list(first.changes[0].isr)) == ([2, 2], [1, 2, 1, 2])
    assert (second.full, list(second.changes[0].partition), list(second.changes[0].high_watermark)) == (False, [1], [6])


def test_damage_is_reported_of_the_replicas_that_have_it(controller: PlayedController) -> None:
    reporting = Reporting(ruled_by(controller.port))
    damaged = msgspec.structs.replace(replica(1), damage="a flipped byte")
    reporting.run(lambda: None, lambda: reporting.replicas.update({TopicPartition("flights", 1): damaged}))
    first, second = controller.reports
    assert (list(first.changes[0].damaged), list(first.changes[0].damage)) == ([], [])
    assert (list(second.changes[0].damaged), list(second.changes[0].damage)) == ([1], ["a flipped byte"])


def test_a_report_is_full_again_when_asked_and_for_a_new_incarnation(controller: PlayedController) -> None:
    reporting = Reporting(ruled_by(controller.port))
    controller.report_answer = pb.ReportReplicasResponse(send_full=True)

    def asked() -> None:
        controller.report_answer = pb.ReportReplicasResponse()

    def bounced() -> None:
        reporting.epoch = BrokerEpoch(60)

    reporting.run(asked, bounced)
    assert [report.full for report in controller.reports] == [True, True, True]
    assert [len(report.changes[0].partition) for report in controller.reports] == [2, 2, 2]


def test_a_refused_report_is_told_again(controller: PlayedController) -> None:
    reporting = Reporting(ruled_by(controller.port))
    controller.report_answer = pb.ReportReplicasResponse(error_code=ErrorCode.NOT_CONTROLLER)
    reporting.run(lambda: None)
    assert [report.full for report in controller.reports] == [True, True]


def number(partition: int, role: HostedRole = HostedRole.LEADER) -> int:
    return replica_number(topic_number(T1), partition, ME, LeaderEpoch(4), ZkVersion(2), role)


def test_a_report_has_a_digest_of_all_roles_and_names_what_is_hosted_no_more(controller: PlayedController) -> None:
    reporting = Reporting(ruled_by(controller.port))
    first, second = TopicPartition("flights", 0), TopicPartition("flights", 1)
    reporting.run(
        lambda: reporting.replicas.update({first: replica(0, high_watermark=7)}),
        lambda: reporting.replicas.pop(second),
        lambda: reporting.replicas.update({first: msgspec.structs.replace(replica(0), role=HostedRole.UNFED)}),
    )
    all_there = (number(0) + number(1)) % 2**64
    assert [report.digest for report in controller.reports] == [
        all_there,
        all_there,
        number(0),
        number(0, HostedRole.UNFED),
    ]
    assert [report.number for report in controller.reports] == [1, 2, 3, 4]
    gone = controller.reports[2].changes[0]
    assert (list(gone.partition), list(gone.role)) == ([1], [HostedRole.NONE])


def test_an_agent_with_nothing_new_gives_a_sign_of_life_now_and_then(controller: PlayedController) -> None:
    reporting = Reporting(ruled_by(controller.port))
    reporting.run(lambda: None, lambda: reporting.clock.advance(SIGN_OF_LIFE_MS))
    assert [len(report.changes) for report in controller.reports] == [1, 0]
    assert controller.reports[0].digest == controller.reports[1].digest


def test_nobody_is_told_before_there_is_a_controller_and_a_registration(controller: PlayedController) -> None:
    Reporting(MetadataCache()).run()
    unregistered = Reporting(ruled_by(controller.port))
    unregistered.epoch = BrokerEpoch(-1)
    unregistered.run()
    assert controller.reports == []


def forward(
    metadata: MetadataCache, own_port: int, use: Callable[[AdminForwarder], Awaitable[list[CreatedTopicResult]]]
) -> list[CreatedTopicResult]:
    async def scenario() -> list[CreatedTopicResult]:
        forwarder = AdminForwarder(ME, metadata, lambda: own_port, SystemClock())
        try:
            return await use(forwarder)
        finally:
            forwarder.close()

    return asyncio.run(scenario())


FLIGHTS = NewTopicSpec("flights", assignments={0: (ME, BrokerId(2))}, configs={"retention.ms": "5"})


def test_a_topic_is_created_by_the_own_child_and_answered_when_its_leader_is_known(
    controller: PlayedController,
) -> None:
    metadata = ruled_by(controller.port)
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


def test_a_topic_whose_leader_does_not_show_up_is_reported_as_created_late(controller: PlayedController) -> None:
    controller.created_answer.topics.add(name="flights", topic_id=T1.bytes, num_partitions=1, replication_factor=2)
    controller.created_answer.topics.add(name="bad", error_code=ErrorCode.TOPIC_ALREADY_EXISTS, message="it is there")

    async def create(forwarder: AdminForwarder) -> list[CreatedTopicResult]:
        return await forwarder.create_topics([FLIGHTS], validate_only=False, timeout_ms=1, require_local=True)

    late, refused = forward(ruled_by(controller.port), controller.port, create)
    assert (late.error, late.topic_id) == (ErrorCode.REQUEST_TIMED_OUT, T1)
    assert (refused.error, refused.message) == (ErrorCode.TOPIC_ALREADY_EXISTS, "it is there")


@pytest.mark.parametrize("own_port_differs", [True, False])
def test_a_client_that_asks_the_wrong_broker_is_sent_on(controller: PlayedController, own_port_differs: bool) -> None:
    metadata = ruled_by(controller.port, broker=1 if own_port_differs else 2)

    async def create(forwarder: AdminForwarder) -> list[CreatedTopicResult]:
        return await forwarder.create_topics([FLIGHTS], validate_only=False, timeout_ms=1000, require_local=True)

    with pytest.raises(NotController):
        forward(metadata, 1 if own_port_differs else controller.port, create)
    assert controller.created == []


def test_a_client_that_asks_the_broker_that_ruled_last_is_served(controller: PlayedController) -> None:
    metadata = ruled_by(1234, broker=1)
    metadata.saw_controller(RulingController(BrokerId(2), ControllerEpoch(4), f"127.0.0.1:{controller.port}"))
    controller.created_answer.topics.add(name="flights", topic_id=T1.bytes, num_partitions=1, replication_factor=2)

    async def create(forwarder: AdminForwarder) -> list[CreatedTopicResult]:
        return await forwarder.create_topics([FLIGHTS], validate_only=True, timeout_ms=1000, require_local=True)

    (result,) = forward(metadata, 1234, create)
    assert result.error is ErrorCode.NONE


def test_auto_creation_goes_to_whoever_rules_and_does_not_wait_for_leaders(controller: PlayedController) -> None:
    controller.created_answer.topics.add(name="flights", topic_id=T1.bytes, num_partitions=1, replication_factor=2)

    async def create(forwarder: AdminForwarder) -> list[CreatedTopicResult]:
        return await forwarder.create_topics([FLIGHTS], validate_only=False, timeout_ms=60_000, require_local=False)

    (result,) = forward(ruled_by(controller.port, broker=2), 1, create)
    assert result.error is ErrorCode.NONE


def test_a_controller_that_lost_its_office_meanwhile_means_not_controller(controller: PlayedController) -> None:
    controller.created_answer.error_code = ErrorCode.NOT_CONTROLLER

    async def create(forwarder: AdminForwarder) -> list[CreatedTopicResult]:
        return await forwarder.create_topics([FLIGHTS], validate_only=False, timeout_ms=50, require_local=True)

    with pytest.raises(NotController):
        forward(ruled_by(controller.port), controller.port, create)


@pytest.mark.parametrize("died", [True, False])
def test_the_successor_is_asked_where_the_controller_was_deposed_or_died(
    controller: PlayedController, died: bool
) -> None:
    metadata = ruled_by(controller.port)
    successor = PlayedController()
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


def test_a_controller_that_is_known_before_it_rules_is_asked_again(controller: PlayedController) -> None:
    """Its metadata comes while it takes over."""
    controller.created_first.append(pb.CreateTopicsResponse(error_code=ErrorCode.NOT_CONTROLLER))
    controller.created_answer.topics.add(name="flights", topic_id=T1.bytes, num_partitions=1, replication_factor=2)

    async def create(forwarder: AdminForwarder) -> list[CreatedTopicResult]:
        return await forwarder.create_topics([FLIGHTS], validate_only=True, timeout_ms=60_000, require_local=True)

    (result,) = forward(ruled_by(controller.port), controller.port, create)
    assert result.error is ErrorCode.NONE
    assert len(controller.created) == 2


def test_a_controller_that_cannot_be_reached_is_a_retriable_error(controller: PlayedController) -> None:
    controller.server.stop(0)

    async def create(forwarder: AdminForwarder) -> list[CreatedTopicResult]:
        return await forwarder.create_topics([FLIGHTS], validate_only=False, timeout_ms=50, require_local=False)

    (result,) = forward(ruled_by(controller.port), controller.port, create)
    assert result.error.retriable


def test_without_zookeeper_nobody_waits_for_an_election(
    controller: PlayedController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_forwarder, "LOOK_EVERY_MS", 1)
    controller.created_answer.error_code = ErrorCode.NOT_CONTROLLER
    metadata, clock = ruled_by(controller.port), ManualClock()
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


def leave(metadata: MetadataCache, **settings: int) -> bool:
    asked = BrokerSettings(broker_id=ME, controlled_shutdown_retry_backoff_ms=1, **settings)
    return asyncio.run(controlled_shutdown.leave(asked, ME, metadata, lambda: BrokerEpoch(50)))


def test_leaving_asks_until_nothing_is_led_any_more(controller: PlayedController) -> None:
    controller.shutdown_answers = [
        pb.ControlledShutdownResponse(remaining_partitions=2),
        pb.ControlledShutdownResponse(),
    ]
    assert leave(ruled_by(controller.port))
    assert [(asked.broker_id, asked.broker_epoch) for asked in controller.shutdowns] == [(1, 50), (1, 50)]


def test_leaving_gives_up_after_the_attempts_of_the_settings(controller: PlayedController) -> None:
    controller.shutdown_answers = [pb.ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)] * 2
    assert not leave(ruled_by(controller.port), controlled_shutdown_max_retries=2)
    assert controller.shutdown_answers == []


def test_a_broker_nobody_ever_gave_a_partition_leaves_at_once() -> None:
    assert leave(MetadataCache())


def test_a_call_to_nobody_fails_by_its_deadline_and_names_the_target(controller: PlayedController) -> None:
    controller.server.stop(0)
    channel = open_channel(f"127.0.0.1:{controller.port}")
    with pytest.raises(RpcFailed, match="the controller"):
        call(
            ControllerClient(channel).describe, pb.DescribeControllerRequest(), timeout_ms=500, target="the controller"
        )
    channel.close()


def test_a_method_nobody_serves_is_an_rpc_failure_with_its_status(controller: PlayedController) -> None:
    channel = open_channel(f"127.0.0.1:{controller.port}")
    with pytest.raises(RpcFailed, match="unimplemented"):
        call(ControllerClient(channel).describe, pb.DescribeControllerRequest(), timeout_ms=5000, target="it")
    channel.close()


def test_a_port_belongs_to_one_server(controller: PlayedController) -> None:
    other = GrpcServer([], threads=1, name="other")
    with pytest.raises(PortUnavailable, match=str(controller.port)):
        other.bind("127.0.0.1", controller.port)
    other.stop(0)
