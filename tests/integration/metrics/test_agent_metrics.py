"""What agents tell of themselves moves as the cluster does: traffic, ISRs, deaths, elections, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer
from kafka import TopicPartition as ClientPartition
from kafka.admin import KafkaAdminClient

from regency.cluster.cluster import Cluster

pytestmark = pytest.mark.integration

REPLICAS = "kafka_server_replicamanager_"
TRAFFIC = "kafka_server_brokertopicmetrics_"
REQUESTS = "kafka_network_requestmetrics_"
RECORDS = 1000
SIZE = 200


def write(cluster: Cluster, count: int, acks: str = "all", partitions: int = 1) -> list[KafkaError | None]:
    """Write `count` records to t, to its partitions in turn, each acknowledged or refused; the outcomes."""
    outcomes: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": acks, "retries": 0, "linger.ms": 5})
    for number in range(count):
        producer.produce(
            "t", b"x" * SIZE, partition=number % partitions, on_delivery=lambda error, _: outcomes.append(error)
        )
    assert producer.flush(30) == 0
    return outcomes


def read(cluster: Cluster, count: int, partitions: int = 3) -> None:
    """Read that many records of t from the start, by a client that looks for no coordinator."""
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=None, consumer_timeout_ms=20_000)
    names = [ClientPartition("t", partition) for partition in range(partitions)]
    consumer.assign(names)
    consumer.seek_to_beginning(*names)
    came = sum(1 for _ in zip(range(count), consumer, strict=False))
    assert came == count, f"{count - came} of {count} records did not come"
    consumer.close()


def test_traffic_is_counted_where_it_goes(
    cluster: Cluster, create_topic: Callable[..., None], scrapes: Callable[..., Any], eventually: Any
) -> None:
    create_topic(cluster, partitions=3)
    ask = scrapes(cluster)
    assert set(write(cluster, RECORDS, partitions=3)) == {None}  # each agent leads one: each answers the consumer
    read(cluster, RECORDS)

    def settled() -> bool:
        """Every replica has every record, and each data loop was looked at, which is once a second."""
        looked = all(ask.agent(broker).one("regency_data_loop_lag_ms_count") > 0 for broker in cluster.broker_ids)
        return looked and bool(ask.sum("kafka_log_log_logendoffset", topic="t") == 3 * RECORDS)

    eventually(settled, what="every replica has every record, and says so")
    agents = [ask.agent(broker) for broker in cluster.broker_ids]

    def total(name: str, **labels: str) -> float:
        return float(sum(agent.sum(name, **labels) for agent in agents))

    in_all = sum(agent.one(TRAFFIC + "bytesin_total") for agent in agents)
    assert total(TRAFFIC + "messagesin_total", topic="t") == RECORDS
    assert total(TRAFFIC + "bytesin_total", topic="t") == in_all > RECORDS * SIZE
    assert total(TRAFFIC + "bytesout_total", topic="t") >= in_all
    assert total("kafka_log_log_size", topic="t") == 3 * in_all
    assert total("kafka_log_log_numlogsegments", topic="t") == 9
    assert total(TRAFFIC + "replicationbytesin_total") == 2 * in_all
    assert total(TRAFFIC + "replicationbytesout_total") >= 2 * in_all
    assert total(TRAFFIC + "failedproducerequests_total") == total(TRAFFIC + "bytesrejected_total") == 0
    assert total(REPLICAS + "leadercount") == 3
    assert total("kafka_server_fetcherlagmetrics_consumerlag", topic="t") == 0
    for agent in agents:
        assert agent.one(REPLICAS + "partitioncount") == 3
        assert agent.one("kafka_server_kafkaserver_brokerstate") == 3
        assert agent.one("regency_controller_epoch_seen") == cluster.snapshot().controller_epoch
        assert agent.one("regency_zookeeper_session_age_seconds") > 0
        assert agent.one("kafka_server_sessionexpirelistener_zookeepersyncconnects_total") == 1
        assert 0 < agent.one("kafka_network_socketserver_networkprocessoravgidle_percent") <= 1
        assert agent.sum("kafka_server_socket_server_metrics_connection_count", listener="PLAINTEXT") >= 2
        assert agent.one("kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms_count") > 0
        assert agent.one("process_open_fds") > 0
        for kind in ("Produce", "FetchConsumer", "FetchFollower", "Fetch", "ApiVersions"):
            answered = agent.sum(REQUESTS + "requests_total", request=kind)
            assert answered == agent.one(REQUESTS + "totaltimems_count", request=kind), kind
            assert agent.one(REQUESTS + "errors_total", request=kind, error="NONE") <= answered
        produced = {part: agent.one(f"{REQUESTS}{part}timems_sum", request="Produce") for part in ("total", "remote")}
        assert produced["total"] > produced["remote"] > 0, "acks=all waits for followers"


def test_what_a_reassignment_copies_is_counted_on_the_leader_and_on_the_broker_that_is_added(
    cluster: Cluster, create_topic: Callable[..., None], scrapes: Callable[..., Any], eventually: Any
) -> None:
    create_topic(cluster, partitions=1, replication=2)
    assert set(write(cluster, RECORDS)) == {None}
    ask, begun = scrapes(cluster), cluster.snapshot().partitions["t", 0]
    assert begun.leadership is not None
    leader, replicas = begun.leadership.leader, [*begun.assignment.replicas]
    (other,) = set(replicas) - {leader}
    (added,) = set(cluster.broker_ids) - {*replicas}

    def counted() -> dict[int, tuple[float, float]]:
        """Of each broker: sent to replicas that are added, received by such replicas."""
        agents = {broker: ask.agent(broker) for broker in cluster.broker_ids}
        ends = [TRAFFIC + f"reassignmentbytes{end}_total" for end in ("out", "in")]
        return {broker: (agent.one(ends[0]), agent.one(ends[1])) for broker, agent in agents.items()}

    assert set(counted().values()) == {(0, 0)}, "what a replica in sync fetches is no reassignment"
    partition = {"topic": "t", "partition": "0"}
    size = ask.agent(leader).one("kafka_log_log_size", **partition)
    assert size > RECORDS * SIZE
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))
    try:
        admin.alter_partition_reassignments({ClientPartition("t", 0): [*replicas, added]})
        eventually(lambda: not admin.list_partition_reassignments(), what="the move has ended")
    finally:
        admin.close()
    moved = {leader: (size, 0), added: (0, size), other: (0, 0)}
    eventually(lambda: counted() == moved, what=f"counted on both ends: {moved}")

    assert set(write(cluster, RECORDS)) == {None}
    replicated = TRAFFIC + "replicationbytesin_total"
    everything = ask.agent(leader).one("kafka_log_log_size", **partition)
    eventually(lambda: ask.agent(added).one(replicated) == everything, what="the new replica has all, too")
    assert counted() == moved, "since the move has ended this is no reassignment"


def test_a_follower_that_stops_shrinks_isrs_refuses_writes_and_comes_back(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None], scrapes: Callable[..., Any], eventually: Any
) -> None:
    cluster = new_cluster(settings={"replica.lag.time.max.ms": "1500"}, session_timeout_ms=20_000)
    create_topic(cluster, partitions=1, min_insync_replicas="3")
    ask, leader = scrapes(cluster), cluster.snapshot().partitions["t", 0].leadership.leader
    follower = next(each for each in cluster.broker_ids if each not in (leader, cluster.controller_id()))
    partition = {"topic": "t", "partition": "0"}
    before = ask.agent(leader)
    assert before.one("kafka_cluster_partition_atminisr", **partition) == 1
    assert before.one(REPLICAS + "atminisrpartitioncount") == 1
    assert before.one(REPLICAS + "underreplicatedpartitions") == before.one(REPLICAS + "isrshrinks_total") == 0
    cluster.pause(follower)
    assert write(cluster, 1, acks="1") == [None], "who lacks nothing stays in sync however silent"
    eventually(lambda: ask.sum(REPLICAS + "isrshrinks_total", leader) == 1, what="the leader drops the follower")
    shrunk = ask.agent(leader)
    assert shrunk.one(REPLICAS + "underreplicatedpartitions") == 1
    assert shrunk.one(REPLICAS + "underminisrpartitioncount") == 1
    assert shrunk.one("kafka_cluster_partition_underminisr", **partition) == 1
    assert shrunk.one("kafka_cluster_partition_atminisr", **partition) == 0
    assert shrunk.one("kafka_cluster_partition_replicascount", **partition) == 3
    assert shrunk.one("kafka_cluster_partition_insyncreplicascount", **partition) == 2
    (refused,) = write(cluster, 1)
    assert refused is not None

    def refusal_is_counted() -> bool:
        errors = ask.agent(leader).sum(REQUESTS + "errors_total", request="Produce", error="NOT_ENOUGH_REPLICAS")
        return bool(errors >= 1)

    eventually(refusal_is_counted, what="the refusal is counted")
    assert ask.agent(leader).one(TRAFFIC + "failedproducerequests_total", topic="t") >= 1
    cluster.resume(follower)
    eventually(lambda: ask.sum(REPLICAS + "isrexpands_total", leader) == 1, what="the follower is in sync again")
    eventually(lambda: ask.sum(REPLICAS + "underminisrpartitioncount", leader) == 0, what="and so enough are")
    assert ask.agent(leader).one(REPLICAS + "underreplicatedpartitions") == 0


def test_a_broker_that_dies_hands_its_counts_over_and_gets_them_back(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None], scrapes: Callable[..., Any], eventually: Any
) -> None:
    cluster = new_cluster(settings={"auto.leader.rebalance.enable": "false"})  # it follows all until the test ends
    create_topic(cluster, partitions=6)
    ask, dead = scrapes(cluster), cluster.broker_ids[0]
    survivors = cluster.broker_ids[1:]
    assert [ask.agent(broker).one(REPLICAS + "leadercount") for broker in cluster.broker_ids] == [2, 2, 2]
    cluster.kill(dead)
    eventually(lambda: ask.sum(REPLICAS + "leadercount", *survivors) == 6, what="the survivors lead all")
    eventually(
        lambda: ask.sum(REPLICAS + "underreplicatedpartitions", *survivors) == 6, what="all are under-replicated"
    )
    cluster.start(dead)
    eventually(lambda: ask.sum(REPLICAS + "underreplicatedpartitions") == 0, what="all are replicated again")
    returned = ask.agent(dead)
    assert (returned.one(REPLICAS + "leadercount"), returned.one(REPLICAS + "partitioncount")) == (0, 6)
    assert returned.sum("kafka_cluster_partition_replicascount", topic="t") == 0, "only leaders tell"
    assert returned.one("regency_recovery_logs_opened") == returned.one("regency_recovery_logs_found") == 6
    lag = "kafka_server_fetcherlagmetrics_consumerlag"
    eventually(lambda: ask.agent(dead).all(lag, topic="t") == [0] * 6, what="it follows all, and lags nowhere")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.elect_leaders(ElectionType.PREFERRED).result(timeout=30)
    eventually(lambda: ask.sum(REPLICAS + "leadercount", dead) == 2, what="it leads again what it prefers")
    eventually(lambda: ask.sum(REPLICAS + "leadercount", *survivors) == 4, what="and those who did do not any more")
    assert ask.agent(dead).sum("kafka_cluster_partition_replicascount", topic="t") == 6


def test_a_deleted_topic_leaves_no_series(
    cluster: Cluster, create_topic: Callable[..., None], scrapes: Callable[..., Any], eventually: Any
) -> None:
    create_topic(cluster, partitions=3)
    ask, broker = scrapes(cluster), cluster.broker_ids[0]
    write(cluster, 50)
    eventually(lambda: ask.sum(TRAFFIC + "messagesin_total", topic="t") == 50, what="they are counted")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.delete_topics(["t"], operation_timeout=20)["t"].result(timeout=30)

    def gone() -> bool:
        samples = ask.agent(broker)
        return not any(samples.all(name, topic="t") for name in samples.names)

    eventually(gone, what="no series names the topic")
    sums = [ask.agent(each).one(TRAFFIC + "messagesin_total") for each in cluster.broker_ids]
    assert sum(sums) == 50, "the sum stays"
