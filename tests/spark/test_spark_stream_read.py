"""Streams from a real cluster: every record once, over restarts and with limits; what happens when some are lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.errors import StreamingQueryException

Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a streaming frame to the end of what is there; rows go to Parquet below `tmp_path`."""

    def running(frame: Any, checkpoint: Path | None = None) -> Any:
        query = (
            frame.selectExpr("topic", "partition", "offset", "value")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(checkpoint or tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        return query

    return running


def written(spark: Any, tmp_path: Path) -> list[tuple]:
    return sorted(tuple(row) for row in spark.read.parquet(str(tmp_path / "rows")).collect())


def test_batches_of_limited_size_over_a_restart(
    cluster, create_topic, write, consume, stream, spark, run, tmp_path
) -> None:
    create_topic(cluster, "limited", partitions=3)
    write("limited", [(number % 2, None, b"%d" % number) for number in range(1600)])
    first = run(stream("limited", startingOffsets="earliest", maxOffsetsPerTrigger="500"))
    progress = [each for each in first.recentProgress if each["numInputRows"]]
    assert [each["numInputRows"] for each in progress] == [500, 500, 500, 100]
    last = progress[-1]["sources"][0]
    assert json.loads(last["endOffset"]) == {"limited": {"0": 800, "1": 800, "2": 0}}
    assert last["latestOffset"] == last["endOffset"]
    offsets = sorted(tmp_path.glob("checkpoint/offsets/[0-9]*"), key=lambda path: int(path.name))
    assert json.loads(offsets[-1].read_text().splitlines()[-1]) == {"limited": {"0": 800, "1": 800, "2": 0}}

    write("limited", [(2, None, b"more %d" % number) for number in range(300)])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.create_partitions([NewPartitions("limited", 4)])["limited"].result(20)
    cluster.wait_healthy(20)
    write("limited", [(3, None, b"new partition")] * 7)
    run(stream("limited", startingOffsets="latest", minOffsetsPerTrigger="5000"))
    expected = [("limited", record.partition, record.offset, record.value) for record in consume("limited")]
    assert len(expected) == 1907
    assert written(spark, tmp_path) == expected


def test_a_checkpoint_of_sparks_kafka_source_is_taken_on(
    cluster, create_topic, write, stream, spark, run, tmp_path
) -> None:
    create_topic(cluster, "taken-on", partitions=2)
    write("taken-on", [(number % 2, None, b"%d" % number) for number in range(20)])
    run(stream("taken-on", startingOffsets="earliest"))
    (log,) = tmp_path.glob("checkpoint/offsets/0")
    *before, line = log.read_text().splitlines()
    log.write_text("\n".join([*before, json.dumps(json.loads(line), separators=(",", ":"))]))
    log.with_name(".0.crc").unlink()
    write("taken-on", [(0, None, b"more")] * 5)
    run(stream("taken-on"))
    assert len(written(spark, tmp_path)) == 25


def failure_of(run: Run, frame: Any) -> str:
    with pytest.raises(StreamingQueryException) as caught:
        run(frame)
    return str(caught.value)


def test_a_topic_that_vanished(cluster, create_topic, write, stream, spark, run, tmp_path) -> None:
    create_topic(cluster, "stays", partitions=1)
    create_topic(cluster, "vanishes", partitions=1)
    for topic in ("stays", "vanishes"):
        write(topic, [(0, None, b"%d" % number) for number in range(10)])
    both = {"subscribe": "stays,vanishes", "startingOffsets": "earliest"}
    run(stream("", **both))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.delete_topics(["vanishes"])["vanishes"].result(20)
    cluster.wait_healthy(20)
    write("stays", [(0, None, b"more")] * 5)

    words = failure_of(run, stream("", **both))
    assert "vanishes-0 is gone, maybe before all was read" in words
    assert "failOnDataLoss" in words
    run(stream("", **both, failOnDataLoss="false"))
    assert len(written(spark, tmp_path)) == 25


def test_retention_that_overtook_the_reader(
    cluster, create_topic, write, consume, stream, spark, run, tmp_path, eventually
) -> None:
    create_topic(cluster, "overtaken", partitions=1, segment_bytes="20000", retention_bytes="20000")
    write("overtaken", [(0, None, b"first")])
    run(stream("overtaken", startingOffsets="earliest"))
    for _ in range(10):  # a batch of records must fit into a segment
        write("overtaken", [(0, None, b"x" * 1000)] * 15)
    eventually(lambda: consume("overtaken")[0].offset > 75, what="retention has removed what was not read")

    assert "overtaken-0" in failure_of(run, stream("overtaken"))
    run(stream("overtaken", failOnDataLoss="false"))
    rows = [offset for _, _, offset, _ in written(spark, tmp_path)]
    left = [record.offset for record in consume("overtaken")]
    assert rows == [0, *range(rows[1], 151)]
    assert 75 < rows[1] <= left[0]


def test_a_checkpoint_that_is_damaged(cluster, create_topic, write, stream, run, tmp_path) -> None:
    create_topic(cluster, "damaged", partitions=1)
    write("damaged", [(0, None, b"x")])
    run(stream("damaged", startingOffsets="earliest"))
    (log,) = tmp_path.glob("checkpoint/offsets/0")
    *before, _ = log.read_text().splitlines()
    log.with_name(".0.crc").unlink()
    log.write_text("\n".join([*before, '{"damaged":{"zero":1}}']))
    words = failure_of(run, stream("damaged"))
    assert "The checkpoint's offsets" in words
    assert "give the query another checkpointLocation" in words
    log.write_text("\n".join([*before, '{"damaged":']))
    assert "JSONDecodeError" in failure_of(run, stream("damaged"))


def test_an_option_of_a_batch_is_refused_and_that_is_the_last_that_is_told(stream, run) -> None:
    words = failure_of(run, stream("t", endingOffsets="latest"))
    assert "Option endingOffsets: it has no meaning in a stream query" in words.rpartition("Traceback")[2]
    assert "UnboundLocalError" not in words
