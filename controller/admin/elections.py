"""ElectLeaders over gRPC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regency.controller.elections.leader_elections import ElectionOutcome, ElectionType, ElectLeaders
from regency.controller.request_gate import RequestGate, refusal
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2 as pb
from regency.runtime.grpc.servers import MethodHandler, unary


def methods(gate: RequestGate) -> Mapping[str, MethodHandler]:
    """The methods of service Admin that concern leader elections."""

    def elect_leaders(request: pb.ElectLeadersRequest) -> pb.PartitionsResponse:
        if request.election_type not in {each.value for each in ElectionType}:
            why = f"There is no election of type {request.election_type}: 0 is preferred, 1 unclean."
            return pb.PartitionsResponse(outcome=refusal(ErrorCode.INVALID_REQUEST, why))
        named = [TopicPartition(each.topic, number) for each in request.topics for number in each.partition]
        return gate.answer(
            ElectLeaders(ElectionType(request.election_type), None if request.all else tuple(named)),
            _response,
            lambda error, message: pb.PartitionsResponse(outcome=refusal(error, message)),
        )

    return {"ElectLeaders": unary(elect_leaders, pb.ElectLeadersRequest, pb.PartitionsResponse)}


def _response(outcomes: Sequence[ElectionOutcome]) -> pb.PartitionsResponse:
    return pb.PartitionsResponse(
        partitions=[
            pb.PartitionOutcome(
                topic=each.partition.topic,
                partition=each.partition.partition,
                error_code=each.error,
                message=each.message,
                leader=each.leader,
            )
            for each in outcomes
        ]
    )
