"""Keys Kafka knows that have no effect here: ignored with a word, or refused where that would deceive."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from regency.model.settings import BrokerSettings
from regency.model.settings.broker import KEYS
from regency.model.settings.foreign import is_ignored, refusal

Parse = Callable[[dict[str, str]], BrokerSettings]
Refuse = Callable[[dict[str, str]], tuple[str, ...]]

KAFKAS_SAMPLE_FILE = {
    "broker.id": "0",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "log.dirs": "/tmp/kafka-logs",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
    "zookeeper.connect": "localhost:2181",
    "zookeeper.connection.timeout.ms": "18000",
    "group.initial.rebalance.delay.ms": "0",
}


def test_the_sample_file_that_comes_with_kafka_is_read(parse: Parse) -> None:
    settings = parse(KAFKAS_SAMPLE_FILE)
    assert settings.broker_id == 0
    assert settings.offsets_topic_replication_factor == 1
    assert settings.group_initial_rebalance_delay_ms == 0
    assert settings.warnings == (
        (
            "without effect here: num.io.threads, num.network.threads, transaction.state.log.min.isr, "
            "transaction.state.log.replication.factor"
        ),
    )


def test_versions_of_protocol_and_message_format_are_ignored_with_a_warning(parse: Parse) -> None:
    settings = parse({"inter.broker.protocol.version": "2.4", "log.message.format.version": "2.4"})
    assert settings.warnings == ("without effect here: inter.broker.protocol.version, log.message.format.version",)


@pytest.mark.parametrize(
    "key",
    [
        "ssl.keystore.location",
        "log.cleaner.threads",
        "transactional.id.expiration.ms",
        "quota.window.num",
        "metric.reporters",
    ],
)
def test_keys_of_what_is_not_there_are_ignored_with_a_warning(parse: Parse, key: str) -> None:
    assert parse({key: "x"}).warnings == (f"without effect here: {key}",)


def test_values_that_mean_something_else_than_in_kafka_are_pointed_out(parse: Parse) -> None:
    warnings = parse({"compression.type": "zstd"}).warnings
    assert [warning.split(":")[0] for warning in warnings] == ["compression.type"]


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer", "everybody would be allowed everything"),
        ("allow.everyone.if.no.acl.found", "false", "authorization is not supported"),
        ("ssl.client.auth", "required", "TLS is not supported"),
        ("sasl.enabled.mechanisms", "PLAIN", "SASL authentication is not supported"),
        ("listener.name.internal.sasl.jaas.config", "x", "TLS and SASL"),
        ("delegation.token.master.key", "x", "SASL authentication is not supported"),
        ("zookeeper.ssl.client.enable", "TRUE", "TLS to ZooKeeper"),
        ("create.topic.policy.class.name", "x.Y", "would pass unchecked"),
        ("offsets.commit.required.acks", "1", "commits that were confirmed are lost"),
        ("group.coordinator.rebalance.protocols", "classic,consumer", "only the classic protocol"),
        ("process.roles", "broker", "metadata in ZooKeeper"),
        ("node.id", "1", "broker.id"),
        ("advertised.host.name", "h", "use listeners and advertised.listeners"),
    ],
)
def test_keys_that_would_deceive_are_refused_with_the_reason(refuse: Refuse, key: str, value: str, why: str) -> None:
    problems = refuse({key: value})
    assert len(problems) == 1
    assert problems[0].startswith(f"{key}={value}: ")
    assert why in problems[0]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("authorizer.class.name", ""),
        ("allow.everyone.if.no.acl.found", "true"),
        ("ssl.client.auth", "none"),
        ("offsets.commit.required.acks", "-1"),
        ("zookeeper.ssl.client.enable", "false"),
    ],
)
def test_the_same_keys_at_their_harmless_values_are_ignored(parse: Parse, key: str, value: str) -> None:
    assert parse({key: value}).warnings == (f"without effect here: {key}",)


def test_no_key_that_has_an_effect_is_called_foreign() -> None:
    assert [key for key in KEYS if is_ignored(key) or refusal(key, "x") is not None] == []
