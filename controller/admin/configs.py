"""AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from regency.controller.admin.asked import Asked
from regency.controller.topics.config_changes import AlterConfigs, ConfigAlteration, ConfigOutcome
from regency.kafka.admin_answers import Row, answer
from regency.kafka.apis import ApiKey, Message
from regency.kafka.codec import Request
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.dynamic import ConfigChange, Operation


def alter(request: Request) -> Asked[tuple[ConfigOutcome, ...]]:
    """Answered when the changes stand in ZooKeeper."""
    incremental = request.api_key is ApiKey.INCREMENTAL_ALTER_CONFIGS
    refused: dict[tuple[str, int], Row] = {}
    wanted: list[ConfigAlteration] = []
    for resource in request.message.resources:
        name, number = resource.resource_name, resource.resource_type
        problem = _problem(resource, incremental)
        if problem:
            refused[name, number] = Row(name, number, ErrorCode.INVALID_REQUEST, problem)
            continue
        changes = (
            ConfigChange(
                each.name, Operation(each.config_operation) if incremental else Operation.SET, each.value or ""
            )
            for each in resource.configs
        )
        wanted.append(ConfigAlteration(number, name, tuple(changes)))

    def respond(outcomes: tuple[ConfigOutcome, ...]) -> tuple[Message, tuple[()]]:
        rows = refused | {
            (each.name, each.resource_type): Row(each.name, each.resource_type, each.error, each.message)
            for each in outcomes
        }
        return answer(request, rows.values()), ()

    event = AlterConfigs(tuple(wanted), incremental=incremental, validate_only=request.message.validate_only)
    return Asked(event, respond)


def _problem(resource: Message, incremental: bool) -> str:
    """What of a resource makes no sense, whatever is set."""
    for config in resource.configs:
        if incremental and config.config_operation not in tuple(Operation):
            return f"{config.name}: there is no operation {config.config_operation}."
        deleted = incremental and config.config_operation == Operation.DELETE
        if config.value is None and not deleted:
            return f"{config.name} has no value; to return to the default, delete it."
    return ""
