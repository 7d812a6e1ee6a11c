"""Suites from crates: librdkafka's test runner (rdkafka-sys has its whole tree) and rust-rdkafka's tests."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

from compat.suite import CannotRun, Case, Outcome, Suite, Target, done, first, say
from compat.suites import kafka_tools

CRATE: Final = "0.39.0"
MANIFEST: Final = f"""[package]
name = "compat"
version = "0.0.0"
edition = "2021"

[dependencies]
rdkafka = "={CRATE}"
"""
SHIM: Final = """#!/bin/sh
exec java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp '{jars}/*' {name} "$@"
"""
SCRIPTS: Final = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
}
TESTS: Final = (
    *("0002", "0003", "0004", "0005", "0007", "0008", "0011", "0012", "0013", "0014", "0015", "0017", "0018", "0019"),
    *("0021", "0022", "0026", "0028", "0029", "0030", "0031", "0033", "0034", "0036", "0039", "0040", "0041", "0042"),
    *("0044", "0045", "0047", "0048", "0049", "0050", "0051", "0052", "0053", "0054", "0055", "0056", "0057", "0058"),
    *("0059", "0060", "0061", "0063", "0064", "0065", "0067", "0068", "0069", "0070", "0073", "0074", "0077", "0080"),
    *("0082", "0083", "0084", "0085", "0086", "0088", "0089", "0090", "0091", "0092", "0093", "0094", "0095"),
    *("0099", "0100", "0101", "0102", "0112", "0113", "0118", "0122", "0127", "0130", "0132", "0137", "0140"),
)
SHORT_TESTS: Final = ("0012", "0018", "0019", "0029", "0030", "0033", "0056", "0061", "0102", "0118", "0132")
ADMIN: Final = "0081"
ADMIN_PARTS: Final = (
    *("CreateTopics", "DeleteTopics", "CreatePartitions", "DescribeConfigs"),
    *(
        "DeleteRecords",
        "ListConsumerGroups",
        "DescribeConsumerGroups:",
        "DescribeTopics",
        "DescribeCluster",
        "ListOffsets",
    ),
    *("DeleteGroups", "DeleteConsumerGroupOffsets", "AlterConsumerGroupOffsets", "ListConsumerGroupOffsets"),
)
"""Of the test of administration, which ends where one of its parts fails: all but those of ACLs and of SCRAM."""
ONE_TEST_S: Final = 300


def _crate(suite: Suite, prefix: str) -> Path:
    """A copy of a crate's sources, which cargo's own must stay as they are."""
    source = suite.directory / "source"

    def make() -> None:
        project = suite.directory / "project"
        (project / "src").mkdir(parents=True, exist_ok=True)
        (project / "src" / "lib.rs").touch()
        (project / "Cargo.toml").write_text(MANIFEST)
        suite.call(["cargo", "fetch"], cwd=project, within_s=300, must=True)
        status, said = suite.call(["cargo", "metadata", "--offline", "--format-version", "1"], cwd=project, within_s=60)
        found = re.search(rf'"manifest_path":"([^"]*/{prefix}[^"/]*)/Cargo.toml"', said)
        if status != 0 or found is None:
            raise CannotRun(f"cargo does not say where {prefix} is, see {suite.log}")
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(found[1], source)

    done(suite.directory / f"fetched-{CRATE}", make)
    return source


def librdkafka(suite: Suite, target: Target) -> list[Case]:
    """Each test by a runner of its own: one that aborts ends no other."""
    tests = _crate(suite, "rdkafka-sys-") / "librdkafka" / "tests"

    def build() -> None:
        suite.call(["./configure", "--disable-sasl", "--disable-curl"], cwd=tests.parent, within_s=300, must=True)
        suite.call(["make", "-j2", "libs"], cwd=tests.parent, within_s=900, must=True)
        suite.call(["make", "-j2", "test-runner"], cwd=tests, within_s=900, must=True)

    done(suite.directory / f"built-{CRATE}", build)
    (tests / "test.conf").write_text(
        f"metadata.broker.list={target.bootstrap_servers}\ntest.timeout.multiplier=3\ntest.topic.random=true\n"
    )
    environment = {
        "TEST_KAFKA_VERSION": "3.9.0",
        "KAFKA_PATH": str(_scripts(suite)),
        "BROKERS": target.bootstrap_servers,
        "LD_LIBRARY_PATH": f"{tests.parent / 'src'}:{tests.parent / 'src-cpp'}",
    }
    chosen = [name for name in (SHORT_TESTS if target.short else TESTS) if name not in suite.left_out]
    cases = [_one(suite, tests, environment, name) for name in chosen]
    parts = ADMIN_PARTS[::4] if target.short else ADMIN_PARTS
    return cases + [_one(suite, tests, environment, ADMIN, f"do_test_{part}") for part in parts]


def _one(suite: Suite, tests: Path, environment: dict[str, str], number: str, part: str = "") -> Case:
    test = next((path.stem for path in sorted(tests.glob(f"{number}-*.c*"))), number)
    name = f"{test} {part}".strip().rstrip(":")
    report = suite.directory / "report.json"
    report.unlink(missing_ok=True)
    env = {**environment, "TESTS": number, "TEST_REPORT": str(report)}
    if part:
        env["SUBTESTS"] = part
    status, said = suite.call(["./test-runner", "-p1", "-Q"], cwd=tests, env=env, within_s=ONE_TEST_S)
    took = re.search(rf"\|\s*{re.escape(test)}\S*\s*\|\s*(\w+)\s*\|\s*([\d.]+)s", _plain(said))
    seconds = float(took[2]) if took else 0.0
    say(f"{name}: {'passed' if status == 0 else f'failed ({status})'}")
    if status == 0 and took and took[1] == "SKIPPED":
        return Case(name, Outcome.LEFT_OUT, seconds, first(_plain(said).splitlines(), "SKIP") or "it skips itself")
    if status == 0:
        return Case(name, Outcome.PASSED, seconds)
    if status == 124:
        return Case(name, Outcome.FAILED, ONE_TEST_S, f"not done after {ONE_TEST_S} s")
    return Case(name, Outcome.FAILED, seconds, first(_plain(said).splitlines(), "FAIL|ssert") or f"ended with {status}")


def _plain(said: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", said)


def _scripts(suite: Suite) -> Path:
    """Kafka's directory as the runner looks for it: its scripts, by Kafka's jars."""
    jars = kafka_tools.jars(suite)
    scripts = suite.directory / "kafka" / "bin"
    scripts.mkdir(parents=True, exist_ok=True)
    for script, name in SCRIPTS.items():
        (scripts / script).write_text(SHIM.format(jars=jars, name=name))
        (scripts / script).chmod(0o755)
    return scripts.parent


def rust_rdkafka(suite: Suite, target: Target) -> list[Case]:
    """`cargo test` of the crate's integration tests."""
    source = _crate(suite, "rdkafka-0")
    files = ["test_admin", "test_high_consumers", "test_high_producers", "test_low_consumers", "test_low_producers"]
    files += ["test_metadata", "test_topic_partition_list"]
    chosen = [word for file in files for word in ("--test", file)]
    build = ["cargo", "test", "--no-run", *chosen]
    suite.call(build, cwd=source, within_s=1200, must=True)
    (suite.directory / f"built-{CRATE}").touch()
    status, said = suite.call(
        ["cargo", "test", "--no-fail-fast", *chosen, "--", "--test-threads=2", "--exact"]
        + [word for name in suite.left_out for word in ("--skip", name)],
        cwd=source,
        env={"KAFKA_HOST": target.bootstrap_servers, "KAFKA_VERSION": "3.9.0"},
        within_s=900,
    )
    cases = [
        Case(
            found[1],
            Outcome.PASSED if found[2] == "ok" else Outcome.FAILED,
            0.0,
            "" if found[2] == "ok" else _why(said, found[1]),
        )
        for found in re.finditer(r"^test (\S+) \.\.\. (ok|FAILED)$", said, re.MULTILINE)
    ]
    if status != 0 and not any(case.outcome is Outcome.FAILED for case in cases):
        cases.append(Case("cargo test", Outcome.FAILED, reason=f"ended with {status}, see {suite.log}"))
    return cases


def _why(said: str, test: str) -> str:
    after = said.partition(f"thread '{test}'")[2].splitlines()
    return " ".join(line.strip() for line in after[:3])[:200]


LIBRDKAFKA: Final = Suite(
    name="librdkafka",
    what="librdkafka's test runner (from the crate rdkafka-sys): groups, offsets, administration, compaction",
    programs=("cargo", "make", "gcc", "java", "mvn"),
    run=librdkafka,
    built=f"built-{CRATE}",
    settings={
        "num.partitions": 4,
        "auto.create.topics.enable": "true",
        "group.initial.rebalance.delay.ms": 0,
        "log.cleaner.backoff.ms": 1000,
    },
    left_out={
        "0052": "it writes as a client of Kafka 0.9 does, in a message format that is not offered",
        "0103": "transactions are not offered",
        "0129": "transactions are not offered",
        "0098": "transactions are not offered",
        "0081 AlterConfigs, IncrementalAlterConfigs": "they set sasl.kerberos.*, which is refused: SASL is not offered",
        "0081 of ACLs": "there is no authorizer",
        "0081 of SCRAM": "SASL is not offered",
        "0097": "TLS is not offered",
        "0135": "SASL is not offered",
        "0142": "SASL is not offered",
        "0155 to 0190": "share groups and KIP-848: not offered by Kafka 3.9 with ZooKeeper either",
        "0107, 0111": "they want a broker that creates no topics",
    },
)
RUST_RDKAFKA: Final = Suite(
    name="rust-rdkafka",
    what=f"the crate rdkafka {CRATE}, its integration tests: consumers, administration",
    programs=("cargo",),
    run=rust_rdkafka,
    built=f"built-{CRATE}",
    brokers=1,
    settings={"num.partitions": 3, "auto.create.topics.enable": "true", "group.initial.rebalance.delay.ms": 0},
    left_out={
        "test_transaction_abort": "transactions are not offered",
        "test_transaction_commit": "transactions are not offered",
        "test_topics": "it assigns replicas to broker 0; brokers here begin at 1",
        "test_configs": "it asks broker 0; brokers here begin at 1",
        "test_metadata": "it demands that the only broker is 0",
        "test_future_producer_send": "it speaks to localhost:9092",
        "test_future_producer_send_fail": "it speaks to localhost:9092",
        "test_base_producer_timeout": "it demands that a topic is not made within 100 ms",
    },
)
