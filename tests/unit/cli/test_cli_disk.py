"""`regency brokers disk`: sizes by topic and directory, how fast they grow, and when a volume is full."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from fake_cluster import AT, FakeCluster, partition

from regency.cli.asking import disks
from regency.cli.asking.disks import Directory, Log, directories, disks_used
from regency.cli.asking.wire import TopicFacts
from regency.cli.brokers import disk
from regency.cli.brokers.disk import disk_use
from regency.clients.nodes import Node
from regency.kafka.peer import PeerUnavailable
from regency.model.ids import BrokerId

Run = Callable[..., Result]
GIB = 1 << 30


def held(*logs: Log, usable: int | None = 40 * GIB, offline: bool = False) -> Directory:
    return Directory("/data", offline, usable, None if usable is None else 100 * GIB, list(logs))


def log(topic: str, partition: int, size: int, *, future: bool = False) -> Log:
    return Log(topic, partition, size, future)


FIRST = {
    1: [held(log("a", 0, GIB), log("b", 0, 10))],
    2: [held(log("a", 0, GIB), log("a", 0, GIB // 2, future=True))],
    3: "connecting: refused",
}
LATER = {
    1: [held(log("a", 0, 3 * GIB), log("b", 0, 10), usable=38 * GIB)],
    2: [held(log("a", 0, 2 * GIB), log("a", 0, GIB, future=True), usable=41 * GIB)],
    3: [held(log("a", 1, GIB), offline=True, usable=None)],
}


def test_topics_and_volumes_grow_and_one_that_told_once_has_no_rate():
    found = disk_use(FIRST, LATER, 2.0)
    assert [(each.broker, each.growth_per_s, each.full_in_s) for each in found.directories] == [
        (1, GIB, 38.0),
        (2, -0.5 * GIB, None),
        (3, None, None),
    ]
    assert [(each.topic, each.partitions, each.copy_bytes, each.all_bytes) for each in found.topics] == [
        ("a", 2, 4 * GIB, 7 * GIB),
        ("b", 1, 10, 10),
    ]
    assert [each.growth_per_s for each in found.topics] == [1.75 * GIB, 0.0], "broker 3's are not new"
    once = disk_use(LATER, LATER, 0.0)
    assert {each.growth_per_s for each in (*once.topics, *once.directories)} == {None}
    assert disk_use(LATER, FIRST, 2.0).problems == ["Broker 3 does not tell: connecting: refused"]


@pytest.fixture
def played(connect: Callable[[FakeCluster], None], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What brokers tell, one look after the other, 100 s apart."""
    looks: list[Any] = []
    clock = iter(range(0, 10_000, 100))
    connect(FakeCluster())
    monkeypatch.setattr(disk, "directories", lambda *_, **__: looks.pop(0))
    monkeypatch.setattr(disk, "time", SimpleNamespace(sleep=lambda _: None, monotonic=lambda: next(clock)))
    return looks


@pytest.mark.parametrize(
    ("usable", "words"),
    [
        (40 * GIB - 100 * (1 << 20), "1.0 MiB/s in about 11 h"),
        (40 * GIB, "0 B/s does not grow"),
        (41 * GIB, "-10.2 MiB/s does not grow"),
        (40 * GIB - 100, "1 B/s not within a year"),
    ],
)
def test_the_table_says_when_a_volume_is_full(run: Run, played: list[Any], usable: int, words: str) -> None:
    many = [log(f"t{number:02}", 0, number) for number in range(23)]
    played += [{1: [held(*many)]}, {1: [held(*many, usable=usable)]}]
    result = run("brokers", "disk", *AT)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert " ".join(lines[1].split()).endswith(words)
    assert lines[4].split() == ["t22", "1", "22", "B", "22", "B", "0", "B/s"], "the largest first"
    assert lines[-1] == "and 3 smaller topics; -o json has all of them"


def test_a_broker_that_does_not_tell_and_a_directory_that_is_offline(run: Run, played: list[Any]) -> None:
    played += [FIRST, FIRST]
    result = run("brokers", "disk", *AT)
    assert (result.exit_code, result.stderr) == (1, "Error: Broker 3 does not tell: connecting: refused\n")
    played += [LATER]
    result = run("brokers", "disk", "--apart", "0", *AT, "-o", "json")
    assert result.exit_code == 3
    assert [each["offline"] for each in json.loads(result.stdout)["directories"]] == [False, False, True]


def test_a_broker_that_is_not_live_is_not_left_out_without_a_word(
    run: Run, connect: Callable[[FakeCluster], None], played: list[Any]
) -> None:
    fake = FakeCluster()
    fake.known = [TopicFacts("a", [partition(0, 1, [1, 9])])]
    connect(fake)
    played += [{1: [held(log("a", 0, GIB))]}]
    result = run("brokers", "disk", "--apart", "0", *AT, "-o", "json")
    words = "Broker 9 is not live: its directories and replicas are not counted"
    assert (result.exit_code, json.loads(result.stdout)["problems"]) == (3, [words])
    assert result.stderr == f"Error: {words}\n"


def test_a_broker_that_is_silent_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Peer:
        def __init__(self, host: str, port: int, **_: Any) -> None:
            self.port = port

        def exchange(self, message: Any, version: int) -> Any:
            if self.port == 2:
                raise PeerUnavailable("h:2 did not answer within 1 s")
            result = SimpleNamespace(error_code=0, log_dir="/d", usable_bytes=25, total_bytes=100, topics=[])
            unknown = SimpleNamespace(error_code=56, log_dir="/e", usable_bytes=-1, total_bytes=-1, topics=[])
            return SimpleNamespace(error_code=0, results=[result, unknown])

        def close(self) -> None:
            pass

    monkeypatch.setattr(disks, "PeerConnection", Peer)
    nodes = [Node(BrokerId(number), "h", number) for number in (1, 2)]
    told = directories(nodes)
    assert told[BrokerId(2)] == "h:2 did not answer within 1 s"
    assert told[BrokerId(1)] == [Directory("/d", False, 25, 100, []), Directory("/e", True, None, None, [])]
    assert disks_used(nodes) == {1: 0.75, 2: None}
