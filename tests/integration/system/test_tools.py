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
from regency.kafka.record_batch import compute_crc, iter_batches, read_header

pytestmark = pytest.mark.integration


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
        return {row["partition"]: row["positions"] for row in self.json("topics", "describe", "t")}

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


def rewrite(segment: Path, at: int, size: int) -> None:
    """Another record in the place of one, with a checksum that is right: as if another leader had written it."""
    batch = bytearray(segment.read_bytes()[at : at + size])
    batch[-10] ^= 1
    batch[17:21] = compute_crc(batch, read_header(batch)).to_bytes(4, "big")
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(batch)


def nth_batch(segment: Path, number: int) -> tuple[int, Any]:
    return list(iter_batches(segment.read_bytes()))[number]


@pytest.fixture
def written(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None], books: Callable[..., Any]
) -> tuple[Cluster, Any]:
    """A cluster and a topic of three partitions with some batches in each."""
    cluster = new_cluster(session_timeout_ms=10_000)
    create_topic(cluster, partitions=3)
    kept = books(cluster, "t")
    for _ in range(10):
        kept.write(100)
    return cluster, kept


def test_replicas_are_followed_and_compared_while_brokers_come_and_go(
    written: tuple[Cluster, Any], look: Callable[..., Any], eventually: Any
) -> None:
    cluster, kept = written
    tools = Tools(cluster)

    def all_alike() -> bool:
        rows = tools.live().values()
        told = [(row["log_end"], row["high_watermark"], row["lag"]) for live in rows for row in live]
        ends = [live[0]["log_end"] for live in rows]
        return sum(ends) == kept.ledger.sent_count and all(end == mark and lag == 0 for end, mark, lag in told)

    eventually(all_alike, what="every replica's end is the high watermark")
    assert tools.states() == {number: dict.fromkeys(cluster.broker_ids, "agrees") for number in range(3)}
    assert tools.states("--throttle", "100000") == tools.states()

    gone = next(broker for broker in cluster.broker_ids if broker != cluster.controller_id())
    cluster.stop(gone)
    eventually(lambda: gone not in look(cluster).leaders().values(), what="others lead")
    kept.write(300)
    for live in tools.live().values():
        [silent] = [row for row in live if row["broker"] == gone]
        assert (silent["log_end"], silent["lag"], silent["error"]) == (None, None, f"broker {gone} is not live")
        assert all(row["lag"] is not None for row in live if row["broker"] != gone)
    states = tools.states(status=3)
    assert {each[gone] for each in states.values()} == {"offline"}
    assert {state for each in states.values() for broker, state in each.items() if broker != gone} == {"agrees"}

    cluster.restart(gone)
    cluster.wait_healthy(30)
    eventually(all_alike, what="the returned replica has caught up")
    assert tools.states() == {number: dict.fromkeys(cluster.broker_ids, "agrees") for number in range(3)}
    for words, said in ((("ghost",), "There is no topic ghost."), (("t", "--partition", "9"), "has no partition 9")):
        done = CliRunner().invoke(
            cli, ["verify", "replicas", "--bootstrap-server", cluster.bootstrap_servers, *words], prog_name="regency"
        )
        assert done.exit_code == 1
        assert said in done.stderr


def test_a_paused_broker_is_out_of_reach_and_not_divergent(written: tuple[Cluster, Any]) -> None:
    cluster, _ = written
    paused = next(broker for broker in cluster.broker_ids if broker != cluster.controller_id())
    cluster.pause(paused)
    try:
        states = Tools(cluster).states("--timeout", "2", "--wait", "0", status=3)
    finally:
        cluster.resume(paused)
    assert {each[paused] for each in states.values()} == {"offline"}
    assert not {"diverges", "damaged", "failed"} & {state for each in states.values() for state in each.values()}


def test_damage_is_found_in_the_files_of_brokers_and_between_replicas(
    written: tuple[Cluster, Any], look: Callable[..., Any]
) -> None:
    cluster, kept = written
    tools = Tools(cluster)
    records = 0
    for broker in cluster.broker_ids:
        for partition in range(3):
            facts = tools.dump(tools.directory(broker, partition))
            records += sum(fact["count"] for fact in facts if fact["type"] == "batch")
        [root] = cluster.log_dirs(broker)
        meta = {fact["key"]: fact["value"] for fact in tools.dump(root / "meta.properties")}
        assert meta["broker.id"] == str(broker)
    assert records == 3 * kept.ledger.sent_count

    leaders = look(cluster).leaders()
    follower = {number: next(each for each in cluster.broker_ids if each != leaders[number]) for number in (0, 1)}
    [other] = tools.directory(follower[0], 0).glob("*.log")
    other_at, other_header = nth_batch(other, 3)
    rewrite(other, other_at, other_header.size)
    [flipped] = tools.directory(follower[1], 1).glob("*.log")
    at, header = nth_batch(flipped, 2)
    flip(flipped, at + header.size - 2)

    found = tools.json("verify", "replicas", "t", status=1)
    assert (found["agrees"], found["complete"]) == (False, True)
    states = [{each["broker"]: each["state"] for each in one["replicas"]} for one in found["partitions"]]
    fine = dict.fromkeys(cluster.broker_ids, "agrees")
    assert states == [fine | {follower[0]: "diverges"}, fine | {follower[1]: "damaged"}, fine]
    [divergence] = found["partitions"][0]["divergences"]
    assert (divergence["from_offset"], divergence["to_offset"]) == (other_header.base_offset, other_header.last_offset)
    crcs = {each["broker"]: each["crc"] for each in divergence["there"]}
    assert [broker for broker, crc in crcs.items() if crc != other_header.crc] == [follower[0]]
    [damage] = found["partitions"][1]["damaged"]
    assert (damage["broker"], damage["offset"]) == (follower[1], header.base_offset)
    assert tools.states("--partition", "2") == {2: fine}
    [damage] = [fact for fact in tools.dump(flipped, status=1) if fact["type"] == "damage"]
    assert (damage["kind"], damage["position"]) == ("checksum", at)

    cluster.stop(cluster.broker_ids[-1])
    directory = tools.directory(cluster.broker_ids[-1], 2)
    assert {"batch", "producer", "leader_epoch"} <= {fact["type"] for fact in tools.dump(directory)}
    [segment] = directory.glob("*.log")
    at, header = nth_batch(segment, 4)
    flip(segment, at + header.size - 1)
    [*_, snapshot] = sorted(directory.glob("*.snapshot"))
    flip(snapshot, 12)
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")
    damaged = [(Path(fact["file"]).name, fact["kind"]) for fact in tools.dump(directory, status=1) if "kind" in fact]
    assert sorted(damaged) == sorted(
        [(segment.name, "checksum"), (snapshot.name, "snapshot"), ("leader-epoch-checkpoint", "checkpoint")]
    )
