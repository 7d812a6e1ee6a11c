"""`cluster-history` on a real cluster whose leaders die, compared with what its znodes said at the time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from regency.cli.wire import cluster_wire
from regency.cluster.cluster import Cluster
from regency.model.ids import TopicPartition

ALONE, THREE = TopicPartition("history-alone", 0), TopicPartition("history-three", 0)


class Seen:
    """When a znode was last seen with one leader and first seen with the next, milliseconds since 1970."""

    def __init__(self, before_ms: int, after_ms: int) -> None:
        self.before_ms, self.after_ms = before_ms, after_ms

    def __contains__(self, ms: int) -> bool:
        return self.before_ms <= ms <= self.after_ms + 1


def now_ms() -> int:
    return int(time.time() * 1000)


def leader_of(cluster: Cluster, partition: TopicPartition) -> int | None:
    view = cluster.snapshot().partitions.get(partition)
    return None if view is None or view.leadership is None else view.leadership.leader


def watch(cluster: Cluster, partition: TopicPartition, leader: int, eventually: Any) -> Seen:
    """Look at the znode again and again until it names the leader."""
    before = now_ms()

    def there() -> bool:
        nonlocal before
        asked = now_ms()
        if leader_of(cluster, partition) == leader:
            return True
        before = asked
        return False

    eventually(there, within=30, what=f"leader {leader} of {partition}")
    return Seen(before, now_ms())


def create(cluster: Cluster, assignments: dict[TopicPartition, list[int]], eventually: Any) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    topics = [NewTopic(each.topic, replica_assignment=[own]) for each, own in assignments.items()]
    for made in admin.create_topics(topics).values():
        made.result(20)
    for partition, own in assignments.items():
        eventually(lambda: leader_of(cluster, partition) == own[0], within=20)  # noqa: B023


def test_what_the_records_tell_is_what_the_znodes_said(
    spark: Any, cluster: Cluster, tmp_path: Path, eventually: Any
) -> None:
    from regency.pipeline.jobs.cluster_history.job import cluster_history

    ruling = cluster.wait_controller()
    victim, other = (each for each in cluster.broker_ids if each != ruling)
    create(cluster, {ALONE: [victim], THREE: [victim, other, ruling]}, eventually)
    epoch = cluster.controller_epoch()

    killed_ms = now_ms()
    cluster.kill(victim)
    gone = watch(cluster, ALONE, -1, eventually)
    moved_ms = watch(cluster, THREE, other, eventually).after_ms
    cluster.restart(victim)
    back = watch(cluster, ALONE, victim, eventually)
    cluster.wait_healthy(30)
    deposed_ms = now_ms()
    cluster.kill(ruling)
    eventually(lambda: cluster.controller_id() not in (None, ruling), within=30)
    eventually(lambda: leader_of(cluster, THREE) != -1, within=20)
    took_over_ms = now_ms()

    with cluster_wire(cluster.bootstrap_servers) as wire:
        agents = {int(broker): node.address for broker, node in wire.controllers().items()}
    asked = cluster_history(spark, agents=agents, to=str(tmp_path / "asked"))
    files = [str(directory) for directory in cluster.history_dirs]
    told = run_command(["pipeline", "cluster-history", *files, "--to", str(tmp_path / "files"), "-o", "json"])

    assert asked.malformed == told["malformed"] == 0
    assert told["problems"] == []
    assert [each.origin for each in asked.problems] == [f"broker {ruling}"], "the dead one cannot be asked"
    for name in ("asked", "files"):
        rows = spark.read.parquet(str(tmp_path / name / "leaderless")).where("topic like 'history-%'").collect()
        [alone] = [row for row in rows if row.topic == ALONE.topic]
        [three, *_] = sorted((row for row in rows if row.topic == THREE.topic), key=lambda row: row.began_ms)
        assert killed_ms <= alone.began_ms <= gone.after_ms
        assert alone.ended_ms in back
        assert (alone.broker, alone.new_leader, alone.open, alone.complete) == (victim, victim, False, True)
        assert killed_ms <= three.began_ms <= three.ended_ms <= moved_ms + 1
        assert (three.broker, three.new_leader, three.began_by) == (victim, other, "broker_change")

    rows = spark.read.parquet(str(tmp_path / "files" / "failovers")).where(f"controller_epoch > {epoch}").collect()
    assert rows and all(row.finished for row in rows)
    assert all(deposed_ms <= row.won_ms <= took_over_ms for row in rows)
    parts = spark.read.parquet(str(tmp_path / "files" / "failover_phases")).where(f"controller_epoch = {epoch + 1}")
    assert [row.phase for row in parts.orderBy("place").collect()][-1] == "hand-over"
    [first] = [row for row in rows if row.controller_epoch == epoch + 1]
    assert first.took_ms == sum(row.ms for row in parts.collect())
    brokers = {row.broker: row for row in spark.read.parquet(str(tmp_path / "files" / "brokers")).collect()}
    assert brokers[victim].deaths >= 1 and brokers[victim].catch_ups >= 1
    assert 0 < brokers[victim].catch_up_longest_ms < 60_000


def run_command(words: list[str]) -> dict[str, Any]:
    """A command that succeeds, has nothing to say on stderr, and prints one document."""
    spark = ["--master", "local[2]", "--conf", "spark.driver.memory=1g", "--conf", "spark.sql.shuffle.partitions=2"]
    command = [sys.executable, "-m", "regency.cli.main", *words, *spark]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    found: dict[str, Any] = json.loads(ended.stdout)
    return found
