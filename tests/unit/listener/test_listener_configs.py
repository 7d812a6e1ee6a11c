"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs over the wire: what is forwarded, and what is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from regency.kafka.codec import AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest
from regency.model.kafka_errors import ErrorCode
from regency.runtime.zookeeper.session import ZkConnectionLost

Serve = Callable[..., None]
TOPIC, BROKER = 2, 4


def describe(*resources: tuple[int, str, list[str] | None], **options: Any) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    return DescribeConfigsRequest(
        resources=[
            resource(resource_type=kind, resource_name=name, configuration_keys=keys) for kind, name, keys in resources
        ],
        **options,
    )


def incremental(*resources: tuple[int, str, list[tuple[str, int, str | None]]], validate_only: bool = False) -> Any:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    return IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    resource.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in configs
                ],
            )
            for kind, name, configs in resources
        ],
        validate_only=validate_only,
    )


def plain(*resources: tuple[int, str, list[tuple[str, str | None]]]) -> Any:
    resource = AlterConfigsRequest.AlterConfigsResource
    return AlterConfigsRequest(
        resources=[
            resource(
                resource_type=kind,
                resource_name=name,
                configs=[resource.AlterableConfig(name=key, value=value) for key, value in configs],
            )
            for kind, name, configs in resources
        ],
        validate_only=False,
    )


def errors(answer: Any) -> dict[str, int]:
    return {response.resource_name: response.error_code for response in answer.responses}


@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_describes_topics_and_this_broker(serve: Serve, version: int) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.configs.stored = {"topics/t": {"retention.ms": "5"}, "brokers/<default>": {"log.segment.bytes": "7000"}}
        request = describe((TOPIC, "t", ["retention.ms", "segment.bytes"]), (BROKER, "1", None), include_synonyms=True)

        topic, broker = (await (await h.connect()).ask(request, version)).results

        assert [(config.name, config.value, config.config_source, config.read_only) for config in topic.configs] == [
            ("segment.bytes", "7000", 3, False),
            ("retention.ms", "5", 1, False),
        ]
        assert [each.source for each in topic.configs[0].synonyms] == [3, 5]
        assert (broker.error_code, broker.resource_name) == (0, "1")
        assert {"broker.id", "log.retention.ms", "num.partitions"} <= {config.name for config in broker.configs}
        if version >= 3:
            assert topic.configs[0].config_type == 3

    serve(scenario)


def test_documentation_and_synonyms_come_only_where_they_are_asked_for(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        client = await h.connect()

        (quiet,) = (await client.ask(describe((TOPIC, "t", ["retention.ms"])), 4)).results
        (told,) = (await client.ask(describe((TOPIC, "t", ["retention.ms"]), include_documentation=True), 4)).results

        assert (quiet.configs[0].synonyms, quiet.configs[0].documentation) == ([], None)
        assert "kept" in told.configs[0].documentation

    serve(scenario)


@pytest.mark.parametrize(
    ("kind", "name", "error", "says"),
    [
        (TOPIC, "ghost", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic 'ghost'"),
        (TOPIC, "a/b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic"),
        (TOPIC, "broken", ErrorCode.UNKNOWN_SERVER_ERROR, "cannot be read"),
        (BROKER, "2", ErrorCode.INVALID_REQUEST, "This is broker 1"),
        (8, "1", ErrorCode.INVALID_REQUEST, "type 8"),
    ],
)
def test_what_cannot_be_described_is_refused_and_the_rest_told(
    serve: Serve, kind: int, name: str, error: ErrorCode, says: str
) -> None:
    async def scenario(h: Any) -> None:
        h.with_topic("t")
        h.configs.stored = {"topics/broken": None}

        refused, good = (await (await h.connect()).ask(describe((kind, name, None), (TOPIC, "t", None)), 2)).results

        assert (refused.error_code, refused.configs) == (error, [])
        assert says in refused.error_message
        assert (good.error_code, good.error_message) == (0, None)

    serve(scenario)


def test_a_topic_is_known_by_its_settings_before_its_metadata_comes(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.configs.stored = {"topics/new": {}}

        (result,) = (await (await h.connect()).ask(describe((TOPIC, "new", None)), 2)).results

        assert result.error_code == 0

    serve(scenario)


def test_settings_of_all_brokers_are_what_is_set_for_all(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.configs.stored = {"brokers/<default>": {"min.insync.replicas": "2"}}

        (result,) = (await (await h.connect()).ask(describe((BROKER, "", None)), 2)).results

        assert [(config.name, config.value) for config in result.configs] == [("min.insync.replicas", "2")]

    serve(scenario)


def test_without_zookeeper_clients_are_told_to_come_again(serve: Serve) -> None:
    async def scenario(h: Any) -> None:
        h.configs.fail = ZkConnectionLost("no contact")

        (result,) = (await (await h.connect()).ask(describe((BROKER, "1", None)), 2)).results

        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "no contact" in result.error_message

    serve(scenario)
