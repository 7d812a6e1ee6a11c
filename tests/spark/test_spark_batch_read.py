"""Batch reads of a real cluster, compared with what a plain consumer reads."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812  (the usual name)

BASE_MS = int(time.time() * 1000) - 3_600_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = "partition, offset, key, value, unix_millis(timestamp)"


def rows_of(frame, columns: str = COLUMNS) -> list[tuple]:
    return sorted(tuple(row) for row in frame.selectExpr(*columns.split(", ")).collect())


def test_a_batch_reads_what_a_consumer_reads(cluster, create_topic, write, consume, source) -> None:
    create_topic(cluster, "batch-read", partitions=3)
    write("batch-read", [(number % 3, b"k%d" % number, b"v" * (number % 200)) for number in range(3000)])
    write("batch-read", [(0, None, b"no key"), (1, b"no value", None), (2, None, None)], timestamp=BASE_MS)
    headers = [("a", b"1"), ("a", None), ("ключ", b"\x00\xff")]
    write("batch-read", [(0, b"with", b"headers")], headers=headers)
    expected = consume("batch-read")
    assert len(expected) == 3004

    frame = source("batch-read", includeHeaders="true")
    assert rows_of(frame) == [tuple(record[:5]) for record in expected]
    (row,) = frame.where("key = 'with'").collect()
    assert (row.topic, row.timestampType) == ("batch-read", 0)
    assert [tuple(header) for header in row.headers] == headers
    assert frame.where("headers is not null").count() == 1, "no headers are null, as in Spark's Kafka source"


def test_ranges_times_and_cut_partitions(cluster, create_topic, write, consume, source) -> None:
    create_topic(cluster, "ranges", partitions=2)
    for number in range(4):
        write(
            "ranges", [(part, None, b"%d" % number) for part in (0, 1) for _ in range(25)], timestamp=BASE_MS + number
        )
    expected = consume("ranges")

    offsets = '{"ranges":{"0":10,"1":-2}}', '{"ranges":{"0":30,"1":-1}}'
    part = rows_of(source("ranges", startingOffsets=offsets[0], endingOffsets=offsets[1]))
    assert part == [tuple(record[:5]) for record in expected if record.partition == 1 or 10 <= record.offset < 30]

    late = source("ranges", startingTimestamp=str(BASE_MS + 3))
    assert rows_of(late) == [tuple(record[:5]) for record in expected if record.timestamp_ms >= BASE_MS + 3]

    assigned = source("", assign='{"ranges":[1]}', minPartitions="4")
    assert rows_of(assigned) == [tuple(record[:5]) for record in expected if record.partition == 1]
    assert assigned.select(F.spark_partition_id().alias("task")).distinct().count() == 4

    everything = source("", subscribePattern="rang.s", maxRecordsPerPartition="30")
    assert rows_of(everything) == [tuple(record[:5]) for record in expected]
    assert everything.select(F.spark_partition_id().alias("task")).distinct().count() == 8


@pytest.mark.skipif(" " in sys.executable, reason="Spark does not look where the path of Python has a space")
def test_a_session_that_nobody_has_told_knows_the_format(spark, cluster, create_topic, write) -> None:
    create_topic(cluster, "untold", partitions=1)
    write("untold", [(0, None, b"x")] * 3)
    session = spark.newSession()
    options = f"`kafka.bootstrap.servers` '{cluster.bootstrap_servers}', subscribe 'untold'"
    session.sql(f"CREATE TEMPORARY VIEW untold USING regency OPTIONS ({options})")
    assert session.table("untold").count() == 3


def test_an_empty_topic_has_no_rows(cluster, create_topic, source) -> None:
    create_topic(cluster, "empty", partitions=2)
    assert source("empty").count() == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"startingOfsets": "earliest"},
            "Option startingofsets: there is none of that name; did you mean startingOffsets?",
        ),
        ({"maxOffsetsPerTrigger": "5"}, "Option maxOffsetsPerTrigger: it has no meaning in a batch query"),
        ({"kafka.security.protocol": "SSL"}, "Option kafka.security.protocol"),
        ({"includeHeaders": "maybe"}, "Option includeHeaders: 'maybe': expected true or false"),
    ],
)
def test_an_option_that_is_wrong_is_named(source, options: dict[str, str], words: str) -> None:
    with pytest.raises(PySparkException) as caught:
        source("t", **options).count()
    assert words in str(caught.value)


def test_a_topic_that_is_not_there_is_named(source) -> None:
    with pytest.raises(PySparkException, match="has no topic not-there"):
        source("not-there").count()


@pytest.fixture
def filtering(spark) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_filters_change_no_result(cluster, create_topic, write, consume, source, filtering) -> None:
    create_topic(cluster, "filters", partitions=3)
    disorder = [5, 1, 9, 3, 7, 2, 8]
    for number in disorder:
        write("filters", [(part, None, b"x") for part in range(3) for _ in range(10)], timestamp=BASE_MS + number)
    expected = [tuple(record[:5]) for record in consume("filters")]
    at = {number: EPOCH + timedelta(milliseconds=BASE_MS + number) for number in range(10)}

    def frame() -> Any:
        return source("filters", filterPushdown="true")

    assert rows_of(frame().where("partition = 1")) == [row for row in expected if row[0] == 1]
    assert rows_of(frame().where("offset >= 15 and offset < 33")) == [row for row in expected if 15 <= row[1] < 33]
    new = frame().where(F.col("timestamp") >= F.lit(at[7]))
    assert rows_of(new) == [row for row in expected if row[4] >= BASE_MS + 7]
    middle = frame().where(F.col("timestamp").between(F.lit(at[3]), F.lit(at[5])))
    assert rows_of(middle) == [row for row in expected if BASE_MS + 3 <= row[4] <= BASE_MS + 5]
    both = frame().where("partition = 0").alias("a").join(frame().where("partition = 2").alias("b"), "offset")
    assert both.count() == 70


def test_without_the_option_a_frame_is_used_as_often_as_one_likes(
    cluster, create_topic, write, source, filtering
) -> None:
    create_topic(cluster, "reused", partitions=3)
    write("reused", [(part, None, b"x") for part in range(3) for _ in range(10)])
    frame = source("reused")
    assert frame.where("partition = 1").count() == 10
    assert frame.count() == 30
    assert frame.where("partition = 0").alias("a").join(frame.where("partition = 2").alias("b"), "offset").count() == 10


def test_the_option_without_the_setting_of_spark_is_an_error(source) -> None:
    with pytest.raises(PySparkException, match=r"filterPushdown\.enabled"):
        source("filters", filterPushdown="true").count()
