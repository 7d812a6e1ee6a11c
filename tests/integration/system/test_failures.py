"""Processes are killed under load: what was acknowledged stays, once and in order, and the cluster heals."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from regency.clients.connections import Connections
from regency.clients.settings import client_settings
from regency.cluster.cluster import Cluster

pytestmark = pytest.mark.integration
COUNT = 20_000


def other_than(cluster: Cluster, *brokers: int) -> int:
    return next(broker for broker in cluster.broker_ids if broker not in brokers)


def test_the_leader_dies_and_comes_back(
    cluster: Cluster,
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    look: Callable[..., Any],
    eventually: Any,
) -> None:
    create_topic(cluster, partitions=1, min_insync_replicas="2")
    victim = look(cluster).leaders()[0]
    kept = books(cluster, "t")
    kept.write(COUNT, midway=lambda: cluster.kill(victim))
    assert look(cluster).leaders()[0] not in (victim, -1)
    cluster.restart(victim)
    cluster.wait_healthy(30)
    kept.assert_nothing_lost()


def test_the_ruling_agent_dies_and_comes_back(
    cluster: Cluster, create_topic: Callable[..., None], books: Callable[..., Any], look: Callable[..., Any]
) -> None:
    create_topic(cluster, partitions=6, min_insync_replicas="2")
    ruler, epoch = cluster.controller_id(), cluster.controller_epoch()
    kept = books(cluster, "t")
    kept.write(COUNT, midway=lambda: cluster.kill(ruler))
    assert cluster.controller_id() != ruler
    assert cluster.controller_epoch() == epoch + 1
    cluster.restart(ruler)
    cluster.wait_healthy(30)
    kept.assert_nothing_lost()


def test_the_ruling_agent_and_the_leader_die_together(
    cluster: Cluster,
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    look: Callable[..., Any],
    eventually: Any,
) -> None:
    create_topic(cluster, partitions=6, min_insync_replicas="1")
    ruler = cluster.controller_id()
    leader = other_than(cluster, ruler)
    survivor = other_than(cluster, ruler, leader)
    kept = books(cluster, "t")
    kept.write(COUNT // 2)

    def kill_both() -> None:
        cluster.kill(ruler)
        cluster.kill(leader)

    kept.write(COUNT // 2, midway=kill_both)
    eventually(lambda: set(look(cluster).leaders().values()) == {survivor}, what="the survivor leads everything")
    cluster.restart(ruler)
    cluster.restart(leader)
    cluster.wait_healthy(30)
    kept.assert_nothing_lost()


def test_the_ruling_controller_alone_dies_and_no_client_notices(
    cluster: Cluster,
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    look: Callable[..., Any],
    eventually: Any,
) -> None:
    create_topic(cluster)
    leaders, epoch = look(cluster).leaders(), cluster.controller_epoch()
    kept = books(cluster, "t")
    kept.write(COUNT, midway=cluster.kill_controller)
    eventually(
        lambda: cluster.controller_epoch() > epoch and cluster.snapshot().controller is not None,
        what="a new controller",
    )
    cluster.wait_healthy(20)
    assert look(cluster).leaders() == leaders
    create_topic(cluster, "after", partitions=3)
    kept.assert_nothing_lost()


def test_a_broker_that_comes_back_tells_nobody_of_the_time_before_there_were_topics(
    cluster: Cluster, create_topic: Callable[..., None]
) -> None:
    """Who asks as soon as it listens is told by the first metadata that it has."""
    create_topic(cluster, partitions=3)
    victim = other_than(cluster, cluster.controller_id())
    address = cluster.bootstrap_servers.split(",")[cluster.broker_ids.index(victim)]
    cluster.kill(victim)
    asking = Connections(
        client_settings({"bootstrap.servers": address, "retry.backoff.ms": "1", "retry.backoff.max.ms": "1"})
    )
    with ThreadPoolExecutor(1) as pool, closing(asking):
        first = pool.submit(asking.metadata, None, asking.now_ms + 60_000)
        cluster.restart(victim)
        told = first.result()
    assert len(told.topics["t"].partitions) == 3
    assert victim in told.brokers


def test_everything_stops_and_starts_again_with_nothing_lost(
    cluster: Cluster, create_topic: Callable[..., None], books: Callable[..., Any]
) -> None:
    create_topic(cluster)
    kept = books(cluster, "t")
    kept.write(COUNT)
    for broker in cluster.broker_ids:
        assert cluster.stop(broker), f"broker {broker} did not stop in order"
    for broker in cluster.broker_ids:
        cluster.start(broker)
    cluster.wait_healthy(30)
    kept.write(COUNT)
    kept.assert_nothing_lost()


def test_every_agent_is_killed_at_once_and_the_log_recovers(
    cluster: Cluster, create_topic: Callable[..., None], books: Callable[..., Any]
) -> None:
    create_topic(cluster)
    kept = books(cluster, "t")
    kept.write(COUNT)
    for broker in cluster.broker_ids:
        cluster.kill(broker)
    for broker in cluster.broker_ids:
        cluster.start(broker)
    cluster.wait_healthy(30)
    kept.write(COUNT)
    kept.assert_nothing_lost()


@pytest.mark.parametrize("asks", [True, False])
def test_a_broker_that_stops_asks_to_be_relieved_of_leadership_unless_it_shall_not(
    new_cluster: Callable[..., Cluster],
    create_topic: Callable[..., None],
    look: Callable[..., Any],
    eventually: Any,
    asks: bool,
) -> None:
    """controlled.shutdown.enable: without it the controller learns from ZooKeeper that the broker has gone."""
    cluster = new_cluster(brokers=2, settings={"controlled.shutdown.enable": str(asks).lower()})
    create_topic(cluster, partitions=2, replication=2)
    stays = cluster.controller_id()
    assert cluster.stop(other_than(cluster, stays))
    eventually(lambda: set(look(cluster).leaders().values()) == {stays}, within=30)
    told = (cluster.directory / f"agent-{stays}" / "agent.log").read_text()
    assert ("it asked for a controlled shutdown" in told) is asks
