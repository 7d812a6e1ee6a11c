"""`regency log dirs` and `regency log move`: what is shown, asked and waited for."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from fake_cluster import AT, FakeCluster, partition

from regency.cli.asking.wire import TopicFacts
from regency.cli.exits import CommandFailed
from regency.cli.log import command as log
from regency.cli.partitions import plans as plan_report
from regency.clients.nodes import Node
from regency.clients.replicas import wire as replicas_wire
from regency.kafka.codec import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from regency.model.ids import BrokerId, TopicPartition
from regency.planning.plans import Move

Run = Callable[..., Result]


def directory(path: str, *logs: tuple[str, int, int, int, bool], offline: bool = False, usable: int = -1) -> Any:
    return SimpleNamespace(
        error_code=56 if offline else 0,
        log_dir=path,
        total_bytes=usable,
        usable_bytes=usable,
        topics=[
            SimpleNamespace(
                name=topic,
                partitions=[
                    SimpleNamespace(partition_index=number, partition_size=size, offset_lag=lag, is_future_key=future)
                ],
            )
            for topic, number, size, lag, future in logs
        ],
    )


class Cluster(FakeCluster):
    """Brokers 1 and 2; `dirs` are told one after the other, the last again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.dirs: dict[int, list[list[Any]]] = {1: [[]], 2: [[]]}
        self.silent: set[int] = set()
        self.code = 0
        self.altered: list[Any] = []

    def brokers(self) -> dict[Any, Node]:
        return {number: Node(BrokerId(number), "host", 9092) for number in self.dirs}

    def answer(self, message: Any, version: int, broker: int | None) -> Any:
        assert broker is not None
        if broker in self.silent:
            raise CommandFailed("It does not answer.")
        if isinstance(message, AlterReplicaLogDirsRequest):
            self.altered.append(message)
            row = SimpleNamespace(partition_index=3, error_code=self.code)
            return SimpleNamespace(results=[SimpleNamespace(topic_name="t", partitions=[row])])
        assert isinstance(message, DescribeLogDirsRequest)
        told = self.dirs[broker]
        return SimpleNamespace(error_code=0, results=told.pop(0) if len(told) > 1 else told[0])


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch, connect: Callable[[FakeCluster], None]) -> Cluster:
    fake = Cluster()
    connect(fake)
    monkeypatch.setattr(log.time, "sleep", lambda _: None)
    return fake


def test_directories_are_shown_with_sizes_and_logs_that_move(run: Run, wire: Cluster) -> None:
    wire.dirs[1] = [
        [
            directory("/b", ("t", 3, 512, 40, True), usable=1 << 30),
            directory("/a", ("t", 3, 2048, 0, False), ("u", 0, 1024, 0, False), usable=1 << 30),
        ]
    ]
    result = run("log", "dirs", "--broker", "1", *AT)
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["BROKER", "DIRECTORY", "STATE", "LOGS", "FUTURE", "SIZE", "USABLE", "TOTAL"],
        ["1", "/a", "online", "2", "0", "3.0", "KiB", "1.0", "GiB", "1.0", "GiB"],
        ["1", "/b", "online", "0", "1", "512", "B", "1.0", "GiB", "1.0", "GiB"],
        [],
        ["BROKER", "TOPIC", "PARTITION", "DIRECTORY", "SIZE", "LAG", "FUTURE"],
        ["1", "t", "3", "/b", "512", "B", "40", "yes"],
    ]


def test_offline_directories_and_silent_brokers_are_told(run: Run, wire: Cluster) -> None:
    wire.dirs[1] = [[directory("/a", offline=True)]]
    result = run("log", "dirs", *AT)
    assert (result.exit_code, "Offline: /a of broker 1." in result.stderr) == (3, True)
    assert "offline  -" in result.stdout
    wire.silent = {2}
    result = run("log", "dirs", *AT)
    assert (result.exit_code, "Broker 2: It does not answer." in result.stderr) == (1, True)


def test_logs_of_a_topic_are_shown_as_json(run: Run, wire: Cluster) -> None:
    wire.dirs[2] = [[directory("/a", ("t", 3, 5, 0, False), ("u", 0, 6, 0, False))]]
    result = run("log", "dirs", "--topic", "t", "-o", "json", *AT)
    (row,) = json.loads(result.stdout)
    assert (row["broker"], row["offline"], row["usable_bytes"]) == (2, False, None)
    assert row["logs"] == [{"topic": "t", "partition": 3, "size_bytes": 5, "lag": 0, "future": False}]


def test_a_topic_without_logs_and_a_broker_that_is_not_live_are_refused(run: Run, wire: Cluster) -> None:
    wire.dirs[1] = [[directory("/a")]]
    wire.known = [TopicFacts("flights", [partition(0, 1, [1])])]
    result = run("log", "dirs", "--topic", "flights", *AT)
    assert (result.exit_code, "None of these brokers has a log of flights." in result.stderr) == (1, True)
    result = run("log", "dirs", "--topic", "fligths", *AT)
    assert (result.exit_code, result.stderr) == (1, "Error: There is no topic fligths. Did you mean flights?\n")
    result = run("log", "dirs", "--broker", "7", *AT)
    assert (result.exit_code, "Broker 7 is not live; live are 1, 2." in result.stderr) == (1, True)


def test_a_move_is_asked_for_and_waited_for(run: Run, wire: Cluster) -> None:
    old, copy = directory("/a", ("t", 3, 9, 0, False)), directory("/b", ("t", 3, 5, 2, True))
    wire.dirs[1] = [[old, copy], [old, copy], [directory("/a"), directory("/b", ("t", 3, 9, 0, False))]]
    result = run("log", "move", "t", "3", "--broker", "1", "--to", "/b/", *AT, "-o", "json")
    ((asked,),) = (each.dirs for each in wire.altered)
    assert (asked.path, [(topic.name, list(topic.partitions)) for topic in asked.topics]) == ("/b/", [("t", [3])])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert (found["directory"], found["moved"], found["log"]["size_bytes"]) == ("/b", True, 9)
    assert "t-3 of broker 1 is in /b/." in result.stderr


@pytest.mark.parametrize(("option", "status"), ((("--no-wait",), 4), (("--timeout", "0"), 5)))
def test_a_move_that_is_not_waited_for_goes_on(run: Run, wire: Cluster, option: tuple[str, ...], status: int) -> None:
    wire.dirs[1] = [[directory("/a", ("t", 3, 9, 0, False)), directory("/b", ("t", 3, 5, 2, True))]]
    result = run("log", "move", "t", "3", "--broker", "1", "--to", "/b", *option, *AT)
    assert (result.exit_code, result.stderr) == (status, "")
    assert "is being moved to /b, 2 offsets to go" in result.stdout


def test_a_move_that_ends_elsewhere_is_a_failure(run: Run, wire: Cluster) -> None:
    wire.dirs[1] = [[directory("/a", ("t", 3, 9, 0, False)), directory("/b", offline=True)]]
    result = run("log", "move", "t", "3", "--broker", "1", "--to", "/b", *AT)
    assert (result.exit_code, "t-3 is not moved to /b any more: /b failed." in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("code", "words"),
    (
        (57, "Broker 1 has no log directory /c; it has /a, /b."),
        (56, "is offline on broker 1"),
        (9, "Broker 1 has no replica of t-3."),
        (17, "its name is too long"),
        (3, "t-3: UNKNOWN_TOPIC_OR_PARTITION."),
    ),
)
def test_a_refused_move_says_why(run: Run, wire: Cluster, code: int, words: str) -> None:
    wire.code = code
    wire.dirs[1] = [[directory("/a"), directory("/b")]]
    result = run("log", "move", "t", "3", "--broker", "1", "--to", "/c", *AT)
    assert (result.exit_code, words in result.stderr) == (1, True), result.stderr


def test_a_plan_knows_the_sizes_of_what_it_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    copied, ordered = TopicPartition("t", 3), TopicPartition("u", 0)
    wire = SimpleNamespace(silent={}, sizes=lambda _: {(1, copied): 5, (2, copied): 9}, close=lambda: None)
    monkeypatch.setattr(replicas_wire, "ReplicaWire", lambda *_, **__: wire)
    moves = [Move(copied, (1, 2), (1, 3)), Move(ordered, (1, 2), (2, 1))]

    assert plan_report.sizes_of({}, moves) == {copied: 9}
    assert plan_report.sizes_of({}, moves[1:]) == {}
    wire.silent[2] = "It does not answer."
    assert plan_report.sizes_of({}, moves) is None


def test_brokers_that_are_not_live_are_named_for_their_directories_are_missing(
    run: Run, connect: Callable[[FakeCluster], None]
) -> None:
    fake = Cluster()
    fake.known = [TopicFacts("t", [partition(0, 1, [1, 7])])]
    connect(fake)
    assert run("log", "dirs", *AT).stderr == "Not live, so not asked: broker 7.\n"
    assert run("log", "dirs", "--broker", "1", *AT).stderr == ""
