"""The topics commands: what is asked of the cluster, and how its answers are shown."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from click.testing import Result
from fake_cluster import AT, FakeCluster, facts, partition

from regency.cli.asking import wire
from regency.cli.asking.refusals import refusal
from regency.cli.asking.wire import ClusterWire, PartitionFacts, TopicFacts, first_that_answers
from regency.cli.exits import CommandFailed, Exit
from regency.cli.topics import command as topics
from regency.cli.topics import making, replicas
from regency.cli.topics.replicas import LiveReplica
from regency.kafka.codec import CreatePartitionsResponse, CreateTopicsResponse, MetadataResponse
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2

Run = Callable[..., Result]
TOPIC_ID = UUID(int=7)
CREATED = CreateTopicsResponse.CreatableTopicResult
ADDED = CreatePartitionsResponse.CreatePartitionsTopicResult


class Cluster(FakeCluster):
    """Answers what makes topics and partitions with `code` and `words`; made topics are led unless `leaderless`."""

    def __init__(self) -> None:
        super().__init__()
        self.code, self.words = 0, None
        self.leaderless = False
        self.live: dict[TopicPartition, list[LiveReplica]] = {}

    def answer(self, message: Any, version: int, broker: int | None) -> Any:
        assert broker == 2, "the one whose controller rules is asked"
        (asked,) = message.topics
        if hasattr(asked, "count"):
            return CreatePartitionsResponse(
                version=version, results=[ADDED(name=asked.name, error_code=self.code, error_message=self.words)]
            )
        numbers = {"num_partitions": 6, "replication_factor": 3, "topic_id": TOPIC_ID} if not self.code else {}
        if not self.code:
            self.known.append(topic(asked.name, partition(0, -1 if self.leaderless else 1, [1])))
        created = CREATED(name=asked.name, error_code=self.code, error_message=self.words, **numbers)
        return CreateTopicsResponse(version=version, topics=[created])

    def wanted(self) -> tuple[Any, ...]:
        """What the last request to create a topic says."""
        (asked,) = self.asked[-1][0].topics
        assignments = {each.partition_index: list(each.broker_ids) for each in asked.assignments}
        configs = {each.name: each.value for each in asked.configs}
        return asked.name, asked.num_partitions, asked.replication_factor, assignments, configs


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch, connect: Callable[[FakeCluster], None]) -> Cluster:
    fake = Cluster()
    connect(fake)
    monkeypatch.setattr(topics, "ask_replicas", lambda *_: fake.live)
    monkeypatch.setattr(making, "_LOOK_EVERY_S", 0)
    monkeypatch.setattr(topics, "_LEADERS_TIMEOUT_MS", 1)
    monkeypatch.setattr(wire, "RULER_WITHIN_S", 0)
    return fake


def topic(name: str, *partitions: PartitionFacts, error_code: int = 0) -> TopicFacts:
    return TopicFacts(name, list(partitions), error_code, TOPIC_ID)


def held(number: int, leader: int, isr: list[int]) -> PartitionFacts:
    found = partition(number, leader, [1, 2, 3], isr)
    found.offline_replicas = [] if leader >= 0 else [1]
    return found


def test_create_asks_for_what_was_said_and_leaves_the_rest_to_the_broker(run: Run, admin: Cluster) -> None:
    result = run("topics", "create", "flights", *AT, "--replication-factor", "3", "--config", "min.insync.replicas=2")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Created topic flights.\n", "")
    assert admin.wanted() == ("flights", -1, 3, {}, {"min.insync.replicas": "2"})


def test_create_with_an_assignment(run: Run, admin: Cluster) -> None:
    assert run("topics", "create", "pinned", *AT, "--assignment", "1:2,2:3").exit_code == 0
    assert admin.wanted() == ("pinned", -1, -1, {0: [1, 2], 1: [2, 3]}, {})


def test_create_prints_what_was_made_as_json(run: Run, admin: Cluster) -> None:
    result = run("-o", "json", *AT, "topics", "create", "flights")
    assert json.loads(result.stdout) == {
        "topic": "flights",
        "topic_id": str(TOPIC_ID),
        "partitions": 6,
        "replication_factor": 3,
        "created": True,
    }


def test_refusal_is_said_in_the_words_of_the_controller(run: Run, admin: Cluster) -> None:
    words = "replication factor 5 needs 5 live brokers, 3 are live (1, 2, 3)."
    admin.code, admin.words = 38, words
    result = run("topics", "create", "flights", *AT, "--replication-factor", "5")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"Error: {words}\n")


def test_topic_that_exists_is_refused_unless_that_is_welcome(run: Run, admin: Cluster) -> None:
    admin.code = 36
    admin.known = [topic("flights", held(0, 1, [1]))]
    refused = run("topics", "create", "flights", *AT)
    assert refused.exit_code == 1
    assert refused.stderr == (
        "Error: topic flights: TOPIC_ALREADY_EXISTS. Choose another name, or say --if-not-exists.\n"
    )
    assert run("topics", "create", "flights", *AT, "--if-not-exists").stdout == "Topic flights is there already.\n"


def test_topic_that_exists_is_printed_as_it_is(run: Run, admin: Cluster) -> None:
    admin.code = 36
    admin.known = [topic("flights", held(0, 1, [1, 2]), held(1, 2, [2]))]
    result = run("topics", "create", "flights", *AT, "--if-not-exists", "-o", "json")
    assert json.loads(result.stdout) == {
        "topic": "flights",
        "topic_id": str(TOPIC_ID),
        "partitions": 2,
        "replication_factor": 3,
        "created": False,
    }


def test_topic_without_leaders_is_still_in_progress(run: Run, admin: Cluster) -> None:
    admin.leaderless = True
    result = run("topics", "create", "flights", *AT)
    assert result.exit_code == 4
    assert (
        "Topic flights is there, but not every partition got a leader within 0.001 s: without one: 0." in result.stderr
    )
    assert run("topics", "create", "flights", *AT, "--no-wait").exit_code == 0


def test_list_is_sorted(run: Run, admin: Cluster) -> None:
    admin.known = [topic("b", held(0, 1, [1])), topic("a", held(0, 1, [1]), held(1, 2, [2]))]
    result = run("topics", "list", *AT)
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["TOPIC", "PARTITIONS", "REPLICATION-FACTOR", "TOPIC-ID"],
        ["a", "2", "3", str(TOPIC_ID)],
        ["b", "1", "3", str(TOPIC_ID)],
    ]
    assert [row["topic"] for row in json.loads(run("topics", "list", *AT, "-o", "json").stdout)] == ["a", "b"]


def test_list_of_nothing_is_an_empty_array(run: Run, admin: Cluster) -> None:
    assert run("topics", "list", *AT, "-o", "json").stdout == "[]\n"


def test_describe_shows_each_partition(run: Run, admin: Cluster) -> None:
    admin.known = [topic("flights", held(0, 2, [2, 1, 3]), held(1, -1, [1]))]
    result = run("topics", "describe", "flights", *AT)
    assert result.stdout == (
        "TOPIC    PARTITION  LEADER  EPOCH  REPLICAS  ISR    OFFLINE  HW  LEO  LAG\n"
        "flights  0          2       4      1,2,3     2,1,3  -        -   -    -\n"
        "flights  1          -       -      1,2,3     1      1        -   -    -\n"
    )


def test_describe_shows_how_far_each_replica_is(run: Run, admin: Cluster) -> None:
    admin.known = [topic("flights", held(0, 2, [2, 1]))]
    admin.live = {
        TopicPartition("flights", 0): [
            LiveReplica(1, 0, 90, 80, 10),
            LiveReplica(2, 0, 100, 90, 0),
            LiveReplica(3, error="broker 3 is not live"),
        ]
    }
    result = run("topics", "describe", "flights", *AT)
    assert result.stdout.splitlines() == [
        "TOPIC    PARTITION  LEADER  EPOCH  REPLICAS  ISR  OFFLINE  HW  LEO       LAG",
        "flights  0          2       4      1,2,3     2,1  -        90  90,100,-  10,0,-",
        "Broker 3: out of sync in 1 partition; how far it is behind is not known while it does not answer.",
    ]
    [row] = json.loads(run("topics", "describe", "flights", *AT, "-o", "json").stdout)
    assert row["positions"][0] == {
        "broker": 1,
        "log_start": 0,
        "log_end": 90,
        "high_watermark": 80,
        "lag": 10,
        "error": None,
        "lag_bytes": None,
        "catch_up": None,
    }
    assert row["positions"][2]["error"] == "broker 3 is not live"


@pytest.mark.parametrize(
    ("later", "column", "words"),
    [
        (400, "-,-,50 s", "400 records (about 97.7 KiB) behind; that shrinks by 8 records/s: in sync in about 50 s"),
        (408, "-,-,no", "408 records (about 99.6 KiB) behind; that stays so: does not catch up"),
        (808, "-,-,no", "808 records (about 197.3 KiB) behind; that grows by 400 records/s: does not catch up"),
        (0, "-,-,0 s", "0 records (about 0 B) behind; that shrinks by 408 records/s: in sync soon"),
    ],
)
def test_describe_says_how_long_a_replica_takes_that_is_not_in_sync(
    run: Run, admin: Cluster, monkeypatch: pytest.MonkeyPatch, later: int, column: str, words: str
) -> None:
    admin.known = [topic("flights", held(0, 2, [2, 1]))]
    name = TopicPartition("flights", 0)
    looks = iter([408, later] * 2)

    def ask(*_: object) -> dict[TopicPartition, list[LiveReplica]]:
        clock.append(clock[-1] + 1.0)
        lag = next(looks)
        ends = [
            LiveReplica(1, 0, 1000, 1000, 0),
            LiveReplica(2, 0, 1000, 1000, 0),
            LiveReplica(3, 0, 1000 - lag, 9, lag),
        ]
        return {name: ends}

    clock = [0.0]
    monkeypatch.setattr(replicas, "ask_replicas", ask)
    monkeypatch.setattr(topics, "ask_replicas", ask)
    monkeypatch.setattr(replicas, "_bytes_per_offset", lambda _: {name: 250.0})
    monkeypatch.setattr(replicas.time, "sleep", lambda _: None)
    monkeypatch.setattr(replicas.time, "monotonic", lambda: clock[-1])
    table = run("topics", "describe", "flights", *AT).stdout.splitlines()
    assert table[0].split()[-1] == "CATCH-UP" and table[1].endswith(f"  {column}")
    assert table[2] == f"Broker 3: out of sync in 1 partition, {words}."
    [row] = json.loads(run("topics", "describe", "flights", *AT, "-o", "json").stdout)
    assert row["positions"][2]["lag_bytes"] == later * 250
    assert row["positions"][2]["catch_up"]["per_s"] == 408.0 - later


def test_describe_asks_no_replica_when_told_not_to(run: Run, admin: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "ask_replicas", lambda *_: pytest.fail("asked"))
    admin.known = [topic("flights", held(0, 2, [2, 1, 3]))]
    result = run("topics", "describe", "flights", "--no-offsets", *AT)
    assert result.stdout.splitlines()[0] == "TOPIC    PARTITION  LEADER  EPOCH  REPLICAS  ISR    OFFLINE"


@pytest.mark.parametrize(("option", "partitions"), [("--under-replicated", [1, 2]), ("--leaderless", [2])])
def test_describe_shows_only_what_is_wrong(run: Run, admin: Cluster, option: str, partitions: list[int]) -> None:
    admin.known = [topic("t", held(0, 2, [1, 2, 3]), held(1, 1, [1, 2]), held(2, -1, [1]))]
    result = run("topics", "describe", *AT, option, "-o", "json")
    assert [row["partition"] for row in json.loads(result.stdout)] == partitions


def test_describe_of_an_unknown_topic_says_where_to_look(run: Run, admin: Cluster) -> None:
    result = run("topics", "describe", "ghost", *AT)
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: There is no topic ghost. `regency topics list` shows what there is.\n",
    )


def test_a_misspelt_topic_has_the_nearest_name_and_does_not_hide_the_others(run: Run, admin: Cluster) -> None:
    admin.known = [topic("flights", held(0, 2, [1, 2, 3]))]
    result = run("topics", "describe", "flights", "fligths", "--no-offsets", *AT)
    assert (result.exit_code, result.stderr) == (1, "Error: There is no topic fligths. Did you mean flights?\n")
    assert result.stdout.splitlines()[1].split()[0] == "flights"


def test_a_topic_that_can_never_be_written_is_told_of_when_it_is_made(run: Run, admin: Cluster) -> None:
    admin.min_isr = 4
    assert (
        "Warning: Topic flights has 3 replicas and min.insync.replicas=4: nothing can ever be written to it with "
        "acks=all. Say `regency configs set topic flights min.insync.replicas=2`.\n"
    ) in run("topics", "create", "flights", *AT).stderr


def test_address_that_is_none_is_named(run: Run) -> None:
    result = run("topics", "list", "--bootstrap-server", "localhost")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: 'localhost' is not HOST:PORT. Name brokers such as localhost:9092.\n",
    )


def test_health_says_nothing_of_a_cluster_whose_address_is_none(run: Run) -> None:
    result = run("cluster", "health", "--bootstrap-server", "localhost")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "'localhost' is not HOST:PORT." in result.stderr


def test_broker_that_is_paused_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as paused, socket.create_server(("127.0.0.1", 0)) as awake:
        silent, answering = (f"127.0.0.1:{server.getsockname()[1]}" for server in (paused, awake))

        def answer() -> None:
            link, _ = awake.accept()
            with link:
                link.recv(14)
                link.sendall(b"\0")

        broker = threading.Thread(target=answer)
        broker.start()
        assert first_that_answers(f"{silent}, {answering}") == answering
        broker.join()


def test_partitions_are_added_where_brokers_say_so_and_a_refusal_is_said(run: Run, admin: Cluster) -> None:
    assert run("topics", "alter", "t", "--partitions", "3", "--assignment", "3:1", "--dry-run", *AT).exit_code == 0
    message, _ = admin.asked[-1]
    (asked,) = message.topics
    assert (asked.name, asked.count, [list(each.broker_ids) for each in asked.assignments]) == ("t", 3, [[3, 1]])
    assert message.validate_only

    admin.code, admin.words = 37, "Topic 't' has 6 partitions. Partitions cannot be taken away."
    refused = run("topics", "alter", "t", "--partitions", "3", *AT)
    assert (refused.exit_code, refused.stderr) == (1, f"Error: {admin.words}\n")


def test_topics_and_their_partitions_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    row = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
    rows = [
        row(partition_index=number, leader_id=1, leader_epoch=2, replica_nodes=[1], isr_nodes=[1], offline_replicas=[])
        for number in (1, 0)
    ]
    told = [
        MetadataResponse.MetadataResponseTopic(name="b", error_code=0, topic_id=TOPIC_ID, partitions=rows),
        MetadataResponse.MetadataResponseTopic(name="a", error_code=3, topic_id=TOPIC_ID, partitions=[]),
    ]
    monkeypatch.setattr(wire, "first_that_answers", lambda _: "127.0.0.1:1")
    monkeypatch.setattr(ClusterWire, "ask", lambda *_, **__: MetadataResponse(topics=told))

    found = ClusterWire("127.0.0.1:1").topics()

    assert [(each.name, each.error_code, len(each.partitions)) for each in found] == [("a", 3, 0), ("b", 0, 2)]
    assert [each.partition_index for each in found[1].partitions] == [0, 1]


def test_who_rules_is_asked_again_while_another_takes_over(admin: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ruled = [[facts(1)], [facts(3, rules=True, epoch=8)]]
    codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]
    monkeypatch.setattr(wire, "RULER_WITHIN_S", 10)
    monkeypatch.setattr(wire, "LOOK_EVERY_S", 0)
    monkeypatch.setattr(admin, "controller_facts", lambda: ruled.pop(0))
    results = [ADDED(name="t", error_code=code, error_message=None) for code in codes]
    monkeypatch.setattr(admin, "answer", lambda *_: CreatePartitionsResponse(version=3, results=[results.pop(0)]))

    answer = admin.ask_ruler(object(), 3)

    assert [broker for _, broker in admin.asked] == [None, 3]
    assert answer.results[0].error_code == ErrorCode.NONE


def test_where_none_rules_a_broker_says_why(admin: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "Broker 1 has no contact with ZooKeeper: no controller can be elected without it."
    admin.facts = [facts(1)]
    for code, status, said in ((ErrorCode.REQUEST_TIMED_OUT, 4, words), (ErrorCode.NOT_CONTROLLER, 4, "No controller")):
        told = CreateTopicsResponse(version=7, topics=[CREATED(name="t", error_code=code, error_message=words)])
        monkeypatch.setattr(admin, "answer", lambda *_, told=told: told)
        result = run("topics", "create", "t", *AT)
        assert (result.exit_code, said in result.stderr) == (status, True)


def test_a_controller_that_cannot_be_elected_without_zookeeper_is_not_waited_for(admin: Cluster, run: Run) -> None:
    admin.facts = [facts(each, in_contact=False) for each in (1, 2, 3)]
    result = run("topics", "create", "t", *AT)
    assert (result.exit_code, admin.asked) == (4, [])
    assert "ZooKeeper is away, so no controller rules: brokers 1, 2, 3 have no contact with it." in result.stderr


def test_what_may_have_been_done_is_not_asked_for_twice(admin: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise CommandFailed("The exchange failed.")

    monkeypatch.setattr(wire, "RULER_WITHIN_S", 10)
    monkeypatch.setattr(admin, "answer", lost)
    with pytest.raises(CommandFailed, match="The exchange failed"):
        admin.ask_ruler(object(), 3)
    assert len(admin.asked) == 1


def test_a_controller_that_rules_without_its_broker_is_named(run: Run, admin: Cluster) -> None:
    del admin.nodes[2]
    result = run("topics", "create", "t", *AT)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: Broker 2, whose controller rules, is not live. Start it, or have")


def test_a_broker_that_refuses_connections_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "first_that_answers", lambda _: "127.0.0.1:1")
    with pytest.raises(CommandFailed, match="refused") as failed:
        ClusterWire("127.0.0.1:1").topics()
    assert ("Try again" in str(failed.value), failed.value.status) == (True, Exit.FAILED)


def test_nobody_at_the_address(run: Run) -> None:
    result = run("topics", "list", "--bootstrap-server", "127.0.0.1:1")
    assert (result.exit_code, result.stdout) == (5, "")
    assert result.stderr == (
        "Error: No broker answers at 127.0.0.1:1. Check the address, or start a cluster with `regency up --detach`.\n"
    )


def test_the_clusters_own_words_are_followed_by_what_to_do() -> None:
    told = refusal("topic t", ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' already exists.")
    assert str(told) == "Topic 't' already exists. Choose another name, or say --if-not-exists."
    assert str(refusal("topic t", ErrorCode.INVALID_PARTITIONS, "Too many.")) == "Too many."


@pytest.mark.parametrize(
    "words", [("describe", "t"), ("create", "t"), ("create", "t", "--if-not-exists"), ("create", "t", "--no-wait")]
)
def test_a_topic_that_is_being_deleted_is_not_there_and_says_what_it_waits_for(
    run: Run, admin: Cluster, words: tuple[str, ...]
) -> None:
    admin.code, admin.words = 36, "Topic 't' already exists and is being deleted."
    why = "broker 9 holds replicas and is not live (gone for good? `regency brokers forget 9`)"
    going = admin_pb2.Deletion(topic="t", replicas=3, deleted=2, waits_for=why)
    admin.deletions = [going]

    result = run("topics", *words, *AT)

    assert result.exit_code == 4
    assert result.stderr == f"Error: Topic t is being deleted: 2 of 3 replicas are; {why}.\n"


def test_a_refused_name_is_told_in_words_and_another_refusal_of_that_kind_by_its_own() -> None:
    bad = refusal("topic a b", ErrorCode.INVALID_TOPIC_EXCEPTION, None)
    going = refusal("topic t", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 't' is queued for deletion.")

    assert str(bad).startswith("topic a b: no topic may have this name. A name has 1 to 249 ASCII letters")
    assert str(going) == "Topic 't' is queued for deletion."
