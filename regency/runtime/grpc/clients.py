"""The control plane's services as typed methods over a channel (gRPC's generated stubs would carry no types)."""

from __future__ import annotations

from typing import TypeVar

import grpc
from google.protobuf.message import Message

from regency.protos import admin_pb2, control_pb2, controller_pb2, inspection_pb2
from regency.runtime.grpc.channels import Method

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)


def _unary(channel: grpc.Channel, path: str, request: type[Request], reply: type[Reply]) -> Method[Request, Reply]:
    return channel.unary_unary(
        path, request_serializer=request.SerializeToString, response_deserializer=reply.FromString
    )


class AgentControlClient:
    """What a controller asks of an agent (control.proto, AgentControl)."""

    def __init__(self, channel: grpc.Channel) -> None:
        service = "/regency.control.v1.AgentControl/"
        response = control_pb2.ControlResponse
        self.leader_and_isr = _unary(channel, service + "LeaderAndIsr", control_pb2.LeaderAndIsrRequest, response)
        self.update_metadata = _unary(channel, service + "UpdateMetadata", control_pb2.UpdateMetadataRequest, response)
        self.stop_replica = _unary(channel, service + "StopReplica", control_pb2.StopReplicaRequest, response)
        self.describe_replicas = _unary(
            channel,
            service + "DescribeReplicas",
            control_pb2.DescribeReplicasRequest,
            control_pb2.DescribeReplicasResponse,
        )
        self.shut_down = _unary(channel, service + "ShutDown", control_pb2.ShutDownRequest, response)


class ControllerClient:
    """What agents and tools ask of a controller (controller.proto, Controller)."""

    def __init__(self, channel: grpc.Channel) -> None:
        service = "/regency.controller.v1.Controller/"
        self.report_replicas = _unary(
            channel,
            service + "ReportReplicas",
            controller_pb2.ReportReplicasRequest,
            controller_pb2.ReportReplicasResponse,
        )
        self.controlled_shutdown = _unary(
            channel,
            service + "ControlledShutdown",
            controller_pb2.ControlledShutdownRequest,
            controller_pb2.ControlledShutdownResponse,
        )
        self.describe = _unary(
            channel,
            service + "Describe",
            controller_pb2.DescribeControllerRequest,
            controller_pb2.DescribeControllerResponse,
        )


class AdminClient:
    """What clients ask through agents, and our own tools ask of a controller (admin.proto, Admin)."""

    def __init__(self, channel: grpc.Channel) -> None:
        service = "/regency.admin.v1.Admin/"
        pb = admin_pb2
        self.forward = _unary(channel, service + "Forward", pb.Envelope, pb.EnvelopeReply)
        self.list_deletions = _unary(
            channel, service + "ListDeletions", pb.ListDeletionsRequest, pb.ListDeletionsResponse
        )
        self.resign = _unary(channel, service + "Resign", pb.ResignRequest, pb.ResignResponse)
        self.shut_down_broker = _unary(
            channel, service + "ShutDownBroker", pb.ShutDownBrokerRequest, pb.ShutDownBrokerResponse
        )
        self.forget_broker = _unary(channel, service + "ForgetBroker", pb.ForgetBrokerRequest, pb.ForgetBrokerResponse)


class InspectionClient:
    """What people ask of a controller process (inspection.proto, Inspection)."""

    def __init__(self, channel: grpc.Channel) -> None:
        service = "/regency.inspection.v1.Inspection/"
        pb = inspection_pb2
        self.read_history = _unary(channel, service + "ReadHistory", pb.ReadHistoryRequest, pb.ReadHistoryResponse)
        self.examine = _unary(channel, service + "Examine", pb.ExamineRequest, pb.ExamineResponse)
        self.summarise = _unary(channel, service + "Summarise", pb.SummariseRequest, pb.SummariseResponse)
