"""docker-compose.yml agrees with itself, with the settings of the code and with the files it mounts."""

from __future__ import annotations

import re

import pytest
import yaml
from compose_test import files
from compose_test.files import ROOT, agents, instructions, mounts, published, seconds, services, settings

from regency.cli.data.load import load
from regency.model.facts import format_endpoint

STATE = "/var/lib/regency"
AGENTS = ["agent-1", "agent-2", "agent-3", "agent-4"]
ZOOKEEPERS = ["zookeeper-1", "zookeeper-2", "zookeeper-3"]
IN_PROFILES = {"agent-4": ["four"], "load": ["load"]}


def test_what_is_started_without_asking_for_more() -> None:
    found = services()
    assert sorted(found) == [*AGENTS, "grafana", "load", "prometheus", *ZOOKEEPERS]
    assert {name: service["profiles"] for name, service in found.items() if "profiles" in service} == IN_PROFILES


@pytest.mark.parametrize("name", [name for name in services() if name not in (*AGENTS, "load")])
def test_images_of_others_are_pinned(name: str) -> None:
    assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+(\.\d+)?", services()[name]["image"])


def test_agents_and_load_run_what_is_built_here() -> None:
    ours = [services()[name] for name in (*AGENTS, "load")]
    assert {service["image"] for service in ours} == {"regency:latest"}
    assert {service["build"]["dockerfile"] for service in ours} == {"deploy/Dockerfile"}


def test_the_ensemble_names_all_its_servers() -> None:
    wanted = [f"server.{number}={name}:2888:3888;2181" for number, name in enumerate(ZOOKEEPERS, 1)]
    for number, name in enumerate(ZOOKEEPERS, 1):
        service = services()[name]
        assert service["environment"]["ZOO_SERVERS"].split() == wanted
        assert service["environment"]["ZOO_MY_ID"] == str(number)
        assert "srvr" in service["environment"]["ZOO_4LW_COMMANDS_WHITELIST"].split(",")
        assert "2181" in service["healthcheck"]["test"][-1]
        assert mounts(service) == {"/data": f"{name}-data", "/datalog": f"{name}-log"}


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_s_settings_are_settings_and_all_have_an_effect(name: str) -> None:
    read = settings(agents()[name])
    assert (read.warnings, name) == ((), f"agent-{read.broker_id}")
    servers, _, chroot = read.zookeeper_connect.partition("/")
    assert (servers.split(","), chroot) == ([f"{server}:2181" for server in ZOOKEEPERS], "regency")
    assert (read.default_replication_factor, read.min_insync_replicas) == (3, 2)


@pytest.mark.parametrize("name", AGENTS)
def test_brokers_reach_an_agent_by_its_service_and_clients_by_the_port_that_is_published(name: str) -> None:
    service = agents()[name]
    read = settings(service)
    bound = {end.listener: end for end in (*read.listeners, *read.control_listeners)}
    assert sorted(bound) == ["CONTROL", "CONTROLLER", "INSIDE", "OUTSIDE"]
    assert {end.host for end in bound.values()} == {""}
    told = {
        listener: read.advertised(end, bound_port=end.port, hostname="elsewhere") for listener, end in bound.items()
    }
    [(address, outside, inside)] = published(service)
    assert inside == bound["OUTSIDE"].port
    assert format_endpoint(told["OUTSIDE"]) == f"OUTSIDE://127.0.0.1:{outside}"
    for listener in ("INSIDE", "CONTROL", "CONTROLLER"):
        assert (told[listener].host, told[listener].port) == (name, bound[listener].port)
    assert (read.inter_broker_listener_name, address) == ("INSIDE", "127.0.0.1")


def test_another_host_and_address_can_be_chosen() -> None:
    chosen = services({"REGENCY_HOST": "kafka.example", "REGENCY_BIND": "0.0.0.0", "REGENCY_PORT_1": "9092"})["agent-1"]
    assert published(chosen) == [("0.0.0.0", 9092, 9095)]
    assert settings(chosen).advertised_listeners[-1].host == "kafka.example"


def test_nothing_is_published_beyond_this_machine_and_no_port_twice() -> None:
    ports = [port for service in services().values() for port in published(service)]
    assert {address for address, _, _ in ports} == {"127.0.0.1"}
    assert len({outside for _, outside, _ in ports}) == len(ports)


@pytest.mark.parametrize("name", AGENTS)
def test_everything_an_agent_keeps_is_in_its_volume(name: str) -> None:
    service = agents()[name]
    read = settings(service)
    assert mounts(service) == {STATE: name}
    for directory in (*read.log_dirs, read.regency_history_dir):
        assert directory.startswith(f"{STATE}/")
    assert service["read_only"]
    assert image_s("REGENCY_PROBE_FILE").startswith(f"{STATE}/"), "all else is read-only, and HEALTHCHECK finds nothing"
    assert "REGENCY_PROBE_FILE" not in service["environment"]


def image_s(name: str) -> str:
    """A variable of the image."""
    [value] = [word.partition("=")[2] for words in instructions("ENV") for word in words if word.startswith(f"{name}=")]
    return value


def test_volumes_are_declared_and_nobody_shares_one() -> None:
    named = [
        source for service in services().values() for source in mounts(service).values() if not source.startswith(".")
    ]
    assert sorted(named) == sorted(files.compose()["volumes"])
    assert len(set(named)) == len(named)


@pytest.mark.parametrize("name", AGENTS)
def test_a_stop_leaves_time_for_a_controlled_shutdown(name: str) -> None:
    service = agents()[name]
    read = settings(service)
    attempt_ms = read.controller_socket_timeout_ms + read.controlled_shutdown_retry_backoff_ms
    assert seconds(service["stop_grace_period"]) * 1000 >= read.controlled_shutdown_max_retries * attempt_ms


@pytest.mark.parametrize("name", AGENTS)
def test_agents_wait_for_zookeeper_and_have_no_rights(name: str) -> None:
    service = agents()[name]
    assert service["depends_on"] == {server: {"condition": "service_healthy"} for server in ZOOKEEPERS}
    assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])


def test_what_is_mounted_is_there() -> None:
    found = [source for service in services().values() for source in mounts(service).values() if source.startswith(".")]
    assert found
    assert [source for source in found if not (ROOT / source).is_dir()] == []


def test_prometheus_scrapes_every_agent_that_is_always_there() -> None:
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"]
    [brokers] = [job for job in scraped if job["job_name"] == "kafka-broker"]
    named = {target for group in brokers["static_configs"] for target in group["targets"]}
    wanted = set()
    for name in AGENTS[:3]:
        read = settings(agents()[name])
        wanted |= {f"{name}:{read.regency_http_port}", f"{name}:{read.regency_controller_http_port}"}
    assert named == wanted
    assert mounts(services()["prometheus"])["/etc/prometheus"] == "./deploy/prometheus"


def test_grafana_finds_prometheus_and_the_dashboards() -> None:
    provisioning = ROOT / "deploy/grafana/provisioning"
    [source] = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"]
    [provider] = yaml.safe_load((provisioning / "dashboards/regency.yml").read_text())["providers"]
    [(_, _, port)] = published(services()["prometheus"])
    assert (source["type"], source["url"], source["isDefault"]) == ("prometheus", f"http://prometheus:{port}", True)
    mounted = mounts(services()["grafana"])
    assert mounted[provider["options"]["path"]] == "./deploy/grafana/dashboards"
    assert mounted["/etc/grafana/provisioning"] == "./deploy/grafana/provisioning"
    scraped_every = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scraped_every


def test_the_load_is_a_command_that_there_is() -> None:
    service = services()["load"]
    command, *arguments = service["command"]
    assert command == "load"
    context = load.make_context("load", list(arguments))
    assert (context.params["topic"], context.params["rate"]) == ("load", 500)
    bootstrap = [f"{name}:{settings(agents()[name]).inter_broker_listener.port}" for name in AGENTS[:3]]
    assert service["environment"]["REGENCY_BOOTSTRAP_SERVERS"].split(",") == bootstrap
