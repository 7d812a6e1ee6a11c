"""Listeners: names, protocols, ports, who is told what."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from regency.model.facts import Endpoint
from regency.model.settings import BrokerSettings

Parse = Callable[[dict[str, str]], BrokerSettings]
Refuse = Callable[[dict[str, str]], tuple[str, ...]]

TWO = {
    "listeners": "outer://0.0.0.0:9092,INNER://10.0.0.1:9093",
    "listener.security.protocol.map": "OUTER:PLAINTEXT,inner:plaintext",
    "inter.broker.listener.name": "inner",
}


def test_without_a_word_kafka_listens_on_9092_and_grpc_on_any_free_port(parse: Parse) -> None:
    settings = parse({})
    assert settings.listeners == (Endpoint("PLAINTEXT", "", 9092),)
    assert settings.inter_broker_listener == settings.listeners[0]
    assert settings.control_plane_listener == Endpoint("CONTROL", "", 0)
    assert settings.controller_listener == Endpoint("CONTROLLER", "", 0)


def test_names_have_any_case_and_grpc_stays_on_the_brokers_network(parse: Parse) -> None:
    settings = parse(TWO)
    assert settings.listeners == (Endpoint("OUTER", "0.0.0.0", 9092), Endpoint("INNER", "10.0.0.1", 9093))
    assert settings.inter_broker_listener == settings.listeners[1]
    assert settings.control_plane_listener == Endpoint("CONTROL", "10.0.0.1", 0)


def test_listeners_may_place_grpc_too_which_is_no_kafka_listener_then(parse: Parse) -> None:
    settings = parse(
        {
            "listeners": "PLAINTEXT://h:9092,CTRL://h:9093,CHILD://[::1]:9094",
            "control.plane.listener.name": "ctrl",
            "regency.controller.listener.name": "CHILD",
        }
    )
    assert settings.listeners == (Endpoint("PLAINTEXT", "h", 9092),)
    assert settings.control_plane_listener == Endpoint("CTRL", "h", 9093)
    assert settings.controller_listener == Endpoint("CHILD", "::1", 9094)


def test_others_are_told_the_advertised_then_the_bound_then_the_brokers_then_the_machines_address(parse: Parse) -> None:
    settings = parse({**TWO, "advertised.listeners": "INNER://inner.example:0"})
    outer, inner = settings.listeners

    def told(listener: Endpoint) -> str:
        return str(settings.advertised(listener, bound_port=7, hostname="machine"))

    assert told(inner) == "INNER://inner.example:7"
    assert told(settings.control_plane_listener) == "CONTROL://10.0.0.1:7"
    assert told(outer) == "OUTER://inner.example:7"
    assert str(parse({}).advertised(Endpoint("PLAINTEXT", "", 9092), bound_port=9092, hostname="machine")) == (
        "PLAINTEXT://machine:9092"
    )


def test_any_number_of_listeners_may_ask_for_any_free_port(parse: Parse) -> None:
    settings = parse({**TWO, "listeners": "OUTER://h:0,INNER://h:0,CONTROL://h:0"})
    assert [end.port for end in (*settings.listeners, *settings.control_listeners)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "listener PLAINTEXT stands there twice"),
        ({"listeners": "PLAINTEXT://h:1,CONTROL://k:1"}, "PLAINTEXT and CONTROL both have port 1"),
        ({"listeners": "PLAINTEXT:9092"}, "'PLAINTEXT:9092' is not LISTENER://host:port with a port up to 65535"),
        ({"listeners": "PLAINTEXT://h:65536"}, "is not LISTENER://host:port with a port up to 65535"),
        ({"listeners": "PLAINTEXT://h:1,A$://h:2"}, "a listener's name consists of letters, digits, _, - and ."),
        ({"listeners": "PLAINTEXT://h:1,IN://h:2"}, "add IN:PLAINTEXT to listener.security.protocol.map"),
        ({"listeners": "PLAINTEXT://h:1,SSL://h:2"}, "SSL is not supported yet, only PLAINTEXT is (no TLS, no SASL)"),
        ({"listeners": "CONTROL://h:1"}, "no listener for Kafka's clients"),
        (
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,X"},
            "'X' is not NAME:PROTOCOL with a protocol of PLAINTEXT, SSL",
        ),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,X:TLS"}, "'X:TLS' is not NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "PLAINTEXT:SSL"}, "PLAINTEXT://:9092: SSL is not supported yet"),
        (
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,plaintext:PLAINTEXT"},
            "PLAINTEXT stands there twice",
        ),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "no client can connect to this host; name one"),
        ({"advertised.listeners": "SASL_SSL://h:9092"}, "SASL_SSL is not supported yet"),
        (
            {
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
                "advertised.listeners": "OTHER://h:9092",
            },
            "OTHER is not among the listeners PLAINTEXT",
        ),
        ({"inter.broker.listener.name": "PLAINTXT"}, "one of the listeners PLAINTEXT; did you mean PLAINTEXT?"),
        ({"security.inter.broker.protocol": "SSL"}, "SSL is not supported yet, only PLAINTEXT is"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "stands beside inter.broker.listener.name; keep one of them",
        ),
        (
            {"listeners": "A://h:1", "listener.security.protocol.map": "A:PLAINTEXT"},
            "inter.broker.listener.name is missing: say which of the listeners A other brokers fetch from",
        ),
        ({"control.plane.listener.name": "CONTROLLER"}, "both are named CONTROLLER"),
    ],
)
def test_what_cannot_be_listened_on_is_refused_with_the_reason(
    refuse: Refuse, changes: dict[str, str], told: str
) -> None:
    problems = refuse(changes)
    assert len(problems) == 1
    assert told in problems[0]
