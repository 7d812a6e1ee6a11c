"""How fast Spark reads what is in the page cache, from brokers that share its two cores.

    ./dev bench spark --records 4000000

Agents with one replica of each partition; the records are written first, each with a key of ten bytes, all values of
one size or, with --sizes mixed, from half to one and a half of it. Then Spark on local[2] reads all of them with
format("regency"), in runs one after another, of which the first warms up, and adds up what is in every column; a sum
that is wrong ends the bench. `decode_rows_per_second` is one core's work from what a broker sent to Arrow, and
`read_rows_per_second` one task's with the brokers, both without Spark. CPU is that of all processes, agents, Java and
Python, in microseconds a row: it depends less on what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Producer
from data_plane.topics import create_topic
from data_plane.usage import cpu_seconds_below
from reporting import Figures, Progress, count, parser, repeat_and_report, run, say

from regency.clients.batch_scan import Batches
from regency.clients.cluster_client import LATEST, ClusterClient
from regency.clients.partition_reader import PartitionReader, Range
from regency.clients.settings import client_settings
from regency.cluster.cluster import Cluster
from regency.model.ids import Offset, TopicPartition
from regency.pipeline.records import partition_records
from regency.pipeline.records.partition_records import ReadTask, record_batches
from regency.pipeline.session import spark_session

TOPIC = "bench"
KEY_BYTES = 10
FLUSH_S = 120
SETTINGS = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}


def write(servers: str, records: int, sizes: list[int], compression: str, progress: Progress) -> None:
    """Values have these sizes in turn; partitions are chosen by the producer. Raises RuntimeError."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": "1",
            "linger.ms": 20,
            "batch.size": 1 << 20,
            "compression.type": compression,
            "queue.buffering.max.messages": 500_000,
            "partitioner": "random",
        }
    )
    text = b"a record of the bench, which compresses as text does, more or less. " * (max(sizes) // 60 + 1)
    values = [text[:size] for size in sizes]
    number = 0
    while number < records:
        try:
            producer.produce(TOPIC, values[number % len(values)], b"%0*d" % (KEY_BYTES, number))
        except BufferError:
            producer.poll(0.01)
            continue
        number += 1
        if number % 10_000 == 0:
            producer.poll(0)
            progress(number - len(producer))
    if left := producer.flush(FLUSH_S):
        raise RuntimeError(f"{left} of {records} records were not acknowledged")


def sizes_of(arguments: argparse.Namespace) -> list[int]:
    """Sizes of values in turn: always the same ones, as though at random."""
    size: int = arguments.record_size
    if arguments.sizes == "equal":
        return [size]
    return random.Random(size).choices(range(size // 2, size + size // 2 + 1), k=997)


def decode_alone(tasks: list[ReadTask]) -> float:
    """Rows a second from answers that are here already, without the network; a sample of at most 64 MB."""
    answers: list[tuple[ReadTask, list[Batches]]] = []
    size = rows = 0
    for task in tasks:
        reader = PartitionReader(
            task.client, Range(task.topic_partition, task.topic_id, task.start, task.end), poll_timeout_ms=30_000
        )
        kept: list[Batches] = []
        for batches in reader:
            kept.append(batches)
            size += batches.size
            if size > 64 << 20:
                break
        reader.close()
        answers.append((task, kept))
    began = time.perf_counter()
    for task, kept in answers:
        rows += sum(len(batch) for batch in partition_records.assembled(task, kept))
    return rows / (time.perf_counter() - began)


def read_without_spark(tasks: list[ReadTask]) -> float:
    began = time.perf_counter()
    rows = sum(len(batch) for task in tasks for batch in record_batches(task))
    return rows / (time.perf_counter() - began)


def plan(servers: str, partitions: int) -> list[ReadTask]:
    settings = client_settings({"bootstrap.servers": servers})
    with ClusterClient(settings) as client:
        topic_id = client.topics([TOPIC])[TOPIC].topic_id
        ends = client.offsets({TopicPartition(TOPIC, number): LATEST for number in range(partitions)})
    return [
        ReadTask(settings, TOPIC, topic_id, name.partition, Offset(0), end or Offset(0)) for name, end in ends.items()
    ]


def sums(spark: Any, servers: str) -> tuple[int, ...]:
    frame = (
        spark.read.format("regency")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .load()
        .selectExpr(
            "count(*)",
            "sum(length(value))",
            "sum(length(key))",
            "sum(offset)",
            "sum(length(topic))",
            "sum(partition)",
            "sum(timestampType)",
            "count(timestamp)",
        )
    )
    (row,) = frame.collect()
    return tuple(int(value or 0) for value in row)


def expected(tasks: list[ReadTask], sizes: list[int]) -> tuple[int, ...]:
    rows = sum(task.end for task in tasks)
    return (
        rows,
        rows // len(sizes) * sum(sizes) + sum(sizes[: rows % len(sizes)]),
        rows * KEY_BYTES,
        sum(task.end * (task.end - 1) // 2 for task in tasks),
        rows * len(TOPIC),
        sum(task.end * task.partition for task in tasks),
        0,
        rows,
    )


def cpu(cluster: Cluster) -> tuple[float, float]:
    """Seconds that the agents have used until now, and those that all else has that was started here."""
    agents = {cluster.pid(broker) for broker in cluster.broker_ids}
    used = cpu_seconds_below(os.getpid())
    return sum(used[pid] for pid in agents), sum(each for pid, each in used.items() if pid not in agents)


def measured(spark: Any, cluster: Cluster, tasks: list[ReadTask], sizes: list[int]) -> Iterator[Figures]:
    """One run after another. Raises RuntimeError for a sum that is wrong."""
    servers = cluster.bootstrap_servers
    right = expected(tasks, sizes)
    while True:
        before = cpu(cluster)
        began = time.perf_counter()
        found = sums(spark, servers)
        seconds = time.perf_counter() - began
        agents, others = (after - then for after, then in zip(cpu(cluster), before, strict=True))
        if found != right:
            raise RuntimeError(f"Spark's sums are {found}, and {right} was written")
        yield {
            "rows_per_second": round(right[0] / seconds),
            "mb_per_second": round(right[1] / seconds / 1e6, 1),
            "agents_cpu_us_per_row": round(agents / right[0] * 1e6, 3),
            "spark_cpu_us_per_row": round(others / right[0] * 1e6, 3),
            "read_rows_per_second": round(read_without_spark(tasks)),
            "decode_rows_per_second": round(decode_alone(tasks)),
        }


def main() -> None:
    options = parser(__doc__, runs=5)
    options.add_argument("--brokers", type=count, default=3)
    options.add_argument("--partitions", type=count, default=6)
    options.add_argument("--record-size", type=count, default=100)
    options.add_argument("--records", type=count, default=4_000_000)
    options.add_argument("--sizes", choices=("equal", "mixed"), default="equal")
    options.add_argument("--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), default="none")
    arguments = options.parse_args()
    with Cluster(brokers=arguments.brokers) as cluster:
        create_topic(cluster, TOPIC, arguments.partitions, 1)
        say(f"writing {arguments.records:,} records of {arguments.record_size:,} bytes")
        progress = Progress("written", arguments.records)
        sizes = sizes_of(arguments)
        write(cluster.bootstrap_servers, arguments.records, sizes, arguments.compression, progress)
        tasks = plan(cluster.bootstrap_servers, arguments.partitions)
        say("starting Spark, and reading all of it once to warm up")
        with spark_session("bench", master="local[2]", settings=SETTINGS) as spark:
            reading = measured(spark, cluster, tasks, sizes)
            next(reading)
            repeat_and_report(arguments, lambda: next(reading))


if __name__ == "__main__":
    sys.exit(run(main))
