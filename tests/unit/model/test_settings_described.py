"""Which value of a setting is in force, and where it comes from."""

from __future__ import annotations

import msgspec
import pytest

from regency.model.settings import parse_settings
from regency.model.settings.broker import KEYS
from regency.model.settings.described import (
    BrokerLayers,
    DescribedConfig,
    Source,
    describe_all_brokers,
    describe_broker,
    describe_topic,
)
from regency.model.settings.dynamic import (
    DYNAMIC_KEYS,
    ThrottleRates,
    alter_broker_config,
    alter_topic_config,
    broker_log_config,
    broker_throttle_rates,
)
from regency.model.settings.keys import TOPIC_KEY_OF, TOPIC_KEYS

REQUIRED = {"broker.id": "1", "zookeeper.connect": "h:2181"}


def layers(own: dict[str, str] | None = None, everyone: dict[str, str] | None = None, **given: str) -> BrokerLayers:
    properties = {**REQUIRED, **{key.replace("_", "."): value for key, value in given.items()}}
    return BrokerLayers(parse_settings(properties, source="f"), own or {}, everyone or {})


def by_name(described: list[DescribedConfig]) -> dict[str, DescribedConfig]:
    return {config.name: config for config in described}


def chain(config: DescribedConfig) -> list[tuple[str, str | None, str]]:
    return [(each.name, each.value, each.source.name) for each in config.synonyms]


def test_a_topic_goes_before_its_broker_all_brokers_the_file_and_the_default() -> None:
    broker = layers({"log.retention.ms": "3"}, {"log.retention.ms": "4"}, log_retention_hours="5")

    config = by_name(describe_topic({"retention.ms": "2"}, broker))["retention.ms"]

    assert (config.value, config.source, config.read_only) == ("2", Source.DYNAMIC_TOPIC_CONFIG, False)
    assert chain(config) == [
        ("retention.ms", "2", "DYNAMIC_TOPIC_CONFIG"),
        ("log.retention.ms", "3", "DYNAMIC_BROKER_CONFIG"),
        ("log.retention.ms", "4", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ("log.retention.hours", "5", "STATIC_BROKER_CONFIG"),
        ("log.retention.ms", "604800000", "DEFAULT_CONFIG"),
    ]


def test_tools_read_which_release_of_kafka_this_is_like() -> None:
    config = by_name(describe_broker(layers()))["inter.broker.protocol.version"]

    assert (config.value, config.source, config.read_only) == ("3.9-IV0", Source.DEFAULT_CONFIG, True)
    assert chain(config) == [("inter.broker.protocol.version", "3.9-IV0", "DEFAULT_CONFIG")]


def test_a_coarser_key_of_the_file_is_told_as_what_it_makes() -> None:
    config = by_name(describe_topic({}, layers(log_retention_hours="5")))["retention.ms"]

    assert (config.value, config.source) == ("18000000", Source.STATIC_BROKER_CONFIG)


def test_stored_values_that_cannot_be_used_are_not_in_force() -> None:
    config = by_name(describe_topic({"segment.bytes": "many"}, layers({"log.segment.bytes": "-1"})))["segment.bytes"]

    assert (config.value, config.source) == ("1073741824", Source.DEFAULT_CONFIG)


def test_keys_without_effect_are_told_only_where_a_topic_has_them() -> None:
    without = by_name(describe_topic({}, layers()))
    with_one = by_name(describe_topic({"local.retention.ms": "1"}, layers()))

    assert set(without) == {key for key, (_, has_effect) in TOPIC_KEYS.items() if has_effect}
    assert with_one["local.retention.ms"].value == "1"


def test_every_key_of_a_broker_is_told_and_a_secret_is_not() -> None:
    described = by_name(describe_broker(layers(regency_zookeeper_digest_auth="u:hunter2")))

    assert set(described) == {*KEYS, "inter.broker.protocol.version"}
    secret = described["regency.zookeeper.digest.auth"]
    assert (secret.value, secret.sensitive, secret.source) == (None, True, Source.STATIC_BROKER_CONFIG)
    assert "hunter2" not in repr(described.values())
    assert {name for name, config in described.items() if not config.read_only} == DYNAMIC_KEYS


def test_what_a_broker_reads_at_its_start_comes_from_the_file_or_is_a_default() -> None:
    described = by_name(describe_broker(layers({"num.partitions": "9"}, num_partitions="3")))

    assert (described["num.partitions"].value, described["num.partitions"].source) == ("3", Source.STATIC_BROKER_CONFIG)
    assert described["broker.id"].value == "1"
    assert described["controlled.shutdown.max.retries"].source is Source.DEFAULT_CONFIG
    assert described["listeners"].value == "PLAINTEXT://:9092"


def test_of_all_brokers_only_what_is_set_for_them_is_told() -> None:
    described = describe_all_brokers({"min.insync.replicas": "2", "nonsense": "1"})

    assert [(config.name, config.value, config.source.name) for config in described] == [
        ("min.insync.replicas", "2", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    ]


def test_a_topic_without_throttled_replicas_has_an_empty_list_of_them() -> None:
    key = "leader.replication.throttled.replicas"
    without = by_name(describe_topic({}, layers()))[key]
    with_some = by_name(describe_topic({key: "0:1"}, layers()))[key]

    assert (without.value, without.source) == ("", Source.DEFAULT_CONFIG)
    assert (with_some.value, with_some.source) == ("0:1", Source.DYNAMIC_TOPIC_CONFIG)


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("leader.replication.throttled.rate", "leader"),
        ("follower.replication.throttled.rate", "follower"),
        ("replica.alter.log.dirs.io.max.bytes.per.second", "moves"),
    ],
)
def test_rates_of_a_broker_go_before_those_of_all_brokers_the_file_and_no_limit(key: str, field: str) -> None:
    described = by_name(describe_broker(layers({key: "3"}, {key: "4"})))
    assert chain(described[key]) == [
        (key, "3", "DYNAMIC_BROKER_CONFIG"),
        (key, "4", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        (key, str(2**63 - 1), "DEFAULT_CONFIG"),
    ]
    file = ThrottleRates(leader=5, follower=6, moves=7)
    rates, problems = broker_throttle_rates(file, {key: "4"}, {key: "x"})
    assert rates == msgspec.structs.replace(file, **{field: 4})
    assert [problem.split(":")[0] for problem in problems] == [f"{key}=x"]
    assert broker_throttle_rates(file) == (file, ())


def test_every_dynamic_key_is_one_of_brokers_and_one_of_topics_that_mean_the_same() -> None:
    base = parse_settings(REQUIRED, source="f").log_config()
    for key, topic_key in TOPIC_KEY_OF.items():
        assert key in KEYS
        assert TOPIC_KEYS[topic_key][1], topic_key
    config, problems = broker_log_config(base, {"log.segment.bytes": "20"}, {"log.segment.bytes": "x"})
    assert (config.segment_bytes, len(problems)) == (20, 1)
    assert alter_topic_config({}, [], base, incremental=True) == {}
    assert alter_broker_config({"a": "1"}, [], base, incremental=False) == {}
