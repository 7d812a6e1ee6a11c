"""Kafka 3.9.1's own tools, from their jars: verifiable clients, console consumer, group and record commands, dump.

Its compaction tester and its brokers on our directories are here too.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from compat.suite import Case, Suite, Target, done, first, timed

VERSION: Final = "3.9.1"
POM: Final = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>compat</groupId><artifactId>compat</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version><classifier>test</classifier></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>{VERSION}</version><classifier>test</classifier></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-server-common</artifactId><version>{VERSION}</version><classifier>test</classifier></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
KAFKA_UI: Final = Path(__file__).parents[2] / "java" / "KafkaUi.java"
RECORDS: Final = 20_000
COMPACTED: Final = 20_000


class Tools:
    """Kafka's classes, each call a Java of its own, against one cluster."""

    def __init__(self, suite: Suite, target: Target) -> None:
        self._suite = suite
        self._servers = target.bootstrap_servers
        self._factor = str(min(3, target.brokers))
        self._classes = f"{jars(suite)}/*"

    def run(self, name: str, *arguments: str, within_s: float = 120) -> tuple[int, str]:
        """Run the main method of a class."""
        command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", self._classes, name, *arguments]
        return self._suite.call(command, within_s=within_s)

    def command(self, name: str, *arguments: str, within_s: float = 120) -> tuple[int, str]:
        """Run one that takes `--bootstrap-server`."""
        return self.run(name, "--bootstrap-server", self._servers, *arguments, within_s=within_s)

    def create(self, topic: str, *configs: str) -> str:
        """Make a topic; what went wrong, or nothing."""
        words = [word for config in configs for word in ("--config", config)]
        made = ["--create", "--topic", topic, "--partitions", "6", "--replication-factor", self._factor]
        return self.wrong(self.command("org.apache.kafka.tools.TopicCommand", *made, *words))

    def wrong(self, outcome: tuple[int, str], *expected: str) -> str:
        """Nothing where it ended with 0 and said everything that was expected."""
        status, said = outcome
        if status != 0:
            return f"ended with {status}: {first(said.splitlines(), 'FAILED|rror|xception|ailed') or _end(said)}"
        lacks = [pattern for pattern in expected if not re.search(pattern, said)]
        return f"did not say {lacks[0]!r}: {_end(said)}" if lacks else ""

    def verifiable_clients(self) -> str:
        """What VerifiableProducer had acknowledged is what VerifiableConsumer reads in a group, and commits."""
        if wrong := self.create("verifiable"):
            return wrong
        produced = self.command(
            "org.apache.kafka.tools.VerifiableProducer",
            *("--topic", "verifiable", "--max-messages", str(RECORDS)),
            *("--repeating-keys", "100"),  # so that each partition has some
        )
        if wrong := self.wrong(produced, rf'"acked":{RECORDS}'):
            return wrong
        consumed = self.command(
            "org.apache.kafka.tools.VerifiableConsumer",
            *("--topic", "verifiable", "--group-id", "verifiable", "--max-messages", str(RECORDS)),
            *("--reset-policy", "earliest", "--enable-autocommit"),
        )
        if wrong := self.wrong(consumed, "partitions_assigned", "shutdown_complete"):
            return wrong
        read = sum(
            int(json.loads(line)["count"]) for line in consumed[1].splitlines() if '"name":"records_consumed"' in line
        )
        return "" if read == RECORDS else f"read {read} of {RECORDS}"

    def console_consumer(self) -> str:
        """ConsoleConsumer in a group goes on behind what it has read before."""
        name = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        words = ["--topic", "verifiable", "--group", "console", "--from-beginning", "--timeout-ms", "10000"]
        status, said = self.command(name, *words, "--max-messages", "1000")
        if status != 0 or "Processed a total of 1000 messages" not in said:
            return f"ended with {status}: {_end(said)}"
        _, said = self.command(name, *words)
        more = re.search(r"Processed a total of (\d+) messages", said)
        return "" if more and int(more[1]) == RECORDS - 1000 else f"read {more and more[1]} after 1000 of {RECORDS}"

    def group_command(self) -> str:
        """ConsumerGroupCommand lists, describes, resets (dry run and execute), deletes offsets and a group."""
        name = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        steps: list[tuple[list[str], list[str]]] = [
            (["--list"], ["console", "verifiable"]),
            (["--list", "--state"], [r"console +Empty"]),
            (["--describe", "--group", "verifiable"], [r"verifiable +verifiable +0 +\d+ +\d+ +0 "]),
            (["--describe", "--group", "verifiable", "--state"], [r"verifiable .*Empty +0"]),
            (["--describe", "--all-groups", "--members"], ["has no active members"]),
            (
                ["--reset-offsets", "--group", "verifiable", "--topic", "verifiable", "--to-earliest", "--dry-run"],
                [r"verifiable +verifiable +0 +0"],
            ),
            (
                ["--reset-offsets", "--group", "verifiable", "--topic", "verifiable", "--shift-by", "-5", "--execute"],
                [r"verifiable +verifiable +5 +\d+"],
            ),
            (["--describe", "--group", "verifiable"], [r"verifiable +verifiable +0 +\d+ +\d+ +5 "]),
            (["--delete-offsets", "--group", "verifiable", "--topic", "verifiable"], ["Successful"]),
            (["--delete", "--group", "console"], [r"successful"]),
        ]
        for words, expected in steps:
            if wrong := self.wrong(self.command(name, *words), *expected):
                return f"{' '.join(words)}: {wrong}"
        return ""

    def delete_records(self) -> str:
        """DeleteRecordsCommand moves the start of a partition."""
        wanted = {"partitions": [{"topic": "verifiable", "partition": 0, "offset": 100}], "version": 1}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(wanted, file)
            file.flush()
            told = self.command("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", file.name)
        if wrong := self.wrong(told, r"verifiable-0\s+low_watermark: 100"):
            return wrong
        told = self.command(
            "org.apache.kafka.tools.GetOffsetShell", "--topic-partitions", "verifiable:0", "--time", "-2"
        )
        return self.wrong(told, "verifiable:0:100")

    def compaction(self) -> str:
        """LogCompactionTester: what the cleaner leaves is what a map of the last values says."""
        return self.wrong(
            self.run(
                "kafka.tools.LogCompactionTester",
                *(
                    "--bootstrap-server",
                    self._servers,
                    "--topics",
                    "1",
                    "--messages",
                    str(COMPACTED),
                    "--duplicates",
                    "10",
                ),
                *("--percent-deletes", "10", "--sleep", "20"),
                within_s=300,
            ),
            r"[1-9]\d*\.\d% reduction",
            "Data verification is completed",
        )

    def kafka_ui(self) -> str:
        """The calls of kafbat's kafka-ui, made by Kafka's own AdminClient in their order."""
        return self.wrong(self.run(str(KAFKA_UI), self._servers), "ok button: delete a topic: gone")


def _end(said: str) -> str:
    return " ".join(said.split())[-150:]


def jars(suite: Suite) -> Path:
    """Kafka's jars, fetched for `suite`."""
    kept = suite.directory / "jars"

    def make() -> None:
        (suite.directory / "pom.xml").write_text(POM)
        shutil.rmtree(kept, ignore_errors=True)
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={kept}"]
        suite.call(command, within_s=600, must=True)

    done(suite.directory / f"fetched-{VERSION}", make)
    return kept


def run(suite: Suite, target: Target) -> list[Case]:
    """One case a tool, in an order in which each finds what the one before has left."""
    tools = Tools(suite, target)
    cases: list[tuple[str, Callable[[], str]]] = [
        ("VerifiableProducer and VerifiableConsumer", tools.verifiable_clients),
        ("ConsoleConsumer --group", tools.console_consumer),
        ("ConsumerGroupCommand", tools.group_command),
        ("DeleteRecordsCommand", tools.delete_records),
        ("LogCompactionTester", tools.compaction),
        ("what kafbat's kafka-ui calls, by Kafka's AdminClient", tools.kafka_ui),
    ]
    return [timed(name, work) for name, work in cases if name not in suite.left_out]


SUITE: Final = Suite(
    name="kafka-tools",
    what=f"Apache Kafka {VERSION}'s command line tools",
    programs=("java", "mvn"),
    run=run,
    settings={
        "log.cleaner.backoff.ms": 1000,
        "log.cleaner.min.cleanable.ratio": 0.01,
        "log.segment.bytes": 200_000,  # else the compaction tester's topic is one segment, and nothing is cleaned
    },
)
