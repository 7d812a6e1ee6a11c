"""Settings of topics and brokers: what is asked of the cluster, and how its answers are shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from fake_cluster import AT, FakeCluster, facts, partition

from regency.cli.asking.wire import TopicFacts
from regency.cli.exits import Exit
from regency.kafka.codec import DescribeConfigsResponse, IncrementalAlterConfigsResponse
from regency.model.kafka_errors import ErrorCode

Run = Callable[..., Result]


class Cluster(FakeCluster):
    """Answers what is asked about settings as it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.error = (0, None)
        self.configs: list[Any] = []

    def answer(self, message: Any, version: int, broker: int | None) -> Any:
        code, words = self.error
        if hasattr(message, "include_synonyms"):
            result = DescribeConfigsResponse.DescribeConfigsResult
            return DescribeConfigsResponse(
                version=version, results=[result(error_code=code, error_message=words, configs=self.configs)]
            )
        response = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
        return IncrementalAlterConfigsResponse(
            version=version, responses=[response(error_code=code, error_message=words)]
        )

    def changes(self) -> list[tuple[str, int, str | None]]:
        """Of the last request."""
        (resource,) = self.asked[0][0].resources
        return [(config.name, config.config_operation, config.value) for config in resource.configs]


def config(name: str, value: str, source: int, *, read_only: bool = False) -> Any:
    entry = DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult
    return entry(name=name, value=value, config_source=source, read_only=read_only, synonyms=[], config_type=5)


@pytest.fixture
def fake(connect: Callable[[FakeCluster], None]) -> Cluster:
    made = Cluster()
    connect(made)
    return made


def test_what_was_set_for_a_topic_is_shown_and_all_of_it_where_asked_for(run: Run, fake: Cluster) -> None:
    fake.configs = [config("retention.ms", "5", 1), config("segment.bytes", "9", 4), config("preallocate", "false", 5)]

    own = json.loads(run(*AT, "-o", "json", "configs", "get", "topic", "t").stdout)
    everything = json.loads(run(*AT, "-o", "json", "configs", "get", "topic", "t", "--all").stdout)
    table = run(*AT, "configs", "get", "topic", "t").stdout

    assert [row["key"] for row in own] == ["retention.ms"]
    assert [row["key"] for row in everything] == ["preallocate", "retention.ms", "segment.bytes"]
    assert table.splitlines()[1].split() == ["retention.ms", "5", "DYNAMIC_TOPIC_CONFIG", "no"]


def test_a_broker_is_asked_itself_and_all_brokers_by_any(run: Run, fake: Cluster) -> None:
    run(*AT, "configs", "get", "broker", "2")
    run(*AT, "configs", "get", "broker", "all")

    assert [(message.resources[0].resource_name, broker) for message, broker in fake.asked] == [("2", 2), ("", None)]


def test_a_key_that_is_not_there_is_an_error(run: Run, fake: Cluster) -> None:
    fake.configs = [config("min.insync.replicas", "2", 1)]
    result = run(*AT, "configs", "get", "topic", "t", "min.insync.replica")
    assert "topic t has no setting min.insync.replica. Did you mean min.insync.replicas?" in result.stderr
    result = run(*AT, "configs", "get", "topic", "t", "nonsense")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "topic t has no setting nonsense." in result.stderr


def test_keys_are_set_added_to_and_taken_from(run: Run, fake: Cluster) -> None:
    result = run(*AT, "configs", "set", "topic", "t", "retention.ms=5", "cleanup.policy+=delete", "a.b-=c")

    assert result.exit_code == 0
    assert fake.changes() == [("retention.ms", 0, "5"), ("cleanup.policy", 2, "delete"), ("a.b", 3, "c")]
    assert "The settings of topic t are changed." in result.stdout
    assert "Note" not in result.stderr


def test_what_has_no_effect_is_said(run: Run, fake: Cluster) -> None:
    result = run(
        *AT, "configs", "set", "topic", "t", "compression.type=lz4", "local.retention.ms=5", "preallocate=false"
    )

    assert result.exit_code == 0
    assert "Note: without effect here: local.retention.ms." in result.stderr
    assert "Note: compression.type: batches stay as the producer compressed them." in result.stderr
    assert "preallocate" not in result.stderr


def test_keys_are_unset(run: Run, fake: Cluster) -> None:
    run(*AT, "configs", "unset", "broker", "all", "log.retention.ms", "--dry-run")

    del fake.asked[:-1]  # what was set was asked for before
    assert fake.changes() == [("log.retention.ms", 1, None)]
    assert fake.asked[0][0].validate_only


def test_a_key_that_was_not_set_is_named_when_it_is_unset_and_that_is_no_error(run: Run, fake: Cluster) -> None:
    fake.configs = [config("retention.ms", "5", 1), config("segment.ms", "9", 4)]

    both = run(*AT, "configs", "unset", "topic", "t", "retention.ms", "segment.ms")
    fake.configs = fake.configs[1:]
    neither = run(*AT, "configs", "unset", "topic", "t", "segment.ms")

    assert (both.exit_code, neither.exit_code) == (0, 0)
    assert both.stdout == "The settings of topic t are changed.\nsegment.ms was not set for topic t.\n"
    assert neither.stdout == "segment.ms was not set for topic t.\n"


def test_refusals_are_said_in_the_words_of_the_cluster(run: Run, fake: Cluster) -> None:
    fake.error = (40, "no such key")
    result = run(*AT, "configs", "set", "topic", "t", "a=b")
    assert (result.exit_code, result.stderr) == (1, "Error: no such key\n")


@pytest.mark.parametrize("words", [("configs", "set", "topic", "t"), ("topics", "alter", "t", "--set")])
def test_a_topic_that_nobody_can_write_from_now_on_is_told_of(run: Run, fake: Cluster, words: tuple[str, ...]) -> None:
    fake.known = [TopicFacts("t", [partition(0, 1, [1, 2])])]
    fake.min_isr = 3
    told = run(*AT, *words, "min.insync.replicas=3")
    assert told.exit_code == 0
    assert "Warning: Topic t has 2 replicas and min.insync.replicas=3: nothing can ever be written to it" in told.stderr
    assert "Warning" not in run(*AT, *words, "retention.ms=5").stderr


def test_settings_of_a_topic_are_altered_and_returned_to_their_defaults(run: Run, fake: Cluster) -> None:
    fake.configs = [config("retention.ms", "5", 1)]
    words = ("topics", "alter", "t", "--config", "retention.ms=5", "--delete-config", "segment.ms", "-o", "json")

    altered = json.loads(run(*AT, *words).stdout)

    assert fake.changes() == [("retention.ms", 0, "5"), ("segment.ms", 1, None)]
    assert altered == {"topic": "t", "partitions": None, "config": {"retention.ms": "5"}}


@pytest.mark.parametrize("words", [["get", "topic", "t"], ["set", "topic", "t", "retention.ms=5"]])
def test_without_zookeeper_settings_end_as_all_else_that_needs_a_controller(
    run: Run, fake: Cluster, words: list[str]
) -> None:
    fake.error = (ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper session 2 is over; there is none now.")
    assert run(*AT, "configs", *words).exit_code == Exit.TIMED_OUT, "a controller rules, so it was only slow"
    fake.facts = [facts(1, in_contact=False)]
    result = run(*AT, "configs", *words)
    assert result.exit_code == Exit.IN_PROGRESS
    assert result.stderr.startswith(
        "Error: ZooKeeper is away, so no controller rules: broker 1 has no contact with it."
    )
