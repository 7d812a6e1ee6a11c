"""`regency topics delete`: what is asked, how long it waits, what it says and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from fake_cluster import AT, FakeCluster, facts

from regency.cli.asking.wire import TopicFacts
from regency.cli.exits import Exit
from regency.cli.topics import delete as topics_delete
from regency.kafka.codec import DeleteTopicsResponse
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2

Run = Callable[..., Result]
DELETED = DeleteTopicsResponse.DeletableTopicResult


class Cluster(FakeCluster):
    """With a clock: every look takes `LOOK_EVERY_S` seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.replies: dict[str, tuple[int, str | None]] = {}
        self.progress: list[Sequence[admin_pb2.Deletion]] = []
        """What the controller answers, one after the other; the last one again and again."""
        self.now = 0.0

    def answer(self, message: Any, version: int, broker: int | None) -> Any:
        told = [(each.name, *self.replies.get(each.name, (0, None))) for each in message.topics]
        rows = [DELETED(name=name, error_code=code, error_message=words) for name, code, words in told]
        return DeleteTopicsResponse(version=version, responses=rows)

    def order(self, *_: object, **__: object) -> admin_pb2.ListDeletionsResponse:
        deletions = self.progress.pop(0) if len(self.progress) > 1 else self.progress[0] if self.progress else ()
        return admin_pb2.ListDeletionsResponse(deletions=deletions)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, connect: Callable[[FakeCluster], None]) -> Cluster:
    fake = Cluster()
    connect(fake)
    monkeypatch.setattr(topics_delete, "time", SimpleNamespace(monotonic=lambda: fake.now, sleep=fake.sleep))
    return fake


def going(topic: str, deleted: int, *, waits_for: str = "", offline: Sequence[int] = ()) -> admin_pb2.Deletion:
    return admin_pb2.Deletion(topic=topic, replicas=9, deleted=deleted, waits_for=waits_for, offline=offline)


def test_it_waits_until_nothing_is_left(cluster: Cluster, run: Run) -> None:
    cluster.progress = [[going("t", 0)], [going("t", 6)], []]

    done = run("topics", "delete", "t", "t", "--yes", *AT, "-o", "json")

    assert done.exit_code == Exit.DONE, done.output
    ((message, broker),) = cluster.asked
    assert ([each.name for each in message.topics], broker) == (["t"], 2)
    assert [(row["topic"], row["deleted"]) for row in json.loads(done.stdout)] == [("t", True)]
    assert "Deleted topic t." in done.stderr


def test_it_names_the_broker_that_is_missing(cluster: Cluster, run: Run) -> None:
    why = "broker 2 holds replicas and is not live"
    cluster.progress = [[going("t", 6, waits_for=why, offline=[2])]]

    done = run("topics", "delete", "t", "--yes", *AT, "-o", "json")

    assert done.exit_code == Exit.IN_PROGRESS
    assert why in done.stderr
    assert "when that is over for broker 2" in done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["replicas_deleted"], row["replicas"], row["offline_replicas"], row["waits_for"]) == (6, 9, [2], why)
    assert cluster.now < 5


def test_nothing_is_claimed_where_neither_the_request_nor_the_question_is_answered(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose_the_ruler(*_: object) -> Any:
        cluster.facts = [facts(2)]
        return answer(*_)

    answer = cluster.answer
    monkeypatch.setattr(cluster, "answer", lose_the_ruler)
    cluster.replies = {"t": (ErrorCode.REQUEST_TIMED_OUT, "Broker 1 has no contact with ZooKeeper.")}

    done = run("topics", "delete", "t", "--yes", *AT)

    assert done.exit_code == Exit.TIMED_OUT
    assert "Whether t will be deleted is not known" in done.stderr
    assert "being deleted" not in done.stderr


def test_time_can_be_over(cluster: Cluster, run: Run) -> None:
    cluster.progress = [[going("t", 6)]]
    done = run("topics", "delete", "t", "--yes", "--timeout", "2", *AT)
    assert done.exit_code == Exit.TIMED_OUT
    assert "6 of 9 replicas are" in done.stdout


def test_nobody_needs_to_wait(cluster: Cluster, run: Run) -> None:
    cluster.progress = [[going("t", 6)]]
    done = run("topics", "delete", "t", "--yes", "--no-wait", *AT)
    assert (done.exit_code, cluster.now) == (Exit.DONE, 0.0)


def test_what_was_refused_is_said_and_the_others_go(cluster: Cluster, run: Run) -> None:
    cluster.replies = {"gone": (3, "Topic 'gone' does not exist.")}
    done = run("topics", "delete", "gone", "t", "--yes", *AT)
    assert done.exit_code == Exit.FAILED
    assert "Error: There is no topic gone. " in done.stderr
    assert "Deleted topic t." in done.stdout


def test_late_metadata_is_no_failure(cluster: Cluster, run: Run) -> None:
    cluster.replies = {"t": (7, "The topic is being deleted; it is still known here.")}
    assert run("topics", "delete", "t", "--yes", *AT).exit_code == Exit.DONE


def test_a_request_that_was_lost_is_a_failure(cluster: Cluster, run: Run) -> None:
    cluster.replies = {"t": (7, "The controller does not answer.")}
    cluster.known = [TopicFacts("t")]
    done = run("topics", "delete", "t", "--yes", *AT)
    assert done.exit_code == Exit.FAILED
    assert "Error: The controller does not answer." in done.stderr


def test_without_a_yes_nothing_is_asked(cluster: Cluster, run: Run) -> None:
    done = run("topics", "delete", "t", *AT)
    assert done.exit_code == Exit.REFUSED
    assert "--yes" in done.stderr
    assert cluster.asked == []
