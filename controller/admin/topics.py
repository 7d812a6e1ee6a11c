"""DeleteTopics and ListDeletions over gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from regency.controller.machines.topic_deletion import DeletionProgress
from regency.controller.request_gate import RequestGate, refusal
from regency.controller.topics.deletion_requests import DeletedTopic, DeleteTopics, ListDeletions, TopicRef
from regency.model.ids import TopicId
from regency.protos import admin_pb2 as pb
from regency.runtime.grpc.servers import MethodHandler, unary


def methods(gate: RequestGate) -> Mapping[str, MethodHandler]:
    """The methods of service Admin that concern whole topics."""

    def delete_topics(request: pb.DeleteTopicsRequest) -> pb.DeleteTopicsResponse:
        return gate.answer(
            DeleteTopics(tuple(map(_wanted, request.topics))),
            lambda outcomes: pb.DeleteTopicsResponse(topics=map(_outcome, outcomes)),
            lambda error, message: pb.DeleteTopicsResponse(outcome=refusal(error, message)),
        )

    def list_deletions(_request: pb.ListDeletionsRequest) -> pb.ListDeletionsResponse:
        return gate.answer(
            ListDeletions(),
            lambda deletions: pb.ListDeletionsResponse(deletions=map(_deletion, deletions)),
            lambda error, message: pb.ListDeletionsResponse(outcome=refusal(error, message)),
        )

    return {
        "DeleteTopics": unary(delete_topics, pb.DeleteTopicsRequest, pb.DeleteTopicsResponse),
        "ListDeletions": unary(list_deletions, pb.ListDeletionsRequest, pb.ListDeletionsResponse),
    }


def _wanted(topic: pb.TopicRef) -> TopicRef:
    is_id = len(topic.topic_id) == 16 and not topic.name
    return TopicRef(topic.name, TopicId(UUID(bytes=topic.topic_id)) if is_id else None)


def _outcome(outcome: DeletedTopic) -> pb.DeletedTopic:
    return pb.DeletedTopic(
        name=outcome.name,
        topic_id=b"" if outcome.topic_id is None else outcome.topic_id.bytes,
        error_code=outcome.error,
        message=outcome.message,
    )


def _deletion(progress: DeletionProgress) -> pb.Deletion:
    return pb.Deletion(
        topic=progress.topic,
        replicas=progress.replicas,
        deleted=progress.deleted,
        waits_for=progress.waits_for,
        offline=progress.offline,
    )
