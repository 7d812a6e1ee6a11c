"""What Prometheus reads of the controllers of a live cluster while brokers die, hang, and are told to delete topics."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client import parser

from regency.cluster.cluster import Cluster

pytestmark = pytest.mark.integration

SETTINGS = {"regency.report.interval.ms": "200", "auto.leader.rebalance.enable": "false"}
KAFKA = "kafka_controller_kafkacontroller_"


class Scraper:
    """What the controllers of a cluster say."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def get(self, broker: int, path: str) -> tuple[int, str]:
        """Status and body; status 0 where nobody answers."""
        address = next(each for each in self._cluster.state.brokers if each.id == broker).controller_http
        try:
            with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def of(self, broker: int) -> dict[str, float]:
        """Every sample of a broker's controller, by its name and labels as text; none where nobody answers."""
        return {
            sample.name + "".join(f" {value}" for _, value in sorted(sample.labels.items())): sample.value
            for family in parser.text_string_to_metric_families(self.get(broker, "/metrics")[1])
            for sample in family.samples
        }

    def summed(self, name: str) -> float:
        """A gauge without labels, added up over the cluster."""
        return sum(self.of(broker).get(KAFKA + name, 0) for broker in self._cluster.broker_ids)

    def ruling(self) -> dict[str, float]:
        """All samples of whoever rules; none where nobody does, or two."""
        read = [self.of(broker) for broker in self._cluster.broker_ids]
        ruling = [each for each in read if each.get(KAFKA + "activecontrollercount")]
        return ruling[0] if len(ruling) == 1 else {}

    def counts(self, *names: str) -> list[float]:
        """Gauges of whoever rules."""
        read = self.ruling()
        return [read.get(KAFKA + name, -1) for name in names]


def test_counts_of_a_cluster_whose_brokers_die_and_return(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None], eventually: Any
) -> None:
    cluster = new_cluster(settings=SETTINGS)
    scraper = Scraper(cluster)
    create_topic(cluster, "t", 3, 3)
    create_topic(cluster, "alone", 3, 1)
    eventually(lambda: scraper.summed("globalpartitioncount") == 6, what="six partitions are counted")
    assert scraper.summed("activecontrollercount") == 1
    assert [scraper.get(broker, "/readyz")[0] for broker in cluster.broker_ids] == [200, 200, 200]
    assert [scraper.get(broker, "/livez")[0] for broker in cluster.broker_ids] == [200, 200, 200]
    assert scraper.counts("activebrokercount", "offlinepartitionscount") == [3, 0]
    epoch = scraper.ruling()["regency_controller_epoch"]

    ruler = cluster.wait_controller()
    cluster.kill(ruler)
    eventually(
        lambda: scraper.counts("activebrokercount", "offlinepartitionscount") == [2, 1],
        what="another rules, and the partition that only the dead broker has is offline",
    )
    assert scraper.summed("activecontrollercount") == 1
    read = scraper.ruling()
    assert read["regency_controller_epoch"] > epoch
    assert read["regency_controller_failovers_total"] == 1
    assert [read[f"kafka_topic_partition_under_replicated_partition {number} t"] for number in range(3)] == [1, 1, 1]
    led = [name for name in read if name.startswith("kafka_topic_partition_leader ") and name.endswith("alone")]
    assert len(led) == 2

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.delete_topics(["t"])["t"].result(30)
    backlog = "topicstodeletecount", "replicasineligibletodeletecount", "replicastodeletecount"
    eventually(lambda: scraper.counts(*backlog) == [1, 3, 3], what="the deletion waits for the dead broker")

    cluster.start(ruler)
    eventually(
        lambda: scraper.counts(*backlog, "offlinepartitionscount", "activebrokercount") == [0, 0, 0, 0, 3],
        what="the deletion is over and everything is led",
    )
    assert scraper.counts("globaltopiccount") == [1]
    assert scraper.summed("activecontrollercount") == 1
    assert scraper.of(ruler)[KAFKA + "activebrokercount"] == 0


def test_offsets_grow_and_what_a_stopped_agent_is_told_waits(
    new_cluster: Callable[..., Cluster],
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    eventually: Any,
) -> None:
    cluster = new_cluster(settings=SETTINGS, session_timeout_ms=60_000)
    scraper = Scraper(cluster)
    create_topic(cluster, "t", 1, 3)
    offset = "kafka_topic_partition_current_offset 0 t"
    eventually(lambda: scraper.ruling().get(offset) == 0, what="the leader has reported")
    written = books(cluster, "t")
    written.write(500)
    eventually(lambda: scraper.ruling().get(offset) == 500, what="its high watermark is told")
    written.write(200)
    eventually(lambda: scraper.ruling().get(offset) == 700, what="its new high watermark is told")

    ruler = cluster.wait_controller()
    stopped = next(broker for broker in cluster.broker_ids if broker != ruler)
    states = f"regency_controller_unacknowledged_states {stopped}"
    oldest = f"regency_controller_oldest_unacknowledged_seconds {stopped}"
    eventually(lambda: scraper.ruling().get(states) == 0, what="everything is acknowledged")
    cluster.pause(stopped)
    try:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic("u", num_partitions=4, replication_factor=3)])["u"].result(30)
        eventually(lambda: scraper.of(ruler).get(states) == 4, what="four partitions wait for the stopped agent")
        before = scraper.of(ruler)[oldest]
        eventually(lambda: scraper.of(ruler).get(oldest, 0) >= before + 1, what="they grow older")
        other = next(broker for broker in cluster.broker_ids if broker not in (ruler, stopped))
        assert scraper.of(ruler)[f"regency_controller_unacknowledged_states {other}"] == 0
    finally:
        cluster.resume(stopped)
    eventually(lambda: scraper.of(ruler).get(states) == 0, what="it has acknowledged everything")
    assert scraper.of(ruler)[oldest] < 1


def test_a_controller_without_zookeeper_lives_and_is_not_ready(
    new_cluster: Callable[..., Cluster], eventually: Any
) -> None:
    cluster = new_cluster(1, own_zookeeper=True)
    scraper = Scraper(cluster)
    (broker,) = cluster.broker_ids
    eventually(lambda: scraper.get(broker, "/readyz")[0] == 200, what="it is ready")

    cluster.pause_zookeeper()
    eventually(lambda: scraper.get(broker, "/readyz")[0] == 503, what="its session is over")
    assert scraper.get(broker, "/livez")[0] == 200
    eventually(lambda: scraper.of(broker).get(KAFKA + "activecontrollercount") == 0, what="it has resigned")
    cluster.resume_zookeeper()

    eventually(lambda: scraper.get(broker, "/readyz")[0] == 200, what="it is ready again")
    eventually(lambda: scraper.of(broker).get(KAFKA + "activecontrollercount") == 1, what="it rules again")
    assert scraper.of(broker)["regency_controller_failovers_total"] == 2
