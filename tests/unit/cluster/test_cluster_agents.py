"""What an agent is told in its server.properties."""

from __future__ import annotations

from pathlib import Path

import pytest

from regency.cluster.agent import agent_properties
from regency.cluster.errors import ClusterError
from regency.cluster.state import PORTS, BrokerPorts
from regency.model.ids import BrokerId
from regency.model.settings import parse_settings
from regency.model.settings.properties import format_properties, parse_properties
from regency.runtime.http.probes import serving_host

BROKER = BrokerPorts(BrokerId(2), dict(zip(PORTS, range(20_001, 20_006), strict=True)))


def properties(directory: Path, log_dirs: int = 1, brokers: int = 3, **settings: str) -> dict[str, str]:
    return agent_properties(
        BROKER,
        directory,
        brokers=brokers,
        zookeeper_connect="127.0.0.1:20000/lab",
        session_timeout_ms=3000,
        log_dirs=log_dirs,
        settings={key.replace("_", "."): value for key, value in settings.items()},
    )


def test_settings_of_an_agent_are_valid_and_name_its_ports_and_directories(tmp_path: Path) -> None:
    text = format_properties(properties(tmp_path / "agent 2", min_insync_replicas="2"))
    settings = parse_settings(parse_properties(text, "server.properties"), source="server.properties")
    assert settings.broker_id == 2
    assert [str(listener) for listener in settings.listeners] == ["PLAINTEXT://127.0.0.1:20001"]
    assert str(settings.control_plane_listener) == "CONTROL://127.0.0.1:20002"
    assert str(settings.controller_listener) == "CONTROLLER://127.0.0.1:20003"
    assert (serving_host(settings), settings.regency_http_port) == ("127.0.0.1", 20_004)
    assert settings.regency_controller_http_port == 20_005
    assert settings.zookeeper_connect == "127.0.0.1:20000/lab"
    assert settings.zookeeper_session_timeout_ms == 3000
    assert settings.log_dirs == (str(tmp_path / "agent 2" / "data"),)
    assert settings.min_insync_replicas == 2
    assert settings.warnings == ()


@pytest.mark.parametrize(("brokers", "factor"), [(1, "1"), (2, "2"), (3, "3"), (5, "3")])
def test_groups_work_however_few_brokers_there_are(tmp_path: Path, brokers: int, factor: str) -> None:
    assert properties(tmp_path, brokers=brokers)["offsets.topic.replication.factor"] == factor


def test_settings_of_the_user_come_last(tmp_path: Path) -> None:
    assert properties(tmp_path, zookeeper_session_timeout_ms="9000")["zookeeper.session.timeout.ms"] == "9000"


def test_keys_that_the_cluster_decides_cannot_be_set(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"listeners, log\.dirs cannot be set"):
        agent_properties(
            BROKER,
            tmp_path,
            brokers=3,
            zookeeper_connect="127.0.0.1:20000/lab",
            session_timeout_ms=3000,
            log_dirs=1,
            settings={"listeners": "PLAINTEXT://:9092", "log.dirs": "/data"},
        )


def test_an_agent_may_have_several_log_directories(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("data", "data-2", "data-3")]
    assert properties(tmp_path, log_dirs=3)["log.dirs"] == ",".join(names)
