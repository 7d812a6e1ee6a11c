"""IncrementalAlterConfigs and AlterConfigs over gRPC."""

from __future__ import annotations

from collections.abc import Mapping

from regency.controller.request_gate import RequestGate, refusal
from regency.controller.topics.config_changes import AlterConfigs, ConfigAlteration, ConfigOutcome
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.dynamic import ConfigChange, Operation
from regency.protos import admin_pb2 as pb
from regency.runtime.grpc.servers import MethodHandler, unary


def methods(gate: RequestGate) -> Mapping[str, MethodHandler]:
    """The methods of service Admin that concern settings."""

    def alter_configs(request: pb.AlterConfigsRequest) -> pb.AlterConfigsResponse:
        try:
            resources = tuple(map(_alteration, request.resources))
        except ValueError as error:
            return pb.AlterConfigsResponse(outcome=refusal(ErrorCode.INVALID_REQUEST, f"{error}."))
        return gate.answer(
            AlterConfigs(resources, incremental=request.incremental, validate_only=request.validate_only),
            lambda outcomes: pb.AlterConfigsResponse(resources=map(_altered, outcomes)),
            lambda error, message: pb.AlterConfigsResponse(outcome=refusal(error, message)),
        )

    return {"AlterConfigs": unary(alter_configs, pb.AlterConfigsRequest, pb.AlterConfigsResponse)}


def _alteration(resource: pb.ConfigAlteration) -> ConfigAlteration:
    changes = tuple(ConfigChange(each.key, Operation(each.operation), each.value) for each in resource.changes)
    return ConfigAlteration(resource.resource_type, resource.name, changes)


def _altered(outcome: ConfigOutcome) -> pb.AlteredConfig:
    return pb.AlteredConfig(
        resource_type=outcome.resource_type, name=outcome.name, error_code=outcome.error, message=outcome.message
    )
