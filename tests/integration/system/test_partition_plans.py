"""Plans of the command line on a cluster of processes: made, executed, verified, rolled back, cancelled, refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient

from regency.cli.exits import Exit
from regency.cli.main import cli
from regency.cluster.cluster import Cluster
from regency.model.ids import TopicPartition
from regency.planning.plan_file import encode_kafkas

pytestmark = pytest.mark.integration

Command = Callable[..., Result]


@pytest.fixture
def four(new_cluster: Callable[..., Cluster]) -> Cluster:
    return new_cluster(brokers=4, settings={"replica.lag.time.max.ms": "2000"})


@pytest.fixture
def regency(four: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)

    def run(*words: str, status: Exit = Exit.DONE) -> Result:
        words = (*words, "--bootstrap-server", four.bootstrap_servers)
        done = CliRunner().invoke(cli, words, prog_name="regency")
        assert done.exit_code == status, (words, done.stdout, done.stderr)
        return done

    return run


@pytest.fixture
def replicas(four: Cluster) -> Callable[[], dict[int, list[int]]]:
    """Replicas of each partition of t, as a client of its own sees them."""

    def read() -> dict[int, list[int]]:
        client = AdminClient({"bootstrap.servers": four.bootstrap_servers, "log_level": 0})
        topic = client.list_topics("t", timeout=10).topics["t"]
        return {number: list(each.replicas) for number, each in sorted(topic.partitions.items())}

    return read


def test_a_plan_is_executed_verified_and_rolled_back(
    regency: Command,
    replicas: Callable[[], dict[int, list[int]]],
    four: Cluster,
    books: Any,
    tmp_path: Path,
    eventually: Any,
) -> None:
    regency("topics", "create", "t", "--assignment", "1:2,2:3,3:1,1:2")
    before = eventually(replicas, what="every broker has heard of the topic")
    kept = books(four, "t")
    kept.write(1_000)
    told = json.loads(
        regency("partitions", "plan", "--out", "plan.json", "--kafka-json", "k.json", "-o", "json").stdout
    )
    assert told["replicas_copied"] == 2
    assert [row["replicas_after"] for row in told["brokers"]] == [2, 2, 2, 2]
    assert [row["leaders_after"] for row in told["brokers"]] == [1, 1, 1, 1]
    assert replicas() == before

    regency("partitions", "verify", "plan.json", status=Exit.FAILED)
    edited = (tmp_path / "plan.json").read_text().replace('"partition": 0', '"partition": 3', 1)
    (tmp_path / "edited.json").write_text(edited)
    assert "edited" in regency("partitions", "execute", "edited.json", status=Exit.REFUSED).stderr

    executed = regency("partitions", "execute", "plan.json", "-o", "json")
    assert json.loads(executed.stdout)["state"] == "done"
    regency("partitions", "verify", "plan.json")
    regency("partitions", "verify", "k.json")
    wanted = {row["partition"]: row["after"] for row in told["moves"]}
    eventually(lambda: replicas() == {**before, **wanted}, what="every broker tells the new replicas")
    regency("partitions", "execute", "plan.json")  # nothing is left of it

    regency("partitions", "execute", "plan.rollback.json")
    eventually(lambda: replicas() == before, what="all is as before")
    regency("topics", "set-rf", "t", "3")
    eventually(lambda: {len(each) for each in replicas().values()} == {3}, what="three replicas each")
    stale = regency("partitions", "execute", "plan.json", status=Exit.REFUSED)
    assert "stale" in stale.stderr and "regency partitions plan --out plan.json" in stale.stderr
    kept.assert_nothing_lost()


def test_a_plan_that_waits_for_a_dead_broker_is_told_cancelled_and_the_broker_drained(
    regency: Command,
    replicas: Callable[[], dict[int, list[int]]],
    four: Cluster,
    tmp_path: Path,
    eventually: Any,
    look: Any,
) -> None:
    regency("topics", "create", "t", "--assignment", "1:2,2:1")
    four.kill(2)
    eventually(lambda: 2 not in four.snapshot().brokers, what="broker 2 is seen dead")
    eventually(lambda: four.snapshot().controller not in (None, 2), what="another rules")
    eventually(lambda: look(four).in_no_isr(2), what="the others lead alone")
    planned = regency("partitions", "plan", "--drain", "1", "--out", "plan.json")
    assert "--drain 2" in planned.stderr
    regency("partitions", "execute", "plan.json", "--no-wait")
    waiting = json.loads(regency("partitions", "verify", "plan.json", "-o", "json", status=Exit.IN_PROGRESS).stdout)
    assert (waiting["state"], waiting["in_progress"], waiting["waiting_for"]) == ("in progress", 2, [2])
    listed = json.loads(regency("partitions", "list", "-o", "json").stdout)
    assert [(row["adding"], row["removing"]) for row in listed] == [([3], [1]), ([4], [1])]
    regency("partitions", "execute", "plan.json", "--timeout", "0", status=Exit.TIMED_OUT)
    findings = json.loads(regency("doctor", "-o", "json", status=Exit.FAILED).stdout)["problems"]
    waits = {(each["subject"], each["where"]) for each in findings if each["kind"] == "reassignment_waits"}
    assert waits == {("t-0", "broker 2"), ("t-1", "broker 2")}

    kafkas = encode_kafkas([(TopicPartition("t", 0), (4, 3))])
    (tmp_path / "kafkas.json").write_bytes(kafkas)
    assert "Something else moves t-0" in regency("partitions", "execute", "kafkas.json", status=Exit.REFUSED).stderr
    regency("partitions", "plan", "--drain", "2", status=Exit.IN_PROGRESS)

    regency("partitions", "cancel", "--plan", "plan.json")
    eventually(lambda: replicas() == {0: [1, 2], 1: [2, 1]}, what="all is as before, in the order of before")
    regency("brokers", "drain", "2")
    eventually(lambda: all(2 not in each and 1 in each for each in replicas().values()), what="nothing is on 2")
    regency("partitions", "execute", "kafkas.json")
    eventually(lambda: replicas()[0] == [4, 3], what="Kafka's file is done")
    regency("partitions", "execute", "kafkas.rollback.json")
    eventually(lambda: 1 in replicas()[0], what="and taken back")
    impossible = regency("topics", "set-rf", "t", "4", status=Exit.FAILED)
    assert "t-0 would need 4 brokers, and there are 3" in impossible.stderr
