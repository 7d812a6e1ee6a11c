"""Two replicas that led alone in turn, one of which lost its end on disk, on real processes: afterwards they are alike.

Kafka's EpochDrivenReplicationProtocolAcceptanceTest: logsShouldNotDivergeOnUncleanLeaderElections and
shouldNotAllowDivergentLogs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from regency.cluster.cluster import Cluster
from regency.kafka.record_batch import iter_batches

pytestmark = pytest.mark.integration

SETTINGS = {"replica.lag.time.max.ms": "2000", "auto.leader.rebalance.enable": "false"}


def write(cluster: Cluster, *values: str) -> None:
    """One batch per value, acknowledged by the leader."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": 1, "message.timeout.ms": 20_000})
    for value in values:
        failures: list[object] = []
        producer.produce("t", value, on_delivery=lambda error, _, failures=failures: failures.append(error))
        assert producer.flush(25) == 0
        assert failures == [None]


def read(cluster: Cluster, count: int) -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    messages = consumer.consume(count, timeout=30)
    consumer.close()
    return [message.value().decode() for message in messages]


def segment(cluster: Cluster, broker: int, number: int = 0) -> Path:
    (directory,) = [each for each in cluster.log_dirs(broker) if (each / f"t-{number}").is_dir()]
    return directory / f"t-{number}" / f"{0:020d}.log"


def lose_the_last_batch(path: Path) -> None:
    content = path.read_bytes()
    *_, (position, _) = iter_batches(content)
    path.write_bytes(content[:position])
    (path.parents[1] / "recovery-point-offset-checkpoint").unlink(missing_ok=True)


def test_replicas_that_led_alone_in_turn_and_lost_their_ends_agree_afterwards(
    new_cluster: Callable[..., Cluster], look: Callable[..., Any], eventually: Any
) -> None:
    cluster = new_cluster(settings=SETTINGS)
    one, other, _ = cluster.broker_ids
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    topic = NewTopic("t", num_partitions=1, replica_assignment=[[one, other]], config=config)
    admin.create_topics([topic], operation_timeout=20, request_timeout=25)["t"].result(timeout=30)
    cluster.wait_healthy(30)

    def led_by(broker: int) -> None:
        eventually(lambda: look(cluster).leaders()[0] == broker, within=40, what=f"broker {broker} leads")

    write(cluster, "both")
    eventually(lambda: segment(cluster, other).stat().st_size > 0, what="the follower has the record")
    cluster.kill(one)
    led_by(other)
    write(cluster, "2a")
    for leader, values in ((one, ("1a", "1b", "1c")), (other, ("2b", "2c")), (one, ("1d", "1e"))):
        cluster.kill(one if leader == other else other)
        if leader == one and values == ("1d", "1e"):
            lose_the_last_batch(segment(cluster, other))
        cluster.start(leader)
        led_by(leader)
        write(cluster, *values)
    cluster.start(other)
    cluster.wait_healthy(40)

    expected = ["both", "1a", "1b", "1c", "1d", "1e"]
    assert read(cluster, len(expected)) == expected
    assert segment(cluster, one).read_bytes() == segment(cluster, other).read_bytes()


def test_several_fetchers_of_each_leader_copy_everything(
    new_cluster: Callable[..., Cluster],
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    look: Callable[..., Any],
    eventually: Any,
) -> None:
    cluster = new_cluster(settings={**SETTINGS, "num.replica.fetchers": "3"})
    create_topic(cluster, partitions=9, min_insync_replicas="2")
    kept = books(cluster, "t")
    kept.write(2_000)
    gone = next(broker for broker in cluster.broker_ids if broker != cluster.controller_id())
    cluster.kill(gone)
    eventually(lambda: look(cluster).in_no_isr(gone), what="it is in sync nowhere")
    kept.write(2_000)
    cluster.start(gone)
    cluster.wait_healthy(40)
    kept.assert_nothing_lost()
    for number in range(9):
        assert len({segment(cluster, broker, number).read_bytes() for broker in cluster.broker_ids}) == 1
