"""What Prometheus reads of the controllers of a live cluster while brokers die, hang, and are told to delete topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic, Producer

from regency.cluster.cluster import Cluster

pytestmark = pytest.mark.integration

SETTINGS = {"regency.report.interval.ms": "200", "auto.leader.rebalance.enable": "false"}
KAFKA = "kafka_controller_kafkacontroller_"
OFFSET = "kafka_topic_partition_current_offset"
STATES = "regency_controller_unacknowledged_states"
OLDEST = "regency_controller_oldest_unacknowledged_seconds"


class Controllers:
    """What the controllers of a cluster say, as far as they answer."""

    def __init__(self, cluster: Cluster, scrapes: Callable[..., Any], http_get: Callable[..., Any]) -> None:
        self._cluster = cluster
        self._scrapes = scrapes(cluster)
        self._get = http_get

    def status(self, broker: int, path: str) -> int:
        address = next(each for each in self._cluster.state.brokers if each.id == broker).controller_http
        try:
            return int(self._get(address, path)[0])
        except OSError:
            return 0

    def read(self, name: str, *brokers: int, **labels: str) -> list[float]:
        """Every series with these labels, of the controllers of these brokers, else of all."""
        found: list[float] = []
        for broker in brokers or self._cluster.broker_ids:
            try:
                found += self._scrapes.controller(broker).all(name, **labels)
            except OSError:
                continue
        return found

    def counts(self, *names: str) -> list[float]:
        """Gauges of Kafka's, each added up over the cluster."""
        return [sum(self.read(KAFKA + name)) for name in names]


@pytest.fixture
def controllers(scrapes: Callable[..., Any], http_get: Callable[..., Any]) -> Callable[[Cluster], Controllers]:
    return lambda cluster: Controllers(cluster, scrapes, http_get)


def test_counts_of_a_cluster_whose_brokers_die_and_return(
    new_cluster: Callable[..., Cluster],
    create_topic: Callable[..., None],
    controllers: Callable[[Cluster], Controllers],
    eventually: Any,
) -> None:
    cluster = new_cluster(settings=SETTINGS)
    ask = controllers(cluster)
    create_topic(cluster, "t", 3, 3)
    create_topic(cluster, "alone", 3, 1)
    eventually(lambda: ask.counts("globalpartitioncount") == [6], what="six partitions are counted")
    assert ask.counts("activecontrollercount", "activebrokercount", "offlinepartitionscount") == [1, 3, 0]
    assert [ask.status(broker, "/readyz") for broker in cluster.broker_ids] == [200, 200, 200]
    assert [ask.status(broker, "/livez") for broker in cluster.broker_ids] == [200, 200, 200]
    (epoch,) = [each for each in ask.read("regency_controller_epoch") if each]

    ruler = cluster.controller_id()
    cluster.kill(ruler)
    eventually(
        lambda: ask.counts("activebrokercount", "offlinepartitionscount", "activecontrollercount") == [2, 1, 1],
        what="another rules, and the partition that only the dead broker has is offline",
    )
    assert max(ask.read("regency_controller_epoch")) > epoch
    assert sum(ask.read("regency_controller_failovers_total")) == 1
    assert ask.read("kafka_topic_partition_under_replicated_partition", topic="t") == [1, 1, 1]
    assert len(ask.read("kafka_topic_partition_leader", topic="alone")) == 2

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.delete_topics(["t"])["t"].result(30)
    backlog = "topicstodeletecount", "replicasineligibletodeletecount", "replicastodeletecount"
    eventually(lambda: ask.counts(*backlog) == [1, 3, 3], what="the deletion waits for the dead broker")

    cluster.start(ruler)
    eventually(
        lambda: ask.counts(*backlog, "offlinepartitionscount", "activebrokercount") == [0, 0, 0, 0, 3],
        what="the deletion is over and everything is led",
    )
    assert ask.counts("globaltopiccount", "activecontrollercount") == [1, 1]
    assert ask.read(KAFKA + "activebrokercount", ruler) == [0]


def test_offsets_grow_and_what_a_stopped_agent_is_told_waits(
    new_cluster: Callable[..., Cluster],
    create_topic: Callable[..., None],
    controllers: Callable[[Cluster], Controllers],
    eventually: Any,
) -> None:
    cluster = new_cluster(settings=SETTINGS, session_timeout_ms=60_000)
    ask = controllers(cluster)
    create_topic(cluster, "t", 1, 3)
    eventually(lambda: ask.read(OFFSET) == [0], what="the leader has reported")
    write(cluster, 500)
    eventually(lambda: ask.read(OFFSET) == [500], what="its high watermark is told")
    write(cluster, 200)
    eventually(lambda: ask.read(OFFSET) == [700], what="its new high watermark is told")

    ruler = cluster.controller_id()
    stopped, other = (broker for broker in cluster.broker_ids if broker != ruler)
    eventually(lambda: ask.read(STATES, ruler) == [0, 0, 0], what="everything is acknowledged")
    cluster.pause(stopped)
    try:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic("u", num_partitions=4, replication_factor=3)])["u"].result(30)
        eventually(
            lambda: ask.read(STATES, ruler, broker_id=str(stopped)) == [4], what="four wait for the stopped agent"
        )
        (before,) = ask.read(OLDEST, ruler, broker_id=str(stopped))
        eventually(lambda: max(ask.read(OLDEST, ruler)) >= before + 1, what="they grow older")
        assert ask.read(STATES, ruler, broker_id=str(other)) == [0]
    finally:
        cluster.resume(stopped)
    eventually(lambda: ask.read(STATES, ruler) == [0, 0, 0], what="it has acknowledged everything")
    eventually(lambda: ask.read(OLDEST, ruler) == [0, 0, 0], what="nothing is old any more")


def write(cluster: Cluster, count: int) -> None:
    """Produce so many records to t, all acknowledged."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(count):
        producer.produce("t", b"%d" % number)
    assert producer.flush(30) == 0


def test_a_controller_without_zookeeper_lives_and_is_not_ready(
    new_cluster: Callable[..., Cluster], controllers: Callable[[Cluster], Controllers], eventually: Any
) -> None:
    cluster = new_cluster(1, own_zookeeper=True)
    ask = controllers(cluster)
    (broker,) = cluster.broker_ids
    eventually(lambda: ask.status(broker, "/readyz") == 200, what="it is ready")

    cluster.pause_zookeeper()
    eventually(lambda: ask.status(broker, "/readyz") == 503, what="its session is over")
    assert ask.status(broker, "/livez") == 200
    eventually(lambda: ask.counts("activecontrollercount") == [0], what="it has resigned")
    cluster.resume_zookeeper()

    eventually(lambda: ask.status(broker, "/readyz") == 200, what="it is ready again")
    eventually(lambda: ask.counts("activecontrollercount") == [1], what="it rules again")
    assert ask.read("regency_controller_failovers_total") == [2]
