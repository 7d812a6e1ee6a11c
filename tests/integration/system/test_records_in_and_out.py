"""Records go in and come out as kcat, rpk and Kafka's tools have it: headers, tombstones, moments, the last of each."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from regency.cli.main import cli
from regency.cluster.cluster import Cluster

pytestmark = pytest.mark.integration

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with Cluster(brokers=1) as cluster:
        cluster.wait_healthy(60)

        def invoke(*words: str, given: str = "", status: int = 0) -> Result:
            done = CliRunner().invoke(cli, [*words, "--bootstrap-server", cluster.bootstrap_servers], input=given)
            assert done.exit_code == status, done.output
            return done

        yield invoke


def records(run: Run, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("consume", *words, "--until-end", "-o", "json").stdout.splitlines()]


def test_records_of_a_terminal_spread_over_all_partitions(run: Run) -> None:
    run("topics", "create", "spread", "--partitions", "6")
    run("produce", "spread", given="".join(f"{number}\n" for number in range(1, 1001)))
    held = Counter(each["partition"] for each in records(run, "spread", "--from-beginning"))
    assert (sum(held.values()), len(held)) == (1000, 6)
    assert min(held.values()) > 100


def test_the_last_of_each_those_since_a_moment_and_those_of_a_partition(run: Run) -> None:
    run("topics", "create", "days", "--partitions", "2")
    run("produce", "days-0", given="a\nb\nc\n")
    time.sleep(1.1)
    between = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    time.sleep(1.1)
    run("produce", "days", "--partition", "1", given="d\n")
    run("produce", "days-0", given="e\n")
    assert sorted(each["value"] for each in records(run, "days", "--offset", "-2")) == ["c", "d", "e"]
    assert sorted(each["value"] for each in records(run, "days", "--offset", f"@{between}")) == ["d", "e"]
    assert [each["value"] for each in records(run, "days-0", "--offset", "1")] == ["b", "c", "e"]
    assert [each["value"] for each in records(run, "days", "1", "--from-beginning")] == ["d"]
    assert records(run, "days", "--offset", "@0s") == [], "nothing is as new as that"


def test_headers_keys_tombstones_and_formats(run: Run) -> None:
    run("topics", "create", "keyed")
    words = ("--key-separator", ":", "--tombstones", "--header", "source=nyc", "--compression", "zstd")
    run("produce", "keyed", *words, given="k:v\nk:\n")
    alive, tombstone = records(run, "keyed", "--from-beginning")
    assert (alive["key"], alive["value"], alive["headers"]) == ("k", "v", [["source", "nyc"]])
    assert (tombstone["key"], tombstone["value"]) == ("k", None)
    layout = ("--format", r"%t-%p@%o %k=%v %h\n", "--from-beginning", "--until-end")
    assert run("consume", "keyed", *layout).stdout == "keyed-0@0 k=v source=nyc\nkeyed-0@1 k= source=nyc\n"


def test_a_topic_is_made_where_that_is_said(run: Run) -> None:
    assert "There is no topic made." in run("produce", "made", given="x\n", status=1).stderr
    assert "Created topic made: 1 partition, 1 replica." in run("produce", "made", "--create", given="x\n").stderr
    assert [each["value"] for each in records(run, "made", "--from-beginning")] == ["x"]
