"""Topics that refuse reads or writes, and why; clients that were refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from fake_cluster import AT, FakeCluster, partition

from regency.cli.asking import sufferers
from regency.cli.asking.sufferers import CLOSED, CONNECTIONS, ERRORS, ClientFacts, clients, judge
from regency.cli.asking.wire import PartitionFacts, TopicFacts
from regency.cli.exits import CommandFailed
from regency.clients.nodes import Node
from regency.model.ids import BrokerId

Run = Callable[..., Result]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (partition(0, 1, [1, 2, 3]), None),
        (partition(0, 1, [1, 2, 3], [1, 2]), None),
        (partition(0, 1, [1, 2, 3], [1]), "refuses writes with acks=all: 1 in sync, min.insync.replicas is 2"),
        (partition(0, 2, [2, 1]), "refuses reads and writes: broker 2, which leads, does not answer"),
        (partition(0, -1, [8, 9], [9]), "refuses reads and writes: no leader (not live: broker 8, 9)"),
        (partition(0, -1, [2, 9], [9]), "refuses reads and writes: no leader (not live: broker 9; frozen: broker 2)"),
        (partition(0, -1, [1, 3]), "refuses reads and writes: no leader (none of its replicas on 1, 3 may lead)"),
        (
            PartitionFacts(0, -1, [1, 9], [1], offline_replicas=[1, 9]),
            "refuses reads and writes: no leader (not live: broker 9; its directory offline: broker 1)",
        ),
    ],
)
def test_why_a_partition_refuses(facts: PartitionFacts, words: str | None) -> None:
    told = [each.told for each in judge([TopicFacts("t", [facts])], {"t": 2}, {1, 2, 3}, [2])]
    assert told == ([] if words is None else [f"t: its partition {words}"])


def test_partitions_are_counted_by_reason_and_topics_without_settings_are_not_guessed() -> None:
    facts = [partition(0, 1, [1, 2], [1]), partition(1, -1, [9]), partition(2, 1, [1, 2], [1]), partition(3, 1, [1, 2])]
    found = judge([TopicFacts("t", facts)], {"t": 2}, {1, 2}, [])
    assert [(each.partitions, each.of, each.first, each.refuses) for each in found] == [
        (2, 4, 0, "writes with acks=all"),
        (1, 4, 1, "reads and writes"),
    ]
    assert found[0].told == "t: 2 of 4 partitions refuse writes with acks=all: 1 in sync, min.insync.replicas is 2"
    assert len(judge([TopicFacts("t", facts)], {}, {1, 2}, [])) == 1


def test_health_says_which_topics_refuse_what(run: Run, connect: Callable[[FakeCluster], None]) -> None:
    fake = FakeCluster()
    fake.min_isr = 2
    fake.known = [TopicFacts("t", [partition(0, 1, [1, 2, 3], [1])]), TopicFacts("u", [partition(0, 1, [1, 2, 3])])]
    connect(fake)
    result = run("cluster", "health", *AT)
    words = "t: its partition refuses writes with acks=all: 1 in sync, min.insync.replicas is 2"
    assert (result.exit_code, result.stdout.splitlines()[1:]) == (3, [words])
    [told] = json.loads(run("cluster", "health", *AT, "-o", "json").stdout)["refused"]
    assert (told["topic"], told["partitions"], told["refuses"]) == ("t", 1, "writes with acks=all")


def test_health_names_a_topic_that_can_never_be_written_though_all_its_replicas_are_in_sync(
    run: Run, connect: Callable[[FakeCluster], None]
) -> None:
    fake = FakeCluster()
    fake.min_isr = 4
    fake.known = [TopicFacts("t", [partition(0, 1, [1, 2, 3])])]
    connect(fake)
    words = "t: its partition refuses writes with acks=all: 3 in sync, min.insync.replicas is 4"
    for options in ([], ["--wait"]):
        result = run("cluster", "health", *options, *AT)
        assert (result.exit_code, result.stdout.splitlines()[1:]) == (0, [words])


def test_health_without_settings_says_what_it_does_not_know(run: Run, connect: Callable[[FakeCluster], None]) -> None:
    class Waiting(FakeCluster):
        def ask(self, message: Any, version: int, **_: Any) -> Any:
            raise CommandFailed("Broker 1 did not answer within 5 s.")

    fake = Waiting()
    fake.known = [TopicFacts("t", [partition(0, 1, [1, 2, 3])]), TopicFacts("u", [partition(0, -1, [9])])]
    connect(fake)
    result = run("cluster", "health", *AT)
    assert (result.exit_code, result.stdout.splitlines()[1:]) == (
        3,
        ["u: its partition refuses reads and writes: no leader (not live: broker 9)"],
    )
    assert result.stderr == (
        "Which topics refuse writes with acks=all is not known: Broker 1 did not answer within 5 s.\n"
    )


def test_clients_are_counted_by_broker_and_everyday_errors_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {
        (CONNECTIONS, "PLAINTEXT,0"): 4.0,
        (CONNECTIONS, "OTHER,0"): 1.0,
        (CLOSED, "too_many"): 2.0,
        (CLOSED, "idle"): 70.0,
        (ERRORS, "NOT_ENOUGH_REPLICAS,Produce"): 12.0,
        (ERRORS, "NOT_LEADER_OR_FOLLOWER,Produce"): 5.0,
        (ERRORS, "NONE,Produce"): 900.0,
        (ERRORS, "KAFKA_STORAGE_ERROR,FetchFollower"): 3.0,
    }
    monkeypatch.setattr(sufferers.Meters, "read", lambda *_: {1: told})
    nodes = [Node(BrokerId(number), "h", number) for number in (1, 2)]
    assert clients(nodes) == [ClientFacts(BrokerId(1), 5, 2, {"NOT_ENOUGH_REPLICAS": 12}), ClientFacts(BrokerId(2))]
