"""`regency leaders elect`: what is asked, and how what comes of it is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from fake_cluster import AT, FakeCluster, partition

from regency.cli.asking.wire import TopicFacts
from regency.kafka.codec import ElectLeadersResponse

Run = Callable[..., Result]
TOPIC = ElectLeadersResponse.ReplicaElectionResult


class Cluster(FakeCluster):
    """Answers elections with these error codes, by topic and partition."""

    def __init__(self) -> None:
        super().__init__()
        self.codes: dict[tuple[str, int], tuple[int, str | None]] = {}
        self.error = 0
        self.known = [TopicFacts("t", [partition(number, 2 if number else -1, [2, 3]) for number in range(3)])]

    def topics(self, names: Any = None, *, broker: int | None = None) -> list[TopicFacts]:
        assert not self.asked or broker == 2, "who answered knows the new leaders, another broker may not"
        return super().topics(names)

    def answer(self, message: Any, version: int, broker: int | None) -> Any:
        assert (version, broker) == (2, 2)
        topics: dict[str, list[Any]] = {}
        for (topic, number), (code, why) in self.codes.items():
            result = TOPIC.PartitionResult(version=2, partition_id=number, error_code=code, error_message=why)
            topics.setdefault(topic, []).append(result)
        results = [TOPIC(version=2, topic=topic, partition_result=each) for topic, each in topics.items()]
        return ElectLeadersResponse(
            version=2, throttle_time_ms=0, error_code=self.error, replica_election_results=results
        )

    def named(self) -> dict[str, list[int]] | None:
        ((message, _),) = self.asked
        if message.topic_partitions is None:
            return None
        return {each.topic: list(each.partitions) for each in message.topic_partitions}


@pytest.fixture
def wire(connect: Callable[[FakeCluster], None]) -> Cluster:
    fake = Cluster()
    connect(fake)
    return fake


def test_all_partitions_of_a_topic_are_asked_for(run: Run, wire: Cluster) -> None:
    wire.codes = {("t", 1): (0, None), ("t", 0): (80, "No leader: it is not live."), ("t", 2): (84, "leads already")}
    result = run("leaders", "elect", "t", *AT)

    assert wire.named() == {"t": [0, 1, 2]}
    assert (wire.asked[0][0].election_type, wire.asked[0][0].timeout_ms) == (0, 15_000)
    assert result.exit_code == 1
    assert result.stdout == (
        "TOPIC  PARTITION  RESULT      LEADER  WHY\n"
        "t      0          failed      -       No leader: it is not live.\n"
        "t      1          elected     2       -\n"
        "t      2          not needed  2       leads already\n"
    )


def test_some_partitions_as_json(run: Run, wire: Cluster) -> None:
    wire.codes = {("t", 2): (0, None)}
    result = run("leaders", "elect", "t", "2", "2", "-o", "json", *AT)

    assert wire.named() == {"t": [2]}
    assert (result.exit_code, json.loads(result.stdout)) == (
        0,
        [{"topic": "t", "partition": 2, "result": "elected", "leader": 2, "why": None}],
    )


def test_all_that_need_it(run: Run, wire: Cluster) -> None:
    result = run("leaders", "elect", "--all", "--timeout", "3", *AT)

    assert wire.named() is None
    assert wire.asked[0][0].timeout_ms == 3000
    assert (result.exit_code, result.stdout, result.stderr) == (0, "No partition needs an election.\n", "")
    wire.asked.clear()
    assert json.loads(run("leaders", "elect", "--all", "-o", "json", *AT).stdout) == []


def test_kafkas_file(run: Run, wire: Cluster, tmp_path: Any) -> None:
    file = tmp_path / "election.json"
    file.write_text('{"partitions": [{"topic": "t", "partition": 1}, {"topic": "u", "partition": 0}]}')
    wire.codes = {("t", 1): (0, None), ("u", 0): (3, "The partition does not exist.")}
    result = run("leaders", "elect", "--path-to-json-file", str(file), *AT)

    assert wire.named() == {"t": [1], "u": [0]}
    assert result.exit_code == 1
    assert "The partition does not exist." in result.stdout


@pytest.mark.parametrize("content", ["", "{", '{"partitions": [{"topic": "t"}]}', '{"partitions": []}'])
def test_file_that_names_nothing_is_refused(run: Run, wire: Cluster, tmp_path: Any, content: str) -> None:
    file = tmp_path / "election.json"
    file.write_text(content)
    result = run("leaders", "elect", "--path-to-json-file", str(file), *AT)

    assert (result.exit_code, wire.asked) == (1, [])
    assert str(file) in result.stderr


def test_unclean_election_must_be_meant(run: Run, wire: Cluster) -> None:
    refused = run("leaders", "elect", "t", "--type", "unclean", *AT)
    assert (refused.exit_code, refused.stdout, wire.asked) == (6, "", [])
    assert "can lose acknowledged records" in refused.stderr

    wire.codes = {("t", 1): (0, None)}
    assert run("leaders", "elect", "t", "1", "--type", "unclean", "--yes", *AT).exit_code == 0
    assert wire.asked[0][0].election_type == 1


def test_unknown_names_are_refused_before_anything_is_asked(run: Run, wire: Cluster) -> None:
    for words in (("nothing",), ("t", "9")):
        result = run("leaders", "elect", *words, *AT)
        assert (result.exit_code, result.stdout) == (1, "")
    assert wire.asked == []


@pytest.mark.parametrize("words", [(), ("t", "--all"), ("t", "-1"), ("--all", "--type", "other")])
def test_wrong_use_is_status_2(run: Run, wire: Cluster, words: tuple[str, ...]) -> None:
    assert run("leaders", "elect", *words, *AT).exit_code == 2
    assert wire.asked == []


def test_late_leaders_and_a_refused_request_have_their_own_status(run: Run, wire: Cluster) -> None:
    wire.codes = {("t", 1): (7, "The leader was elected, and is not known here yet.")}
    assert run("leaders", "elect", "t", "1", *AT).exit_code == 5
    wire.asked.clear()
    wire.error = 41
    result = run("leaders", "elect", "t", "1", *AT)
    assert result.exit_code == 1
    assert "NOT_CONTROLLER" in result.stderr


def test_help_has_examples(run: Run) -> None:
    result = run("leaders", "elect", "--help")
    assert "regency leaders elect" in result.stdout
    assert "Example" in result.stdout
