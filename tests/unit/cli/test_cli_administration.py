"""Settings, brokers, controllers and health: what is asked of the cluster, and how its answers are judged and shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import Result

from regency.broker_agent.wire.codec import DescribeConfigsResponse, IncrementalAlterConfigsResponse
from regency.cli import brokers, cluster, configs, controllers, topics_alter, wire
from regency.cli.exits import CommandFailed
from regency.cli.metadata import PartitionFacts, TopicFacts
from regency.cli.wire import ControllerFacts, Node
from regency.model.ids import BrokerId

Run = Callable[..., Result]
AT = ("--bootstrap-server", "nobody:1")
NODES = {BrokerId(broker): Node(BrokerId(broker), f"h{broker}", 9000 + broker) for broker in (1, 2, 3)}


def facts(
    broker: int, *, rules: bool | None = False, epoch: int | None = None, unacknowledged: int = 0
) -> ControllerFacts:
    known = rules is not None
    told = 0 if rules else None
    return ControllerFacts(
        broker,
        f"c{broker}:1",
        rules,
        epoch,
        "Idle" if known else None,
        told,
        told,
        told,
        told,
        unacknowledged if rules else None,
    )


def partition(number: int, leader: int, replicas: list[int], isr: list[int] | None = None) -> PartitionFacts:
    return PartitionFacts(number, leader, replicas, replicas if isr is None else isr)


class FakeWire:
    """Brokers 1 to 3, of which 2 rules; remembers what it was asked and answers as it was told."""

    def __init__(self) -> None:
        self.nodes = dict(NODES)
        self.asked: list[tuple[Any, int | None]] = []
        self.error = (0, None)
        self.configs: list[Any] = []
        self.facts = [facts(1), facts(2, rules=True, epoch=7), facts(3)]

    def brokers(self) -> dict[BrokerId, Node]:
        return self.nodes

    def controllers(self) -> dict[BrokerId, Node]:
        return self.nodes

    def controller_facts(self) -> list[ControllerFacts]:
        return self.facts

    def ruling(self) -> ControllerFacts:
        return next(each for each in self.facts if each.rules)

    def ask(self, message: Any, version: int, *, broker: int | None = None) -> Any:
        self.asked.append((message, broker))
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
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeWire:
    made = FakeWire()

    @contextmanager
    def connect(_: str) -> Iterator[FakeWire]:
        yield made

    for module in (brokers, cluster, configs, controllers, topics_alter):
        monkeypatch.setattr(module, "cluster_wire", connect)
    return made


def test_what_was_set_for_a_topic_is_shown_and_all_of_it_where_asked_for(run: Run, fake: FakeWire) -> None:
    fake.configs = [config("retention.ms", "5", 1), config("segment.bytes", "9", 4), config("preallocate", "false", 5)]

    own = json.loads(run(*AT, "-o", "json", "configs", "get", "topic", "t").stdout)
    everything = json.loads(run(*AT, "-o", "json", "configs", "get", "topic", "t", "--all").stdout)
    table = run(*AT, "configs", "get", "topic", "t").stdout

    assert [row["key"] for row in own] == ["retention.ms"]
    assert [row["key"] for row in everything] == ["preallocate", "retention.ms", "segment.bytes"]
    assert table.splitlines()[1].split() == ["retention.ms", "5", "DYNAMIC_TOPIC_CONFIG", "no"]


def test_a_broker_is_asked_itself_and_all_brokers_by_any(run: Run, fake: FakeWire) -> None:
    run(*AT, "configs", "get", "broker", "2")
    run(*AT, "configs", "get", "broker", "all")

    assert [(message.resources[0].resource_name, broker) for message, broker in fake.asked] == [("2", 2), ("", None)]


def test_a_key_that_is_not_there_is_an_error(run: Run, fake: FakeWire) -> None:
    result = run(*AT, "configs", "get", "topic", "t", "nonsense")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "topic t has no setting nonsense." in result.stderr


def test_keys_are_set_added_to_and_taken_from(run: Run, fake: FakeWire) -> None:
    result = run(*AT, "configs", "set", "topic", "t", "retention.ms=5", "cleanup.policy+=compact", "a.b-=c")

    assert result.exit_code == 0
    assert fake.changes() == [("retention.ms", 0, "5"), ("cleanup.policy", 2, "compact"), ("a.b", 3, "c")]
    assert "The settings of topic t are changed." in result.stderr
    assert "compaction is not done yet" in result.stderr


def test_keys_are_unset(run: Run, fake: FakeWire) -> None:
    run(*AT, "configs", "unset", "broker", "all", "log.retention.ms", "--dry-run")

    assert fake.changes() == [("log.retention.ms", 1, None)]
    assert fake.asked[0][0].validate_only


def test_refusals_are_said_in_the_words_of_the_cluster(run: Run, fake: FakeWire) -> None:
    fake.error = (40, "no such key")
    result = run(*AT, "configs", "set", "topic", "t", "a=b")
    assert (result.exit_code, result.stderr) == (1, "Error: no such key\n")


@pytest.mark.parametrize(
    "words",
    [
        ("configs", "set", "topic", "t"),
        ("configs", "set", "topic", "t", "novalue"),
        ("configs", "set", "topic", "t", "a=1", "a=2"),
        ("configs", "set", "topic", "t", "a=1", "a+=2"),
        ("configs", "get", "broker", "one"),
        ("configs", "get", "client", "c"),
        ("topics", "alter", "t"),
        ("topics", "alter", "t", "--assignment", "1:2"),
        ("topics", "alter", "t", "--config", "a=1", "--config", "a=2"),
        ("topics", "alter", "t", "--config", "a=1", "--delete-config", "a"),
        ("partitions", "plan", "--topics", ""),
        ("partitions", "plan", "--topics", "t,"),
        ("brokers", "describe", "-1"),
        ("controller",),
        ("controller", "--override", "a=b", "status"),
        ("cluster", "health", "--timeout", "-1"),
    ],
)
def test_wrong_use_is_status_2(run: Run, fake: FakeWire, words: tuple[str, ...]) -> None:
    assert run(*AT, *words).exit_code == 2
    assert fake.asked == []


def test_settings_of_a_topic_are_altered_and_returned_to_their_defaults(run: Run, fake: FakeWire) -> None:
    fake.configs = [config("retention.ms", "5", 1)]
    words = ("topics", "alter", "t", "--config", "retention.ms=5", "--delete-config", "segment.ms", "-o", "json")

    altered = json.loads(run(*AT, *words).stdout)

    assert fake.changes() == [("retention.ms", 0, "5"), ("segment.ms", 1, None)]
    assert altered == {"topic": "t", "partitions": None, "config": {"retention.ms": "5"}}


def test_who_rules_is_shown_and_anything_but_one_ruler_is_status_3(run: Run, fake: FakeWire) -> None:
    shown = run(*AT, "-o", "json", "controller", "status")
    assert (shown.exit_code, [row["broker"] for row in json.loads(shown.stdout) if row["rules"]]) == (0, [2])

    fake.facts = [facts(1), facts(2, rules=None)]
    result = run(*AT, "controller", "status")
    assert result.exit_code == 3
    assert "The controller of broker 2 does not answer at c2:1." in result.stderr
    assert "No controller rules now" in result.stderr


HEALTHY = [TopicFacts("t", [partition(0, 1, [1, 2]), partition(1, 2, [2, 3])])]
RULED = [facts(1), facts(2, rules=True, epoch=7)]


def test_a_cluster_is_healthy_when_all_is_led_in_sync_and_acknowledged() -> None:
    found = cluster.judge(NODES, RULED, HEALTHY, [1, 2, 3])

    assert (found.healthy, found.problems) == (True, [])
    assert (found.controller, found.controller_epoch, found.topics, found.partitions) == (2, 7, 1, 2)


@pytest.mark.parametrize(
    ("rulers", "topics", "expected", "problem"),
    [
        ([facts(1)], HEALTHY, [], "no controller rules"),
        (
            [facts(1, rules=True, epoch=6), facts(2, rules=True, epoch=7)],
            HEALTHY,
            [],
            "the controllers of brokers 1, 2 say that they rule",
        ),
        (RULED, HEALTHY, [4], "broker 4 is not live"),
        (RULED, [TopicFacts("t", [partition(0, 1, [1, 9])])], [], "broker 9 is not live"),
        (RULED, [TopicFacts("t", [partition(0, -1, [1, 2])])], [], "t-0 has no leader"),
        (RULED, [TopicFacts("t", [partition(0, 1, [1, 2], [1])])], [], "t-0 lacks [2] in its ISR"),
        (
            [facts(2, rules=True, epoch=7, unacknowledged=5)],
            HEALTHY,
            [],
            "5 decisions are not acknowledged by their brokers yet",
        ),
    ],
)
def test_what_is_missing_is_named(
    rulers: list[ControllerFacts], topics: list[TopicFacts], expected: list[int], problem: str
) -> None:
    found = cluster.judge(NODES, rulers, topics, expected)
    assert (found.healthy, found.problems) == (False, [problem])


def test_health_is_status_0_or_4(run: Run, fake: FakeWire, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = list(HEALTHY)
    monkeypatch.setattr(cluster, "all_topics", lambda _: topics)
    assert run(*AT, "cluster", "health").exit_code == 0

    topics.append(TopicFacts("u", [partition(0, -1, [1])]))
    result = run(*AT, "cluster", "health", "--wait", "--timeout", "0")
    assert (result.exit_code, result.stdout) == (4, "not healthy: u-0 has no leader\n")


def test_no_answer_is_not_healthy(run: Run, fake: FakeWire, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_: str) -> list[TopicFacts]:
        raise CommandFailed("No broker answers at nobody:1.")

    monkeypatch.setattr(cluster, "all_topics", nobody)
    result = run(*AT, "-o", "json", "cluster", "health")
    assert result.exit_code == 4
    assert json.loads(result.stdout)["problems"] == ["No broker answers at nobody:1"]


def test_brokers_are_listed_with_what_they_lead_and_lack(run: Run, fake: FakeWire, monkeypatch: Any) -> None:
    monkeypatch.setattr(brokers, "all_topics", lambda _: [TopicFacts("t", [partition(0, 1, [1, 9], [1])])])

    rows = json.loads(run(*AT, "-o", "json", "brokers", "list").stdout)

    shown = [
        (row["broker"], row["live"], row["rules"], row["leads"], row["replicas"], row["out_of_sync"]) for row in rows
    ]
    assert shown == [
        (1, True, False, 1, 1, 0),
        (2, True, True, 0, 0, 0),
        (3, True, False, 0, 0, 0),
        (9, False, False, 0, 1, 1),
    ]


def test_a_broker_that_is_alone_in_sync_is_not_shut_down_unasked(run: Run, fake: FakeWire, monkeypatch: Any) -> None:
    monkeypatch.setattr(brokers, "all_topics", lambda _: [TopicFacts("t", [partition(0, 1, [1, 2], [1])])])
    result = run(*AT, "brokers", "shutdown", "1")
    assert result.exit_code == 6
    assert "Broker 1 alone is in sync for t-0" in result.stderr
    assert fake.asked == []


def test_a_broker_that_is_not_live_is_not_found() -> None:
    with pytest.raises(CommandFailed, match="Broker 9 is not live; live are 1, 2, 3"):
        wire.find(NODES, BrokerId(9))


def test_addresses_of_ipv6_are_written_in_brackets() -> None:
    assert Node(BrokerId(1), "::1", 9092).address == "[::1]:9092"
