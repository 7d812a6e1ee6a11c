"""A real Prometheus with the scrape configuration and the rules of deploy/, and a cluster under load that it watches.

One of each for all tests of a module. In the rules a minute is a second: nothing else differs from what is shipped.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from regency.cluster.cluster import Cluster
from regency.cluster.ports import reserve_ports
from regency.cluster.process.spawner import ManagedProcess, Spawner

DEPLOY = Path(__file__).resolve().parents[3] / "deploy" / "prometheus"
SCRAPE_S = 1
TOPIC = "flights"
LONE = "lone"
"""A topic without replicas: its partitions are offline with their broker."""
BEYOND = 10**12
"""An offset that is never there: whoever fetches from it is refused, and begins at the end."""

Sample = tuple[dict[str, str], float]


class Prometheus:
    """A running server, asked over its HTTP API."""

    def __init__(self, address: str) -> None:
        self._address = address

    def query(self, expr: str) -> list[Sample]:
        """Value of an expression now. A number that is no series has no labels. Raises ValueError with the reason."""
        data = self._get("query", {"query": expr})
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(each["metric"], float(each["value"][1])) for each in data["result"]]

    def label_values(self, label: str, selector: str) -> list[str]:
        """Values of a label on the series that a selector chooses, as Grafana's label_values asks for them."""
        found: list[str] = self._get(f"label/{label}/values", {"match[]": selector})
        return found

    def firing(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for alert in self._get("alerts", {})["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(alert)
        return found

    def targets(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get("targets", {"state": "active"})["activeTargets"]
        return found

    def ready(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=5) as got:
            return bool(got.status == 200)
        return False

    def _get(self, path: str, parameters: Mapping[str, str]) -> Any:
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as got:
                answer = json.load(got)
        except urllib.error.HTTPError as error:
            answer = json.load(error)
        if answer["status"] != "success":
            raise ValueError(f"{parameters}: {answer['error']}")
        return answer["data"]


class Load:
    """Writes and reads a few records all the time, and makes the mistakes that clients make, from one thread."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        quiet = {"bootstrap.servers": self._servers, "log_level": 0, "error_cb": lambda _: None}
        producer = Producer({**quiet, "acks": "all", "linger.ms": 20, "message.timeout.ms": 3000})
        consumer = Consumer({**quiet, "group.id": "load", "enable.auto.commit": False, "auto.offset.reset": "latest"})
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(6)])
        rounds = 0
        while not self._stopped.is_set():
            rounds += 1
            for number in range(20):
                with contextlib.suppress(BufferError):
                    producer.produce(TOPIC, key=b"%d" % (number % 16), value=b"x" * 200)
                    producer.produce(LONE, value=b"x" * 200)
            producer.poll(0)
            consumer.consume(1000, timeout=0.05)
            with contextlib.suppress(KafkaException):  # not while the partition is without a leader
                consumer.seek(TopicPartition(TOPIC, 0, BEYOND))
            with contextlib.suppress(KafkaException):
                consumer.commit(offsets=[TopicPartition(TOPIC, 1, rounds)])  # its group is behind, and goes on
        with contextlib.suppress(Exception):  # what could not be delivered is no concern of a load
            producer.flush(1)
        consumer.close()


class Watched:
    """A cluster, its load and the Prometheus that watches both."""

    def __init__(self, cluster: Cluster, prometheus: Prometheus) -> None:
        self.cluster = cluster
        self.prometheus = prometheus

    def wait(self, condition: Callable[[], object], within_s: float, why: Callable[[], object]) -> None:
        """Wait until `condition` holds; else the test fails with what `why` says then."""
        wait_until(condition, within_s, why)


def minutes_to_seconds(rules: str) -> str:
    """The rules with every duration a sixtieth: of `for`, of ranges, and of ages written as minutes * 60."""
    return re.sub(r"\b(\d+) \* 60\b", r"\1", re.sub(r"(for: |\[)(\d+)m\b", r"\g<1>\g<2>s", rules))


def scrape_config(cluster: Cluster) -> dict[str, Any]:
    """deploy/prometheus/prometheus.yml with this cluster's addresses in place of docker-compose's."""
    config: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": "1s", "scrape_timeout": "1s"}
    (job,) = [job for job in config["scrape_configs"] if job["job_name"] == "kafka-broker"]
    config["scrape_configs"] = [job]
    del job["dns_sd_configs"]
    job["static_configs"] = [
        {"targets": [address], "labels": {"instance": f"agent-{broker.id}", "daemon": daemon}}
        for broker in cluster.state.brokers
        for daemon, address in (("agent", broker.agent_http), ("controller", broker.controller_http))
    ]
    return config


@pytest.fixture(scope="module")
def watched(prometheus_tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Three brokers under load, scraped for some seconds already."""
    directory = tmp_path_factory.mktemp("watched")
    settings = {"min.insync.replicas": "2", "log.segment.bytes": "100000"}
    with contextlib.ExitStack() as stack:
        cluster = Cluster(brokers=3, directory=directory / "cluster", settings=settings, log_dirs=2)
        cluster.start()
        stack.callback(cluster.close, grace_s=0)
        create_topics(cluster)
        load = Load(cluster.bootstrap_servers)
        stack.callback(load.stop)
        spawner = Spawner()
        stack.callback(spawner.close)
        (port,) = reserve_ports(1, owner=directory)
        process = start(prometheus_tools, cluster, directory, f"127.0.0.1:{port}", spawner)
        stack.callback(process.kill)
        server = Prometheus(f"127.0.0.1:{port}")
        wait_until(server.ready, 20, lambda: f"Prometheus is not ready:\n{process.last_lines()}")
        wait_for_history(server)
        yield Watched(cluster, server)


def create_topics(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    topics = [NewTopic(TOPIC, 6, 3), NewTopic(LONE, 3, 1, config={"min.insync.replicas": "1"})]
    for made in admin.create_topics(topics, operation_timeout=20).values():
        made.result(timeout=30)
    cluster.wait_healthy(30)


def start(tools: Path, cluster: Cluster, directory: Path, address: str, spawner: Spawner) -> ManagedProcess:
    (directory / "prometheus.yml").write_text(yaml.safe_dump(scrape_config(cluster)))
    (directory / "alerts.yml").write_text(minutes_to_seconds((DEPLOY / "alerts.yml").read_text()))
    command = [
        str(tools / "prometheus"),
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]
    return spawner.spawn("prometheus", command, directory=directory, log=directory / "prometheus.log")


def wait_for_history(server: Prometheus) -> None:
    """Until every process was scraped some times in a row while the load ran."""
    enough = f"count(up) == 6 and min(sum_over_time(up[{6 * SCRAPE_S}s])) >= 4"
    wait_until(lambda: server.query(enough), 60, lambda: f"too little is scraped: {troubles(server.targets())}")


def troubles(targets: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"{target['scrapeUrl']}: {target['health']} {target['lastError']}" for target in targets]


def wait_until(condition: Callable[[], object], within_s: float, why: Callable[[], object]) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() >= deadline:
            pytest.fail(f"not within {within_s:g} s: {why()}")
        time.sleep(0.1)
