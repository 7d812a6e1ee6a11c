"""What agents report to the ruling controller, over real channels to one that the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

import msgspec

from regency.broker_agent.control.metadata_cache import (
    MetadataCache,
)
from regency.broker_agent.control.reporter import SIGN_OF_LIFE_MS, GrpcReports, Reporter
from regency.broker_agent.replication.api import ReplicaDescription
from regency.model.clock import ManualClock
from regency.model.hosting import HostedRole, replica_number, topic_number
from regency.model.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
    ZkVersion,
)
from regency.model.kafka_errors import ErrorCode
from regency.protos import controller_pb2 as pb

ME = BrokerId(1)
T1 = TopicId(UUID(int=1))


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


def number(partition: int, role: HostedRole = HostedRole.LEADER) -> int:
    return replica_number(topic_number(T1), partition, ME, LeaderEpoch(4), ZkVersion(2), role)


def test_the_first_report_is_full_and_the_next_names_only_what_changed(controller) -> None:
    reporting = Reporting(controller.known())
    partition = TopicPartition("flights", 1)
    reporting.run(lambda: None, lambda: reporting.replicas.update({partition: replica(1, high_watermark=6)}))
    first, second = controller.reports
    assert (first.full, first.broker_epoch, first.controller_epoch) == (True, 50, 3)
    assert list(first.changes[0].partition) == [0, 1]
    assert (list(first.changes[0].isr_len), list(first.changes[0].isr)) == ([2, 2], [1, 2, 1, 2])
    assert (second.full, list(second.changes[0].partition), list(second.changes[0].high_watermark)) == (False, [1], [6])


def test_damage_is_reported_of_the_replicas_that_have_it(controller) -> None:
    reporting = Reporting(controller.known())
    damaged = msgspec.structs.replace(replica(1), damage="a flipped byte")
    reporting.run(lambda: None, lambda: reporting.replicas.update({TopicPartition("flights", 1): damaged}))
    first, second = controller.reports
    assert (list(first.changes[0].damaged), list(first.changes[0].damage)) == ([], [])
    assert (list(second.changes[0].damaged), list(second.changes[0].damage)) == ([1], ["a flipped byte"])


def test_a_report_is_full_again_when_asked_and_for_a_new_incarnation(controller) -> None:
    reporting = Reporting(controller.known())
    controller.report_answer = pb.ReportReplicasResponse(send_full=True)

    def asked() -> None:
        controller.report_answer = pb.ReportReplicasResponse()

    def bounced() -> None:
        reporting.epoch = BrokerEpoch(60)

    reporting.run(asked, bounced)
    assert [report.full for report in controller.reports] == [True, True, True]
    assert [len(report.changes[0].partition) for report in controller.reports] == [2, 2, 2]


def test_a_refused_report_is_told_again(controller) -> None:
    reporting = Reporting(controller.known())
    controller.report_answer = pb.ReportReplicasResponse(error_code=ErrorCode.NOT_CONTROLLER)
    reporting.run(lambda: None)
    assert [report.full for report in controller.reports] == [True, True]


def test_a_report_has_a_digest_of_all_roles_and_names_what_is_hosted_no_more(controller) -> None:
    reporting = Reporting(controller.known())
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


def test_an_agent_with_nothing_new_gives_a_sign_of_life_now_and_then(controller) -> None:
    reporting = Reporting(controller.known())
    reporting.run(lambda: None, lambda: reporting.clock.advance(SIGN_OF_LIFE_MS))
    assert [len(report.changes) for report in controller.reports] == [1, 0]
    assert controller.reports[0].digest == controller.reports[1].digest


def test_nobody_is_told_before_there_is_a_controller_and_a_registration(controller) -> None:
    Reporting(MetadataCache()).run()
    unregistered = Reporting(controller.known())
    unregistered.epoch = BrokerEpoch(-1)
    unregistered.run()
    assert controller.reports == []
