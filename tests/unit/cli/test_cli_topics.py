"""The topics commands: what is asked of the cluster, and how its answers are shown."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from uuid import UUID

import pytest
from click.testing import Result
from kafka.errors import KafkaConnectionError, KafkaTimeoutError

from regency.cli.asking import deletions, kafka_clients
from regency.cli.asking.kafka_clients import first_that_answers
from regency.cli.asking.refusals import refusal
from regency.cli.exits import CommandFailed
from regency.cli.topics import command as topics
from regency.cli.topics.live import LiveReplica
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2

Run = Callable[..., Result]
TOPIC_ID = UUID(int=7)
AT = ("--bootstrap-server", "nobody:1")


class FakeAdmin:
    """Answers as kafka-python's admin client does."""

    def __init__(self) -> None:
        self.created: dict[str, object] = {}
        self.reply: dict[str, object] = {"error_code": 0, "error_message": None}
        self.never_ready = False
        self.topics: list[dict[str, object]] = []
        self.live: dict[TopicPartition, list[LiveReplica]] = {}

    def create_topics(self, wanted: Mapping[str, object], **_: object) -> dict[str, object]:
        self.created.update(wanted)
        sizes = {"num_partitions": 6, "replication_factor": 3, "topic_id": TOPIC_ID}
        return {"topics": [{"name": name, **sizes, **self.reply} for name in wanted]}

    def wait_for_topics(self, names: list[str], timeout_ms: int) -> None:
        if self.never_ready:
            raise KafkaTimeoutError(f"{names} not ready after {timeout_ms} ms")

    def ruling(self) -> SimpleNamespace:
        return SimpleNamespace(address="h:1")

    def describe_topics(self, names: list[str] | None) -> list[dict[str, object]]:
        return [topic for topic in self.topics if names is None or topic["name"] in names]


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    fake = FakeAdmin()

    @contextmanager
    def connect(_: str) -> Iterator[FakeAdmin]:
        yield fake

    monkeypatch.setattr(topics, "admin_client", connect)
    monkeypatch.setattr(topics, "ask_replicas", lambda *_: fake.live)
    monkeypatch.setattr(deletions, "cluster_wire", connect)
    monkeypatch.setattr(deletions, "ask_controller", lambda *_: admin_pb2.ListDeletionsResponse())
    return fake


def partition(number: int, leader: int, isr: list[int]) -> dict[str, object]:
    return {
        "error_code": 0,
        "partition_index": number,
        "leader_id": leader,
        "leader_epoch": 4,
        "replica_nodes": [1, 2, 3],
        "isr_nodes": isr,
        "offline_replicas": [] if leader >= 0 else [1],
    }


def topic(name: str, *partitions: dict[str, object], error_code: int = 0) -> dict[str, object]:
    return {"name": name, "error_code": error_code, "topic_id": TOPIC_ID, "partitions": list(partitions)}


def test_create_asks_for_what_was_said_and_leaves_the_rest_to_the_broker(run: Run, admin: FakeAdmin) -> None:
    result = run("topics", "create", "flights", *AT, "--replication-factor", "3", "--config", "min.insync.replicas=2")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "Created topic flights.\n")
    assert admin.created == {
        "flights": {
            "num_partitions": -1,
            "replication_factor": 3,
            "assignments": {},
            "configs": {"min.insync.replicas": "2"},
        }
    }


def test_create_with_an_assignment(run: Run, admin: FakeAdmin) -> None:
    assert run("topics", "create", "pinned", *AT, "--assignment", "1:2,2:3").exit_code == 0
    assert admin.created["pinned"] == {
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": {0: [1, 2], 1: [2, 3]},
        "configs": {},
    }


def test_create_prints_what_was_made_as_json(run: Run, admin: FakeAdmin) -> None:
    result = run("-o", "json", *AT, "topics", "create", "flights")
    assert json.loads(result.stdout) == {
        "topic": "flights",
        "topic_id": str(TOPIC_ID),
        "partitions": 6,
        "replication_factor": 3,
        "created": True,
    }


def test_refusal_is_said_in_the_words_of_the_controller(run: Run, admin: FakeAdmin) -> None:
    words = "replication factor 5 needs 5 live brokers, 3 are live (1, 2, 3)."
    admin.reply = {"error_code": 38, "error_message": words}
    result = run("topics", "create", "flights", *AT, "--replication-factor", "5")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"Error: {words}\n")


def test_topic_that_exists_is_refused_unless_that_is_welcome(run: Run, admin: FakeAdmin) -> None:
    admin.reply = {"error_code": 36, "error_message": None}
    refused = run("topics", "create", "flights", *AT)
    assert refused.exit_code == 1
    assert refused.stderr == (
        "Error: topic flights: TOPIC_ALREADY_EXISTS. Choose another name, or say --if-not-exists.\n"
    )
    assert run("topics", "create", "flights", *AT, "--if-not-exists").stderr == "Topic flights is there already.\n"


def test_topic_that_exists_is_printed_as_it_is(run: Run, admin: FakeAdmin) -> None:
    admin.reply = {"error_code": 36, "num_partitions": -1, "replication_factor": -1, "topic_id": None}
    admin.topics = [topic("flights", partition(0, 1, [1, 2]), partition(1, 2, [2]))]
    result = run("topics", "create", "flights", *AT, "--if-not-exists", "-o", "json")
    assert json.loads(result.stdout) == {
        "topic": "flights",
        "topic_id": str(TOPIC_ID),
        "partitions": 2,
        "replication_factor": 3,
        "created": False,
    }


def test_topic_without_leaders_is_still_in_progress(run: Run, admin: FakeAdmin) -> None:
    admin.never_ready = True
    result = run("topics", "create", "flights", *AT)
    assert result.exit_code == 4
    assert "Topic flights is there, but not every partition got a leader" in result.stderr
    assert run("topics", "create", "flights", *AT, "--no-wait").exit_code == 0


def test_list_is_sorted(run: Run, admin: FakeAdmin) -> None:
    admin.topics = [topic("b", partition(0, 1, [1])), topic("a", partition(0, 1, [1]), partition(1, 2, [2]))]
    result = run("topics", "list", *AT)
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["TOPIC", "PARTITIONS", "REPLICATION-FACTOR", "TOPIC-ID"],
        ["a", "2", "3", str(TOPIC_ID)],
        ["b", "1", "3", str(TOPIC_ID)],
    ]
    assert [row["topic"] for row in json.loads(run("topics", "list", *AT, "-o", "json").stdout)] == ["a", "b"]


def test_list_of_nothing_is_an_empty_array(run: Run, admin: FakeAdmin) -> None:
    assert run("topics", "list", *AT, "-o", "json").stdout == "[]\n"


def test_describe_shows_each_partition(run: Run, admin: FakeAdmin) -> None:
    admin.topics = [topic("flights", partition(1, -1, [1]), partition(0, 2, [2, 1, 3]))]
    result = run("topics", "describe", "flights", *AT)
    assert result.stdout == (
        "TOPIC    PARTITION  LEADER  EPOCH  REPLICAS  ISR    OFFLINE  HW  LEO  LAG\n"
        "flights  0          2       4      1,2,3     2,1,3  -        -   -    -\n"
        "flights  1          -       -      1,2,3     1      1        -   -    -\n"
    )


def test_describe_shows_how_far_each_replica_is(run: Run, admin: FakeAdmin) -> None:
    admin.topics = [topic("flights", partition(0, 2, [2, 1]))]
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
    ]
    [row] = json.loads(run("topics", "describe", "flights", *AT, "-o", "json").stdout)
    assert row["live"][0] == {
        "broker": 1,
        "log_start": 0,
        "log_end": 90,
        "high_watermark": 80,
        "lag": 10,
        "error": None,
    }
    assert row["live"][2]["error"] == "broker 3 is not live"


def test_describe_asks_no_replica_when_told_not_to(run: Run, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "ask_replicas", lambda *_: pytest.fail("asked"))
    admin.topics = [topic("flights", partition(0, 2, [2, 1, 3]))]
    result = run("topics", "describe", "flights", "--no-offsets", *AT)
    assert result.stdout.splitlines()[0] == "TOPIC    PARTITION  LEADER  EPOCH  REPLICAS  ISR    OFFLINE"


@pytest.mark.parametrize(("option", "partitions"), [("--under-replicated", [1, 2]), ("--leaderless", [2])])
def test_describe_shows_only_what_is_wrong(run: Run, admin: FakeAdmin, option: str, partitions: list[int]) -> None:
    admin.topics = [topic("t", partition(0, 2, [1, 2, 3]), partition(1, 1, [1, 2]), partition(2, -1, [1]))]
    result = run("topics", "describe", *AT, option, "-o", "json")
    assert [row["partition"] for row in json.loads(result.stdout)] == partitions


def test_describe_of_an_unknown_topic_says_where_to_look(run: Run, admin: FakeAdmin) -> None:
    admin.topics = [topic("ghost", error_code=3)]
    result = run("topics", "describe", "ghost", *AT)
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: topic ghost: UNKNOWN_TOPIC_OR_PARTITION. `regency topics list` shows what there is.\n",
    )


def test_address_that_is_none_is_named(run: Run) -> None:
    result = run("topics", "list", "--bootstrap-server", "localhost")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: 'localhost' is not HOST:PORT. Name brokers such as localhost:9092.\n",
    )


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


class FakeClient:
    """kafka-python's admin client, which picks a broker by chance unless it is connected to one."""

    def __init__(self, **_: object) -> None:
        self.connected: list[int] = []

    def get_broker_version_data(self, broker: int) -> None:
        self.connected.append(broker)

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("registered", "connected"),
    [
        ({"dead:1": 1, "h:2": 2}, [2]),
        ({"dead:1": 1, "advertised:2": 2}, [2]),
        ({}, []),
    ],
)
def test_who_is_registered_and_does_not_answer_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, registered: dict[str, int], connected: list[int]
) -> None:
    def answers(servers: str) -> str:
        live = [server for server in servers.split(",") if server in ("h:2", "advertised:2")]
        if not live:
            raise CommandFailed("nobody")
        return live[0]

    monkeypatch.setattr("kafka.admin.KafkaAdminClient", FakeClient)
    monkeypatch.setattr(kafka_clients, "first_that_answers", answers)
    monkeypatch.setattr(kafka_clients, "_registered", lambda server: registered if server == "h:2" else {})

    with kafka_clients.admin_client("dead:1,h:2") as client:
        assert isinstance(client, FakeClient)
        assert client.connected == connected


def test_a_broker_that_is_needed_and_refuses_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka.admin.KafkaAdminClient", FakeClient)
    monkeypatch.setattr(kafka_clients, "first_that_answers", lambda _: "h:2")
    monkeypatch.setattr(kafka_clients, "_registered", lambda _: {"h:2": 2})

    with (
        pytest.raises(CommandFailed, match="needed for this cannot be reached") as failed,
        kafka_clients.admin_client("h:2"),
    ):
        raise KafkaConnectionError("111 ECONNREFUSED")
    assert "Try again" in str(failed.value)


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
    run: Run, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    admin.reply = {"error_code": 36, "error_message": "Topic 't' already exists and is being deleted."}
    admin.topics = [topic("t", error_code=3)]
    why = "broker 9 holds replicas and is not live (gone for good? `regency brokers forget 9`)"
    going = admin_pb2.Deletion(topic="t", replicas=3, deleted=2, waits_for=why)
    monkeypatch.setattr(deletions, "ask_controller", lambda *_: admin_pb2.ListDeletionsResponse(deletions=[going]))

    result = run("topics", *words, *AT)

    assert result.exit_code == 4
    assert result.stderr == f"Error: Topic t is being deleted: 2 of 3 replicas are; {why}.\n"


def test_a_refused_name_is_told_in_words_and_another_refusal_of_that_kind_by_its_own() -> None:
    bad = refusal("topic a b", ErrorCode.INVALID_TOPIC_EXCEPTION, None)
    going = refusal("topic t", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 't' is queued for deletion.")

    assert str(bad).startswith("topic a b: no topic may have this name. A name has 1 to 249 ASCII letters")
    assert str(going) == "Topic 't' is queued for deletion."
