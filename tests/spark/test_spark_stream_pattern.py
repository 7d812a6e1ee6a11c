"""A stream by pattern and time that goes on running: topics that are made meanwhile, a leader that stands still."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka.admin import AdminClient

MINUTE_MS = 60_000


def rows(spark: Any, path: Any) -> list[tuple[str, int, int, bytes]]:
    found = spark.read.schema("topic string, partition int, offset long, value binary").parquet(str(path)).collect()
    return sorted((row.topic, row.partition, row.offset, bytes(row.value)) for row in found)


def test_a_stream_takes_what_comes_to_match_its_pattern_and_waits_for_no_leader_that_stands_still(
    cluster, create_topic, write, consume, stream, spark, tmp_path, eventually
) -> None:
    now_ms = int(time.time() * 1000)
    create_topic(cluster, "seen-first", partitions=2)
    create_topic(cluster, "unseen", partitions=1)
    write("seen-first", [(number % 2, None, b"too early") for number in range(20)], timestamp=now_ms - 2 * MINUTE_MS)
    write("seen-first", [(number % 2, None, b"%d" % number) for number in range(300)], timestamp=now_ms)
    write("unseen", [(0, None, b"of no pattern")])
    frame = stream(
        "",
        subscribePattern="seen-.*",
        startingTimestamp=str(now_ms - MINUTE_MS),
        maxOffsetsPerTrigger="100",
        **{"kafka.request.timeout.ms": "2000"},
    )
    output = tmp_path / "rows"
    query = (
        frame.selectExpr("topic", "partition", "offset", "value")
        .writeStream.format("parquet")
        .option("path", str(output))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        eventually(
            lambda: output.exists() and len(rows(spark, output)) == 300, within=30, what="what was there is read"
        )
        metadata = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        leader = metadata.list_topics("seen-first", timeout=20).topics["seen-first"].partitions[0].leader
        cluster.pause(leader)
        write("seen-first", [(number % 2, None, b"later %d" % number) for number in range(100)])
        cluster.resume(leader)
        cluster.wait_healthy(30)
        create_topic(cluster, "seen-later", partitions=1)
        write("seen-later", [(0, None, b"new")] * 50, timestamp=now_ms - 2 * MINUTE_MS)
        eventually(lambda: len(rows(spark, output)) == 450, within=30, what="all of both topics is read")
        assert query.exception() is None
    finally:
        query.stop()
    expected = [
        (topic, record.partition, record.offset, record.value)
        for topic in ("seen-first", "seen-later")
        for record in consume(topic)
        if record.value != b"too early"
    ]
    assert rows(spark, output) == sorted(expected)
