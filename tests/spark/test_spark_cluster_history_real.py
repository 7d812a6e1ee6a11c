"""`cluster-history` on a real cluster whose leaders die, compared with what its znodes said at the time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka.admin import AdminClient, NewTopic
from light_java import LIGHT_JAVA

from regency.cli.schemas import output_type
from regency.cluster.cluster import Cluster
from regency.model.ids import TopicPartition

WITHIN_S = 90
ALONE, THREE = TopicPartition("history-alone", 0), TopicPartition("history-three", 0)


class Seen:
    """When a znode was last seen with one leader and first seen with the next, milliseconds since 1970."""

    def __init__(self, before_ms: int, after_ms: int) -> None:
        self.before_ms, self.after_ms = before_ms, after_ms


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
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    topics = [NewTopic(each.topic, num_partitions=1, replica_assignment=[own]) for each, own in assignments.items()]
    for made in admin.create_topics(topics).values():
        made.result(20)
    for partition, own in assignments.items():
        eventually(lambda: leader_of(cluster, partition) == own[0], within=20)  # noqa: B023


def test_what_the_records_tell_is_what_the_znodes_said(
    spark: Any, cluster: Cluster, tmp_path: Path, eventually: Any
) -> None:
    ruling = cluster.controller_id()
    victim, other = (each for each in cluster.broker_ids if each != ruling)
    create(cluster, {ALONE: [victim], THREE: [victim, other, ruling]}, eventually)
    epoch = cluster.controller_epoch()

    killed_ms = now_ms()
    cluster.kill(victim)
    gone = watch(cluster, ALONE, -1, eventually)
    moved_ms = watch(cluster, THREE, other, eventually).after_ms
    with ThreadPoolExecutor(1) as pool:
        restarted = pool.submit(cluster.restart, victim)
        back = watch(cluster, ALONE, victim, eventually)
        restarted.result()
    cluster.wait_healthy(30)
    deposed_ms = now_ms()
    cluster.kill(ruling)
    eventually(lambda: cluster.snapshot().controller not in (None, ruling), within=30)
    eventually(lambda: leader_of(cluster, THREE) != -1, within=20)
    took_over_ms = now_ms()

    told, out = tell_all(cluster, tmp_path / "out")

    assert (told["malformed"], told["problems"]) == (0, [])
    assert told["duplicates"] > 0, "the live ones are asked for what their files have, too"
    tables = {each.name: spark.read.parquet(str(each)) for each in out.iterdir() if each.is_dir()}
    assert tables["origins"].where("origin like 'broker %' and decisions > 0").count() in (1, 2)
    rows = tables["leaderless"].where("topic like 'history-%'").collect()
    [alone] = [row for row in rows if row.topic == ALONE.topic]
    [three, *_] = sorted((row for row in rows if row.topic == THREE.topic), key=lambda row: row.began_ms)
    assert killed_ms <= alone.began_ms <= gone.after_ms
    assert back.before_ms <= alone.ended_ms <= deposed_ms, (
        "noted once the brokers are told, after the znode was written"
    )
    assert (alone.broker, alone.new_leader, alone.open, alone.complete) == (victim, victim, False, True)
    assert killed_ms <= three.began_ms <= three.ended_ms <= deposed_ms and three.began_ms <= moved_ms
    assert (three.broker, three.new_leader, three.began_by) == (victim, other, "broker_change")

    rows = tables["failovers"].where(f"controller_epoch > {epoch}").collect()
    assert rows and all(row.finished for row in rows)
    assert all(deposed_ms <= row.won_ms <= took_over_ms for row in rows)
    parts = tables["failover_phases"].where(f"controller_epoch = {epoch + 1}").orderBy("place").collect()
    assert parts[-1].phase == "hand-over"
    [first] = [row for row in rows if row.controller_epoch == epoch + 1]
    assert first.took_ms == sum(row.ms for row in parts)
    brokers = {row.broker: row for row in tables["brokers"].collect()}
    assert brokers[victim].deaths >= 1 and brokers[victim].catch_ups >= 1
    assert 0 < brokers[victim].catch_up_longest_ms < 60_000


def tell_all(cluster: Cluster, out: Path) -> tuple[dict[str, Any], Path]:
    """The command on all files, asking the live brokers besides: succeeds, and says nothing but one document."""
    there = [str(directory) for directory in cluster.history_dirs if directory.exists()]
    words = ["pipeline", "cluster-history", *there, "--ask", "--to", str(out), "-o", "json"]
    words += ["--bootstrap-server", cluster.bootstrap_servers, "--master", "local[2]"]
    for setting in ("driver.memory=1g", "sql.shuffle.partitions=2", f"driver.extraJavaOptions={LIGHT_JAVA}"):
        words += ["--conf", f"spark.{setting}"]
    command = [sys.executable, "-m", "regency", *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    told = json.loads(ended.stdout)
    assert msgspec.to_builtins(msgspec.convert(told, output_type("pipeline cluster-history"))) == told
    return told, out
