"""Tasks that read are killed in the middle, and every row comes once all the same: batch and stream."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOPIC = "killed-tasks"
ROWS = 20_000
SCRIPT = """
import json, os, signal, sys
from pathlib import Path
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from regency.pipeline.session import spark_session
from regency.pipeline.source import RegencyDataSource

servers, topic, scratch = sys.argv[1], sys.argv[2], Path(sys.argv[3])


def dying(batches, marker):
    "Rows of a task; the first two of all tasks that come so far are killed when a third of theirs went on to Spark."
    rows = 0
    for batch in batches:
        for start in range(0, batch.num_rows, 500):
            yield batch.slice(start, 500)
            rows += 500
            if rows >= 1500:
                for number in range(2):
                    try:
                        os.close(os.open(f"{marker}.{number}", os.O_CREAT | os.O_EXCL))
                    except FileExistsError:
                        continue
                    os.kill(os.getpid(), signal.SIGKILL)


class Batch(DataSourceReader):
    def __init__(self, inner, marker):
        self.inner, self.marker = inner, marker

    def partitions(self):
        return self.inner.partitions()

    def read(self, partition):
        return dying(self.inner.read(partition), self.marker)


class Stream(DataSourceStreamReader):
    def __init__(self, inner, marker):
        self.inner, self.marker = inner, marker

    def initialOffset(self):
        return self.inner.initialOffset()

    def latestOffset(self, start, limit):
        return self.inner.latestOffset(start, limit)

    def getDefaultReadLimit(self):
        return self.inner.getDefaultReadLimit()

    def partitions(self, start, end):
        return self.inner.partitions(start, end)

    def read(self, partition):
        return dying(self.inner.read(partition), self.marker)

    def commit(self, end):
        self.inner.commit(end)


class Dying(RegencyDataSource):
    @classmethod
    def name(cls):
        return "dying"

    def reader(self, schema):
        return Batch(super().reader(schema), scratch / "batch")

    def streamReader(self, schema):
        return Stream(super().streamReader(schema), scratch / "stream")


def told(frame):
    rows = sorted(tuple(row) for row in frame.selectExpr("partition", "offset", "cast(value as string)").collect())
    return {"rows": len(rows), "first": rows[0], "right": rows == [
        (partition, offset, str(2 * offset + partition)) for partition in range(2) for offset in range(len(rows) // 2)
    ]}


settings = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
with spark_session("killed tasks", master="local[2,4]", settings=settings) as spark:
    spark.dataSource.register(Dying)
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest",
               "maxRecordsPerPartition": "4000"}
    batch = told(spark.read.format("dying").options(**options).load())
    query = (
        spark.readStream.format("dying").options(**options).load().writeStream.format("parquet")
        .option("path", str(scratch / "rows")).option("checkpointLocation", str(scratch / "checkpoint"))
        .trigger(processingTime="0 seconds").start()
    )
    query.processAllAvailable()
    query.stop()
    print(json.dumps({"batch": batch, "stream": told(spark.read.parquet(str(scratch / "rows")))}))
"""


@pytest.mark.timeout(180)
def test_a_task_killed_in_the_middle_of_a_read_gives_every_row_once(
    cluster, create_topic, write, tmp_path: Path
) -> None:
    create_topic(cluster, TOPIC, partitions=2)
    write(TOPIC, [(number % 2, None, b"%d" % number) for number in range(ROWS)])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, cluster.bootstrap_servers, TOPIC, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    every_row = {"rows": ROWS, "first": [0, 0, "0"], "right": True}
    assert json.loads(done.stdout) == {"batch": every_row, "stream": every_row}
    died = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(("batch.", "stream.")))
    assert died == ["batch.0", "batch.1", "stream.0", "stream.1"], "two tasks of each were killed"
