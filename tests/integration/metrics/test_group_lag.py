"""Coordinators tell how far groups are behind, and top shows it, also while a leader is away."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from regency.cli.main import cli
from regency.cluster.cluster import Cluster

pytestmark = pytest.mark.integration
LAG_SUM = "kafka_consumergroup_lag_sum"


def run(cluster: Cluster, *words: str) -> str:
    done = CliRunner().invoke(cli, [*words, "--bootstrap-server", cluster.bootstrap_servers])
    assert done.exit_code == 0, done.output
    return done.stdout


def write(cluster: Cluster) -> None:
    """A hundred records into each partition."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(300):
        producer.produce("t", b"x", partition=number % 3)
    assert producer.flush(30) == 0


def test_the_coordinator_alone_tells_the_lag_and_top_shows_it(
    cluster: Cluster, create_topic: Callable[..., None], scrapes: Callable[..., Any], eventually: Any
) -> None:
    create_topic(cluster, partitions=3)  # each agent leads one
    write(cluster)
    run(cluster, "groups", "reset-offsets", "slow", "--topic", "t", "--to-offset", "20", "--create", "--execute")
    [described] = json.loads(run(cluster, "groups", "describe", "slow", "-o", "json"))
    ask = scrapes(cluster)

    def telling() -> dict[int, list[float]]:
        found = {
            broker: ask.agent(broker).all(LAG_SUM, consumergroup="slow", topic="t") for broker in cluster.broker_ids
        }
        return {broker: lags for broker, lags in found.items() if lags}

    assert eventually(telling, within=60, what="a scrape tells the lag") == {described["coordinator"]: [240]}
    samples = ask.agent(described["coordinator"])
    assert sorted(samples.all("kafka_consumergroup_lag", consumergroup="slow")) == [80, 80, 80]
    assert samples.all("kafka_consumergroup_current_offset_sum", consumergroup="slow") == [60]
    assert samples.all("kafka_consumergroup_members", consumergroup="slow") == [0]
    assert samples.one("regency_consumergroup_lag_unknown_partitions") == 0

    def shown() -> Any:
        groups = json.loads(run(cluster, "top", "--once", "-o", "json"))["groups"]
        return [(each["group"], each["lag"], each["members"], each["lag_partial"]) for each in groups]

    eventually(lambda: shown() == [("slow", 240, 0, False)], within=60, what="top shows the group")

    paused = next(broker for broker in cluster.broker_ids if broker != described["coordinator"])
    cluster.pause(paused)

    def told() -> Any:
        return ask.agent(described["coordinator"]).all(LAG_SUM, consumergroup="slow")

    try:

        def is_partly_unknown() -> bool:
            samples = ask.agent(described["coordinator"])
            unknown = samples.one("regency_consumergroup_lag_unknown_partitions")
            return bool(unknown == 1 and told() == [])

        eventually(is_partly_unknown, within=20, what="a sum of which a part is not known is not told")
        eventually(lambda: told() == [240], within=60, what="another leader tells it")
    finally:
        cluster.resume(paused)
