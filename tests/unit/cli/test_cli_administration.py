"""Brokers, controllers and health: what is asked of the cluster, and how its answers are judged and shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from fake_cluster import AT, NODES, FakeCluster, facts, partition

from regency.cli.asking import wire
from regency.cli.asking.controllers import ControllerFacts
from regency.cli.asking.wire import TopicFacts
from regency.cli.cluster import command as cluster
from regency.cli.exits import CommandFailed
from regency.clients.nodes import Node
from regency.model.ids import BrokerId
from regency.protos import admin_pb2

Run = Callable[..., Result]


@pytest.fixture
def fake(connect: Callable[[FakeCluster], None]) -> FakeCluster:
    made = FakeCluster()
    connect(made)
    return made


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
def test_wrong_use_is_status_2(run: Run, fake: FakeCluster, words: tuple[str, ...]) -> None:
    assert run(*AT, *words).exit_code == 2
    assert fake.asked == []


def test_who_rules_is_shown_and_anything_but_one_ruler_is_status_3(run: Run, fake: FakeCluster) -> None:
    shown = run(*AT, "-o", "json", "controller", "status")
    assert (shown.exit_code, [row["broker"] for row in json.loads(shown.stdout) if row["rules"]]) == (0, [2])

    fake.facts = [facts(1), facts(2, rules=None)]
    result = run(*AT, "controller", "status")
    assert result.exit_code == 3
    assert "The controller of broker 2 does not answer at c2:1." in result.stdout
    assert (
        "one is being elected, broker 1 has contact with ZooKeeper; the controller process of broker 2 did not answer."
        in result.stdout
    )


def test_while_zookeeper_is_away_all_verdicts_say_so(run: Run, fake: FakeCluster) -> None:
    fake.facts = [facts(each, in_contact=False) for each in (1, 2, 3)]
    away = "ZooKeeper is away, so no controller rules: brokers 1, 2, 3 have no contact with it"

    status, health, doctor = (
        run(*AT, *words) for words in (("controller", "status"), ("cluster", "health"), ("doctor",))
    )

    assert (status.exit_code, status.stdout.splitlines()[-1]) == (3, f"{away}.")
    assert (health.exit_code, health.stdout) == (3, f"not healthy: {away}\n")
    assert (doctor.exit_code, doctor.stderr.startswith(f"Error: {away}. Bring ZooKeeper back;")) == (4, True)


def test_a_broker_without_contact_and_one_that_is_frozen_are_not_healthy(run: Run, fake: FakeCluster) -> None:
    fake.facts = [facts(1, in_contact=False), facts(2, rules=True, epoch=7), facts(3)]
    fake.silent = [BrokerId(3)]
    health = run(*AT, "-o", "json", "cluster", "health")
    problems = ["broker 1 has no contact with ZooKeeper", "broker 3 does not answer (frozen, cut off, or just died)"]
    assert (health.exit_code, json.loads(health.stdout)["problems"]) == (3, problems)
    assert run(*AT, "controller", "status").stdout.endswith("No contact with ZooKeeper: broker 1.\n")


HEALTHY = [TopicFacts("t", [partition(0, 1, [1, 2]), partition(1, 2, [2, 3])])]
RULED = [facts(1), facts(2, rules=True, epoch=7)]


def test_a_cluster_is_healthy_when_all_is_led_in_sync_and_acknowledged() -> None:
    found = cluster.judge(NODES, RULED, HEALTHY, [1, 2, 3])

    assert (found.healthy, found.problems) == (True, [])
    assert (found.controller, found.controller_epoch, found.topics, found.partitions) == (2, 7, 1, 2)


@pytest.mark.parametrize(
    ("rulers", "topics", "expected", "problem"),
    [
        ([facts(1)], HEALTHY, [], "no controller rules now: one is being elected, broker 1 has contact with ZooKeeper"),
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
            [facts(2, rules=True, epoch=7, offline=1)],
            [TopicFacts("t", [partition(0, -1, [1, 2])])],
            [],
            "t-0 has no leader",
        ),
        (
            [facts(2, rules=True, epoch=7, offline=1)],
            HEALTHY,
            [],
            "the controller knows of 1 more without a leader (`regency doctor` names them)",
        ),
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


def test_health_is_status_0_or_3_and_5_after_a_wait(run: Run, fake: FakeCluster) -> None:
    topics = list(HEALTHY)
    fake.known = topics
    assert run(*AT, "cluster", "health").exit_code == 0

    topics.append(TopicFacts("u", [partition(0, -1, [1])]))
    for words, status in (((), 3), (("--wait", "--timeout", "0"), 5)):
        result = run(*AT, "cluster", "health", *words)
        assert (result.exit_code, result.stdout.splitlines()[0]) == (status, "not healthy: u-0 has no leader")


def test_no_answer_is_not_healthy(run: Run, fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> list[TopicFacts]:
        raise CommandFailed("No broker answers at nobody:1.")

    monkeypatch.setattr(fake, "topics", nobody)
    result = run(*AT, "-o", "json", "cluster", "health")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["problems"] == ["No broker answers at nobody:1"]


def test_brokers_are_listed_with_what_they_lead_and_lack(run: Run, fake: FakeCluster) -> None:
    fake.known = [TopicFacts("t", [partition(0, 1, [1, 9], [1])])]

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


def test_a_dead_broker_is_described_by_what_is_assigned_to_it(run: Run, fake: FakeCluster) -> None:
    held = [TopicFacts("t", [partition(0, 1, [1, 9], [1]), partition(1, -1, [9]), partition(2, 1, [1])])]
    fake.known = held

    dead = run(*AT, "brokers", "describe", "9")
    told = json.loads(run(*AT, "-o", "json", "brokers", "describe", "9").stdout)

    assert dead.exit_code == 0
    assert dead.stdout.startswith("broker      9, not registered\naddress     -\n")
    assert "replicas    2, leads 0, out of sync 1, without a leader 1\n" in dead.stdout
    assert "t      0          follower  1       no       no\n" in dead.stdout
    assert "t      1          follower  -       yes      no\n" in dead.stdout
    assert "Broker 9 is not registered" in dead.stderr
    assert "`regency brokers forget 9`" in dead.stderr
    assert (told["live"], told["settings"], told["leaderless"], len(told["replicas"])) == (False, None, 1, 2)
    assert fake.asked == []


def test_a_broker_that_nobody_knows_is_not_described(run: Run, fake: FakeCluster) -> None:
    fake.known = []

    result = run(*AT, "brokers", "describe", "9")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "Broker 9 is not registered, and no partition is assigned to it; live are 1, 2, 3." in result.stderr


@pytest.mark.parametrize(
    ("outcome", "replicas", "status", "words"),
    [
        ((0, ""), 0, 0, "Broker 9 is forgotten.\n"),
        ((0, ""), 4, 0, "Broker 9 is forgotten; what it was to delete is given up: 4 replicas.\n"),
        ((42, "Broker 9 is live."), 0, 6, "Error: Broker 9 is live.\n"),
        ((102, "Nothing is known of a broker 9."), 0, 1, "Error: Nothing is known of a broker 9.\n"),
    ],
)
def test_a_broker_is_forgotten_or_why_not(
    run: Run,
    fake: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    outcome: tuple[int, str],
    replicas: int,
    status: int,
    words: str,
) -> None:
    asked: list[Any] = []

    def answer(address: str, _: object, request: Any) -> admin_pb2.ForgetBrokerResponse:
        asked.append((address, request.broker_id))
        told = admin_pb2.Outcome(error_code=outcome[0], message=outcome[1])
        return admin_pb2.ForgetBrokerResponse(outcome=told, replicas=replicas)

    monkeypatch.setattr(wire, "ask_controller", answer)

    result = run(*AT, "brokers", "forget", "9")

    assert asked == [("c2:1", 9)]
    assert (result.exit_code, result.stderr or result.stdout) == (status, words)


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "describe", ""),
        ("topics", "delete", "", "--yes"),
        ("topics", "create", ""),
        ("topics", "alter", "", "--partitions", "2"),
        ("topics", "set-rf", "", "2"),
        ("leaders", "elect", ""),
        ("explain", "", "0"),
        ("configs", "get", "topic", ""),
        ("produce", ""),
        ("consume", ""),
    ],
)
def test_an_empty_name_is_no_topic_and_not_every_topic(run: Run, fake: FakeCluster, words: tuple[str, ...]) -> None:
    result = run(*AT, *words)

    assert result.exit_code == 2
    assert "a topic's name is not empty" in result.stderr
    assert fake.asked == []


def test_a_broker_that_is_alone_in_sync_is_not_shut_down_unasked(run: Run, fake: FakeCluster) -> None:
    fake.known = [TopicFacts("t", [partition(0, 1, [1, 2], [1])])]
    result = run(*AT, "brokers", "shutdown", "1")
    assert result.exit_code == 6
    assert "Broker 1 alone is in sync for t-0" in result.stderr
    assert fake.asked == []


def test_a_broker_that_is_not_live_is_not_found() -> None:
    with pytest.raises(CommandFailed, match="Broker 9 is not live; live are 1, 2, 3"):
        wire.find(NODES, BrokerId(9))


def test_addresses_of_ipv6_are_written_in_brackets() -> None:
    assert Node(BrokerId(1), "::1", 9092).address == "[::1]:9092"
