"""AlterReassignments and ListReassignments of service Admin. Their methods run on gRPC's threads."""

from __future__ import annotations

from collections.abc import Iterable

from regency.controller.reassignment.events import AlterReassignments, ListReassignments, PartitionOutcome
from regency.controller.request_gate import RequestGate, refusal
from regency.model.facts import ReplicaAssignment
from regency.model.ids import BrokerId, TopicPartition
from regency.protos import admin_pb2 as pb
from regency.runtime.grpc.servers import MethodHandler, unary


def methods(gate: RequestGate) -> dict[str, MethodHandler]:
    """The methods of this file, by name."""
    return {
        "AlterReassignments": unary(
            lambda request: _alter(gate, request), pb.AlterReassignmentsRequest, pb.PartitionsResponse
        ),
        "ListReassignments": unary(
            lambda request: _list(gate, request), pb.ListReassignmentsRequest, pb.ListReassignmentsResponse
        ),
    }


def _alter(gate: RequestGate, request: pb.AlterReassignmentsRequest) -> pb.PartitionsResponse:
    moves = tuple(
        (TopicPartition(each.topic, each.partition), None if each.cancel else tuple(map(BrokerId, each.replicas)))
        for each in request.reassignments
    )
    return gate.answer(
        AlterReassignments(moves, keep_factor=request.keep_replication_factor),
        lambda outcomes: pb.PartitionsResponse(partitions=map(_outcome, outcomes)),
        lambda error, message: pb.PartitionsResponse(outcome=refusal(error, message)),
    )


def _list(gate: RequestGate, request: pb.ListReassignmentsRequest) -> pb.ListReassignmentsResponse:
    named = tuple(TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partition)
    return gate.answer(
        ListReassignments(None if request.all else named),
        lambda under_way: pb.ListReassignmentsResponse(reassignments=_ongoing(under_way)),
        lambda error, message: pb.ListReassignmentsResponse(outcome=refusal(error, message)),
    )


def _outcome(outcome: PartitionOutcome) -> pb.PartitionOutcome:
    return pb.PartitionOutcome(
        topic=outcome.partition.topic,
        partition=outcome.partition.partition,
        error_code=outcome.error,
        message=outcome.message,
    )


def _ongoing(under_way: Iterable[tuple[TopicPartition, ReplicaAssignment]]) -> list[pb.OngoingReassignment]:
    return [
        pb.OngoingReassignment(
            topic=partition.topic,
            partition=partition.partition,
            replicas=assignment.replicas,
            adding=assignment.adding,
            removing=assignment.removing,
        )
        for partition, assignment in under_way
    ]
