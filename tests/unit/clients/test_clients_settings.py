"""Kafka's names for a reader's settings: what is read, what is refused and how that is said."""

from __future__ import annotations

import pickle

import pytest

from regency.clients.settings import WITHOUT_EFFECT, ClientSettings, SettingRefused, client_settings

SERVERS = {"bootstrap.servers": "a:1"}


def test_every_setting_that_is_read_arrives() -> None:
    read = client_settings(
        {
            "bootstrap.servers": " a:9092, PLAINTEXT://[::1]:9093 ,a:9092",
            "client.id": "x",
            "default.api.timeout.ms": "1",
            "fetch.max.bytes": "2",
            "fetch.max.wait.ms": "0",
            "fetch.min.bytes": "3",
            "max.partition.fetch.bytes": "4",
            "request.timeout.ms": "5",
            "retry.backoff.ms": "6",
            "retry.backoff.max.ms": "7",
            "socket.connection.setup.timeout.ms": "8",
            "check.crcs": "FALSE",
            "isolation.level": "read_committed",
            "security.protocol": "plaintext",
        }
    )
    assert read == ClientSettings(
        bootstrap_servers=(("a", 9092), ("::1", 9093)),
        client_id="x",
        connect_timeout_ms=8,
        request_timeout_ms=5,
        api_timeout_ms=1,
        retry_backoff_ms=6,
        retry_backoff_max_ms=7,
        fetch_max_bytes=2,
        partition_fetch_bytes=4,
        fetch_min_bytes=3,
        fetch_max_wait_ms=0,
        check_crcs=False,
        read_committed=True,
    )
    assert read.servers == "a:9092,[::1]:9093"
    assert pickle.loads(pickle.dumps(read)) == read


def test_what_has_no_effect_is_taken() -> None:
    assert client_settings({**SERVERS, **dict.fromkeys(WITHOUT_EFFECT, "anything")}) == client_settings(SERVERS)
    assert client_settings({**SERVERS, "config.providers.file.class": "x"}) == client_settings(SERVERS)


def test_nought_is_as_little_as_there_can_be_where_kafka_takes_it() -> None:
    names = ("fetch.max.bytes", "max.partition.fetch.bytes", "retry.backoff.max.ms", "retry.backoff.ms")
    read = client_settings({**SERVERS, **dict.fromkeys(names, "0")})
    assert (read.fetch_max_bytes, read.partition_fetch_bytes) == (1, 1)
    assert (read.retry_backoff_max_ms, read.retry_backoff_ms) == (1, 1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, r"bootstrap.servers: is missing\."),
        ({"bootstrap.servers": " , "}, r"bootstrap.servers: names no broker\."),
        ({"bootstrap.servers": "a:1,b"}, r"bootstrap.servers: 'b' is not HOST:PORT\."),
        ({"bootstrap.servers": "a:0"}, r"'a:0' is not HOST:PORT"),
        ({"bootstrap.servers": "a:65536"}, r"'a:65536' is not HOST:PORT"),
        ({"bootstrap.servers": ":9092"}, r"':9092' is not HOST:PORT"),
        ({**SERVERS, "fetch.max.wait": "1"}, r"fetch.max.wait: is no setting that reading knows\. Remove it"),
        ({**SERVERS, "request.timeout.ms": "0"}, r"request.timeout.ms: '0' is not a whole number from 1 to 2147483647"),
        ({**SERVERS, "request.timeout.ms": "2147483648"}, r"'2147483648' is not a whole number"),
        ({**SERVERS, "fetch.min.bytes": "1e3"}, r"'1e3' is not a whole number from 0"),
        ({**SERVERS, "check.crcs": "1"}, r"check.crcs: '1' is none of true, false"),
        ({**SERVERS, "isolation.level": "none"}, r"'none' is none of read_uncommitted, read_committed"),
        (
            {**SERVERS, "security.protocol": "SASL_SSL"},
            r"security.protocol: 'SASL_SSL' is not supported, only PLAINTEXT",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingRefused, match=said) as refused:
        client_settings(given)
    assert refused.value.name in said.replace("\\", "") or refused.value.name in str(refused.value)
