"""What a stream meets while it runs: damage on a broker's disk, and a topic that goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException

from regency.cluster.cluster import Cluster
from regency.kafka.record_batch import iter_batches

BATCHES, RECORDS = 6, 10


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})


@pytest.fixture
def damaged(cluster: Cluster, create_topic: Any, write: Any, admin: AdminClient) -> Iterator[tuple[str, int]]:
    """A topic of one partition whose leader has a flipped bit in its third batch, and the offset there."""
    topic = "stream-damaged"
    create_topic(cluster, topic, partitions=1)
    for batch in range(BATCHES):
        write(topic, [(0, None, b"%d" % number) for number in range(batch * RECORDS, (batch + 1) * RECORDS)])
    leader = admin.list_topics(topic, timeout=20).topics[topic].partitions[0].leader
    [segment] = (cluster.log_dirs(leader)[0] / f"{topic}-0").glob("*.log")
    content = segment.read_bytes()
    at, header = list(iter_batches(content))[2]
    with segment.open("r+b") as file:
        file.seek(at + header.size - 2)
        file.write(bytes([content[at + header.size - 2] ^ 1]))
    yield topic, header.base_offset
    admin.delete_topics([topic])[topic].result(timeout=30)


def test_a_batch_that_is_damaged_on_disk_ends_a_stream_with_its_place_or_is_left_out(
    damaged: tuple[str, int], stream: Any, spark: Any, tmp_path: Path
) -> None:
    topic, offset = damaged

    def run(name: str, **options: str) -> None:
        frame = stream(topic, startingOffsets="earliest", **options).selectExpr("CAST(value AS STRING)", "offset")
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / name))
        writer = writer.option("checkpointLocation", str(tmp_path / f"{name}-checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(StreamingQueryException) as caught:
        run("strict")
    words = str(caught.value)
    assert f"{topic}-0" in words
    assert str(offset) in words
    assert "docs/operate/damage.md" in words
    assert not list((tmp_path / "strict").glob("*.parquet"))

    run("lenient", failOnDataLoss="false")
    rows = spark.read.parquet(str(tmp_path / "lenient")).orderBy("offset").collect()
    assert [row.offset for row in rows] == [each for each in range(BATCHES * RECORDS) if not 20 <= each < 30]
    assert all(row.value == str(row.offset) for row in rows)


def test_a_topic_that_goes_ends_a_stream_that_runs(
    cluster: Cluster, create_topic: Any, write: Any, stream: Any, admin: AdminClient, eventually: Any, tmp_path: Path
) -> None:
    topic = "stream-goes"
    create_topic(cluster, topic, partitions=1)
    write(topic, [(0, None, b"x")] * 10)
    writer = stream(topic, startingOffsets="earliest").writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(processingTime="200 milliseconds").start()
    try:
        eventually(lambda: any(each["numInputRows"] for each in query.recentProgress), within=30, what="it has read")
        admin.delete_topics([topic])[topic].result(timeout=30)
        eventually(lambda: not query.isActive, within=60, what="the stream ends")
        assert f"{topic}-0 is gone" in str(query.exception())
    finally:
        query.stop()
