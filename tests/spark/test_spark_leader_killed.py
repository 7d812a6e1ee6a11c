"""A leader is killed while tasks read from it."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka.admin import AdminClient

PARTITIONS, RECORDS, SIZE = 2, 8_000, 10_000
"""40 MB of each partition, of which a task that stands still holds three Arrow batches of 8 MB at most."""


def _leaders(cluster: Any, topic: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    partitions = admin.list_topics(topic, timeout=20).topics[topic].partitions
    return {number: facts.leader for number, facts in partitions.items()}


def _held(batches: Iterator[pa.RecordBatch], gate: str) -> Iterator[pa.RecordBatch]:
    """The batches as they come; the second comes only when the gate is open."""
    for number, batch in enumerate(batches):
        if number == 0:
            (Path(gate) / f"begun-{batch.column('partition')[0].as_py()}").touch()
            deadline = time.monotonic() + 60
            while not (Path(gate) / "open").exists():
                if time.monotonic() > deadline:
                    raise TimeoutError("nobody opened the gate")
                time.sleep(0.02)
        yield batch


def test_a_leader_killed_in_the_middle_of_a_read_changes_nothing(
    cluster, create_topic, write, source, tmp_path, eventually
) -> None:
    topic = "killed-leader"
    create_topic(cluster, topic, partitions=PARTITIONS)
    write(topic, [(number % PARTITIONS, b"%d" % number, b"%d" % number + b"x" * SIZE) for number in range(RECORDS)])
    frame = source(topic, **{"kafka.max.partition.fetch.bytes": "1000000"}).select("partition", "offset", "key")
    held = frame.mapInArrow(functools.partial(_held, gate=str(tmp_path)), frame.schema)
    found: list[Any] = []
    reading = threading.Thread(target=lambda: found.extend(held.collect()))
    reading.start()
    try:
        eventually(lambda: len(list(tmp_path.glob("begun-*"))) == PARTITIONS, within=40, what="every task has begun")
        leaders = _leaders(cluster, topic)
        cluster.kill(leaders[0])
        eventually(lambda: leaders[0] not in _leaders(cluster, topic).values(), what="another leads")
    finally:
        (tmp_path / "open").touch()
        reading.join(90)
    assert not reading.is_alive()
    expected = [(number % PARTITIONS, number // PARTITIONS, b"%d" % number) for number in range(RECORDS)]
    assert sorted((row.partition, row.offset, bytes(row.key)) for row in found) == sorted(expected)
