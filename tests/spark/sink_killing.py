"""A job that writes a stream and dies where it is told to: a driver of its own for tests of the sink.

Usage: python sink_killing.py JSON, with servers, input, checkpoint, topic, master, options, settings, and `deaths`,
which are {"at": WHERE, "batch": N} and happen once for a folder `markers`. WHERE is one of

    task       a task's Python worker, when "rows" of its rows went in and some are in the log
    write      the whole job, at the same place
    commit     the whole job, when all tasks of the batch have finished
    committed  the whole job, when the sink knows of it and Spark has not noted it yet

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
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from regency.pipeline import sink, source
from regency.pipeline.session import spark_session

PLAN = "KILLING_PLAN"


def plan() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(os.environ[PLAN])
    return found


class Killing(DataSourceStreamArrowWriter):
    """The writer under test, and deaths around it."""

    def __init__(self, writer: sink.StreamWriter) -> None:
        self._writer = writer
        self._plan = plan()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batch = int(str(sink.TaskContext.get().getLocalProperty(sink.BATCH_ID)))
        for number, death in enumerate(self._plan["deaths"]):
            if death["at"] in ("task", "write") and death["batch"] == batch:
                iterator = self._dying(iterator, number, death)
        return self._writer.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._die_at("commit", batchId)
        self._writer.commit(messages, batchId)
        self._die_at("committed", batchId)

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

    def _die_at(self, at: str, batch: int) -> None:
        for number, death in enumerate(self._plan["deaths"]):
            if (death["at"], death["batch"]) == (at, batch) and self._mark(number):
                os.killpg(self._plan["group"], signal.SIGKILL)

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
        return Killing(super().streamWriter(schema, overwrite))  # type: ignore[arg-type]


def main() -> None:
    told = json.loads(sys.argv[1])
    told["group"] = os.getpgrp()
    os.environ[PLAN] = json.dumps(told)
    settings = {"spark.driver.memory": "512m", "spark.executorEnv." + PLAN: os.environ[PLAN], **told["settings"]}
    with spark_session("sink", master=told["master"], settings=settings) as spark:
        spark.dataSource.register(KillingSource)
        lines = spark.readStream.option("maxFilesPerTrigger", 2).text(told["input"])
        query = (
            lines.selectExpr("value", "substring_index(value, ' ', 1) AS key")
            .writeStream.format("regency")
            .option("kafka.bootstrap.servers", told["servers"])
            .option("topic", told["topic"])
            .option("checkpointLocation", told["checkpoint"])
            .options(**told["options"])
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


if __name__ == "__main__":
    main()
