"""What docs/operate/operations.md says of the time without ZooKeeper, where commands do not show it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from regency.cluster.cluster import Cluster
from regency.model.ids import TopicPartition

pytestmark = pytest.mark.integration

SETTINGS = {"replica.lag.time.max.ms": "1000", "zookeeper.connection.timeout.ms": "3000"}


def send(cluster: Cluster, partition: int, acks: str) -> str | None:
    """Write one record, with three seconds of patience: None where it was acknowledged, else the error's name."""
    wishes = {"acks": acks, "message.timeout.ms": 3000, "request.timeout.ms": 2000, "retries": 2}
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, **wishes})
    told: list[str | None] = []
    producer.produce(
        "t", b"value", partition=partition, on_delivery=lambda error, _: told.append(error.name() if error else None)
    )
    assert producer.flush(20) == 0
    return told[0]


@pytest.mark.timeout(240)
def test_who_dies_or_starts_while_zookeeper_is_away(
    new_cluster: Any, create_topic: Any, eventually: Any, tmp_path: Path
) -> None:
    cluster: Cluster = new_cluster(own_zookeeper=True, settings=SETTINGS)
    create_topic(cluster, "t", partitions=3, replication=3)
    states = {name: view.leadership for name, view in cluster.snapshot().partitions.items()}
    leads = {name.partition: state.leader for name, state in states.items() if state is not None}
    assert sorted(leads.values()) == [1, 2, 3]
    of = {broker: partition for partition, broker in leads.items()}
    session = cluster.session()
    cluster.pause_zookeeper()
    eventually(lambda: not session.connected, what="that sessions are suspended")

    assert [send(cluster, partition, "all") for partition in range(3)] == [None, None, None]
    cluster.kill(3)
    assert send(cluster, of[1], "1") is None, "its leader writes on"
    assert send(cluster, of[1], "all") == "_MSG_TIMED_OUT", "the dead follower cannot be taken out of the ISR"
    assert send(cluster, of[3], "1") == "_MSG_TIMED_OUT", "nobody can be elected"

    started = subprocess.run(
        [sys.executable, "-m", "regency", "agent", "--config", tmp_path / "cluster-1/agent-3/server.properties"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert started.returncode == 1
    assert "ZooKeeper at" in started.stderr and "Traceback" not in started.stderr

    cluster.resume_zookeeper()
    # Which session ZooKeeper ends last is its own affair: where that is broker 3's, this is the last known to be
    # in sync, and nobody leads without it.
    cluster.start(3)
    cluster.wait_healthy(60)
    assert [send(cluster, partition, "all") for partition in range(3)] == [None, None, None]
    assert len(cluster.snapshot().partitions[TopicPartition("t", 0)].leadership.isr) == 3  # type: ignore[union-attr]
