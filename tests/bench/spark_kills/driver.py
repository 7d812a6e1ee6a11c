"""A Spark driver that others kill: python -m spark_kills.driver JSON runs the job to its end, from its checkpoint on.

It writes a line of JSON to stdout when Spark is up, for each failure of the query after which it starts it again, for
each time it was told to stop it (SIGUSR1) and starts it again at once, and when all is done. What the job is stands in
`Job` (jobs.py).
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow.parquet
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from regency.pipeline.session import spark_session
from spark_kills.jobs import Job
from spark_kills.watched import Watched

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
MOST_FAILURES = 20
LOOK_S = 0.1

told_to_stop = threading.Event()


def main() -> int:
    job = msgspec.json.decode(sys.argv[1], type=Job)
    settings = {
        "spark.driver.memory": "768m",
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.executor.extraJavaOptions": QUICK,
        "spark.sql.shuffle.partitions": "3",
        "spark.stage.maxConsecutiveAttempts": "1",  # as the sink's documentation asks for
        "spark.deploy.maxExecutorRetries": "-1",
    }
    signal.signal(signal.SIGUSR1, lambda *_: told_to_stop.set())
    with spark_session("kills", master=job.master, settings=settings) as spark:
        spark.dataSource.register(Watched)
        say(up=True)
        if job.kind == "write":
            (write_stream if job.stream else write_batch)(spark, job)
        else:
            (read_stream if job.stream else read_batch)(spark, job)
        say(done=True)
    return 0


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def source(spark: SparkSession, job: Job) -> DataFrame:
    reader = spark.readStream if job.stream else spark.read
    reader = reader.format("watched").option("kafka.bootstrap.servers", job.servers).option("subscribe", job.source)
    reader = reader.option("startingOffsets", "earliest").option("maxRecordsPerPartition", job.task_rows)
    if job.stream:
        reader = reader.option("maxOffsetsPerTrigger", job.batch_rows)
    frame: DataFrame = reader.load()
    return frame


def rows(spark: SparkSession, job: Job) -> DataFrame:
    """What is to be written: the values of the topic that is read, whose keys are theirs or none."""
    frame = source(spark, job).selectExpr("cast(key as string) as key", "value")
    if job.shuffled:
        frame = frame.repartition(3, "key")
    return frame if job.keyed else frame.drop("key")


def write_stream(spark: SparkSession, job: Job) -> None:
    def run() -> bool:
        query = (
            rows(spark, job)
            .writeStream.format("watched")
            .option("kafka.bootstrap.servers", job.servers)
            .option("topic", job.topic)
            .option("checkpointLocation", f"{job.folder}/checkpoint")
            .option("effectivelyOnce", "true")
            .trigger(availableNow=True)
            .start()
        )
        return ended(query)

    until_it_ends_well(run)


def write_batch(spark: SparkSession, job: Job) -> None:
    (
        rows(spark, job)
        .write.format("watched")
        .option("kafka.bootstrap.servers", job.servers)
        .option("topic", job.topic)
        .option("effectivelyOnce", "true")
        .mode("append")
        .save()
    )


def read_batch(spark: SparkSession, job: Job) -> None:
    def run() -> bool:
        read_columns(source(spark, job)).write.mode("overwrite").parquet(f"{job.folder}/read")
        return True

    until_it_ends_well(run)
    tell_rows(spark, job)


def read_stream(spark: SparkSession, job: Job) -> None:
    def run() -> bool:
        query = (
            read_columns(source(spark, job))
            .writeStream.format("parquet")
            .option("path", f"{job.folder}/read")
            .option("checkpointLocation", f"{job.folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        return ended(query)

    until_it_ends_well(run)
    tell_rows(spark, job)


def read_columns(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("partition", "offset", "crc32(value) as crc", "cast(key as string) as key")


def tell_rows(spark: SparkSession, job: Job) -> None:
    """One file of what was read, as a reader of the result sees it."""
    found = spark.read.parquet(f"{job.folder}/read").toArrow()
    pyarrow.parquet.write_table(found, f"{job.folder}/rows.parquet")


def ended(query: StreamingQuery) -> bool:
    """Whether it went on to its end; False when it was stopped."""
    while not query.awaitTermination(LOOK_S):  # type: ignore[arg-type]
        if told_to_stop.is_set():
            told_to_stop.clear()
            query.stop()
            say(stopped=True)
            return False
    return True


def until_it_ends_well(run: Callable[[], bool]) -> None:
    """As an operator would: a query that failed is started again. What it failed of is told."""
    for _ in range(MOST_FAILURES):
        try:
            if run():
                return
        except (PySparkException, Py4JJavaError) as error:
            say(failed=str(error))
    raise RuntimeError(f"failed {MOST_FAILURES} times")


if __name__ == "__main__":
    sys.exit(main())
