"""Frames and streams written to a real cluster, compared with what a plain consumer reads."""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark.errors import PySparkException

from regency.pipeline.sink.identity import HEADER

HEADERS = "headers array<struct<key string, value binary>>"


@pytest.fixture
def write_options(cluster) -> dict[str, str]:
    return {"kafka.bootstrap.servers": cluster.bootstrap_servers}


def ends(cluster: Any, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    partitions = [
        TopicPartition(topic, number) for number in admin.list_topics(topic, timeout=20).topics[topic].partitions
    ]
    asked = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()), request_timeout=20)
    return sum(found.result().offset for found in asked.values())


def written(frame: Any, options: dict[str, str], **more: str) -> None:
    frame.write.format("regency").options(**options, **more).mode("append").save()


def refused(frame: Any, options: dict[str, str], **more: str) -> str:
    with pytest.raises(PySparkException) as error:
        written(frame, options, **more)
    return str(error.value)


def test_every_column_of_a_record_arrives(spark, cluster, create_topic, consume, write_options) -> None:
    for topic in ("sink-columns", "sink-columns-2"):
        create_topic(cluster, topic, partitions=3)
    rows = [
        ("sink-columns", b"k", b"v", 2, [("a", b"1"), ("a", None)]),
        ("sink-columns", None, b"", 0, None),
        ("sink-columns", b"", None, 1, []),
        ("sink-columns-2", b"other", b"topic", 0, None),
    ]
    frame = spark.createDataFrame(rows, f"topic string, key binary, value binary, partition int, {HEADERS}")
    written(frame, write_options)
    told = [(r.partition, r.key, r.value, r.headers) for r in consume("sink-columns")]
    assert sorted(told) == [(0, None, b"", ()), (1, b"", None, ()), (2, b"k", b"v", (("a", b"1"), ("a", None)))]
    assert [(r.partition, r.key, r.value) for r in consume("sink-columns-2")] == [(0, b"other", b"topic")]


def test_a_frame_of_many_rows_arrives_whole_in_order_of_its_tasks(
    spark, cluster, create_topic, consume, write_options
) -> None:
    create_topic(cluster, "sink-many", partitions=3)
    rows = 60_000
    frame = spark.range(0, rows, 1, 4).selectExpr("cast(id % 7 as string) as key", "cast(id as string) as value")
    written(frame, write_options, topic="sink-many")
    records = consume("sink-many")
    assert Counter(r.value for r in records) == Counter(b"%d" % number for number in range(rows))
    places: dict[bytes, set[int]] = {}
    for record in records:
        places.setdefault(record.key, set()).add(record.partition)
    assert {len(found) for found in places.values()} == {1}, "a key has one partition"
    for task in range(4):
        of_task = range(task * rows // 4, (task + 1) * rows // 4)
        for partition in range(3):
            numbers = [int(r.value) for r in records if r.partition == partition and int(r.value) in of_task]
            assert numbers == sorted(numbers)


def test_rows_without_key_are_spread(spark, cluster, create_topic, consume, write_options) -> None:
    """They go to one partition for twice kafka.linger.ms, then to another by lot: with 1 ms nobody is left out."""
    create_topic(cluster, "sink-spread", partitions=3)
    rows = spark.range(100_000).selectExpr("cast(id as string) as value")
    written(rows, write_options, topic="sink-spread", **{"kafka.linger.ms": "1"})
    records = consume("sink-spread")
    assert sorted(int(record.value) for record in records) == list(range(100_000))
    assert {record.partition for record in records} == {0, 1, 2}


def test_a_frame_can_be_written_as_it_was_read_and_once(spark, cluster, create_topic, consume, write_options) -> None:
    for topic in ("sink-from", "sink-to"):
        create_topic(cluster, topic, partitions=2)
    rows = [("sink-from", b"%d" % number, [("n", b"%d" % number)]) for number in range(1000)]
    frame = spark.createDataFrame(rows, f"topic string, value binary, {HEADERS}")
    once = {"effectivelyOnce": "true"}
    written(frame, write_options, **once, effectivelyOnceTopics="sink-from")
    read = spark.read.format("regency").options(**write_options, subscribe="sink-from", includeHeaders="true").load()
    written(read, write_options, **once, topic="sink-to")
    records = consume("sink-to")
    assert sorted(int(r.value) for r in records) == list(range(1000))
    assert all([name for name, _ in r.headers] == ["n", HEADER] for r in records)
    assert not {r.headers[1] for r in records} & {r.headers[1] for r in consume("sink-from")}, (
        "each write has its own id"
    )


def test_what_cannot_be_written_is_refused_before_anything_is(
    spark, cluster, create_topic, consume, write_options
) -> None:
    create_topic(cluster, "sink-refused", partitions=1)
    good = spark.createDataFrame([("v",)], "value string")
    here = {**write_options, "topic": "sink-refused"}
    assert "Required column 'value' not found" in refused(good.selectExpr("value as v"), here)
    assert "Option topic is required" in refused(good, write_options)
    assert "Column 'value' has the unsupported type bigint" in refused(spark.range(1).selectExpr("id as value"), here)
    assert "Columns 'more' are no part of a record" in refused(good.selectExpr("value", "1 as more"), here)
    assert "Option kafka.value.serializer" in refused(good, here, **{"kafka.value.serializer": "x"})
    assert "did you mean topic?" in refused(good, here, topik="x")
    assert "Topic nowhere does not exist" in refused(
        good, {**write_options, "topic": "nowhere"}, effectivelyOnce="true"
    )
    with pytest.raises(PySparkException, match="Save mode overwrite is refused"):
        good.write.format("regency").options(**here).mode("overwrite").save()
    assert consume("sink-refused") == []


def test_what_fails_in_a_task_names_topic_and_cause(spark, cluster, create_topic, write_options) -> None:
    create_topic(cluster, "sink-small", partitions=1, max_message_bytes="2000")
    large = spark.createDataFrame([("x" * 5000,)], "value string")
    told = refused(large, write_options, topic="sink-small")
    assert "sink-small-0: a record was not written" in told
    assert "MSG_SIZE_TOO_LARGE" in told
    null = spark.createDataFrame([("sink-small", "a"), (None, "b")], "topic string, value string")
    assert "null in the column topic" in refused(null, write_options)
    beyond = spark.createDataFrame([("a", 7)], "value string, partition int")
    assert "sink-small-7: a record was not written" in refused(beyond, write_options, topic="sink-small")


def test_the_output_mode_complete_writes_the_whole_result_each_time(
    spark, cluster, create_topic, consume, write_options, tmp_path: Path
) -> None:
    create_topic(cluster, "sink-complete", partitions=1)
    (tmp_path / "in").mkdir()
    for number, text in enumerate(("a\nb\na", "b\nb")):
        path = tmp_path / "in" / f"{number}.txt"
        path.write_text(text)
        os.utime(path, (number + 1, number + 1))  # files are taken by age
    counts = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "in")).groupBy("value").count()
    query = (
        counts.selectExpr("value as key", "cast(count as string) as value")
        .writeStream.format("regency")
        .outputMode("complete")
        .options(**write_options, topic="sink-complete", checkpointLocation=str(tmp_path / "c"), effectivelyOnce="true")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = [(r.key, r.value) for r in consume("sink-complete")]
    assert (sorted(found[:2]), sorted(found[2:])) == ([(b"a", b"2"), (b"b", b"1")], [(b"a", b"2"), (b"b", b"3")])


def test_a_leader_killed_while_a_frame_is_written_loses_nothing(
    spark, cluster, create_topic, consume, write_options, eventually
) -> None:
    topic = "sink-killed-leader"
    create_topic(cluster, topic, partitions=3)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    leader = admin.list_topics(topic, timeout=20).topics[topic].partitions[0].leader
    rows = 200_000
    frame = spark.range(0, rows, 1, 4).selectExpr("concat(id, repeat('x', 200)) as value")
    killed_at: list[int] = []

    def kill_in_the_middle() -> None:
        eventually(lambda: ends(cluster, topic) > 1000, within=60, what="some rows are written")
        killed_at.append(ends(cluster, topic))
        cluster.kill(leader)

    killer = threading.Thread(target=kill_in_the_middle)
    killer.start()
    try:
        written(frame, write_options, topic=topic, **{"kafka.buffer.memory": "1048576"})
    finally:
        killer.join(90)
    assert killed_at, "the killer found nothing to kill"
    assert killed_at[0] < rows, "killed while rows were written"
    found = Counter(int(record.value.rstrip(b"x")) for record in consume(topic))
    assert found == Counter(range(rows)), "an idempotent producer doubles nothing either"
