"""Bytes, lag and time to catch up, as `regency top` and `topics describe` tell them of a cluster under load."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from regency.cli.main import cli
from regency.cli.schemas import output_type
from regency.cluster.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
SIZE = 2_000


def run(cluster: Cluster, *words: str) -> Any:
    return CliRunner().invoke(cli, [*words, "--bootstrap-server", cluster.bootstrap_servers], prog_name="regency")


def told(cluster: Cluster, *words: str) -> Any:
    """The document of a command, which fits its schema."""
    text = run(cluster, *words, "-o", "json").stdout
    msgspec.json.decode(text, type=output_type("top" if words[0] == "top" else " ".join(words[:2])))
    return json.loads(text)


@pytest.fixture
def loaded(new_cluster) -> Iterator[Cluster]:
    settings = {"replica.lag.time.max.ms": "2000", "zookeeper.session.timeout.ms": "60000"}
    cluster = new_cluster(brokers=3, own_zookeeper=True, settings=settings)
    frozen, *others = sorted((1, 2, 3), key=lambda each: each == cluster.controller_id())
    assignment = ":".join(map(str, [*others, frozen]))
    assert run(cluster, "topics", "create", "t", "--assignment", ",".join([assignment] * 3)).exit_code == 0
    command = [sys.executable, "-m", "regency", "load", "t", "--rate", "500", "--size", str(SIZE)]
    load = subprocess.Popen(
        [*command, "--bootstrap-server", cluster.bootstrap_servers],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield cluster
    load.terminate()
    load.wait(30)


@pytest.mark.long
def test_a_follower_that_is_frozen_falls_behind_and_then_catches_up(loaded, eventually):
    flowing = eventually(
        lambda: (found := told(loaded, "top", "--once")) and (found["bytes_in_per_s"] or 0) > 100_000 and found,
        within=30,
        what="bytes",
    )
    assert flowing["bytes_out_per_s"] > 0, "load reads along"
    assert all(each["lag"] is not None and not each["lag_partial"] for each in flowing["brokers"])

    frozen = told(loaded, "topics", "describe", "t")[0]["replicas"][-1]
    assert frozen != loaded.controller_id()
    loaded.pause(frozen)
    line = eventually(
        lambda: (found := _broker(loaded, frozen)) and (found["lag"] or 0) > 1_000 and found["catch_up"] and found,
        within=60,
        what="the lag of a broker that is frozen, as its leaders know it",
    )
    assert (line["bytes_in_per_s"], line["bytes_out_per_s"]) == (None, None), "it does not tell: not 0"
    assert line["catch_up"]["per_s"] < 0 and line["catch_up"]["in_s"] is None
    eventually(lambda: "does not catch up" in run(loaded, "top", "--once").stdout, within=60, what="words for it")
    described = run(loaded, "topics", "describe", "t").stdout
    assert (
        f"Broker {frozen}: out of sync in 3 partitions; how far it is behind is not known while it does not"
        in described
    )

    rate = "follower.replication.throttled.rate"
    for words in (
        ("topic", "t", "follower.replication.throttled.replicas=*"),
        ("broker", "all", f"{rate}={SIZE * 1000}"),
    ):
        assert (done := run(loaded, "configs", "set", *words)).exit_code == 0, done.output
    loaded.resume(frozen)
    rows = eventually(
        lambda: (rows := told(loaded, "topics", "describe", "t")) and [each for each in rows if _estimate(each)],
        within=60,
        what="an estimate",
    )
    for row in rows:
        [late] = [each for each in row["positions"] if each["catch_up"]]
        assert late["broker"] == frozen
        assert late["lag_bytes"] > late["lag"] * 100
    assert run(loaded, "configs", "set", "broker", "all", f"{rate}=1000000000").exit_code == 0
    eventually(
        lambda: all(len(row["isr"]) == 3 for row in told(loaded, "topics", "describe", "t")), within=120, what="sync"
    )


def _broker(cluster: Cluster, broker: int) -> dict[str, Any]:
    return next(each for each in told(cluster, "top", "--once")["brokers"] if each["broker"] == broker)


def _estimate(row: dict[str, Any]) -> bool:
    return any(each["catch_up"] and each["catch_up"]["in_s"] for each in row["positions"])
