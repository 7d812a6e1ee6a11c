"""The gRPC services of a controller process: calls become events, and their answers messages. Nothing is decided here.

Admin (protos/admin.proto): what clients ask through agents, and what only our own tools ask: how far deletions are,
that a controller resigns, that a broker leaves, or is gone for good. Controller (protos/controller.proto): what agents
tell it; one that does not rule answers NOT_CONTROLLER to everything but Describe. Inspection (protos/inspection.proto):
what people ask; also controllers that do not rule serve it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

import grpc

from regency.controller.brokers.leaving import ForgetBroker, ForgottenBroker, SteerBroker, SteeredBroker
from regency.controller.controller import Controller
from regency.controller.doctor.examination import Examiner
from regency.controller.doctor.summary import Summariser
from regency.controller.elections.controlled_shutdown import ControlledShutdown
from regency.controller.events import EventLoop
from regency.controller.machines.topic_deletion import DeletionProgress
from regency.controller.request_gate import NOT_RULING, RequestGate, refusal
from regency.controller.state.reports import ReplicaReport, Taken
from regency.controller.term import Resign
from regency.controller.topics.deletion_requests import ListDeletions
from regency.history.pages import Position, Wanted, read_page
from regency.model.clock import Clock
from regency.model.hosting import HostedRole
from regency.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition, ZkVersion
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2 as admin
from regency.protos import control_pb2 as control
from regency.protos import controller_pb2 as pb
from regency.protos import inspection_pb2 as inspection
from regency.runtime.grpc.channels import AgentControlClient, RpcFailed, call, open_channel
from regency.runtime.grpc.servers import ServiceHandler, service, unary

ADMIN: Final = "regency.admin.v1.Admin"

AGENT_TIMEOUT_MS = 10_000
"""How long an agent may take to say that it will leave."""


def admin_service(gate: RequestGate) -> ServiceHandler:
    """The service for a GrpcServer."""

    def forward(envelope: admin.Envelope) -> admin.EnvelopeReply:
        from regency.controller.admin import forwarded  # noqa: PLC0415  (a candidate that never rules needs it never)

        return forwarded.forward(gate, envelope)

    def list_deletions(_request: admin.ListDeletionsRequest) -> admin.ListDeletionsResponse:
        return gate.answer(
            ListDeletions(),
            lambda deletions: admin.ListDeletionsResponse(deletions=map(_deletion, deletions)),
            lambda error, message: admin.ListDeletionsResponse(outcome=refusal(error, message)),
        )

    def resign(_: admin.ResignRequest) -> admin.ResignResponse:
        return gate.answer(
            Resign(),
            lambda epoch: admin.ResignResponse(controller_epoch=epoch),
            lambda error, message: admin.ResignResponse(outcome=refusal(error, message)),
        )

    def shut_down_broker(request: admin.ShutDownBrokerRequest) -> admin.ShutDownBrokerResponse:
        return gate.answer(
            SteerBroker(BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch)),
            tell_to_leave,
            lambda error, message: admin.ShutDownBrokerResponse(outcome=refusal(error, message)),
        )

    def forget_broker(request: admin.ForgetBrokerRequest) -> admin.ForgetBrokerResponse:
        return gate.answer(
            ForgetBroker(BrokerId(request.broker_id)),
            _forgotten,
            lambda error, message: admin.ForgetBrokerResponse(outcome=refusal(error, message)),
        )

    methods = {
        "Forward": unary(forward, admin.Envelope, admin.EnvelopeReply),
        "ListDeletions": unary(list_deletions, admin.ListDeletionsRequest, admin.ListDeletionsResponse),
        "Resign": unary(resign, admin.ResignRequest, admin.ResignResponse),
        "ShutDownBroker": unary(shut_down_broker, admin.ShutDownBrokerRequest, admin.ShutDownBrokerResponse),
        "ForgetBroker": unary(forget_broker, admin.ForgetBrokerRequest, admin.ForgetBrokerResponse),
    }
    return service(ADMIN, methods)


def shut_down_request(broker: SteeredBroker) -> control.ShutDownRequest:
    """The order to the agent, under the epochs by which it judges it."""
    header = control.Header(
        controller_id=broker.controller_id,
        controller_epoch=broker.controller_epoch,
        broker_epoch=broker.broker_epoch,
        controller_endpoint=broker.controller_endpoint,
    )
    return control.ShutDownRequest(header=header)


def tell_to_leave(broker: SteeredBroker) -> admin.ShutDownBrokerResponse:
    """Tell the agent, on a connection of its own: it refuses who is not the newest controller it has seen."""
    if broker.error is not ErrorCode.NONE:
        return admin.ShutDownBrokerResponse(outcome=refusal(broker.error, broker.message))
    channel: grpc.Channel = open_channel(broker.target)
    try:
        answer = call(
            AgentControlClient(channel).shut_down,
            shut_down_request(broker),
            timeout_ms=AGENT_TIMEOUT_MS,
            target=f"broker {broker.id} at {broker.target}",
        )
    except RpcFailed as error:
        return admin.ShutDownBrokerResponse(outcome=refusal(ErrorCode.BROKER_NOT_AVAILABLE, str(error)))
    finally:
        channel.close()
    if answer.error_code != ErrorCode.NONE:
        why = f"Broker {broker.id} refused: {answer.message}"
        return admin.ShutDownBrokerResponse(outcome=refusal(ErrorCode(answer.error_code), why))
    return admin.ShutDownBrokerResponse(broker_epoch=broker.broker_epoch)


def _forgotten(broker: ForgottenBroker) -> admin.ForgetBrokerResponse:
    return admin.ForgetBrokerResponse(outcome=refusal(broker.error, broker.message), replicas=broker.replicas)


def _deletion(progress: DeletionProgress) -> admin.Deletion:
    return admin.Deletion(
        topic=progress.topic,
        replicas=progress.replicas,
        deleted=progress.deleted,
        waits_for=progress.waits_for,
        offline=progress.offline,
    )


CONTROLLER: Final = "regency.controller.v1.Controller"


class ControllerService:
    """What agents tell and ask. Its methods run on gRPC's threads."""

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
            CONTROLLER,
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


INSPECTION: Final = "regency.inspection.v1.Inspection"


class Inspection:
    """Its methods run on gRPC's threads; one history and one examination are read at a time."""

    def __init__(self, broker: BrokerId, history: Path | None, examiner: Examiner, summariser: Summariser) -> None:
        self._broker = broker
        self._history = history
        self._examiner = examiner
        self._summariser = summariser
        self._reading = threading.Lock()
        self._examining = threading.Lock()

    def handler(self) -> ServiceHandler:
        """The service for a GrpcServer."""
        return service(
            INSPECTION,
            {
                "ReadHistory": unary(self.read_history, inspection.ReadHistoryRequest, inspection.ReadHistoryResponse),
                "Examine": unary(self.examine, inspection.ExamineRequest, inspection.ExamineResponse),
                "Summarise": unary(self.summarise, inspection.SummariseRequest, inspection.SummariseResponse),
            },
        )

    def read_history(self, request: inspection.ReadHistoryRequest) -> inspection.ReadHistoryResponse:
        """A page of this host's decision records."""
        answer = inspection.ReadHistoryResponse(broker_id=self._broker)
        if self._history is None:
            return answer
        wanted = Wanted(frozenset(request.subjects), request.topic, request.since_ms, request.until_ms)
        after = request.after
        position = Position(after.role, after.controller_epoch, after.number) if request.HasField("after") else None
        with self._reading:
            page = read_page(self._history, wanted, position)
        answer.decisions.extend(page.lines)
        if page.next is not None:
            answer.next.role, answer.next.controller_epoch, answer.next.number = page.next
        return answer

    def examine(self, request: inspection.ExamineRequest) -> inspection.ExamineResponse:
        """Whether ZooKeeper, this controller and all agents agree; only where it rules."""
        with self._examining:
            return self._examiner.examine(request)

    def summarise(self, request: inspection.SummariseRequest) -> inspection.SummariseResponse:
        """The cluster at a glance; only where it rules."""
        return self._summariser.summarise(request)
