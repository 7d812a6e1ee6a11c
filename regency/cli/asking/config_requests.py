"""Reading and changing settings of a topic, of a broker or of all brokers, for `configs` and `topics alter`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from regency.cli.asking.refusals import refusal
from regency.cli.asking.wire import ClusterWire
from regency.cli.context import say
from regency.model.ids import BrokerId
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.described import Source
from regency.model.settings.dynamic import Operation, without_effect

TOPIC: Final = 2
BROKER: Final = 4
DESCRIBE_VERSION: Final = 4
MIN_ISR: Final = "min.insync.replicas"
_TOPICS_AT_ONCE: Final = 1_000
_PATIENCE_MS: Final = 5_000
"""For the settings of so many topics, where the answer can do without them."""
_ALTER_VERSION: Final = 1
_TYPES: Final = {1: "boolean", 2: "string", 3: "int", 4: "short", 5: "long", 6: "double", 7: "list", 9: "password"}


class Resource(msgspec.Struct, frozen=True):
    """A topic, a broker, or all brokers (with an empty name)."""

    type: int
    name: str

    @property
    def broker(self) -> BrokerId | None:
        """The one that knows about it; None where any does."""
        return BrokerId(int(self.name)) if self.type == BROKER and self.name else None

    def __str__(self) -> str:
        if self.type == TOPIC:
            return f"topic {self.name}"
        return f"broker {self.name}" if self.name else "all brokers"


class Synonym(msgspec.Struct, frozen=True):
    """Where a key has a value, the one in force first."""

    key: str
    value: str | None
    source: str


class ConfigRow(msgspec.Struct, frozen=True):
    """A key in `regency configs get`. `value` is None where it is secret or nothing is set."""

    key: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    type: str
    doc: str | None
    synonyms: list[Synonym]


def describe(wire: ClusterWire, resource: Resource, keys: Sequence[str] | None = None) -> list[ConfigRow]:
    """The settings of a resource, sorted by key; `keys` None: all. Raises CommandFailed."""
    from regency.kafka.codec import DescribeConfigsRequest

    asked = DescribeConfigsRequest.DescribeConfigsResource(
        version=DESCRIBE_VERSION,
        resource_type=resource.type,
        resource_name=resource.name,
        configuration_keys=None if keys is None else list(keys),
    )
    request = DescribeConfigsRequest(
        version=DESCRIBE_VERSION, resources=[asked], include_synonyms=True, include_documentation=True
    )
    (result,) = wire.ask(request, DESCRIBE_VERSION, broker=resource.broker).results
    if result.error_code == ErrorCode.REQUEST_TIMED_OUT:
        wire.check_ruled()
    if result.error_code != ErrorCode.NONE:
        raise refusal(str(resource), result.error_code, result.error_message)
    rows = [
        ConfigRow(
            config.name,
            config.value,
            Source(config.config_source).name,
            config.read_only,
            config.is_sensitive,
            _TYPES.get(config.config_type, "unknown"),
            config.documentation,
            [Synonym(each.name, each.value, Source(each.source).name) for each in config.synonyms],
        )
        for config in result.configs
    ]
    return sorted(rows, key=lambda row: row.key)


def min_isrs(wire: ClusterWire, topics: Sequence[str]) -> dict[str, int]:
    """min.insync.replicas of these topics; those that are gone, or that ZooKeeper does not tell of now, are left out.

    Raises CommandFailed, after a few seconds where a broker waits for ZooKeeper.
    """
    from regency.kafka.codec import DescribeConfigsRequest

    found: dict[str, int] = {}
    for start in range(0, len(topics), _TOPICS_AT_ONCE):
        resources = [
            DescribeConfigsRequest.DescribeConfigsResource(
                version=DESCRIBE_VERSION, resource_type=TOPIC, resource_name=topic, configuration_keys=[MIN_ISR]
            )
            for topic in topics[start : start + _TOPICS_AT_ONCE]
        ]
        request = DescribeConfigsRequest(
            version=DESCRIBE_VERSION, resources=resources, include_synonyms=False, include_documentation=False
        )
        for result in wire.ask(request, DESCRIBE_VERSION, timeout_ms=_PATIENCE_MS).results:
            for config in result.configs:
                found[result.resource_name] = int(config.value)
    return found


def is_own(resource: Resource, row: ConfigRow) -> bool:
    """Whether the key is set for this very resource, whatever is in force: all that unsetting it changes."""
    source = Source.DYNAMIC_TOPIC_CONFIG
    if resource.type == BROKER:
        source = Source.DYNAMIC_BROKER_CONFIG if resource.name else Source.DYNAMIC_DEFAULT_BROKER_CONFIG
    return source.name in {row.source, *(each.source for each in row.synonyms)}


def alter(
    wire: ClusterWire, resource: Resource, changes: Mapping[str, tuple[Operation, str | None]], *, dry_run: bool = False
) -> None:
    """Change settings. Raises CommandFailed; says what of it has no effect."""
    from regency.kafka.codec import IncrementalAlterConfigsRequest

    resource_class = IncrementalAlterConfigsRequest.AlterConfigsResource
    altered = resource_class(
        version=_ALTER_VERSION,
        resource_type=resource.type,
        resource_name=resource.name,
        configs=[
            resource_class.AlterableConfig(
                version=_ALTER_VERSION, name=key, config_operation=int(operation), value=value
            )
            for key, (operation, value) in changes.items()
        ],
    )
    request = IncrementalAlterConfigsRequest(version=_ALTER_VERSION, resources=[altered], validate_only=dry_run)
    (response,) = wire.ask(request, _ALTER_VERSION).responses
    if response.error_code == ErrorCode.REQUEST_TIMED_OUT:
        wire.check_ruled()
    if response.error_code != ErrorCode.NONE:
        raise refusal(str(resource), response.error_code, response.error_message)
    if resource.type == TOPIC:
        note_what_is_vain({key: value or "" for key, (op, value) in changes.items() if op is Operation.SET})


def note_what_is_vain(config: Mapping[str, str]) -> None:
    """Say which settings of a topic have no effect."""
    for each in without_effect(config):
        say(f"Note: {each}.")
