"""Files of real agents are damaged, under them or while they are down: nothing bad is served, everything comes back."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from breaking.replicas import compare_replicas, read_stored_log
from click.testing import CliRunner
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as ClientPartition
from kafka.errors import CorruptRecordError

from regency.cli.main import cli
from regency.cluster.cluster import Cluster
from regency.kafka.record_batch import iter_batches

pytestmark = pytest.mark.integration

BATCHES, COUNT = 8, 500
PLAIN = {"group.id": "none", "enable.partition.eof": True, "enable.auto.commit": False}
"""A consumer that reads by itself: one that commits waits for a coordinator when it is closed."""


def ask(cluster: Cluster, *words: str) -> tuple[int, Any]:
    """A command's status and the JSON it prints."""
    done = CliRunner().invoke(cli, [*words, "-o", "json", "--bootstrap-server", cluster.bootstrap_servers])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout) if done.stdout else done.stderr


def flip(path: Path, at: int) -> None:
    """Change one bit on the disk, under whoever has the file open."""
    with path.open("r+b") as file:
        byte = os.pread(file.fileno(), 1, at)[0]
        os.pwrite(file.fileno(), bytes((byte ^ 8,)), at)


def read_with_confluent(cluster: Cluster, partition: int) -> tuple[int, str]:
    """How many records of a partition of `t` come, and the error that ends them; empty at the end of it."""
    consumer = Consumer({**PLAIN, "bootstrap.servers": cluster.bootstrap_servers})
    try:
        consumer.assign([TopicPartition("t", partition, OFFSET_BEGINNING)])
        count = 0
        while True:
            message = consumer.poll(20)
            assert message is not None, f"nothing for 20 s after {count} records"
            error = message.error()
            if error is None:
                count += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                return count, ""
            else:
                return count, error.name()
    finally:
        consumer.close()


def first_offset_refused(cluster: Cluster, partition: int) -> int | None:
    """Where kafka-python gets no further; None where it reads to the end."""
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers.split(","), group_id=None)
    where = ClientPartition("t", partition)
    try:
        consumer.assign([where])
        consumer.seek_to_beginning(where)
        end = consumer.end_offsets([where])[where]
        while consumer.position(where) < end:
            try:
                consumer.poll(timeout_ms=500)
            except CorruptRecordError:
                return int(consumer.position(where))
        return None
    finally:
        consumer.close()


def test_a_byte_that_flips_under_a_leader_is_refused_named_and_healed_by_a_new_copy(
    new_cluster: Callable[..., Cluster],
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    look: Callable[..., Any],
    eventually: Any,
    tmp_path: Path,
) -> None:
    cluster = new_cluster(settings={"replica.lag.time.max.ms": "2000"})
    create_topic(cluster, partitions=2, min_insync_replicas="2")
    kept = books(cluster, "t")
    for _ in range(BATCHES):
        kept.write(COUNT)
    leader = look(cluster).leaders()[0]
    segment = cluster.log_dirs(leader)[0] / "t-0" / f"{0:020d}.log"
    total, error = read_with_confluent(cluster, 0)
    assert error == ""

    flip(segment, segment.stat().st_size // 2)
    count, error = read_with_confluent(cluster, 0)
    assert 0 < count < total
    assert error == "INVALID_MSG", error
    assert read_with_confluent(cluster, 1)[1] == ""
    assert first_offset_refused(cluster, 0) == count
    named = f"{segment} holds no sound batch for offset {count} at byte "
    log = (cluster.directory / f"agent-{leader}" / "agent.log").read_text()
    assert log.count(named) == 1  # of how many clients ever

    kept.write(1_000)
    cluster.wait_healthy(20)

    def damage() -> dict[str, tuple[str, str]]:
        _, told = ask(cluster, "doctor", "--confirm", "1.5")
        return {
            each["subject"]: (each["where"], each["what"]) for each in told["problems"] if each["kind"] == "damaged"
        }

    where, what = eventually(damage, what="the doctor names the damage")["t-0"]
    assert where == f"broker {leader}"
    assert what.startswith(named)

    others = [broker for broker in cluster.broker_ids if broker != leader]
    for replicas in (others, [*others, leader]):
        plan = tmp_path / f"plan-{len(replicas)}.json"
        moves = [{"topic": "t", "partition": 0, "replicas": replicas}]
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))
        status, told = ask(cluster, "partitions", "execute", str(plan))
        assert status == 0, told
    cluster.wait_healthy(30)
    assert read_stored_log(segment.parent).broken == ()
    eventually(lambda: not damage(), what="nothing is damaged any more")
    kept.assert_nothing_lost()


def test_one_replica_lost_its_tail_another_went_on_alone_and_both_come_back_to_what_was_acknowledged(
    new_cluster: Callable[..., Cluster],
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    look: Callable[..., Any],
    eventually: Any,
) -> None:
    cluster = new_cluster(settings={"replica.lag.time.max.ms": "2000"})
    create_topic(cluster, partitions=1, min_insync_replicas="1")
    kept = books(cluster, "t")
    for _ in range(BATCHES):
        kept.write(COUNT)
    leader = look(cluster).leaders()[0]
    cut, longer = (broker for broker in cluster.broker_ids if broker != leader)
    segments = {broker: cluster.log_dirs(broker)[0] / "t-0" / f"{0:020d}.log" for broker in (cut, longer)}
    for broker in (cut, longer):
        cluster.kill(broker)
    content = segments[cut].read_bytes()
    starts = [at for at, _ in iter_batches(content)]
    segments[cut].write_bytes(content[: starts[len(starts) // 2] + 40])
    content = segments[longer].read_bytes()
    header = [header for _, header in iter_batches(content)][-1]
    alone = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=9999,
    )
    alone.append(0, timestamp=None, key=b"alone", value=b"never acknowledged", headers=[])
    place = struct.pack(">q", header.next_offset), struct.pack(">i", header.leader_epoch)
    batch = bytes(alone.build())
    segments[longer].write_bytes(content + place[0] + batch[8:12] + place[1] + batch[16:])
    eventually(lambda: look(cluster).isrs()[0] == (leader,), what="the leader is alone")
    # It writes on in its new epoch only when it has heard of it; in the old one nobody could tell both ends apart.
    epochs = cluster.log_dirs(leader)[0] / "t-0" / "leader-epoch-checkpoint"
    eventually(lambda: epochs.read_text("utf-8").splitlines()[1] == "2", what="the leader leads in its new epoch")
    kept.write(COUNT)
    cluster.restart(cut)
    cluster.restart(longer)
    cluster.wait_healthy(60)
    kept.write(COUNT)
    cluster.wait_healthy(30)
    kept.assert_nothing_lost()
    for broker in cluster.broker_ids:
        cluster.stop(broker)
    directories = {broker: cluster.log_dirs(broker)[0] for broker in cluster.broker_ids}
    assert compare_replicas(directories, ["t-0"]) == []
