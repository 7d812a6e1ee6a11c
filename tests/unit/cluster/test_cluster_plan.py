"""A cluster that was there keeps what it had; what is asked for is added or refused."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec
import pytest

from regency.cluster.errors import ClusterError, NoFreePorts
from regency.cluster.plan import plan_cluster, refuse_taken_ports, with_ports
from regency.cluster.state import LISTENERS, PORTS, BrokerPorts, ClusterState, write_state
from regency.model.ids import BrokerId


def plan(directory: Path, **wishes: object) -> ClusterState:
    """What `up` plans, with its ports."""
    return with_ports(directory, plan_cluster(directory, **wishes))


def test_new_cluster_has_three_brokers_with_five_ports_each_and_its_own_zookeeper(tmp_path: Path) -> None:
    state = plan(tmp_path)
    ports = [port for broker in state.brokers for port in broker.ports.values()]
    assert [broker.id for broker in state.brokers] == [1, 2, 3]
    assert [list(broker.ports) for broker in state.brokers] == [list(PORTS)] * 3
    assert len({*ports, state.zookeeper_port}) == 16
    assert state.zookeeper_connect == f"127.0.0.1:{state.zookeeper_port}"


def test_cluster_of_another_zookeeper_has_none_of_its_own(tmp_path: Path) -> None:
    state = plan(tmp_path, zookeeper_connect="zk1:2181,zk2:2181/lab", brokers=1)
    assert (state.zookeeper_connect, state.zookeeper_port) == ("zk1:2181,zk2:2181/lab", 0)


def test_cluster_is_started_again_as_it_was(tmp_path: Path) -> None:
    first = plan(tmp_path, brokers=2, settings={"a": "1"}, broker_settings={1: {"broker.rack": "x"}})
    write_state(tmp_path, first)
    assert plan(tmp_path) == first


def test_brokers_are_added_and_the_old_keep_their_ports(tmp_path: Path) -> None:
    first = plan(tmp_path, brokers=2)
    write_state(tmp_path, first)
    grown = plan(tmp_path, brokers=3)
    assert grown.brokers[:2] == first.brokers
    assert grown.brokers[2].id == 3
    assert not set(grown.brokers[2].ports.values()) & {
        port for broker in first.brokers for port in broker.ports.values()
    }


def test_brokers_of_a_version_with_fewer_ports_get_the_missing_ones_and_keep_theirs(tmp_path: Path) -> None:
    first = plan(tmp_path, brokers=2)
    older = [BrokerPorts(each.id, {name: each.ports[name] for name in LISTENERS}) for each in first.brokers]
    write_state(tmp_path, msgspec.structs.replace(first, brokers=tuple(older)))
    grown = plan(tmp_path, brokers=3)
    assert [list(broker.ports) for broker in grown.brokers] == [list(PORTS)] * 3
    assert [{name: each.ports[name] for name in LISTENERS} for each in grown.brokers[:2]] == [
        each.ports for each in older
    ]
    assert len({port for broker in grown.brokers for port in broker.ports.values()}) == 3 * len(PORTS)


def test_given_settings_replace_the_old(tmp_path: Path) -> None:
    write_state(tmp_path, plan(tmp_path, settings={"a": "1"}))
    assert plan(tmp_path, settings={"b": "2"}).settings == {"b": "2"}


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"brokers": 2.5}, r"1 to 100 brokers, not 2\.5"),
        ({"brokers": "3"}, "1 to 100 brokers, not '3'"),
        ({"settings": {"min.insync.replicas": None}}, r"min\.insync\.replicas is None\. Give text, a number"),
        ({"broker_settings": {1: {"broker.rack": ["a"]}}}, r"broker\.rack is \['a'\]\. Give text"),
        ({"brokers": 5, "port": 65_300}, r"from 65300 on. Choose a port from 1 to 65126"),
        ({"broker_settings": {4: {}}}, r"names broker 4\. The cluster has the brokers 1 to 3\."),
        ({"zookeeper_connect": ""}, "zookeeper_connect is empty"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_a_port_is_taken(
    tmp_path: Path, wishes: dict[str, object], words: str
) -> None:
    with pytest.raises(ClusterError, match=words):
        plan(tmp_path, **wishes)


def test_fewer_brokers_than_before_are_refused(tmp_path: Path) -> None:
    write_state(tmp_path, plan(tmp_path, brokers=3))
    with pytest.raises(ClusterError, match=r"has 3 brokers, so it cannot be started with 2\. Leave the number out"):
        plan(tmp_path, brokers=2)


def test_another_zookeeper_than_before_is_refused(tmp_path: Path) -> None:
    write_state(tmp_path, plan(tmp_path, zookeeper_connect="zk:2181"))
    with pytest.raises(ClusterError, match="belongs to ZooKeeper zk:2181, not zk:2182"):
        plan(tmp_path, zookeeper_connect="zk:2182")


def test_log_directories_are_added_and_never_left_behind(tmp_path: Path) -> None:
    assert plan(tmp_path).log_dirs == 1
    write_state(tmp_path, plan(tmp_path, log_dirs=2))
    assert plan(tmp_path).log_dirs == 2
    assert plan(tmp_path, log_dirs=3).log_dirs == 3
    with pytest.raises(ClusterError, match=r"have 2 log directories each, so not 1\. Leave the number out"):
        plan(tmp_path, log_dirs=1)


@pytest.mark.parametrize("count", [0, -1, 17])
def test_number_of_log_directories_has_bounds(tmp_path: Path, count: int) -> None:
    with pytest.raises(ClusterError, match=f"1 to 16 log directories, not {count}"):
        plan(tmp_path, log_dirs=count)


@pytest.mark.parametrize("count", [0, -1, 101])
def test_number_of_brokers_has_bounds(tmp_path: Path, count: int) -> None:
    with pytest.raises(ClusterError, match=f"1 to 100 brokers, not {count}"):
        plan(tmp_path, brokers=count)


@pytest.mark.parametrize(
    ("name", "told"), [("a,b", "has a comma in its name"), ("latin-1 \udcfc", r"'.*latin-1 \\udcfc' is not UTF-8")]
)
def test_a_directory_that_log_dirs_cannot_name_is_refused_and_not_written_to(
    tmp_path: Path, name: str, told: str
) -> None:
    with pytest.raises(ClusterError, match=told):
        plan(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_settings_are_spelled_as_in_server_properties(tmp_path: Path) -> None:
    state = plan(tmp_path, settings={"a": 2, "b": True, "c": 0.5, "d": "x"}, broker_settings={2: {"e": False}})
    assert state.settings == {"a": "2", "b": "true", "c": "0.5", "d": "x"}
    assert state.broker_settings == {2: {"e": "false"}}


def test_a_plan_makes_no_directory(tmp_path: Path) -> None:
    assert plan_cluster(tmp_path / "lab", brokers=2).brokers == (BrokerPorts(1, {}), BrokerPorts(2, {}))
    assert list(tmp_path.iterdir()) == []


def test_chosen_ports_are_a_hundred_apart_kept_and_extended(tmp_path: Path) -> None:
    first = plan(tmp_path, brokers=2, port=19092)
    assert first.bootstrap_servers == "127.0.0.1:19092,127.0.0.1:19192"
    assert first.brokers[1].ports == dict(zip(PORTS, range(19192, 19197), strict=True))
    assert first.zookeeper_connect == "127.0.0.1:19101"
    write_state(tmp_path, first)
    assert plan(tmp_path) == first
    third = BrokerPorts(BrokerId(3), dict(zip(PORTS, range(19292, 19297), strict=True)))
    assert plan(tmp_path, brokers=3).brokers == (*first.brokers, third)
    moved = plan(tmp_path, port=18092)
    assert (moved.bootstrap_servers, moved.zookeeper_port) == ("127.0.0.1:18092,127.0.0.1:18192", 18101)


def test_a_port_that_another_program_has_is_named_with_what_to_do(tmp_path: Path) -> None:
    state = plan(tmp_path, brokers=2)
    with socket.create_server(("127.0.0.1", state.brokers[1].ports["CONTROL"])) as taken:
        words = rf"Port {taken.getsockname()[1]} of broker 2 is taken .* with --port N of `regency up"
        with pytest.raises(NoFreePorts, match=words):
            refuse_taken_ports(tmp_path, state, {"agent-1", "agent-2"})
        refuse_taken_ports(tmp_path, state, {"zookeeper", "agent-1"})
