"""While ZooKeeper, a broker or a leader is away, commands say so, and why records neither come nor go."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from regency.cli.main import cli
from regency.cluster.cluster import Cluster

pytestmark = pytest.mark.integration

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings={"replica.lag.time.max.ms": "2000"}) as made:
        yield made


@pytest.fixture
def run(cluster: Cluster) -> Run:
    def invoke(*words: str, given: str = "") -> Result:
        done = CliRunner().invoke(cli, [*words, "--bootstrap-server", cluster.bootstrap_servers], input=given)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    return invoke


def eventually(check: Callable[[], bool], within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.3)


def test_zookeeper_that_is_frozen_is_named_by_all_verdicts(cluster: Cluster, run: Run) -> None:
    cluster.wait_healthy(60)
    away = "ZooKeeper is away, so no controller rules: brokers 1, 2, 3 have no contact with it"
    cluster.pause_zookeeper()
    try:
        eventually(lambda: away in run("cluster", "health").stdout)
        for words, status in ((("cluster", "health"), 3), (("doctor",), 4), (("controller", "status"), 3)):
            told = run(*words)
            assert (told.exit_code, away in told.output) == (status, True), told.output
    finally:
        cluster.resume_zookeeper()
    cluster.wait_healthy(60)


def test_a_frozen_broker_is_not_healthy_from_the_first_moment(cluster: Cluster, run: Run) -> None:
    cluster.wait_healthy(60)
    cluster.pause(2)
    try:
        told = run("cluster", "health")
        frozen = "broker 2 does not answer (frozen, cut off, or just died)"
        assert (told.exit_code, frozen in told.stdout) == (3, True), told.stdout
    finally:
        cluster.resume(2)
    cluster.wait_healthy(60)


@pytest.mark.long
def test_a_partition_without_a_leader_is_told_of_by_those_who_read_and_write(cluster: Cluster, run: Run) -> None:
    run("topics", "create", "solo", "--assignment", "2,3")
    assert run("produce", "solo", "--key-separator", ":", given="".join(f"{n}:{n}\n" for n in range(10))).exit_code == 0
    cluster.kill(2)
    try:
        words = "solo-0 has no leader (its replicas are on 2)"
        eventually(lambda: words in run("consume", "solo", "--from-beginning", "--timeout", "2").stderr)
        read = run("consume", "solo", "--from-beginning", "--timeout", "2")
        assert (read.exit_code, 0 < len(read.stdout.splitlines()) < 10) == (1, True)
        written = run("produce", "solo", "--partition", "0", "--timeout", "3", "-o", "json", given="x\n")
        assert (written.exit_code, json.loads(written.stdout)["problems"]) == (1, [words])
        loaded = run("load", "solo", "--seconds", "1", "--no-read")
        assert (loaded.exit_code, "without one: 0" in loaded.stderr) == (4, True), loaded.stderr
    finally:
        cluster.restart(2)
    cluster.wait_healthy(60)


def test_too_few_in_sync_are_named_where_librdkafka_says_that_the_time_is_over(cluster: Cluster, run: Run) -> None:
    run("topics", "create", "pair", "--assignment", "1:2", "--config", "min.insync.replicas=2")
    cluster.pause(2)
    try:
        eventually(lambda: '"isr": [\n      1\n    ]' in run("topics", "describe", "pair", "-o", "json").stdout)
        why = "NOT_ENOUGH_REPLICAS: pair-0 has 1 in sync, min.insync.replicas is 2"
        written = run("produce", "pair", "--timeout", "4", "-o", "json", given="x\n")
        assert (written.exit_code, json.loads(written.stdout)["problems"]) == (1, [why])
        loaded = run("load", "pair", "--seconds", "1", "--no-read", "-o", "json")
        assert (loaded.exit_code, json.loads(loaded.stdout)["problems"]) == (1, [why])
    finally:
        cluster.resume(2)
    cluster.wait_healthy(60)
    assert "Created topic brisk: 1 partition, 3 replicas." in run("load", "brisk", "--seconds", "1").stderr
    assert run("produce", "brisks", given="x\n").stderr.startswith(
        "Error: There is no topic brisks. Did you mean brisk?"
    )
