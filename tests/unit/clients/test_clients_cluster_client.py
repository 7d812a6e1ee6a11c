"""What topics and offsets are asked of a cluster whose brokers die, lag and answer errors."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from regency.clients import cluster_client
from regency.clients.cluster_client import EARLIEST, LATEST, ClusterClient, TopicFacts
from regency.clients.connections import Connections
from regency.clients.errors import ClusterUnavailable, OffsetRefused, TopicGone
from regency.clients.settings import ClientSettings
from regency.kafka.codec import ListOffsetsRequest, MetadataRequest
from regency.model.clock import ManualClock
from regency.model.ids import TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode


@pytest.fixture
def client(settings: ClientSettings, links: Connections) -> ClusterClient:
    return ClusterClient(settings, connections=links)


def names(*partitions: int) -> list[TopicPartition]:
    return [TopicPartition("t", partition) for partition in partitions]


def test_topics_are_told_with_ids_and_partitions(cluster: Any, client: ClusterClient, log: Any) -> None:
    cluster.add("t", log(1, 0), log(2, 0))
    cluster.add("u", log(1, 0))
    facts = {"t": TopicFacts(TopicId(UUID(int=1)), (0, 1)), "u": TopicFacts(TopicId(UUID(int=2)), (0,))}
    assert client.topics(None) == facts
    assert client.topics(["u"]) == {"u": facts["u"]}
    assert client.topics([]) == {}
    assert len(cluster.questions(MetadataRequest)) == 2


def test_a_topic_that_one_broker_does_not_know_yet_is_found_at_another(
    cluster: Any, client: ClusterClient, log: Any
) -> None:
    cluster.add("t", log(1, 0))
    cluster.ignorant = {1: {"t"}}
    assert list(client.topics(["t"])) == ["t"]
    assert [broker for broker, _ in cluster.asked] == [1, 2]


def test_topics_that_nobody_knows_are_left_out_after_a_while(
    cluster: Any, client: ClusterClient, log: Any, clock: ManualClock
) -> None:
    cluster.add("t", log(1, 0))
    began = clock.monotonic_ms()
    assert list(client.topics(["t", "nosuch"])) == ["t"]
    assert 2_000 <= clock.monotonic_ms() - began < 3_500
    assert len(cluster.asked) < 10


def test_brokers_that_are_dead_or_paused_are_passed_over(cluster: Any, client: ClusterClient, log: Any) -> None:
    cluster.add("t", log(3, 0))
    cluster.dead = {1: "connection refused", 2: "paused"}
    assert list(client.topics(["t"])) == ["t"]
    assert [broker for broker, _ in cluster.asked] == [1, 2, 3]
    assert cluster.timeouts == [2_000] * 3

    client.topics(["t"])
    assert cluster.asked[-1][0] == 3


def test_an_unreachable_cluster_is_an_error_that_names_all_it_tried(
    cluster: Any, client: ClusterClient, clock: ManualClock
) -> None:
    cluster.dead = {1: "connection refused", 2: "paused", 3: "connection refused"}
    began = clock.monotonic_ms()
    with pytest.raises(ClusterUnavailable) as failed:
        client.topics(["t"])
    said = str(failed.value)
    assert "broker-1:9092,broker-2:9092,broker-3:9092" in said
    assert "broker-2:9092 failed: paused" in said
    assert "kafka.bootstrap.servers" in said
    assert 60_000 <= clock.monotonic_ms() - began <= 61_000
    assert len(cluster.asked) < 100
    assert failed.value.silent


def test_that_nobody_answers_is_told_after_some_seconds_and_once_for_each_question(
    cluster: Any, clock: ManualClock, settings: ClientSettings, log: Any
) -> None:
    told: list[tuple[int, str]] = []
    began = clock.monotonic_ms()

    def note(error: ClusterUnavailable) -> None:
        told.append((clock.monotonic_ms() - began, str(error)))

    def sleep(seconds: float) -> None:
        clock.advance(max(1, round(seconds * 1000)))
        if clock.monotonic_ms() - began > 20_000:
            cluster.dead = {}

    links = Connections(settings, clock=clock, sleep=sleep, on_silence=note)
    cluster.add("t", log(1, 7))
    cluster.dead = dict.fromkeys((1, 2, 3), "connection refused")
    with ClusterClient(settings, connections=links) as client:
        assert list(client.topics(["t"])) == ["t"]
        client.topics(["t"])
    [(at_ms, words)] = told
    assert 5_000 <= at_ms < 8_000
    assert "No broker of the cluster at broker-1:9092,broker-2:9092,broker-3:9092 answers" in words
    assert "connection refused" in words


def test_offsets_are_asked_of_each_leader_once(cluster: Any, client: ClusterClient, log: Any) -> None:
    cluster.add("t", log(1, 7), log(2, 8), log(1, 9))
    cluster.logs["t", 0].start = 2
    cluster.logs["t", 2].timestamps[55] = 4
    zero, one, two = names(0, 1, 2)
    assert client.offsets({zero: EARLIEST, one: LATEST, two: 55}) == {zero: 2, one: 8, two: 4}
    assert client.offsets({two: 56}) == {two: None}
    assert client.offsets({}) == {}
    asked = [
        (
            broker,
            [(row.partition_index, row.timestamp, row.current_leader_epoch) for row in message.topics[0].partitions],
        )
        for broker, message in cluster.questions(ListOffsetsRequest)
    ]
    assert sorted(asked[:2]) == [(1, [(0, -2, 3), (2, 55, 3)]), (2, [(1, -1, 3)])]


def test_many_partitions_of_one_leader_are_asked_in_pieces(
    cluster: Any, client: ClusterClient, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_client, "PARTITIONS_AT_ONCE", 2)
    cluster.add("t", *(log(1, number) for number in range(5)))
    assert client.offsets(dict.fromkeys(names(*range(5)), LATEST)) == {
        name: name.partition for name in names(*range(5))
    }
    sizes = [len(message.topics[0].partitions) for _, message in cluster.questions(ListOffsetsRequest)]
    assert sizes == [2, 2, 1]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_leader_that_cannot_tell_now_is_asked_again(
    cluster: Any, client: ClusterClient, log: Any, error: ErrorCode, clock: ManualClock
) -> None:
    cluster.add("t", log(1, 7), log(1, 8))
    cluster.errors = {1: [error]}
    began = clock.monotonic_ms()
    assert client.offsets(dict.fromkeys(names(0, 1), LATEST)) == {names(0)[0]: 7, names(1)[0]: 8}
    assert clock.monotonic_ms() - began == 100
    assert len(cluster.questions(MetadataRequest)) == 2
    assert [len(message.topics[0].partitions) for _, message in cluster.questions(ListOffsetsRequest)] == [2, 1]


def test_the_new_leader_is_asked_when_the_old_one_dies(cluster: Any, client: ClusterClient, log: Any) -> None:
    cluster.add("t", log(1, 7))

    def die(broker: int, message: Any) -> None:
        if isinstance(message, ListOffsetsRequest) and broker == 1:
            cluster.dead[1] = "connection reset"
            cluster.logs["t", 0].leader = 2
            cluster.logs["t", 0].epoch = 4

    cluster.before = die
    assert client.offsets({names(0)[0]: LATEST}) == {names(0)[0]: 7}
    assert [broker for broker, _ in cluster.questions(ListOffsetsRequest)] == [1, 2]


def test_partitions_without_a_leader_are_an_error_that_names_them(
    cluster: Any, client: ClusterClient, log: Any, clock: ManualClock
) -> None:
    cluster.add("t", log(1, 7), log(-1, 7))
    began = clock.monotonic_ms()
    with pytest.raises(ClusterUnavailable, match=r"Offsets of 1 partitions.*t-1: it has no leader") as failed:
        client.offsets(dict.fromkeys(names(0, 1), LATEST))
    assert "regency status" in str(failed.value)
    assert clock.monotonic_ms() - began == 60_000
    assert len(cluster.asked) < 150


def test_partitions_that_do_not_exist_are_gone(
    cluster: Any, client: ClusterClient, log: Any, clock: ManualClock
) -> None:
    cluster.add("t", log(1, 7))
    began = clock.monotonic_ms()
    with pytest.raises(TopicGone, match=r"no partition 5 of topic t \(1 others neither\)") as failed:
        client.offsets(dict.fromkeys(names(0, 5, 6), LATEST))
    assert failed.value.topic == "t"
    assert clock.monotonic_ms() - began < 4_000


@pytest.mark.parametrize("error", [ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_VERSION])
def test_a_refusal_is_told_at_once(cluster: Any, client: ClusterClient, log: Any, error: ErrorCode) -> None:
    cluster.add("t", log(1, 7))
    cluster.errors = {1: [error]}
    with pytest.raises(OffsetRefused, match=rf"t-0: its leader answers {error.name} .* timestamp 99"):
        client.offsets({names(0)[0]: 99})


def test_nothing_is_asked_after_the_end(cluster: Any, settings: ClientSettings, links: Connections, log: Any) -> None:
    cluster.add("t", log(1, 7))
    with ClusterClient(settings, connections=links) as client:
        client.topics(["t"])
    with pytest.raises(ClusterUnavailable):
        client.topics(["t"])
    assert len(cluster.asked) == 1


def test_a_committed_end_is_told_when_replicas_have_what_is_in_the_log(
    cluster: Any, client: ClusterClient, log: Any, clock: ManualClock
) -> None:
    cluster.add("t", log(1, 7), log(2, 8))
    zero, one = names(0, 1)
    behind = cluster.logs["t", 0]
    behind.end = 12
    asked_of_1: list[int] = []

    def follow(broker: int, message: Any) -> None:
        if isinstance(message, ListOffsetsRequest) and broker == 1:
            asked_of_1.append(message.replica_id)
            behind.end += 1  # others write on: what came after the first question is not waited for
            behind.high_watermark += 2

    cluster.before = follow
    assert client.committed_ends([zero, one]) == {zero: 13, one: 8}
    assert asked_of_1 == [-2, -1, -1]
    assert clock.monotonic_ms() > 0


def test_brokers_are_asked_in_turn(cluster: Any, links: Connections) -> None:
    for number in range(7):
        links.metadata([], 60_000, turn=number > 0)
    asked = [broker for broker, _ in cluster.questions(MetadataRequest)]
    assert [asked.count(broker) for broker in (1, 2, 3)] in ([3, 2, 2], [2, 3, 2], [2, 2, 3])
    assert all(before != after for before, after in pairwise(asked))


def test_who_was_deposed_and_does_not_know_is_not_asked_about_itself_alone(
    cluster: Any, client: ClusterClient, log: Any
) -> None:
    """It tells of itself as the leader, and what it has not committed will never be."""
    cluster.add("t", log(1, 7))
    client.committed_ends(names(0))
    told_by = [broker for broker, _ in cluster.questions(MetadataRequest)]
    assert len(told_by) == len(set(told_by)) == 2


def test_where_another_leads_by_then_its_log_counts(cluster: Any, client: ClusterClient, log: Any) -> None:
    cluster.add("t", log(1, 7))
    (zero,) = names(0)
    moving = cluster.logs["t", 0]
    moving.end = 12

    def move(broker: int, message: Any) -> None:
        if isinstance(message, ListOffsetsRequest) and message.replica_id == -1 and broker == 1:
            moving.leader, moving.epoch, moving.end = 2, 4, 9  # it never had the last three
            moving.high_watermark = 9

    cluster.before = move
    assert client.committed_ends([zero]) == {zero: 9}


def test_what_nobody_commits_is_an_error_that_tells_both_ends(
    cluster: Any, client: ClusterClient, log: Any, clock: ManualClock
) -> None:
    cluster.add("t", log(1, 7))
    cluster.logs["t", 0].end = 9
    began = clock.monotonic_ms()
    with pytest.raises(ClusterUnavailable, match=r"t-0: its high watermark stays at 7, its log ends at 9") as failed:
        client.committed_ends(names(0))
    assert "regency status" in str(failed.value)
    assert 60_000 <= clock.monotonic_ms() - began <= 61_000
    assert client.committed_ends([]) == {}


def test_the_largest_batch_of_a_topic_is_asked_of_any_broker_and_each_once(cluster: Any, client: ClusterClient) -> None:
    cluster.largest = {"t": 2_000, "u": 1_048_588}
    cluster.dead = {1: "paused"}
    assert client.largest_batches(["t", "nosuch", "u"]) == cluster.largest
    assert client.largest_batches(["t"]) == {"t": 2_000}
    assert [broker for broker, _ in cluster.asked] == [1, 2, 2], "who answered is asked first"
    assert cluster.timeouts == [2_000] * 3


def test_a_cluster_that_does_not_tell_its_largest_batches_is_asked_no_more(
    cluster: Any, client: ClusterClient, clock: ManualClock
) -> None:
    cluster.largest = {"t": 2_000}
    cluster.dead = dict.fromkeys((1, 2, 3), "paused")
    began = clock.monotonic_ms()
    assert client.largest_batches(["t"]) == {}
    assert clock.monotonic_ms() - began == 6_000
    assert len(cluster.asked) == 3
