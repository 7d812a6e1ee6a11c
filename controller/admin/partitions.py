"""CreatePartitions over gRPC."""

from __future__ import annotations

from collections.abc import Mapping

from regency.controller.request_gate import RequestGate, refusal
from regency.controller.topics.partition_creation import CreatePartitions, MorePartitions
from regency.model.ids import BrokerId
from regency.protos import admin_pb2 as pb
from regency.runtime.grpc.servers import MethodHandler, unary


def methods(gate: RequestGate) -> Mapping[str, MethodHandler]:
    """The methods of service Admin that concern partitions being added."""

    def create_partitions(request: pb.CreatePartitionsRequest) -> pb.TopicsResponse:
        return gate.answer(
            CreatePartitions(tuple(map(_wanted, request.topics)), validate_only=request.validate_only),
            lambda outcomes: pb.TopicsResponse(
                topics=[
                    pb.TopicOutcome(topic=each.topic, error_code=each.error, message=each.message) for each in outcomes
                ]
            ),
            lambda error, message: pb.TopicsResponse(outcome=refusal(error, message)),
        )

    return {"CreatePartitions": unary(create_partitions, pb.CreatePartitionsRequest, pb.TopicsResponse)}


def _wanted(more: pb.MorePartitions) -> MorePartitions:
    assignments = tuple(tuple(map(BrokerId, each.replicas)) for each in more.assignments)
    return MorePartitions(more.topic, more.count, assignments)
