"""One seed: a job, its kills, and the verdict."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pyarrow.parquet
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from regency.cluster.cluster import Cluster
from spark_kills import plain
from spark_kills.jobs import Fault, Job, Kind, chosen_faults, chosen_job
from spark_kills.killing import Killer, Story
from spark_kills.notes import attempts
from spark_kills.verdict import Found, Verdict, judge

EXPECTED = (
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "ExecutorLostFailure",
    "Executor heartbeat timed out",
    "Connection reset",
    "EOFException",
    "Broken pipe",
    "FetchFailed",
    "ShuffleMapStage",
    "_MSG_TIMED_OUT",
)
"""What a query may fail of when somebody was killed; all else is a bug of ours until it is looked at."""
BUGS_TOLD = 5


class Outcome(NamedTuple):
    """What came of a seed."""

    seed: int
    job: Job
    story: Story
    verdict: Verdict


def create(cluster: Cluster, topic: str, partitions: int, **config: str) -> None:
    """A topic that stamps what it appends with the brokers' time."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    given = {name.replace("_", "."): value for name, value in config.items()}
    made = NewTopic(topic, partitions, 3, config={"message.timestamp.type": "LogAppendTime", **given})
    for future in admin.create_topics([made], operation_timeout=60, request_timeout=60).values():
        future.result(timeout=60)
    cluster.wait_healthy(60)


def fill(servers: str, topic: str, rows: int, partitions: int, size: int) -> list[bytes]:
    """Write rows whose values all differ; the values. Raises RuntimeError."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20, "log_level": 0})
    values = []
    for number in range(rows):
        value = b"%d " % number
        values.append(value.ljust(size, b"."))
        while True:
            try:
                producer.produce(topic, values[-1], b"%d" % (number % 97), number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(120):
        raise RuntimeError(f"{topic} could not be filled")
    return values


def try_seed(
    cluster: Cluster, seed: int, kind: Kind, source: str, values: list[bytes], folder: Path, kills: int
) -> Outcome:
    """Run the job of a seed under its kills, and judge. What it wrote to disk stays where something is wrong."""
    notes = folder / "notes"
    notes.mkdir(parents=True)
    job = chosen_job(seed, kind, servers=cluster.bootstrap_servers, source=source, folder=str(folder))
    return run_job(cluster, seed, job, chosen_faults(seed, job, kills, len(values)), values, folder)


def run_job(cluster: Cluster, seed: int, job: Job, faults: list[Fault], values: list[bytes], folder: Path) -> Outcome:
    """The same for a job and faults that the caller chooses; `folder` has a folder notes."""
    notes = folder / "notes"
    if job.kind == "write":
        create(cluster, job.topic, 3)
    story = Killer(cluster, job, notes, seed).run(faults)
    cluster.wait_healthy(60)
    if not story.ended:
        verdict = Verdict(bugs=[f"the job did not end well: {story.said[-2000:]}"])
    elif job.kind == "read":
        verdict = _judge_read(job, folder)
    else:
        verdict = _judge_written(job, values, notes, story.last_began_ms)
    unexpected = [text for text in story.failures if not any(known in text for known in EXPECTED)]
    verdict.bugs += [f"the query failed: {text[-1500:]}" for text in unexpected[:BUGS_TOLD]]
    verdict.bugs += [f"left behind: {text}" for text in story.left[:BUGS_TOLD]]
    if not verdict.bugs:
        shutil.rmtree(folder)
    return Outcome(seed, job, story, verdict)


def _judge_written(job: Job, values: list[bytes], notes: Path, last_began_ms: int) -> Verdict:
    found = plain.written(job.servers, job.topic)
    tried = attempts(notes)
    ordered = job.keyed and not job.shuffled
    if job.stream:
        return judge(values, found, tried, in_order=ordered)
    last = {name.query for name, some in tried.items() if max(each.begun_ms for each in some.values()) >= last_began_ms}
    verdict = Verdict(rows=len(values))
    for query, records in _by_query(found).items():
        one = judge(values, records, tried, whole=query in last, in_order=ordered)
        verdict.records += one.records
        verdict.late += one.late
        verdict.bugs += one.bugs
    if not last & {record.signature.task.query for record in found}:
        verdict.bugs.append("nothing of the write that ended well is there")
    return verdict


def _by_query(found: Iterable[Found]) -> dict[UUID, list[Found]]:
    by_query: dict[UUID, list[Found]] = {}
    for record in found:
        by_query.setdefault(record.signature.task.query, []).append(record)
    return by_query


def _judge_read(job: Job, folder: Path) -> Verdict:
    """Rows that were read against those of a plain consumer."""
    wanted = Counter(plain.read(job.servers, job.source))
    table = pyarrow.parquet.read_table(folder / "rows.parquet")
    columns = [table.column(name).to_pylist() for name in ("partition", "offset", "crc", "key")]
    found = Counter(zip(*columns, strict=True))
    verdict = Verdict(records=found.total(), rows=wanted.total())
    for words, which in (("lost", wanted - found), ("there too often, or none of the topic", found - wanted)):
        if which:
            verdict.bugs.append(f"{which.total()} rows are {words}, such as {min(which)}")
    return verdict
