"""Whether format("regency") does what Spark's own format("kafka") does: a comparison, not a speed.

    ./dev bench spark-compared --jars DIR

DIR holds the jars of Spark's Kafka connector, in the version of the pyspark that runs; without them this says which.
Both connectors are given the same reads, streams and writes on one cluster of three agents. Compared are rows, columns,
offsets of every batch, checkpoints that one has begun and the other goes on from, and the records that a plain consumer
finds after a write. The tables of cases (tests/bench/spark_compared/cases_*.py) say what is expected of each, and why
where the two differ. A case that is not as its table says ends the bench with status 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from data_plane.topics import create_topic
from reporting import parser, run, say, write_report
from spark_compared import records
from spark_compared.cases_reading import READING
from spark_compared.cases_streaming import STREAMING, StreamCase
from spark_compared.cases_writing import WRITING
from spark_compared.jars import jars_in
from spark_compared.reading import read
from spark_compared.session import CONNECTORS, Session
from spark_compared.streaming import Streams
from spark_compared.verdicts import Expected, Got, Outcome, Verdict, mistakes, told, verdict
from spark_compared.writing import PARTITIONS, sink_topic, write

from regency.cluster.cluster import Cluster
from regency.pipeline.session import spark_session

NAMES = [case.name for table in (READING, STREAMING, WRITING) for case in table]
SETTINGS = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2", "spark.log.level": "OFF"}


@dataclass(frozen=True, slots=True)
class Compared:
    """A case, and what both made of it."""

    name: str
    expected: Expected
    kafka: Outcome
    regency: Outcome

    @property
    def wrong(self) -> list[str]:
        return mistakes(self.expected, self.kafka, self.regency)

    def as_json(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"case": self.name, "verdict": str(verdict(self.kafka, self.regency))}
        facts |= {"kafka": told(self.kafka), "regency": told(self.regency)}
        if isinstance(self.kafka, Got) and isinstance(self.regency, Got) and self.kafka.tasks + self.regency.tasks:
            facts["tasks"] = [self.kafka.tasks, self.regency.tasks]
        return facts | {"why": self.expected.why, "wrong": self.wrong}


def arguments() -> argparse.Namespace:
    flags = parser(__doc__)
    flags.add_argument("--jars", type=Path, required=True, metavar="DIR", help="where the connector's jars are")
    flags.add_argument("--case", action="append", choices=NAMES, metavar="NAME", help="only this case; repeatable")
    return flags.parse_args()


def cases(session: Session, wanted: list[str]) -> Iterator[Compared]:
    streams = Streams(session)
    kinds: list[tuple[Any, Callable[[str, Any], Outcome]]] = [
        (READING, lambda connector, case: read(session, connector, case)),
        (STREAMING, streams.run),
        (WRITING, lambda connector, case: write(session, connector, case)),
    ]
    taken_over = [case for case in STREAMING if case.name in wanted and case.checkpoint_of]
    if taken_over:
        begin_checkpoints(session, streams, taken_over)
    for table, of in kinds:
        for case in table:
            if case.name in wanted:
                kafka, regency = (of(connector, case) for connector in CONNECTORS)
                yield Compared(case.name, case.expected, kafka, regency)


def begin_checkpoints(session: Session, streams: Streams, taken_over: list[StreamCase]) -> None:
    """Have each connector read to the end, and write more."""
    for case in taken_over:
        streams.begin(str(case.checkpoint_of), case.options)
    records.add_later(session.servers)


def compare(jars: list[Path], folder: Path, wanted: list[str]) -> list[Compared]:
    """Start a cluster and Spark, and tell case by case."""
    compared = []
    with Cluster(brokers=3) as cluster:
        topics = {**records.PARTITIONS, **{sink_topic(connector): PARTITIONS for connector in CONNECTORS}}
        for name, partitions in topics.items():
            create_topic(cluster, name, partitions, 3)
        records.fill(cluster.bootstrap_servers)
        settings = {**SETTINGS, "spark.jars": ",".join(str(jar) for jar in jars)}
        with spark_session("compared", master="local[2]", settings=settings) as spark:
            for case in cases(Session(spark, cluster.bootstrap_servers, folder), wanted):
                compared.append(case)
                say(f"{'  ' if not case.wrong else '! '}{case.name}: {verdict(case.kafka, case.regency)}")
                for wrong in case.wrong:
                    say(f"    {wrong}")
    return compared


def main() -> int:
    given = arguments()
    jars = jars_in(given.jars.absolute(), version("pyspark"))
    with tempfile.TemporaryDirectory(prefix="spark-compared-") as folder:
        compared = compare(jars, Path(folder), given.case or NAMES)
    found = Counter(verdict(case.kafka, case.regency) for case in compared)
    wrong = [case.name for case in compared if case.wrong]
    results = {
        "cases": len(compared),
        **{each.name.lower(): found[each] for each in Verdict},
        "not_as_expected": len(wrong),
        "by_case": [case.as_json() for case in compared],
    }
    write_report(given.json, {"pyspark": version("pyspark"), "jars": [jar.name for jar in jars]}, results)
    if wrong:
        print(f"bench spark-compared: not as its table says: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(run(main))
