"""Service Admin of protos/admin.proto: what clients ask through agents, and what only our own tools ask.

Tools ask how far deletions are, that a controller resigns, that a broker leaves, or is gone for good.
"""

from __future__ import annotations

from typing import Final

import grpc

from regency.controller.brokers.forgetting import ForgetBroker, ForgottenBroker
from regency.controller.brokers.shutdown import SteerBroker, SteeredBroker
from regency.controller.machines.topic_deletion import DeletionProgress
from regency.controller.request_gate import RequestGate, refusal
from regency.controller.resignation import Resign
from regency.controller.topics.deletion_requests import ListDeletions
from regency.model.ids import BrokerEpoch, BrokerId
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2 as pb
from regency.protos import control_pb2
from regency.runtime.grpc.channels import RpcFailed, call, open_channel
from regency.runtime.grpc.clients import AgentControlClient
from regency.runtime.grpc.servers import ServiceHandler, service, unary

SERVICE: Final = "regency.admin.v1.Admin"

AGENT_TIMEOUT_MS = 10_000
"""How long an agent may take to say that it will leave."""


def admin_service(gate: RequestGate) -> ServiceHandler:
    """The service for a GrpcServer."""

    def forward(envelope: pb.Envelope) -> pb.EnvelopeReply:
        from regency.controller.admin import forwarded  # noqa: PLC0415  (a candidate that never rules needs it never)

        return forwarded.forward(gate, envelope)

    def list_deletions(_request: pb.ListDeletionsRequest) -> pb.ListDeletionsResponse:
        return gate.answer(
            ListDeletions(),
            lambda deletions: pb.ListDeletionsResponse(deletions=map(_deletion, deletions)),
            lambda error, message: pb.ListDeletionsResponse(outcome=refusal(error, message)),
        )

    def resign(_: pb.ResignRequest) -> pb.ResignResponse:
        return gate.answer(
            Resign(),
            lambda epoch: pb.ResignResponse(controller_epoch=epoch),
            lambda error, message: pb.ResignResponse(outcome=refusal(error, message)),
        )

    def shut_down_broker(request: pb.ShutDownBrokerRequest) -> pb.ShutDownBrokerResponse:
        return gate.answer(
            SteerBroker(BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch)),
            tell_to_leave,
            lambda error, message: pb.ShutDownBrokerResponse(outcome=refusal(error, message)),
        )

    def forget_broker(request: pb.ForgetBrokerRequest) -> pb.ForgetBrokerResponse:
        return gate.answer(
            ForgetBroker(BrokerId(request.broker_id)),
            _forgotten,
            lambda error, message: pb.ForgetBrokerResponse(outcome=refusal(error, message)),
        )

    methods = {
        "Forward": unary(forward, pb.Envelope, pb.EnvelopeReply),
        "ListDeletions": unary(list_deletions, pb.ListDeletionsRequest, pb.ListDeletionsResponse),
        "Resign": unary(resign, pb.ResignRequest, pb.ResignResponse),
        "ShutDownBroker": unary(shut_down_broker, pb.ShutDownBrokerRequest, pb.ShutDownBrokerResponse),
        "ForgetBroker": unary(forget_broker, pb.ForgetBrokerRequest, pb.ForgetBrokerResponse),
    }
    return service(SERVICE, methods)


def shut_down_request(broker: SteeredBroker) -> control_pb2.ShutDownRequest:
    """The order to the agent, under the epochs by which it judges it."""
    header = control_pb2.Header(
        controller_id=broker.controller_id,
        controller_epoch=broker.controller_epoch,
        broker_epoch=broker.broker_epoch,
        controller_endpoint=broker.controller_endpoint,
    )
    return control_pb2.ShutDownRequest(header=header)


def tell_to_leave(broker: SteeredBroker) -> pb.ShutDownBrokerResponse:
    """Tell the agent, on a connection of its own: it refuses who is not the newest controller it has seen."""
    if broker.error is not ErrorCode.NONE:
        return pb.ShutDownBrokerResponse(outcome=refusal(broker.error, broker.message))
    channel: grpc.Channel = open_channel(broker.target)
    try:
        answer = call(
            AgentControlClient(channel).shut_down,
            shut_down_request(broker),
            timeout_ms=AGENT_TIMEOUT_MS,
            target=f"broker {broker.id} at {broker.target}",
        )
    except RpcFailed as error:
        return pb.ShutDownBrokerResponse(outcome=refusal(ErrorCode.BROKER_NOT_AVAILABLE, str(error)))
    finally:
        channel.close()
    if answer.error_code != ErrorCode.NONE:
        why = f"Broker {broker.id} refused: {answer.message}"
        return pb.ShutDownBrokerResponse(outcome=refusal(ErrorCode(answer.error_code), why))
    return pb.ShutDownBrokerResponse(broker_epoch=broker.broker_epoch)


def _forgotten(broker: ForgottenBroker) -> pb.ForgetBrokerResponse:
    return pb.ForgetBrokerResponse(outcome=refusal(broker.error, broker.message), replicas=broker.replicas)


def _deletion(progress: DeletionProgress) -> pb.Deletion:
    return pb.Deletion(
        topic=progress.topic,
        replicas=progress.replicas,
        deleted=progress.deleted,
        waits_for=progress.waits_for,
        offline=progress.offline,
    )
