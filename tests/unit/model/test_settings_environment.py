"""Variables KAFKA_* become settings, as images of Kafka have it, and what is wrong is told by their names."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from regency.model.settings import SettingsInvalid, describe_settings
from regency.runtime.settings_loader import key_of, load_settings, read_variables

IDENTITY = {"KAFKA_BROKER_ID": "4", "KAFKA_ZOOKEEPER_CONNECT": "zk:2181"}


def variable_of(key: str) -> str:
    return "KAFKA_" + key.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def test_every_key_has_a_variable() -> None:
    keys = [setting.key for setting in describe_settings()]
    assert [key_of(variable_of(key)) for key in keys] == keys


@pytest.mark.parametrize(
    ("variable", "key"), [("KAFKA_A_B", "a.b"), ("KAFKA_A__B", "a_b"), ("KAFKA_A___B_C", "a-b.c"), ("KAFKA_A", "a")]
)
def test_underscores_are_dots_underscores_and_dashes(variable: str, key: str) -> None:
    assert key_of(variable) == key


def test_what_is_of_others_is_left() -> None:
    others = {"PATH": "/bin", "kafka_x": "1", "KAFKA_": "1", "MY_KAFKA_X": "1", "KAFKA_HEAP_OPTS": "-Xmx1g"}
    read = read_variables({**others, "KAFKA_NUM_PARTITIONS": " 3 "})
    assert (read.properties, read.names) == ({"num.partitions": "3"}, {"num.partitions": "KAFKA_NUM_PARTITIONS"})
    assert read.vain == ("KAFKA_HEAP_OPTS",)


def of_service(name: str, *ports: int, host: str = "10.0.0.1") -> dict[str, str]:
    """What Kubernetes sets for a service in every container that is started after it."""
    word = name.upper().replace("-", "_")
    spelled = f"[{host}]" if ":" in host else host
    links = {f"{word}_SERVICE_HOST": host, f"{word}_SERVICE_PORT": str(ports[0])}
    links[f"{word}_PORT"] = f"tcp://{spelled}:{ports[0]}"
    for port in ports:
        links[f"{word}_SERVICE_PORT_TCP_CLIENTS_{port}"] = str(port)
        one = f"{word}_PORT_{port}_TCP"
        links |= {one: f"tcp://{spelled}:{port}", f"{one}_PROTO": "tcp", f"{one}_PORT": str(port), f"{one}_ADDR": host}
    return links


@pytest.mark.parametrize(
    "links",
    [
        of_service("kafka", 9092),
        of_service("kafka", 9092, 9093),
        of_service("kafka-0-external", 9094),
        of_service("kafka", 9092, host="fd00::1"),
        of_service("kafka", 9092) | of_service("kafka-port", 9092) | of_service("kafka-regency-http", 9404),
    ],
)
def test_what_kubernetes_says_of_services_is_passed_over_and_told_once(
    links: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    read = read_variables({**links, **IDENTITY, "KAFKA_NUM_PARTITIONS": "3"})
    assert read.links == tuple(sorted(links))
    assert set(read.properties) == {"broker.id", "zookeeper.connect", "num.partitions"}
    with caplog.at_level(logging.INFO):
        assert load_settings(None, [], {**IDENTITY, **links}).broker_id == 4
    (line,) = caplog.messages
    assert line.endswith("(enableServiceLinks: false keeps them away): " + ", ".join(sorted(links)))


@pytest.mark.parametrize(
    ("variables", "refused"),
    [
        ({"KAFKA_PORT": "tcp://10.0.0.1:9092"}, "KAFKA_PORT"),
        (of_service("kafka", 9092) | {"KAFKA_PORT": "9092"}, "KAFKA_PORT"),
        (of_service("kafka", 9092) | {"KAFKA_SERVICE_PART": "9092"}, "KAFKA_SERVICE_PART"),
        ({"KAFKA_SERVICE_HOST": "10.0.0.1", "KAFKA_PORT_9092_TCP": "tcp://10.0.0.1:9092"}, "KAFKA_SERVICE_HOST"),
        (of_service("kafka", 9092) | {"KAFKA_REGENCY_HTTP_PORT": "tcp://10.0.0.1:9404"}, "KAFKA_REGENCY_HTTP_PORT"),
    ],
)
def test_what_only_looks_like_it_is_refused(variables: dict[str, str], refused: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        load_settings(None, [], {**IDENTITY, **variables})
    assert f"  {refused}: " in str(caught.value)


def test_a_port_that_somebody_has_set_counts_although_a_service_has_its_name() -> None:
    links = of_service("kafka-regency-http", 9404) | {"KAFKA_REGENCY_HTTP_PORT": "9500"}
    assert load_settings(None, [], {**IDENTITY, **links}).regency_http_port == 9500


def test_variables_count_before_the_file_and_overrides_before_variables(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\nzookeeper.connect=other:1\nnum.partitions=2\ndefault.replication.factor=2\n")
    settings = load_settings(file, ["num.partitions=7"], {**IDENTITY, "KAFKA_NUM_PARTITIONS": "5"})
    assert (settings.broker_id, settings.zookeeper_connect) == (4, "zk:2181")
    assert (settings.num_partitions, settings.default_replication_factor) == (7, 2)


def test_without_asking_for_them_variables_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "5")
    assert load_settings(None, ["broker.id=1", "zookeeper.connect=h:1"]).num_partitions == 1


def test_a_problem_names_its_variable_and_a_missing_setting_how_to_set_it() -> None:
    with pytest.raises(SettingsInvalid) as caught:
        load_settings(None, [], {"KAFKA_NUM_PARTITIONS": "0", "KAFKA_BROKER_ID": "1", "KAFKA_PROCESS_ROLES": "broker"})
    lines = str(caught.value).splitlines()
    assert lines[0] == "3 problems in the command line and variables such as KAFKA_BROKER_ID:"
    assert "  KAFKA_NUM_PARTITIONS: num.partitions=0: expected 1 or more" in lines
    assert any(line.startswith("  KAFKA_PROCESS_ROLES: process.roles=broker: ") for line in lines)
    assert any(line.startswith("  zookeeper.connect is missing: ") for line in lines)


def test_what_is_about_java_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load_settings(None, [], {**IDENTITY, "KAFKA_JMX_PORT": "9999"})
    assert [line.split(": ")[-1] for line in caplog.messages] == [
        "KAFKA_JMX_PORT is about Java's Kafka and has no effect"
    ]
