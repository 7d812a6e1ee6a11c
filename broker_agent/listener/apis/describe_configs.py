"""DescribeConfigs: what settings are in force and where they come from, read from ZooKeeper when it is asked for.

Any broker answers about topics, with its own settings below them; about a broker only that broker itself can.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from regency.broker_agent.control.metadata_cache import TopicMetadata
from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Answer, Exchange
from regency.kafka.codec import DescribeConfigsResponse, Message, Request, encode_body
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings
from regency.model.settings.described import (
    BrokerLayers,
    DescribedConfig,
    describe_all_brokers,
    describe_broker,
    describe_topic,
)
from regency.model.topic_names import is_valid_topic_name
from regency.model.znodes.paths import EVERY_BROKER
from regency.runtime.zookeeper.session import ZkError

TOPIC: Final = 2
BROKER: Final = 4
FIRST_WITH_TYPES: Final = 3
FEW_RESOURCES: Final = 20
"""Described at once: each has some forty settings, which take half a millisecond."""


class _Result(NamedTuple):
    configs: list[DescribedConfig]
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


def handle(services: Services, exchange: Exchange) -> None:
    """Read what stands in ZooKeeper, and answer."""
    exchange.run(_describe(services, exchange.request))


def failure(request: Request) -> Message:
    """The answer when the handler failed."""
    return _answer(request, [_Result([], ErrorCode.UNKNOWN_SERVER_ERROR)] * len(request.message.resources))


async def _describe(services: Services, request: Request) -> Message | Answer:
    named_once = {(each.resource_type, each.resource_name): each for each in request.message.resources}
    resources = request.message.resources = list(named_once.values())
    own, everyone = f"brokers/{services.settings.broker_id}", f"brokers/{EVERY_BROKER}"
    named = [f"topics/{each.resource_name}" for each in resources if _may_be_topic(each)]
    try:
        stored = await services.configs.read(list(dict.fromkeys([own, everyone, *named])))
    except ZkError as error:
        why = f"ZooKeeper cannot be asked now: {error}"
        return _answer(request, [_Result([], ErrorCode.REQUEST_TIMED_OUT, why)] * len(resources))
    layers = BrokerLayers(services.settings, stored.get(own) or {}, stored.get(everyone) or {})
    topics = services.metadata.current.topics

    def answer() -> Answer:
        results = [_result(services.settings, topics, each, stored, layers) for each in resources]
        return encode_body(request.version, _answer(request, results))

    return await services.aside.if_large(len(resources) > FEW_RESOURCES, answer)


def _may_be_topic(resource: Message) -> bool:
    return resource.resource_type == TOPIC and is_valid_topic_name(resource.resource_name)


def _result(
    settings: BrokerSettings,
    topics: Mapping[str, TopicMetadata],
    resource: Message,
    stored: Mapping[str, Mapping[str, str] | None],
    layers: BrokerLayers,
) -> _Result:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        overrides = stored.get(f"topics/{name}", {})
        known = name in topics
        if not known and f"topics/{name}" not in stored:
            # A new topic's settings stand there at once, its metadata comes a moment later.
            return _Result([], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name[:300]}'.")
        if overrides is None:
            why = f"The settings of topic '{name}' in ZooKeeper cannot be read."
            return _Result([], ErrorCode.UNKNOWN_SERVER_ERROR, why)
        return _Result(_wanted(resource, describe_topic(overrides, layers)))
    if resource.resource_type == BROKER:
        if not name:
            return _Result(_wanted(resource, describe_all_brokers(layers.everyone)))
        if name != str(settings.broker_id):
            why = f"This is broker {settings.broker_id}: only broker {name[:300]} itself tells its settings."
            return _Result([], ErrorCode.INVALID_REQUEST, why)
        return _Result(_wanted(resource, describe_broker(layers)))
    why = f"Resources of type {resource.resource_type} have no settings here."
    return _Result([], ErrorCode.INVALID_REQUEST, why)


def _wanted(resource: Message, configs: list[DescribedConfig]) -> list[DescribedConfig]:
    """Those that are asked for; no list asks for all."""
    if resource.configuration_keys is None:
        return configs
    keys = frozenset(resource.configuration_keys)
    return [config for config in configs if config.name in keys]


def _answer(request: Request, results: list[_Result]) -> Message:
    result_class = DescribeConfigsResponse.DescribeConfigsResult
    failed = ErrorCode.NONE
    return DescribeConfigsResponse(
        version=request.version,
        results=[
            result_class(
                version=request.version,
                error_code=int(result.error),
                error_message=None if result.error is failed else result.message or result.error.name,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[_config(request, config) for config in result.configs],
            )
            for resource, result in zip(request.message.resources, results, strict=True)
        ],
    )


def _config(request: Request, config: DescribedConfig) -> Message:
    version = request.version
    config_class = DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult
    typed = version >= FIRST_WITH_TYPES
    documented = typed and request.message.include_documentation
    return config_class(
        version=version,
        name=config.name,
        value=config.value,
        read_only=config.read_only,
        config_source=int(config.source),
        is_sensitive=config.sensitive,
        synonyms=[
            config_class.DescribeConfigsSynonym(
                version=version, name=each.name, value=each.value, source=int(each.source)
            )
            for each in (config.synonyms if request.message.include_synonyms else ())
        ],
        config_type=config.type if typed else 0,
        documentation=config.doc or None if documented else None,
    )
