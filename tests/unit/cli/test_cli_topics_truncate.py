"""`regency topics truncate`: whom it asks for what, how long it waits, what it says and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from fake_cluster import AT, FakeCluster

from regency.cli.asking.wire import PartitionFacts, TopicFacts
from regency.cli.exits import CommandFailed, Exit
from regency.cli.topics import truncate
from regency.kafka.codec import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from regency.model.kafka_errors import ErrorCode

Run = Callable[..., Result]
NOT_LEADER, TIMED_OUT = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT


class Cluster(FakeCluster):
    """flights with partitions 0 and 1, led by brokers 1 and 3, which hold offsets 10 to 99 and 5 to 49."""

    def __init__(self) -> None:
        super().__init__()
        self.leaders = {0: 1, 1: 3}
        self.ends = {0: (10, 100), 1: (5, 50)}
        self.errors: dict[int, list[int]] = {}
        """What a partition answers to deletions, one after the other; then it is done."""
        self.dead: set[int] = set()
        self.now = 0.0
        self.on_sleep: Callable[[], None] = lambda: None

    def topics(self, names: Any = None, *, broker: int | None = None) -> list[TopicFacts]:
        self.known = [TopicFacts("flights", [PartitionFacts(p, b, [1, 2, 3], [1]) for p, b in self.leaders.items()])]
        return super().topics(names)

    def answer(self, message: Any, version: int, broker: int | None) -> Any:
        self.now += 0.01
        if broker in self.dead:
            raise CommandFailed(f"Broker {broker} is not live.")
        if isinstance(message, ListOffsetsRequest):
            return self.list(message, version, broker)
        assert isinstance(message, DeleteRecordsRequest), message
        topic_class = DeleteRecordsResponse.DeleteRecordsTopicResult
        rows = []
        for each in message.topics[0].partitions:
            errors = self.errors.get(each.partition_index, [])
            error = errors.pop(0) if errors else ErrorCode.NONE
            if self.leaders[each.partition_index] != broker:
                error = NOT_LEADER
            begin, end = self.ends[each.partition_index]
            if error == ErrorCode.NONE and each.offset > end:
                error = ErrorCode.OFFSET_OUT_OF_RANGE
            low = max(begin, each.offset) if error == ErrorCode.NONE else -1
            rows.append(
                topic_class.DeleteRecordsPartitionResult(
                    version=version, partition_index=each.partition_index, low_watermark=low, error_code=error
                )
            )
        topics = [topic_class(version=version, name=message.topics[0].name, partitions=rows)]
        return DeleteRecordsResponse(version=version, throttle_time_ms=0, topics=topics)

    def list(self, message: Any, version: int, broker: int | None) -> Any:
        topic_class = ListOffsetsResponse.ListOffsetsTopicResponse
        rows = [
            topic_class.ListOffsetsPartitionResponse(
                version=version,
                partition_index=each.partition_index,
                error_code=0 if self.leaders[each.partition_index] == broker else NOT_LEADER,
                timestamp=-1,
                offset=self.ends[each.partition_index][each.timestamp == truncate.LATEST],
                leader_epoch=0,
            )
            for each in message.topics[0].partitions
        ]
        return ListOffsetsResponse(
            version=version, topics=[topic_class(version=version, name="flights", partitions=rows)]
        )

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.on_sleep()

    @property
    def deletions(self) -> Any:
        """Each deletion that was asked for: the broker, and offsets by partition."""
        return [
            (broker, {each.partition_index: each.offset for each in message.topics[0].partitions})
            for message, broker in self.asked
            if isinstance(message, DeleteRecordsRequest)
        ]

    @deletions.setter
    def deletions(self, _: Any) -> None:
        pass


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, connect: Callable[[FakeCluster], None]) -> Cluster:
    fake = Cluster()
    connect(fake)
    monkeypatch.setattr(truncate, "time", SimpleNamespace(monotonic=lambda: fake.now, sleep=fake.sleep))
    return fake


def cut(run: Run, *arguments: str) -> Result:
    return run("topics", "truncate", *arguments, *AT, "-o", "json")


def test_a_partition_is_truncated_at_its_leader(cluster: Cluster, run: Run) -> None:
    done = cut(run, "flights-1", "--before", "20", "--yes")
    assert done.exit_code == Exit.DONE, done.output
    assert cluster.deletions == [(3, {1: 20})]
    assert json.loads(done.stdout) == [
        {"topic": "flights", "partition": 1, "below_offset": 20, "log_start": 20, "offsets_deleted": 15, "error": None}
    ]
    assert "flights-1 begins at offset 20. 15 offsets deleted." in done.stderr


def test_all_of_a_topic_goes_up_to_where_it_ends_at_first(cluster: Cluster, run: Run) -> None:
    def grow() -> None:
        cluster.ends = {0: (10, 200), 1: (5, 80)}

    cluster.on_sleep = grow
    cluster.errors = {1: [TIMED_OUT]}
    done = cut(run, "flights", "--to-end", "--yes")
    assert done.exit_code == Exit.DONE, done.output
    assert cluster.deletions == [(1, {0: 100}), (3, {1: 50}), (3, {1: 50})]
    assert [(row["log_start"], row["offsets_deleted"]) for row in json.loads(done.stdout)] == [(100, 90), (50, 45)]


def test_it_goes_on_at_the_leader_that_another_has_become(cluster: Cluster, run: Run) -> None:
    cluster.dead = {3}
    cluster.on_sleep = lambda: cluster.leaders.update({1: 2})
    done = cut(run, "flights-1", "--before", "20", "--yes")
    assert (done.exit_code, cluster.deletions) == (Exit.DONE, [(2, {1: 20})])


def test_a_new_leader_may_not_know_yet_what_was_committed(cluster: Cluster, run: Run) -> None:
    cluster.errors = {1: [ErrorCode.OFFSET_OUT_OF_RANGE]}
    assert cut(run, "flights-1", "--to-end", "--yes").exit_code == Exit.DONE


def test_what_is_beyond_the_end_is_refused(cluster: Cluster, run: Run) -> None:
    done = cut(run, "flights-1", "--before", "51", "--yes")
    assert done.exit_code == Exit.FAILED
    assert "flights-1: the records below offset 51 are not all deleted: that is beyond its last committed record." in (
        done.stderr
    )
    assert json.loads(done.stdout)[0]["log_start"] is None


def test_a_compacted_topic_keeps_its_records(cluster: Cluster, run: Run) -> None:
    cluster.errors = {0: [ErrorCode.POLICY_VIOLATION]}
    done = cut(run, "flights", "--to-end", "--yes")
    assert (done.exit_code, done.stderr.count("cleanup.policy has no delete")) == (Exit.FAILED, 1)
    assert [row["error"] is None for row in json.loads(done.stdout)] == [False, True]


def test_time_can_be_over(cluster: Cluster, run: Run) -> None:
    cluster.errors = {1: [TIMED_OUT] * 1000}
    done = cut(run, "flights-1", "--before", "20", "--yes", "--timeout", "3")
    assert done.exit_code == Exit.TIMED_OUT
    assert "its leader offers them no more, and a replica still has them" in done.stderr
    assert 3 <= cluster.now < 4


def test_what_has_no_leader_is_said(cluster: Cluster, run: Run) -> None:
    cluster.leaders[1] = -1
    done = cut(run, "flights", "--to-end", "--yes", "--timeout", "1")
    assert (done.exit_code, "flights-1: its records are not all deleted: it has no leader" in done.stderr) == (
        Exit.TIMED_OUT,
        True,
    )
    assert [row["below_offset"] for row in json.loads(done.stdout)] == [100, None]


def test_it_is_not_done_without_a_yes(cluster: Cluster, run: Run) -> None:
    done = cut(run, "flights", "--to-end")
    assert (done.exit_code, cluster.deletions) == (Exit.REFUSED, [])
    assert "Deleting 135 offsets of topic flights cannot be undone." in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("flights-1",), "Say how far"),
        (("flights-1", "--before", "3", "--to-end"), "Say how far"),
        (("flights", "--before", "3"), "has 2 partitions, each with offsets of its own: say flights-0 or another"),
        (("flights-1", "--before", "-3"), "-3 is not in the range"),
    ],
)
def test_wrong_use_is_said(cluster: Cluster, run: Run, arguments: tuple[str, ...], words: str) -> None:
    done = cut(run, *arguments, "--yes")
    assert (done.exit_code, words in done.stderr.replace("\n", " ")) == (Exit.USAGE, True), done.stderr


def test_a_name_that_is_misspelt_gets_the_nearest(cluster: Cluster, run: Run) -> None:
    done = cut(run, "flihgts", "--to-end", "--yes")
    assert done.exit_code == Exit.FAILED
    assert "There is no topic flihgts." in done.stderr
    assert "Did you mean flights?" in done.stderr
