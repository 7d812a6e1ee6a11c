"""Log directories of real brokers: what is told of them, and replicas that move between them under load."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kafka.admin import KafkaAdminClient

from regency.cli.exits import Exit
from regency.cli.main import cli
from regency.cluster.cluster import Cluster

pytestmark = pytest.mark.integration
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
COUNT = 4_000


def directories(cluster: Cluster, broker: int) -> list[Path]:
    return [each.absolute() for each in cluster.log_dirs(broker)]


def regency(cluster: Cluster, *words: str, status: int = 0) -> str:
    done = CliRunner().invoke(cli, [*words, "--bootstrap-server", cluster.bootstrap_servers], prog_name="regency")
    assert done.exit_code == status, (words, done.stdout, done.stderr)
    return done.stdout


def logs(cluster: Cluster, broker: int) -> dict[tuple[str, int, bool], str]:
    """Directory by topic, partition and whether it is a future log, as the command tells."""
    rows = json.loads(regency(cluster, "log", "dirs", "--broker", str(broker), "-o", "json"))
    return {(log["topic"], log["partition"], log["future"]): row["directory"] for row in rows for log in row["logs"]}


def move(cluster: Cluster, broker: int, target: Path) -> list[int]:
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        answer = client.alter_replica_log_dirs({("t", 0, broker): str(target)})
    finally:
        client.close()
    return [each.errno for each in answer.values()]


@pytest.mark.long
def test_a_leader_killed_while_its_replica_moves_under_load_goes_on_and_nothing_is_lost(
    new_cluster: Callable[..., Cluster],
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    look: Callable[..., Any],
    eventually: Any,
) -> None:
    cluster = new_cluster(log_dirs=2, settings={RATE: "30000", "log.segment.bytes": "200000"})
    create_topic(cluster, partitions=1, min_insync_replicas="2")
    kept = books(cluster, "t", {"batch.size": 16_384})  # a segment holds several, and so does what is copied at once
    kept.write(COUNT)
    broker = look(cluster).leaders()[0]
    source = Path(logs(cluster, broker)["t", 0, False])
    target = next(path for path in directories(cluster, broker) if path != source)

    assert move(cluster, broker, target) == [0]
    assert logs(cluster, broker)["t", 0, True] == str(target)
    kept.write(COUNT // 6, midway=lambda: cluster.kill(broker))
    assert [path.name for path in source.glob("t-0*")] == ["t-0"], "it was killed in the middle of the move"
    assert [path.name.rpartition("-")[2] for path in target.glob("t-0*")] == ["future"]
    cluster.restart(broker)
    kept.write(COUNT // 4)

    eventually(lambda: (target / "t-0").is_dir() and not (source / "t-0").exists(), within=60, what="it is moved")
    cluster.wait_healthy(30)
    assert logs(cluster, broker) == {("t", 0, False): str(target)}
    regency(cluster, "leaders", "elect", "--all")
    kept.write(COUNT // 10)
    kept.assert_nothing_lost()
    ends = {
        other: sum(path.stat().st_size for path in Path(logs(cluster, other)["t", 0, False]).glob("t-0/*.log"))
        for other in cluster.broker_ids
    }
    assert len(set(ends.values())) == 1, ends


def test_log_directories_are_told_by_every_client_and_refusals_say_why(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None], books: Any
) -> None:
    cluster = new_cluster(brokers=1, log_dirs=2)
    create_topic(cluster, partitions=2, replication=1)
    books(cluster, "t").write(1_000)
    (broker,) = cluster.broker_ids
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        (answer,) = client.describe_log_dirs()
    finally:
        client.close()
    first, second = directories(cluster, broker)
    told = {Path(each["log_dir"]): each for each in answer["log_dirs"]}
    assert set(told) == {first, second}
    for path, each in told.items():
        on_disk = {log.name: sum(file.stat().st_size for file in log.glob("*.log")) for log in path.glob("t-*")}
        rows = [(topic["name"], row) for topic in each["topics"] for row in topic["partitions"]]
        assert {f"{name}-{row['partition_index']}": row["partition_size"] for name, row in rows} == on_disk
        assert [(row["offset_lag"], row["is_future_key"]) for _, row in rows] == [(0, False)] * len(rows)
        assert each["error_code"] == 0
        assert each["total_bytes"] >= each["usable_bytes"] > 0
    assert move(cluster, broker, first.parent / "none") == [57]
    table = regency(cluster, "log", "dirs", "--topic", "t")
    assert str(second) in table
    target = next(path for path in (first, second) if not (path / "t-1").exists())
    assert "online" in table
    regency(cluster, "log", "move", "t", "1", "--broker", str(broker), "--to", str(target))
    assert (target / "t-1").is_dir()
    regency(cluster, "log", "move", "t", "1", "--broker", str(broker), "--to", "/none", status=Exit.FAILED)
    regency(cluster, "log", "move", "t", "7", "--broker", str(broker), "--to", str(target), status=Exit.FAILED)


def test_a_move_that_is_held_back_is_released_by_a_higher_rate_and_no_broker_is_restarted(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None], books: Callable[..., Any], eventually: Any
) -> None:
    cluster = new_cluster(brokers=1, log_dirs=2)
    create_topic(cluster, partitions=1, replication=1)
    kept = books(cluster, "t", {"batch.size": 16_384})
    kept.write(COUNT)
    (broker,) = cluster.broker_ids
    source = Path(logs(cluster, broker)["t", 0, False])
    target = next(path for path in directories(cluster, broker) if path != source)
    agent = cluster.log(broker)

    def limit(rate: int) -> None:
        regency(cluster, "configs", "set", "broker", str(broker), f"{RATE}={rate}")
        told = f"at most {rate} bytes/s copied"
        eventually(lambda: told in agent.read_text(errors="replace"), what="the broker knows the rate")

    def future() -> dict[str, Any]:
        rows = json.loads(regency(cluster, "log", "dirs", "--broker", str(broker), "-o", "json"))
        found = [log for row in rows for log in row["logs"] if log["topic"] == "t" and log["future"]]
        return found[0] if found else {}

    limit(1)
    (described,) = json.loads(regency(cluster, "configs", "get", "broker", str(broker), RATE, "-o", "json"))
    assert (described["value"], described["source"]) == ("1", "DYNAMIC_BROKER_CONFIG")
    move = ("log", "move", "t", "0", "--broker", str(broker), "--to", str(target))
    regency(cluster, *move, "--no-wait", status=Exit.IN_PROGRESS)
    eventually(lambda: future()["size_bytes"] > 0, what="the first batch is copied, and paid for in hours")
    held = future()
    kept.write(COUNT // 4)
    assert future()["size_bytes"] == held["size_bytes"]
    assert future()["lag"] > held["lag"]
    assert (source / "t-0").is_dir()

    limit(1_000_000_000)
    eventually(lambda: logs(cluster, broker) == {("t", 0, False): str(target)}, within=30, what="it is moved")
    kept.write(COUNT // 4)
    kept.assert_nothing_lost()
