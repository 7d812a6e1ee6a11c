"""ZooKeeper goes away, comes back, or is edited by hand, and the cluster goes on."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regency.cluster.cluster import Cluster
from regency.cluster.errors import ClusterStartFailed
from regency.cluster.zookeeper import EmbeddedZooKeeper
from regency.model.znodes import paths as znode_paths
from regency.runtime.zookeeper.session import Create, Delete

pytestmark = pytest.mark.integration


def test_zookeeper_is_restarted_under_a_running_cluster(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None], books: Callable[..., Any]
) -> None:
    cluster = new_cluster(own_zookeeper=True)
    create_topic(cluster)
    kept = books(cluster, "t")
    kept.write(10_000, midway=cluster.restart_zookeeper)
    cluster.wait_healthy(30)
    create_topic(cluster, "after")
    kept.write(1_000)
    kept.assert_nothing_lost()


def test_the_data_path_goes_on_while_zookeeper_is_paused_past_every_session(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None], books: Callable[..., Any], eventually: Any
) -> None:
    cluster = new_cluster(own_zookeeper=True)
    create_topic(cluster)
    epoch = cluster.controller_epoch()
    kept = books(cluster, "t")
    kept.write(1_000)
    session = cluster.session()
    cluster.pause_zookeeper()
    kept.write(5_000)
    eventually(lambda: not session.connected, what="the sessions are suspended")
    kept.write(5_000)
    cluster.resume_zookeeper()
    cluster.wait_healthy(40)
    assert cluster.controller_epoch() >= epoch
    create_topic(cluster, "after")
    kept.write(1_000)
    kept.assert_nothing_lost()


def test_controller_znode_deleted_by_hand_makes_a_new_term(
    cluster: Cluster,
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    look: Callable[..., Any],
    eventually: Any,
) -> None:
    create_topic(cluster)
    epoch, leaders = cluster.controller_epoch(), look(cluster).leaders()
    assert cluster.session().multi([Delete(znode_paths.CONTROLLER, None)]).ok
    eventually(
        lambda: cluster.controller_epoch() == epoch + 1 and cluster.snapshot().controller is not None, what="a new term"
    )
    cluster.wait_healthy(20)
    assert look(cluster).leaders() == leaders
    create_topic(cluster, "after")
    kept = books(cluster, "after")
    kept.write(1_000)
    kept.assert_nothing_lost()


def test_a_broker_told_twice_stops_in_order_while_zookeeper_is_away(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None], books: Callable[..., Any]
) -> None:
    # ServerShutdownTest.testCleanShutdownWithZkUnavailable (KAFKA-9189), testConsecutiveShutdown
    short = {"controller.socket.timeout.ms": "2000", "controlled.shutdown.retry.backoff.ms": "500"}
    cluster = new_cluster(own_zookeeper=True, settings=short)
    create_topic(cluster)
    kept = books(cluster, "t")
    kept.write(1_000)
    cluster.pause_zookeeper()
    os.kill(cluster.pid(1), signal.SIGTERM)
    assert cluster.stop(1, timeout_s=60)
    cluster.resume_zookeeper()
    cluster.start(1)
    cluster.wait_healthy(40)
    kept.assert_nothing_lost()


def test_a_second_broker_of_an_id_does_not_start_and_harms_nobody(
    zookeeper: EmbeddedZooKeeper, new_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    # ServerStartupTest.testConflictBrokerRegistration
    where = f"{zookeeper.connect_string}/twice-{tmp_path.name}"
    first = new_cluster(brokers=1, zookeeper_connect=where)
    (broker,) = first.broker_ids
    session = first.session()
    registered = session.read(znode_paths.broker(broker))
    with pytest.raises(ClusterStartFailed, match="is registered at /brokers/ids/"):
        new_cluster(brokers=1, zookeeper_connect=where)
    first.wait_healthy(20)
    assert registered is not None and session.read(znode_paths.broker(broker)) == registered


@pytest.mark.long
def test_a_zookeeper_restored_from_a_copy_whose_transactions_are_older_locks_nobody_out(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None], books: Callable[..., Any], tmp_path: Path
) -> None:
    """Broker epochs and the controller epoch go back under brokers that go on."""
    cluster = new_cluster(own_zookeeper=True)
    create_topic(cluster)
    kept = books(cluster, "t")
    kept.write(1_000)
    server = cluster.zookeeper
    data = server.directory / "data"
    server.stop()
    shutil.copytree(data, tmp_path / "copy")
    server.start()
    cluster.wait_healthy(30)
    session = cluster.session()
    for _ in range(200):
        session.multi([Create("/passing", b""), Delete("/passing", None)])
    for broker in cluster.broker_ids:
        cluster.kill(broker)
        cluster.start(broker)
        cluster.wait_healthy(30)
    kept.write(1_000)
    before = {broker: session.read(znode_paths.broker(broker)).stat.czxid for broker in cluster.broker_ids}
    server.stop()
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "copy", data)
    server.start()
    cluster.wait_healthy(60)
    kept.write(1_000)
    after = {broker: session.read(znode_paths.broker(broker)).stat.czxid for broker in cluster.broker_ids}
    assert all(after[broker] < before[broker] for broker in after), (before, after)
    create_topic(cluster, "after")
    kept.assert_nothing_lost()
