"""Kafka's admin requests in their envelopes (KIP-590): decoded here, answered in the same version of Kafka's protocol.

This module is imported with the first of them: most candidates never rule, and the schemas take 9 MB.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from regency.controller.admin import configs, elections, partitions, reassignments, topics
from regency.controller.admin.asked import Asked, RequestRefused
from regency.controller.request_gate import RequestGate, refusal
from regency.kafka.apis import ApiKey
from regency.kafka.codec import Request, encode_body, parse_forwarded
from regency.kafka.errors import FrameMalformed, UnsupportedApi
from regency.model.kafka_errors import ErrorCode
from regency.model.principals import Principal, RequestContext
from regency.protos import admin_pb2 as pb

logger = logging.getLogger(__name__)

APIS: Final[Mapping[ApiKey, Callable[[Request], Asked[Any]]]] = {
    ApiKey.CREATE_TOPICS: topics.create,
    ApiKey.DELETE_TOPICS: topics.delete,
    ApiKey.ALTER_CONFIGS: configs.alter,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.alter,
    ApiKey.CREATE_PARTITIONS: partitions.create,
    ApiKey.ELECT_LEADERS: elections.elect,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: reassignments.alter,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: reassignments.list_ongoing,
}

UNLOGGED: Final = frozenset({ApiKey.LIST_PARTITION_REASSIGNMENTS})
"""What changes nothing."""


def forward(gate: RequestGate, envelope: pb.Envelope) -> pb.EnvelopeReply:
    """Answer what a client asked an agent. An outcome without a response: the request was refused as a whole."""
    try:
        request = parse_forwarded(envelope.api_key, envelope.api_version, envelope.client_id, envelope.request)
        asked = APIS[request.api_key](request)
    except UnsupportedApi as error:
        return _refused(ErrorCode.UNSUPPORTED_VERSION, f"The controller is of another version: {error}")
    except FrameMalformed as error:
        return _refused(ErrorCode.INVALID_REQUEST, str(error))
    except RequestRefused as error:
        return _refused(error.error, str(error))

    def respond(outcome: Any) -> pb.EnvelopeReply:
        if request.api_key not in UNLOGGED:
            logger.info("did %s for %s", request.api_key.name, context(envelope))
        message, awaited = asked.respond(outcome)
        return pb.EnvelopeReply(response=bytes(encode_body(request.version, message)), awaited=awaited)

    return gate.answer(asked.event, respond, _refused)


def context(envelope: pb.Envelope) -> RequestContext:
    """Who asks, and from where."""
    principal = Principal(envelope.principal_type, envelope.principal_name)
    return RequestContext(principal, envelope.listener, envelope.client_address, envelope.client_id)


def _refused(error: ErrorCode, why: str) -> pb.EnvelopeReply:
    return pb.EnvelopeReply(outcome=refusal(error, why))
