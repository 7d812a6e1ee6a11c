"""/livez, /readyz and ports of live agents and controllers."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from regency.cluster.cluster import Cluster
from regency.cluster.errors import ClusterStartFailed

pytestmark = pytest.mark.integration


def test_an_agent_is_ready_while_it_is_registered(
    new_cluster: Callable[..., Cluster], scrapes: Callable[..., Any], http_get: Callable[..., Any], eventually: Any
) -> None:
    cluster = new_cluster(brokers=1, own_zookeeper=True)
    ask = scrapes(cluster)
    assert ask.probe(1, "/readyz") == (200, {"recovered": "", "registered": "", "metadata": "", "not_stopping": ""})
    assert ask.probe(1, "/livez") == (200, {"data_loop": ""})
    assert http_get(cluster.state.brokers[0].controller_http, "/readyz")[0] == 200
    cluster.pause_zookeeper()
    eventually(lambda: ask.probe(1, "/readyz")[0] == 503, what="the session is over")
    assert ask.probe(1, "/readyz")[1]["registered"] == "this broker is not registered in ZooKeeper"
    assert ask.probe(1, "/livez")[0] == 200
    expires = "kafka_server_sessionexpirelistener_zookeeperexpires_total"
    eventually(lambda: ask.sum(expires, 1) == 1, what="the end of the session is counted")
    assert ask.agent(1).one("regency_zookeeper_session_age_seconds") == 0

    def controller_without_session() -> bool:
        status, body = http_get(cluster.state.brokers[0].controller_http, "/readyz")
        return (status, b"there is no session with ZooKeeper" in body) == (503, True)

    eventually(controller_without_session, what="the controller's session is over, too")
    cluster.resume_zookeeper()
    eventually(lambda: ask.probe(1, "/readyz")[0] == 200, what="it is registered again")
    connects = "kafka_server_sessionexpirelistener_zookeepersyncconnects_total"
    eventually(lambda: ask.sum(connects, 1) >= 2, what="its second connection is counted")


def test_threads_are_told_by_agent_and_controller(cluster: Cluster, http_get: Callable[..., Any]) -> None:
    broker = cluster.state.brokers[0]
    status, agent = http_get(broker.agent_http, "/debug/threads")
    assert (status, b"MainThread (" in agent, b"isr-writer (" in agent) == (200, True, True)
    status, controller = http_get(broker.controller_http, "/debug/threads")
    assert (status, b"controller-event-thread (" in controller) == (200, True)


def test_a_controller_that_is_started_again_serves_on_its_port(
    cluster: Cluster, http_get: Callable[..., Any], eventually: Any
) -> None:
    killed = cluster.kill_controller()
    (broker,) = [each for each in cluster.state.brokers if each.id == killed]

    def is_ready() -> bool:
        try:
            return bool(http_get(broker.controller_http, "/readyz")[0] == 200)
        except OSError:
            return False

    eventually(is_ready, what="the controller is ready again")


@pytest.mark.parametrize(
    ("name", "key"), [("HTTP", "regency.http.port"), ("CONTROLLER_HTTP", "regency.controller.http.port")]
)
def test_a_port_that_is_taken_stops_the_start_and_is_named(
    new_cluster: Callable[..., Cluster], tmp_path: Any, zookeeper: Any, name: str, key: str
) -> None:
    cluster = Cluster(
        1, directory=tmp_path / "taken", zookeeper_connect=f"{zookeeper.connect_string}/taken-{name.lower()}"
    )
    port = cluster.state.brokers[0].ports[name]
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ClusterStartFailed) as failed:
        cluster.start()
    cluster.close()
    assert f"Cannot serve HTTP on 127.0.0.1:{port}: Address already in use." in str(failed.value)
    assert f"set {key} to another one" in str(failed.value)
