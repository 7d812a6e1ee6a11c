"""What looks at the data of a real cluster: offsets of every replica, dumps of files, comparisons of replicas."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from regency.cli.main import cli
from regency.cluster.cluster import Cluster
from regency.model.record_batch import iter_batches

pytestmark = pytest.mark.integration
LEADER_EPOCH_AT = 15
"""The last byte of a batch's leader epoch, which the checksum does not cover."""


class Tools:
    """The commands, as JSON."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def json(self, *words: str, status: int = 0) -> Any:
        done = CliRunner().invoke(
            cli, ["-o", "json", "--bootstrap-server", self._cluster.bootstrap_servers, *words], prog_name="regency"
        )
        assert done.exit_code == status, (words, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def live(self) -> dict[int, list[dict[str, Any]]]:
        return {row["partition"]: row["live"] for row in self.json("topics", "describe", "t")}

    def states(self, *words: str, status: int = 0) -> dict[int, dict[int, str]]:
        found = self.json("verify", "replicas", "t", *words, status=status)
        return {
            each["partition"]: {replica["broker"]: replica["state"] for replica in each["replicas"]}
            for each in found["partitions"]
        }

    def directory(self, broker: int, partition: int) -> Path:
        return self._cluster.log_dirs(broker)[0] / f"t-{partition}"

    def dump(self, path: Path, *, status: int = 0) -> list[dict[str, Any]]:
        done = CliRunner().invoke(cli, ["log", "dump", "-o", "json", str(path)], prog_name="regency")
        assert done.exit_code == status, (path, done.stdout, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]


def flip(segment: Path, at: int) -> None:
    with segment.open("r+b") as file:
        file.seek(at)
        [byte] = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def nth_batch(segment: Path, number: int) -> tuple[int, Any]:
    return list(iter_batches(segment.read_bytes()))[number]


@pytest.fixture
def written(cluster: Cluster, create_topic: Callable[..., None], books: Callable[..., Any]) -> Any:
    create_topic(cluster, partitions=3)
    kept = books(cluster, "t")
    for _ in range(10):
        kept.write(100)
    return kept


def test_describe_shows_how_far_every_replica_is_while_brokers_come_and_go(
    cluster: Cluster, written: Any, look: Callable[..., Any], eventually: Any
) -> None:
    tools = Tools(cluster)

    def all_alike() -> bool:
        rows = tools.live().values()
        told = [(row["log_end"], row["high_watermark"], row["lag"]) for live in rows for row in live]
        ends = [live[0]["log_end"] for live in rows]
        return sum(ends) == written.ledger.sent_count and all(end == mark and lag == 0 for end, mark, lag in told)

    eventually(all_alike, what="every replica's end is the high watermark")
    gone = next(broker for broker in cluster.broker_ids if broker != cluster.controller_id())
    cluster.stop(gone)
    eventually(lambda: gone not in look(cluster).leaders().values(), what="others lead")
    written.write(300)
    for live in tools.live().values():
        [silent] = [row for row in live if row["broker"] == gone]
        assert (silent["log_end"], silent["lag"], silent["error"]) == (None, None, f"broker {gone} is not live")
        assert all(row["lag"] is not None for row in live if row["broker"] != gone)
    # one that is behind is no other one
    assert {states[gone] for states in tools.states(status=3).values()} == {"offline"}
    cluster.restart(gone)
    cluster.wait_healthy(30)
    eventually(all_alike, what="the returned replica has caught up")
    assert tools.states() == {number: dict.fromkeys(cluster.broker_ids, "agrees") for number in range(3)}


def test_a_paused_broker_is_out_of_reach_and_not_divergent(cluster: Cluster, written: Any) -> None:
    tools = Tools(cluster)
    paused = next(broker for broker in cluster.broker_ids if broker != cluster.controller_id())
    cluster.pause(paused)
    try:
        states = tools.states("--timeout", "2", "--wait", "0", status=3)
    finally:
        cluster.resume(paused)
    assert {each[paused] for each in states.values()} == {"offline"}
    assert not {"diverges", "damaged", "failed"} & {state for each in states.values() for state in each.values()}


def test_files_of_running_brokers_are_sound(cluster: Cluster, written: Any) -> None:
    tools = Tools(cluster)
    records = 0
    for broker in cluster.broker_ids:
        for partition in range(3):
            facts = tools.dump(tools.directory(broker, partition))
            records += sum(fact["count"] for fact in facts if fact["type"] == "batch")
        [root] = cluster.log_dirs(broker)
        assert [fact["value"] for fact in tools.dump(root / "meta.properties") if fact["key"] == "broker.id"] == [
            str(broker)
        ]
    assert records == 3 * written.ledger.sent_count


def test_a_flipped_byte_on_a_running_follower_is_found_by_both(
    cluster: Cluster, written: Any, look: Callable[..., Any]
) -> None:
    tools = Tools(cluster)
    leader = look(cluster).leaders()[1]
    follower = next(broker for broker in cluster.broker_ids if broker != leader)
    [segment] = tools.directory(follower, 1).glob("*.log")
    at, header = nth_batch(segment, 2)
    flip(segment, at + header.size - 2)

    found = tools.json("verify", "replicas", "t", status=1)
    assert (found["agrees"], found["complete"]) == (False, True)
    damaged = {each["partition"]: each["damaged"] for each in found["partitions"]}
    assert damaged[0] == damaged[2] == []
    [damage] = damaged[1]
    assert (damage["broker"], damage["offset"]) == (follower, header.base_offset)
    assert tools.states("--partition", "0", "--partition", "2") == {
        number: dict.fromkeys(cluster.broker_ids, "agrees") for number in (0, 2)
    }
    [damage] = [fact for fact in tools.dump(segment, status=1) if fact["type"] == "damage"]
    assert (damage["kind"], damage["position"]) == ("checksum", at)


def test_another_leader_epoch_on_one_replica_is_a_divergence(
    cluster: Cluster, written: Any, look: Callable[..., Any]
) -> None:
    """No checksum covers it, and it decides where replicas cut their logs."""
    tools = Tools(cluster)
    leader = look(cluster).leaders()[0]
    follower = next(broker for broker in cluster.broker_ids if broker != leader)
    [segment] = tools.directory(follower, 0).glob("*.log")
    at, header = nth_batch(segment, 3)
    flip(segment, at + LEADER_EPOCH_AT)

    found = tools.json("verify", "replicas", "t", "--partition", "0", status=1)
    [partition] = found["partitions"]
    assert [replica["state"] for replica in partition["replicas"] if replica["broker"] == follower] == ["diverges"]
    [divergence] = partition["divergences"]
    assert (divergence["from_offset"], divergence["to_offset"]) == (header.base_offset, header.last_offset)
    epochs = {each["broker"]: each["leader_epoch"] for each in divergence["there"]}
    assert epochs == {broker: header.leader_epoch ^ (broker == follower) for broker in cluster.broker_ids}


def test_damage_in_the_files_of_a_stopped_broker_is_found_without_a_cluster(cluster: Cluster, written: Any) -> None:
    tools = Tools(cluster)
    broker = cluster.broker_ids[-1]
    cluster.stop(broker)
    directory = tools.directory(broker, 2)
    assert {"batch", "producer", "leader_epoch"} <= {fact["type"] for fact in tools.dump(directory)}
    [segment] = directory.glob("*.log")
    at, header = nth_batch(segment, 4)
    flip(segment, at + header.size - 1)
    [snapshot, *_] = directory.glob("*.snapshot")
    flip(snapshot, 12)
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")
    found = [(Path(fact["file"]).name, fact["kind"]) for fact in tools.dump(directory, status=1) if "kind" in fact]
    assert found == [
        (segment.name, "checksum"),
        (snapshot.name, "snapshot"),
        ("leader-epoch-checkpoint", "checkpoint"),
    ]


def test_verify_of_what_is_not_there_is_refused_in_words(cluster: Cluster, written: Any) -> None:
    for words, said in ((("ghost",), "UNKNOWN_TOPIC_OR_PARTITION"), (("t", "--partition", "9"), "has no partition 9")):
        done = CliRunner().invoke(
            cli, ["verify", "replicas", "--bootstrap-server", cluster.bootstrap_servers, *words], prog_name="regency"
        )
        assert done.exit_code == 1
        assert said in done.stderr
