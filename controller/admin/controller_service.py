"""The gRPC face of the controller: turns calls into events and their answers into messages. Decides nothing.

A controller that does not rule answers NOT_CONTROLLER to everything but Describe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

from regency.controller.controller import Controller
from regency.controller.event_loop import EventLoop
from regency.controller.events import ControlledShutdown
from regency.controller.request_gate import NOT_RULING, RequestGate
from regency.controller.state.reports import ReplicaReport, Taken
from regency.model.clock import Clock
from regency.model.hosting import HostedRole
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
from regency.runtime.grpc.servers import ServiceHandler, service, unary

SERVICE = "regency.controller.v1.Controller"


class ControllerService:
    """Service Controller of protos/controller.proto. Its methods run on gRPC's threads."""

    def __init__(
        self,
        controller: Controller,
        gate: RequestGate,
        loop: EventLoop,
        *,
        broker: BrokerId,
        session_id: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._controller = controller
        self._gate = gate
        self._loop = loop
        self._broker = broker
        self._session_id = session_id
        self._clock = clock

    def handler(self) -> ServiceHandler:
        """The service for a GrpcServer."""
        return service(
            SERVICE,
            {
                "ReportReplicas": unary(self.report_replicas, pb.ReportReplicasRequest, pb.ReportReplicasResponse),
                "ControlledShutdown": unary(
                    self.controlled_shutdown, pb.ControlledShutdownRequest, pb.ControlledShutdownResponse
                ),
                "Describe": unary(self.describe, pb.DescribeControllerRequest, pb.DescribeControllerResponse),
            },
        )

    def report_replicas(self, request: pb.ReportReplicasRequest) -> pb.ReportReplicasResponse:
        """Keep what a live broker reports."""
        view = self._controller.view
        if not view.ruling:
            return pb.ReportReplicasResponse(error_code=ErrorCode.NOT_CONTROLLER, message=NOT_RULING)
        if request.controller_epoch > view.epoch:
            why = f"This controller rules in epoch {view.epoch}; the report names {request.controller_epoch}."
            return pb.ReportReplicasResponse(error_code=ErrorCode.NOT_CONTROLLER, message=why)
        broker = BrokerId(request.broker_id)
        if view.brokers.get(broker) != request.broker_epoch:
            why = f"broker {broker} is not live under epoch {request.broker_epoch}."
            return pb.ReportReplicasResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, message=why)
        taken = Taken(
            broker,
            BrokerEpoch(request.broker_epoch),
            request.number,
            request.digest,
            request.full,
            self._clock.monotonic_ms(),
        )
        send_full = self._controller.reports.take(taken, _reports(request))
        return pb.ReportReplicasResponse(send_full=send_full)

    def controlled_shutdown(self, request: pb.ControlledShutdownRequest) -> pb.ControlledShutdownResponse:
        """Move what a broker leads, so that it may go."""
        return self._gate.answer(
            ControlledShutdown(BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch)),
            lambda outcome: pb.ControlledShutdownResponse(
                error_code=outcome.error, message=outcome.message, remaining_partitions=len(outcome.remaining)
            ),
            lambda error, message: pb.ControlledShutdownResponse(error_code=error, message=message),
        )

    def describe(self, _request: pb.DescribeControllerRequest) -> pb.DescribeControllerResponse:
        """What this controller is and does, whether it rules or not."""
        view = self._controller.view
        return pb.DescribeControllerResponse(
            broker_id=self._broker,
            active=view.ruling,
            controller_epoch=view.epoch,
            state=self._loop.state.label,
            live_brokers=len(view.brokers),
            topics=view.topics,
            partitions=view.partitions,
            offline_partitions=view.offline_partitions,
            unacknowledged=self._controller.unacknowledged,
            session_id=self._session_id(),
            phases=(
                pb.FailoverPhase(name=name, seconds=spent_ms / 1000) for name, spent_ms in self._controller.failover
            ),
        )


def _reports(request: pb.ReportReplicasRequest) -> Iterator[tuple[TopicPartition, ReplicaReport]]:
    for topic in request.changes:
        position = 0
        topic_id = TopicId(UUID(bytes=topic.topic_id))
        damage = dict(zip(topic.damaged, topic.damage, strict=True))
        for row, partition in enumerate(topic.partition):
            members = topic.isr_len[row] if topic.isr_len else 0
            yield (
                TopicPartition(topic.topic, partition),
                ReplicaReport(
                    topic_id,
                    HostedRole(topic.role[row]),
                    BrokerId(topic.leader[row]),
                    LeaderEpoch(topic.leader_epoch[row]),
                    ZkVersion(topic.zk_version[row]),
                    Offset(topic.high_watermark[row]),
                    Offset(topic.log_end_offset[row]),
                    Offset(topic.log_start_offset[row]),
                    tuple(map(BrokerId, topic.isr[position : position + members])),
                    topic.directory[row] if topic.directory else "",
                    damage.get(partition, ""),
                ),
            )
            position += members
