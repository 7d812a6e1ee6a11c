"""The commands that steer a running cluster, as a person types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from regency.cli.main import cli
from regency.cluster.cluster import Cluster
from regency.cluster.process.processes import ProcessState

pytestmark = pytest.mark.integration


@pytest.fixture
def regency(cluster: Cluster) -> Callable[..., Result]:
    """`regency("controller", "status")` on the cluster of the test."""

    def run(*words: str, status: int = 0) -> Result:
        done = CliRunner().invoke(cli, ["--bootstrap-server", cluster.bootstrap_servers, *words], prog_name="regency")
        assert done.exit_code == status, f"{words}: {done.output}"
        return done

    return run


def test_a_cluster_is_steered_from_the_command_line(
    cluster: Cluster, regency: Callable[..., Result], books: Callable[..., Any], eventually: Any
) -> None:
    regency("topics", "create", "t", "--partitions", "2", "--replication-factor", "3")
    regency("topics", "alter", "t", "--partitions", "4", "--config", "retention.ms=3600000")
    assert regency("topics", "alter", "t", "--partitions", "4", status=1).stderr.startswith("Error: Topic 't' already")
    (own,) = json.loads(regency("configs", "get", "topic", "t", "-o", "json").stdout)
    assert (own["key"], own["value"]) == ("retention.ms", "3600000")
    regency("configs", "set", "broker", "all", "log.segment.bytes=1000000")
    regency("configs", "unset", "topic", "t", "retention.ms")
    kept = books(cluster, "t")

    def resign() -> None:
        ruler = cluster.controller_id()
        succession = json.loads(regency("controller", "resign", "-o", "json").stdout)
        assert succession["resigned"] == ruler
        assert succession["controller"] == cluster.controller_id() != ruler
        assert succession["controller_epoch"] == succession["resigned_epoch"] + 1

    kept.write(1_000, midway=resign)
    regency("cluster", "health", "--wait", "--timeout", "20")
    rows = json.loads(regency("controller", "status", "-o", "json").stdout)
    assert [row["broker"] for row in rows] == [1, 2, 3]
    assert [row["broker"] for row in rows if row["rules"]] == [cluster.controller_id()]

    leaving = next(row["broker"] for row in rows if not row["rules"])
    kept.write(1_000, midway=lambda: regency("brokers", "shutdown", str(leaving), "--timeout", "30"))
    eventually(lambda: cluster.broker_state(leaving) is ProcessState.DEAD, what="its process has ended")
    assert f"broker {leaving} is not live" in regency("cluster", "health", status=3).stdout
    listed = json.loads(regency("brokers", "list", "-o", "json").stdout)
    assert [row["broker"] for row in listed if not row["live"]] == [leaving]
    regency("brokers", "shutdown", str(leaving), status=1)

    cluster.restart(leaving)
    regency("cluster", "health", "--wait", "--timeout", "30")
    assert (
        f"address     {cluster.bootstrap_servers.split(',')[leaving - 1]}"
        in regency("brokers", "describe", str(leaving)).stdout
    )
    kept.assert_nothing_lost()


def test_a_broker_that_died_or_was_paused_a_moment_ago_is_not_asked(
    cluster: Cluster, regency: Callable[..., Result]
) -> None:
    """Until its session is over, all others name it to who asks for brokers."""
    regency("topics", "create", "t", "--partitions", "3", "--replication-factor", "3")
    dead = next(each for each in cluster.broker_ids if each != cluster.controller_id())

    cluster.kill(dead)
    for _ in range(8):
        assert regency("topics", "list").stdout.splitlines()[1].split()[0] == "t"

    cluster.restart(dead)
    cluster.wait_healthy()
    cluster.pause(dead)
    for _ in range(8):
        regency("topics", "describe", "t")
    cluster.resume(dead)
