"""Settings of a broker: Kafka's keys, defaults, precedence and ranges, and every problem told at once."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from regency.model.settings import BrokerSettings, SettingsInvalid, describe_settings, parse_settings
from regency.model.settings.broker import KEYS
from regency.model.settings.keys import TOPIC_KEYS
from regency.model.settings.log_config import NEVER

Parse = Callable[[dict[str, str]], BrokerSettings]
Refuse = Callable[[dict[str, str]], tuple[str, ...]]

_RESOLVED = {"log_roll_ms", "log_retention_ms", "log_roll_jitter_ms"}
_HOUR_MS = 3_600_000


def test_a_smallest_file_gives_the_defaults(parse: Parse) -> None:
    settings = parse({})
    assert settings.given == (("broker.id", "1"), ("zookeeper.connect", "localhost:2181"))
    assert settings == BrokerSettings(
        broker_id=settings.broker_id, zookeeper_connect="localhost:2181", given=settings.given
    )
    assert settings.broker_id == 1
    assert settings.warnings == ()


def test_what_a_broker_cannot_do_without_is_asked_for() -> None:
    with pytest.raises(SettingsInvalid) as caught:
        parse_settings({}, source="server.properties")
    assert [problem.split(" ")[0] for problem in caught.value.problems] == ["broker.id", "zookeeper.connect"]
    assert caught.value.code == "settings_invalid"


def test_every_problem_is_told_at_once_with_place_key_value_and_what_is_allowed() -> None:
    properties = {
        "broker.id": "-1",
        "zookeeper.connect": "h:2181/kafka",
        "num.partitions": "many",
        "auto.create.topics.enable": "yes",
        "log.segment.bytes": "3000000000",
        "log.message.timestamp.type": "Createtime",
        "num.partitons": "3",
    }
    origins = {key: f"line {line}" for line, key in enumerate(properties, start=1)}
    with pytest.raises(SettingsInvalid) as caught:
        parse_settings(properties, source="/etc/server.properties", origins=origins)
    assert str(caught.value).splitlines() == [
        "6 problems in /etc/server.properties:",
        "  line 1: broker.id=-1: expected 0 or more (ids are not generated)",
        "  line 3: num.partitions=many: expected a whole number, 1 or more",
        "  line 4: auto.create.topics.enable=yes: expected true or false",
        "  line 5: log.segment.bytes=3000000000: expected 14 or more and at most 2147483647",
        (
            "  line 6: log.message.timestamp.type=Createtime: expected one of CreateTime, LogAppendTime; "
            "did you mean CreateTime?"
        ),
        "  line 7: num.partitons=3: there is no such key; did you mean num.partitions?",
    ]


def test_a_topic_key_in_a_brokers_file_points_at_the_brokers_key(refuse: Refuse) -> None:
    assert refuse({"retention.ms": "1"}) == ("retention.ms=1: there is no such key; did you mean log.retention.ms?",)


def test_a_key_like_no_other_is_refused_without_a_guess(refuse: Refuse) -> None:
    assert refuse({"xyzzy": "1"}) == ("xyzzy=1: there is no such key",)


@pytest.mark.parametrize(
    ("changes", "retention_ms"),
    [
        ({}, 168 * _HOUR_MS),
        ({"log.retention.hours": "1"}, _HOUR_MS),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "-1"}, -1),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.minutes": "2", "log.retention.ms": "-1"}, -1),
    ],
)
def test_the_finest_retention_counts(parse: Parse, changes: dict[str, str], retention_ms: int) -> None:
    settings = parse(changes)
    assert settings.log_retention_ms == settings.log_config().retention_ms == retention_ms


@pytest.mark.parametrize("key", ["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
def test_a_retention_of_nothing_is_refused(refuse: Refuse, key: str) -> None:
    assert refuse({key: "0"})[0].startswith(f"{key}=0: expected 1 or more, or -1 for ever")


def test_the_finest_roll_and_jitter_count(parse: Parse) -> None:
    hours = parse({"log.roll.hours": "2", "log.roll.jitter.hours": "1"})
    assert (hours.log_roll_ms, hours.log_roll_jitter_ms) == (2 * _HOUR_MS, _HOUR_MS)
    both = parse({"log.roll.hours": "2", "log.roll.ms": "5", "log.roll.jitter.hours": "1", "log.roll.jitter.ms": "3"})
    assert (both.log_roll_ms, both.log_roll_jitter_ms) == (5, 3)


def test_a_log_is_flushed_as_often_as_it_is_looked_at_where_nothing_else_is_said(parse: Parse) -> None:
    assert parse({}).log_flush_interval_ms == NEVER
    assert parse({"log.flush.scheduler.interval.ms": "7"}).log_flush_interval_ms == 7
    assert parse({"log.flush.scheduler.interval.ms": "7", "log.flush.interval.ms": "9"}).log_flush_interval_ms == 9


def test_connecting_to_zookeeper_takes_as_long_as_a_session_where_nothing_else_is_said(parse: Parse) -> None:
    assert parse({"zookeeper.session.timeout.ms": "3000"}).zookeeper_connection_timeout_ms == 3000
    both = parse({"zookeeper.session.timeout.ms": "3000", "zookeeper.connection.timeout.ms": "9000"})
    assert (both.zookeeper_session_timeout_ms, both.zookeeper_connection_timeout_ms) == (3000, 9000)


def test_log_dirs_count_before_log_dir_and_name_the_history_directory(parse: Parse) -> None:
    assert parse({"log.dir": "data"}).log_dirs == ("data",)
    settings = parse({"log.dir": "data", "log.dirs": "/a/, /b"})
    assert (settings.log_dirs, settings.regency_history_dir) == (("/a/", "/b"), "/a-history")
    assert parse({"log.dirs": "/a", "regency.history.dir": "h"}).regency_history_dir == "h"


def test_one_directory_under_two_spellings_is_refused(refuse: Refuse) -> None:
    assert refuse({"log.dirs": "/a,/b/../a/"}) == ("log.dirs=/a,/b/../a/: the same directory stands there twice",)


@pytest.mark.parametrize("value", ["", " , ", "a,,b"])
def test_an_empty_directory_is_refused(refuse: Refuse, value: str) -> None:
    assert "one is empty" in refuse({"log.dirs": value})[0]


def test_values_are_trimmed_and_booleans_have_any_case(parse: Parse) -> None:
    settings = parse({"num.partitions": " 3 ", "delete.topic.enable": "FALSE", "log.dirs": "/a , /b"})
    assert (settings.num_partitions, settings.delete_topic_enable) == (3, False)
    assert settings.log_dirs == ("/a", "/b")


@pytest.mark.parametrize("value", ["1_0", "٣", "0x1", "1.0", "", "1e3", "9" * 5000])
def test_numbers_are_plain_decimals_in_range(refuse: Refuse, value: str) -> None:
    assert len(refuse({"num.partitions": value})) == 1


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"replica.fetch.wait.max.ms": "40000", "replica.socket.timeout.ms": "50000"},
            (
                "replica.fetch.wait.max.ms=40000: expected replica.fetch.wait.max.ms (40000) to be at most "
                "replica.lag.time.max.ms (30000)"
            ),
        ),
        (
            {"replica.lag.time.max.ms": "100"},
            (
                "replica.lag.time.max.ms=100: expected replica.fetch.wait.max.ms (500) to be at most "
                "replica.lag.time.max.ms (100)"
            ),
        ),
        (
            {"group.max.session.timeout.ms": "5000"},
            (
                "group.max.session.timeout.ms=5000: expected group.min.session.timeout.ms (6000) to be at most "
                "group.max.session.timeout.ms (5000)"
            ),
        ),
        (
            {"replica.socket.timeout.ms": "499"},
            (
                "replica.socket.timeout.ms=499: expected replica.fetch.wait.max.ms (500) to be at most "
                "replica.socket.timeout.ms (499)"
            ),
        ),
        ({"min.insync.replicas": "0"}, "min.insync.replicas=0: expected 1 or more"),
        (
            {"zookeeper.set.acl": "true"},
            (
                "zookeeper.set.acl=true: needs an identity to give access to; "
                "set regency.zookeeper.digest.auth=user:password"
            ),
        ),
        (
            {"zookeeper.connect": "h:1,,k"},
            "zookeeper.connect=h:1,,k: expected host:port,host:port and, if wanted, a /chroot behind the last",
        ),
    ],
)
def test_keys_that_contradict_each_other_are_refused(refuse: Refuse, changes: dict[str, str], told: str) -> None:
    assert refuse(changes) == (told,)


def test_a_password_is_never_shown(refuse: Refuse, parse: Parse) -> None:
    assert refuse({"regency.zookeeper.digest.auth": "hunter2"}) == (
        "regency.zookeeper.digest.auth=…: expected user:password",
    )
    assert parse({"regency.zookeeper.digest.auth": "u:hunter2"}).zookeeper_digest_auth == "u:hunter2"


def test_every_attribute_is_a_key_and_every_key_of_one_value_an_attribute() -> None:
    of_several = {
        "warnings",
        "given",
        "listeners",
        "control_listeners",
        "advertised_listeners",
        "inter_broker_listener_name",
    }
    attributes = {field.name for field in msgspec.structs.fields(BrokerSettings)} - of_several
    assert attributes == {key.field for key in KEYS.values() if key.field is not None}


def test_every_default_is_a_value_its_key_allows(parse: Parse) -> None:
    described = {setting.key: setting for setting in describe_settings()}
    defaults = {key: setting.default for key, setting in described.items() if setting.default}
    changes = {
        key: value for key, value in defaults.items() if key not in ("security.inter.broker.protocol", "log.dir")
    }
    settings = parse(changes)
    expected = msgspec.structs.replace(parse({}), given=settings.given)
    assert settings == expected
    for field in _RESOLVED:
        assert getattr(settings, field) == getattr(BrokerSettings(), field)


def test_descriptions_have_type_and_meaning_for_every_key() -> None:
    described = describe_settings()
    assert [setting.key for setting in described] == list(KEYS)
    for setting in described:
        assert setting.type in ("int", "long", "double", "boolean", "string", "list")
        assert setting.doc[:1].isupper() or setting.doc.startswith(("user:", "`", "or "))
        assert setting.unit or not setting.key.endswith((".ms", ".bytes", ".hours", ".minutes", ".seconds"))


def test_every_topic_key_with_an_effect_is_in_the_log_config(parse: Parse) -> None:
    config = parse({"message.max.bytes": "9"}).log_config()
    assert {name.replace(".", "_") for name, (_, has_effect) in TOPIC_KEYS.items() if has_effect} == set(
        config.__struct_fields__
    )
    assert config.max_message_bytes == 9


def test_agent_and_controller_serve_http_on_ports_of_their_own(parse: Parse, refuse: Refuse) -> None:
    assert (parse({}).regency_http_port, parse({}).regency_controller_http_port) == (9404, 9405)
    off = parse({"regency.http.port": "-1", "regency.controller.http.port": "-1"})
    assert (off.regency_http_port, off.regency_controller_http_port) == (-1, -1)
    assert parse({"regency.http.port": "0", "regency.controller.http.port": "0"}).regency_http_port == 0
    (problem,) = refuse({"regency.controller.http.port": "9404"})
    assert "agent and controller need ports of their own" in problem
    (problem,) = refuse({"regency.http.port": "65536"})
    assert "65535" in problem
