"""The job replica-audit says what `regency verify replicas` says, of sound replicas and of damaged ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import TopicPartition as ClientPartition
from kafka.admin import KafkaAdminClient
from light_java import LIGHT
from msgspec.structs import replace

from regency.cli.main import cli
from regency.cli.schemas import output_type
from regency.clients.replicas.wire import Unanswered
from regency.cluster.cluster import Cluster
from regency.demo.workload import careful_producer
from regency.kafka.record_batch import compute_crc, iter_batches, read_header
from regency.model.ids import BrokerId
from regency.pipeline.jobs.replica_audit import job as replica_audit
from regency.pipeline.jobs.replica_audit.job import Audit, AuditOptions, audit, write_parquet

RECORD = b"x" * 200
SMALL = 8_000
"""Bytes of a piece: some pieces for each partition."""


def options(cluster: Cluster, *topics: str, **more: Any) -> AuditOptions:
    more = {"wait_s": 0.0, "timeout_ms": 3_000, "piece_bytes": SMALL} | more
    return AuditOptions(cluster.bootstrap_servers, topics or None, **more)


def command(cluster: Cluster, *words: str) -> list[str]:
    return ["-o", "json", "--bootstrap-server", cluster.bootstrap_servers, *words]


def verified(cluster: Cluster, topic: str) -> tuple[int, Any]:
    words = command(cluster, "verify", "replicas", topic, "--wait", "0", "--timeout", "3")
    done = CliRunner().invoke(cli, words, prog_name="regency")
    assert done.exit_code in (0, 1, 3), done.stderr
    return done.exit_code, json.loads(done.stdout)["partitions"]


def told_by_verify(partitions: Any) -> Any:
    return [
        (
            each["partition"],
            [(one["broker"], one["state"], one["log_start"], one["read_to"]) for one in each["replicas"]],
            [
                (one["from_offset"], one["to_offset"], {there["broker"]: there["crc"] for there in one["there"]})
                for one in each["divergences"]
            ],
            [(one["broker"], one["offset"], one["what"]) for one in each["damaged"]],
        )
        for each in partitions
    ]


def told_by_audit(found: Audit) -> Any:
    return [
        (
            each.partition.name.partition,
            [(one.broker, one.state, one.log_start, one.read_to) for one in each.replicas],
            [
                (
                    one.from_offset,
                    one.to_offset,
                    {broker: None if batch is None else batch.crc for broker, batch in sorted(one.first.items())},
                )
                for one in each.divergences
            ],
            [(one.broker, one.offset, one.what) for one in each.damages],
        )
        for each in found.partitions
    ]


def states(found: Audit) -> list[dict[int, str]]:
    return [{one.broker: one.state for one in each.replicas} for each in found.partitions]


def write_batches(cluster: Cluster, topic: str, count: int, *, partitions: int, value: bytes = RECORD) -> None:
    """So many batches of five records for each partition."""
    producer = careful_producer(cluster.bootstrap_servers, {"linger.ms": 0, "sticky.partitioning.linger.ms": 0})
    for _ in range(count):
        for number in range(5 * partitions):
            producer.produce(topic, value, partition=number % partitions)
        assert producer.flush(30) == 0


def segment(cluster: Cluster, broker: int, topic: str, partition: int) -> Path:
    [path] = (cluster.log_dirs(broker)[0] / f"{topic}-{partition}").glob("*.log")
    return path


def rewrite(path: Path, number: int, *, sound: bool) -> None:
    """Another record in the place of one; `sound`: with a checksum that is right, as another leader's would be."""
    content = path.read_bytes()
    at, header = list(iter_batches(content))[number]
    batch = bytearray(content[at : at + header.size])
    batch[-10] ^= 1
    if sound:
        batch[17:21] = compute_crc(batch, read_header(batch)).to_bytes(4, "big")
    with path.open("r+b") as file:
        file.seek(at)
        file.write(batch)


def begin_an_epoch_earlier(cluster: Cluster, broker: int, topic: str) -> tuple[int, int]:
    """Have a stopped broker's log say of a batch of epoch 0 that the next leader wrote it. Partition and offset."""
    for number in range(3):
        path = segment(cluster, broker, topic, number)
        batches = list(iter_batches(path.read_bytes()))
        if batches[-1][1].leader_epoch != 1:
            continue
        at, header = [one for one in batches if one[1].leader_epoch == 0][-1]
        with path.open("r+b") as file:
            file.seek(at + 12)
            file.write((1).to_bytes(4, "big"))
        epochs = path.parent / "leader-epoch-checkpoint"
        lines = [
            f"1 {header.base_offset}" if line.startswith("1 ") else line for line in epochs.read_text().split("\n")
        ]
        epochs.write_text("\n".join(lines))
        return number, header.base_offset
    raise AssertionError("no partition has had two leaders")


@pytest.fixture
def sound(cluster: Cluster, create_topic: Callable[..., None], eventually: Any, request: Any) -> Iterator[str]:
    """A topic of three partitions with many batches each, everywhere the same; gone at the end."""
    topic = f"audit-{request.node.name[:60]}"
    create_topic(cluster, topic, partitions=3)
    write_batches(cluster, topic, 30, partitions=3)
    eventually(lambda: verified(cluster, topic)[0] == 0, what="every replica has come up to the high watermark")
    yield topic
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.delete_topics([topic])[topic].result(timeout=30)


def test_sound_and_damaged_replicas_come_out_as_in_verify(
    cluster: Cluster, spark: Any, sound: str, tmp_path: Path
) -> None:
    status, partitions = verified(cluster, sound)
    found = audit(spark, options(cluster, sound), tell=lambda _: None)
    assert (status, told_by_audit(found)) == (0, told_by_verify(partitions))
    assert found.pieces > 6
    assert found.again == 0
    throttled = audit(spark, options(cluster, sound, pace=400_000), tell=lambda _: None)
    assert (told_by_audit(throttled), throttled.tasks) == (told_by_audit(found), 2)

    brokers = list(cluster.broker_ids)
    rewrite(segment(cluster, brokers[0], sound, 0), 14, sound=True)
    rewrite(segment(cluster, brokers[1], sound, 1), 25, sound=False)
    status, partitions = verified(cluster, sound)
    found = audit(spark, options(cluster, sound), tell=lambda _: None)
    fine = dict.fromkeys(brokers, "agrees")
    assert status == 1
    assert states(found) == [fine | {brokers[0]: "diverges"}, fine | {brokers[1]: "damaged"}, fine]
    assert told_by_audit(found) == told_by_verify(partitions)
    assert found.again == 1, "what differs is looked at twice; damage stays"

    write_parquet(spark, found.partitions, str(tmp_path / "rows"))
    rows = spark.read.parquet(str(tmp_path / "rows")).where("state != 'agrees'").orderBy("partition").collect()
    assert [(row.topic, row.partition, row.broker, row.state) for row in rows] == [
        (sound, 0, brokers[0], "diverges"),
        (sound, 1, brokers[1], "damaged"),
    ]
    [divergence] = rows[0].divergences
    [[_, _, [(_, _, crcs)], _], *_] = told_by_audit(found)
    assert divergence.crc == crcs[brokers[0]]
    assert [damage.offset for damage in rows[1].damages] == [found.partitions[1].damages[0].offset]


def test_damage_that_the_first_look_found_stands_when_its_broker_is_away_at_the_second(
    cluster: Cluster, spark: Any, sound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, other, victim = (each["broker"] for each in verified(cluster, sound)[1][0]["replicas"])
    rewrite(segment(cluster, victim, sound, 0), 3, sound=False)
    rewrite(segment(cluster, victim, sound, 0), 6, sound=False)
    rewrite(segment(cluster, other, sound, 0), 4, sound=True)
    look_again = replica_audit._worth_another_look

    def without_the_victim(*arguments: Any) -> Any:
        again, nodes = look_again(*arguments)
        away = {BrokerId(victim): Unanswered("it does not answer")}
        return {number: replace(piece, places={**piece.places, **away}) for number, piece in again.items()}, nodes

    monkeypatch.setattr(replica_audit, "_worth_another_look", without_the_victim)
    said: list[str] = []
    found = audit(spark, options(cluster, sound, piece_bytes=1 << 20), tell=said.append)
    assert said[1:] == ["1 piece is read again: a replica was out of reach, behind or different"]
    assert [(each.broker, each.state, each.read_to, each.detail) for each in found.partitions[0].replicas] == [
        (leader, "agrees", 150, ""),
        (other, "diverges", 150, ""),
        (victim, "damaged", 150, "it does not answer"),
    ]
    assert [each.broker for each in found.partitions[0].damages] == [victim, victim], "behind damage it is read on"
    assert len(found.partitions[0].divergences) == 1


def test_a_replica_that_lags_is_behind_and_nothing_else(
    cluster: Cluster, spark: Any, create_topic: Callable[..., None], eventually: Any
) -> None:
    """It is being added, and may copy no more than a little at a time."""
    topic = "audit-lag"
    create_topic(cluster, topic, partitions=1, replication=2)
    write_batches(cluster, topic, 16, partitions=1, value=b"y" * 100_000)
    eventually(lambda: verified(cluster, topic)[0] == 0, what="both replicas have come up to the high watermark")
    [partition] = verified(cluster, topic)[1]
    here = [each["broker"] for each in partition["replicas"]]
    [late] = set(cluster.broker_ids) - set(here)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})

    def change(kind: Any, name: str, key: str, value: str | None) -> None:
        operation = AlterConfigOpType.SET if value is not None else AlterConfigOpType.DELETE
        entry = ConfigEntry(key, value, incremental_operation=operation)
        resource = ConfigResource(kind, name, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result()

    change(ResourceType.TOPIC, topic, "follower.replication.throttled.replicas", f"0:{late}")
    change(ResourceType.BROKER, str(late), "follower.replication.throttled.rate", "1000")
    log = cluster.log(late)
    eventually(lambda: "at most 1000 bytes/s fetched" in log.read_text(errors="replace"), what="it knows its rate")
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))
    try:
        assert client.alter_partition_reassignments({ClientPartition(topic, 0): [*here, late]})
    finally:
        client.close()
    [data] = cluster.log_dirs(late)
    begun = lambda: any(path.stat().st_size for path in data.glob(f"{topic}-0/*.log"))  # noqa: E731
    try:
        eventually(begun, what="it has begun")
        status, [partition] = verified(cluster, topic)
        found = audit(spark, options(cluster, topic, piece_bytes=1 << 20), tell=lambda _: None)
    finally:
        change(ResourceType.BROKER, str(late), "follower.replication.throttled.rate", None)
    assert status == 3
    assert {one["broker"]: one["state"] for one in partition["replicas"]} == states(found)[0]
    assert states(found) == [dict.fromkeys(here, "agrees") | {late: "behind"}]
    [verdict] = [one for one in found.partitions[0].replicas if one.broker == late]
    assert verdict.detail.endswith(f" is {found.partitions[0].partition.bound}")
    assert (found.partitions[0].divergences, found.again) == ([], 0)

    eventually(lambda: verified(cluster, topic)[0] == 0, within=40, what="it has caught up")
    assert states(audit(spark, options(cluster, topic), tell=lambda _: None)) == [
        dict.fromkeys([*here, late], "agrees")
    ]


def test_brokers_that_die_and_come_back_and_topics_that_go_meanwhile(
    cluster: Cluster,
    spark: Any,
    sound: str,
    create_topic: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    eventually: Any,
) -> None:
    create_topic(cluster, "audit-goes", partitions=2)
    write_batches(cluster, "audit-goes", 2, partitions=2)
    eventually(lambda: verified(cluster, "audit-goes")[0] == 0, what="every replica has come up to the high watermark")
    victim = next(broker for broker in cluster.broker_ids if broker != cluster.controller_id())
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    others = dict.fromkeys([broker for broker in cluster.broker_ids if broker != victim], "agrees")

    def is_gone(topic: str) -> bool:
        return all(not (cluster.log_dirs(broker)[0] / f"{topic}-0").exists() for broker in cluster.broker_ids)

    def break_things(words: str) -> None:
        """Once everything is planned, and before anything is read."""
        if "read by" in words:
            admin.delete_topics(["audit-goes"])["audit-goes"].result(timeout=30)
            eventually(lambda: is_gone("audit-goes"), what="the topic is deleted")
            cluster.kill(victim)

    found = audit(spark, options(cluster, sound, "audit-goes"), tell=break_things)
    missing = dict.fromkeys(cluster.broker_ids, "missing")
    by_topic = {each.partition.name.topic: state for each, state in zip(found.partitions, states(found), strict=True)}
    assert by_topic[sound] == others | {victim: "offline"}
    assert by_topic["audit-goes"] in (missing, missing | {victim: "offline"})

    look_again = replica_audit._worth_another_look

    def after_it_is_back(*arguments: Any) -> Any:
        cluster.restart(victim)
        cluster.wait_healthy(30)
        return look_again(*arguments)

    monkeypatch.setattr(replica_audit, "_worth_another_look", after_it_is_back)
    found = audit(spark, options(cluster, sound, wait_s=10.0), tell=lambda _: None)
    assert states(found) == [others | {victim: "agrees"}] * 3
    assert found.again == found.pieces

    write_batches(cluster, sound, 2, partitions=3)
    eventually(lambda: verified(cluster, sound)[0] == 0, what="every replica has come up to the high watermark")
    cluster.stop(victim)
    number, offset = begin_an_epoch_earlier(cluster, victim, sound)
    cluster.restart(victim)
    cluster.wait_healthy(30)
    found = audit(spark, options(cluster, sound, wait_s=10.0), tell=lambda _: None)
    assert states(found)[number] == others | {victim: "diverges"}
    [divergence] = found.partitions[number].divergences
    assert divergence.from_offset == offset
    epochs = {broker: batch.leader_epoch for broker, batch in divergence.first.items() if batch is not None}
    assert epochs == dict.fromkeys(others, 0) | {victim: 1}


def test_the_command_on_executors_of_their_own(cluster: Cluster, sound: str, tmp_path: Path) -> None:
    rewrite(segment(cluster, cluster.broker_ids[0], sound, 2), 10, sound=True)
    spark = [
        "--master",
        "local-cluster[2,1,1024]",
        "--conf",
        "spark.driver.memory=1g",
        "--conf",
        "spark.executor.memory=512m",
        *LIGHT,
    ]
    words = command(cluster, "pipeline", "replica-audit", sound, "--to", str(tmp_path / "rows"), *spark)
    result = subprocess.run(
        [sys.executable, "-m", "regency", *words],
        capture_output=True, text=True, cwd=tmp_path, timeout=180, check=False,
    )  # fmt: skip
    status, partitions = verified(cluster, sound)
    assert (result.returncode, status) == (1, 1), result.stderr
    told = json.loads(result.stdout)
    assert told["partitions"] == partitions
    assert msgspec.to_builtins(msgspec.convert(told, output_type("pipeline replica-audit"))) == told
    assert "3 partitions, replicas: 8 agrees, 1 diverges;" in result.stderr
    assert list((tmp_path / "rows").glob("*.parquet"))
    assert "Traceback" not in result.stderr
