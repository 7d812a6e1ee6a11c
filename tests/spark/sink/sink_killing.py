"""Jobs that write streams and die where they are told to: a driver of its own for tests of the sink.

Usage: python sink_killing.py JSON, a list of jobs that run one after the other, each with servers, input, checkpoint,
topic, options, and `deaths`: {"at": WHERE, "batch": N}, each happening once for a folder `markers`. WHERE is one of

    task    a task's Python worker, when "rows" of its rows went in and some are in the log
    write   the whole driver, at the same place
    commit  the whole driver, when all tasks of the batch have finished
    fail    the query, when the sink knows of the batch and Spark has not noted it yet; it is started again at once

The input is a folder of text files, two for each batch.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from regency.pipeline import source
from regency.pipeline.session import spark_session
from regency.pipeline.sink import writer as sink

PLAN = "KILLING_PLAN"


TOLD_TO_FAIL = "the test told this query to fail"


def plan(topic: str) -> dict[str, Any]:
    jobs: list[dict[str, Any]] = json.loads(os.environ[PLAN])
    return next(job for job in jobs if job["topic"] == topic)


class Killing(DataSourceStreamArrowWriter):
    """The writer under test, and deaths around it."""

    def __init__(self, writer: sink.StreamWriter, topic: str) -> None:
        self._writer = writer
        self._plan = plan(topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batch = int(str(sink.TaskContext.get().getLocalProperty(sink.BATCH_ID)))
        for number, death in enumerate(self._plan["deaths"]):
            if death["at"] in ("task", "write") and death["batch"] == batch:
                iterator = self._dying(iterator, number, death)
        return self._writer.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if self._now("commit", batchId):
            os.killpg(self._plan["group"], signal.SIGKILL)
        self._writer.commit(messages, batchId)
        if self._now("fail", batchId):
            raise RuntimeError(TOLD_TO_FAIL)

    def _dying(self, batches: Iterator[pa.RecordBatch], number: int, death: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        begun = ends(self._plan["servers"], self._plan["topic"])
        rows = 0
        for batch in batches:
            for start in range(0, batch.num_rows, 500):
                yield batch.slice(start, 500)
                rows += min(500, batch.num_rows - start)
                if rows >= death["rows"] and not self._marker(number).exists():
                    wait_for_growth(self._plan["servers"], self._plan["topic"], begun)
                    if self._mark(number):
                        if death["at"] == "write":
                            os.killpg(self._plan["group"], signal.SIGKILL)
                        os.kill(os.getpid(), signal.SIGKILL)

    def _now(self, at: str, batch: int) -> bool:
        return any(
            (death["at"], death["batch"]) == (at, batch) and self._mark(number)
            for number, death in enumerate(self._plan["deaths"])
        )

    def _marker(self, number: int) -> Path:
        return Path(self._plan["markers"]) / str(number)

    def _mark(self, number: int) -> bool:
        try:
            self._marker(number).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def ends(servers: str, topic: str) -> int:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "ends", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        return sum(
            consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, number), timeout=20)[1]
            for number in partitions
        )
    finally:
        consumer.close()


def wait_for_growth(servers: str, topic: str, before: int) -> None:
    """Some of the rows are in the log: what is killed now is killed in the middle of a write."""
    deadline = time.monotonic() + 30
    while ends(servers, topic) <= before:
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing was written to {topic}")
        time.sleep(0.02)


class KillingSource(source.RegencyDataSource):
    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return Killing(super().streamWriter(schema, overwrite), self.options["topic"])  # type: ignore[arg-type]


def main() -> None:
    jobs = json.loads(sys.argv[1])
    for job in jobs:
        job["group"] = os.getpgrp()
    os.environ[PLAN] = json.dumps(jobs)
    settings = {
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executorEnv." + PLAN: os.environ[PLAN],
        **json.loads(os.environ.get("KILLING_SETTINGS", "{}")),
    }
    master = os.environ.get("KILLING_MASTER", "local[2,4]")
    with spark_session("sink", master=master, settings=settings) as spark:
        spark.dataSource.register(KillingSource)
        for job in jobs:
            while not done(spark, job):
                pass


def done(spark: SparkSession, job: dict[str, Any]) -> bool:
    """Run a job; False when it failed as it was told to."""
    lines = spark.readStream.option("maxFilesPerTrigger", 2).text(job["input"])
    query = (
        lines.selectExpr("value", "substring_index(value, ' ', 1) AS key")
        .writeStream.format("regency")
        .option("kafka.bootstrap.servers", job["servers"])
        .option("topic", job["topic"])
        .option("checkpointLocation", job["checkpoint"])
        .options(**job["options"])
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        if TOLD_TO_FAIL not in str(error):
            raise
        return False
    return True


if __name__ == "__main__":
    main()
