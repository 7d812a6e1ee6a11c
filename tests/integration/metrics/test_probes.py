"""/livez, /readyz and ports of live agents and controllers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from regency.cluster.cluster import Cluster
from regency.cluster.errors import NoFreePorts

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[3]


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


def test_an_agent_is_alive_while_all_its_logs_start_over_on_a_slow_disk(
    new_cluster: Callable[..., Cluster],
    create_topic: Callable[..., None],
    scrapes: Callable[..., Any],
    eventually: Any,
    tmp_path: Path,
) -> None:
    """As when a broker is back after longer than the retention lasts: a sync after the other, each 30 ms, would take
    half a minute in which the data loop does nothing else.
    """
    flag, partitions = tmp_path / "slow", 200
    cluster = new_cluster(
        brokers=2,
        settings={"log.retention.check.interval.ms": "500"},
        agent_command=(sys.executable, str(Path(__file__).with_name("slow_syncs.py")), str(flag)),
    )
    create_topic(cluster, partitions=partitions, replication=2, segment_bytes="1000", retention_bytes="1000")

    def write() -> None:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        for partition in range(partitions):
            producer.produce("t", bytes(600), partition=partition)
        assert producer.flush(60) == 0

    write()
    cluster.stop(2)
    for _ in range(4):
        write()
    (leaders,) = cluster.log_dirs(1)
    eventually(
        lambda: not any((leaders / f"t-{each}" / f"{0:020d}.log").exists() for each in range(partitions)),
        what="what the other broker holds has expired",
    )
    flag.touch()
    ask, answers, is_over = scrapes(cluster), [], threading.Event()

    def look() -> None:
        while not is_over.wait(0.05):
            with suppress(OSError):  # it has not begun to listen
                answers.append(ask.probe(2, "/livez"))

    looks = threading.Thread(target=look)
    looks.start()
    cluster.restart(2)
    cluster.wait_healthy(60)
    is_over.set()
    looks.join()
    told = cluster.log(2).read_text("utf-8")
    assert told.count("its leader begins at") == partitions
    assert "put off" not in told
    assert {status for status, _ in answers} == {200}, answers


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


@pytest.fixture
def agent_alone(tmp_path: Path, zookeeper: Any, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Starts `regency agent` as the image does: with a mounted file, variables, options. It writes probe.json."""
    started: list[subprocess.Popen[bytes]] = []
    file = tmp_path / "server.properties"
    file.write_text(
        "broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0,CONTROL://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
        f"zookeeper.connect={zookeeper.connect_string}/{request.node.name.translate(dict.fromkeys(map(ord, '[].:')))}\n"
        f"log.dirs={tmp_path / 'data'}\nregency.history.dir={tmp_path / 'history'}\n"
        "regency.http.port=0\nregency.controller.http.port=-1\n"
    )

    def start(mounted: str = "", options: Sequence[str] = (), **variables: str) -> subprocess.Popen[bytes]:
        with file.open("a") as out:
            out.write(mounted)
        command = [sys.executable, "-m", "regency", "agent", "--config", str(file), "--environment", *options]
        environment = {**os.environ, **variables, "REGENCY_PROBE_FILE": str(tmp_path / "probe.json")}
        with (tmp_path / "log").open("wb") as log:
            started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("how", "address"),
    [
        ({"mounted": "regency.http.host=127.0.0.2\n"}, "127.0.0.2"),
        ({"KAFKA_REGENCY_HTTP_HOST": "::1"}, "::1"),
        ({"options": ["--override", "listeners=PLAINTEXT://127.0.0.3:0,CONTROL://:0,CONTROLLER://:0"]}, "127.0.0.3"),
        ({"mounted": "regency.http.host=\n"}, "127.0.0.1"),
    ],
    ids=["file", "variable", "listener", "every-interface"],
)
def test_the_image_s_health_check_finds_the_agent_whatever_its_settings_say(
    how: dict[str, Any], address: str, agent_alone: Callable[..., Any], tmp_path: Path, eventually: Any
) -> None:
    command = [sys.executable, "-I", str(ROOT / "deploy" / "healthcheck.py")]
    file = tmp_path / "probe.json"

    def health() -> tuple[int, str]:
        done = subprocess.run(
            command, env={"REGENCY_PROBE_FILE": str(file)}, capture_output=True, text=True, check=False, timeout=30
        )
        return done.returncode, done.stdout

    assert health()[0] == 1
    process = agent_alone(**how)
    eventually(lambda: health()[0] == 0, what="HEALTHCHECK is content")
    assert json.loads(file.read_text())["addresses"][0] == address
    process.terminate()
    assert process.wait(30) == 0, (tmp_path / "log").read_text()
    assert not file.exists()
    assert health()[0] == 1


@pytest.mark.parametrize(
    ("name", "key"), [("HTTP", "regency.http.port"), ("CONTROLLER_HTTP", "regency.controller.http.port")]
)
def test_a_port_that_is_taken_stops_the_start_and_is_named(tmp_path: Any, zookeeper: Any, name: str, key: str) -> None:
    connect = f"{zookeeper.connect_string}/taken-{name.lower()}"
    with Cluster(1, directory=tmp_path / "taken", zookeeper_connect=connect) as cluster:
        cluster.kill(1)
        port = cluster.state.brokers[0].ports[name]
        config = str(cluster.directory / "agent-1" / "server.properties")
        with socket.create_server(("127.0.0.1", port)):
            with pytest.raises(NoFreePorts, match=f"Port {port} of broker 1 is taken by another program"):
                cluster.start(1)
            by_hand = [sys.executable, "-m", "regency", "agent", "--config", config]
            ended = subprocess.run(by_hand, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert ended.returncode != 0
    assert f"Cannot serve HTTP on 127.0.0.1:{port}: Address already in use." in ended.stderr
    assert f"set {key} to another one" in ended.stderr
