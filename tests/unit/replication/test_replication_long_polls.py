"""Fetches that wait: what ends the wait, and with what answer."""

from __future__ import annotations

import pytest

from regency.broker_agent.log.errors import LogStorageError
from regency.broker_agent.replication.fetch import FetchPath
from regency.kafka.fetching.values import NO_RECORDS
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode

TP = TopicPartition("flights", 0)
OTHER = TopicPartition("flights", 1)


def test_a_consumer_waits_until_there_is_something_committed(cluster) -> None:
    cluster.decide(1, (1, 2))
    cluster.tell(1)
    answers = cluster[1].consume(0, max_wait_ms=5_000)
    cluster[1].produce("a", acks=1)
    assert answers == []
    cluster[1].consume(1, replica=2, epoch=0)
    assert [cluster.values_of(answer) for answer in answers] == [["a"]]
    cluster.advance(6_000)
    assert len(answers) == 1


def test_a_follower_is_woken_by_data_and_not_by_the_high_watermark(cluster) -> None:
    cluster.decide(1)
    cluster.tell(1)
    cluster[1].produce("a", acks=1)
    waiting = cluster[1].consume(1, replica=2, epoch=0, max_wait_ms=5_000)
    cluster[1].consume(1, replica=3, epoch=0)
    assert cluster[1].log().high_watermark == 1
    assert waiting == []
    cluster[1].produce("b", acks=1)
    assert [cluster.values_of(answer) for answer in waiting] == [["b"]]
    assert waiting[0].high_watermark == 1


def test_a_wait_ends_with_what_there_is(cluster) -> None:
    cluster.lead_alone()
    cluster[1].produce("a")
    answers = cluster[1].consume(0, max_wait_ms=700, min_bytes=10_000)
    cluster.advance(600)
    assert answers == []
    cluster.advance(100)
    assert [cluster.values_of(answer) for answer in answers] == [["a"]]


def test_a_fetch_of_no_records_waits_as_if_there_were_none_and_tells_errors_at_once(cluster) -> None:
    cluster.lead_alone(TP, OTHER)
    cluster[1].produce("a")
    answers, _ = cluster[1].fetch([(TP, 0)], max_bytes=NO_RECORDS, max_wait_ms=700)
    cluster[1].produce("b")
    assert answers == []
    cluster.advance(700)
    [answer] = answers
    assert (answer[TP].error, answer[TP].high_watermark, answer[TP].records) == (ErrorCode.NONE, 2, b"")
    answers, _ = cluster[1].fetch([(TP, 0), (OTHER, 9)], max_bytes=NO_RECORDS, max_wait_ms=700)
    assert [answer[OTHER].error for answer in answers] == [ErrorCode.OFFSET_OUT_OF_RANGE]
    assert answers[0][TP].records == b""


def test_a_fetch_that_waits_for_more_keeps_no_records(cluster) -> None:
    cluster.lead_alone()
    cluster[1].produce("x" * 300)
    cluster[1].consume(0, max_wait_ms=700, min_bytes=10_000)
    [(_, _, waiting)] = cluster[1].manager.hosting.fetches._deadlines
    assert not any(len(result.records) for result in waiting.reading.results.values())


def test_min_bytes_counts_what_all_partitions_offer(cluster) -> None:
    cluster.lead_alone(TP, OTHER)
    cluster[1].produce("x" * 300)
    answers, _ = cluster[1].fetch([(TP, 0), (OTHER, 0)], min_bytes=800, max_wait_ms=10_000)
    cluster[1].produce("y" * 100, partition=OTHER)
    assert answers == []
    cluster[1].produce("z" * 100, partition=OTHER)
    cluster[1].produce("z" * 100, partition=OTHER)
    assert [[len(cluster.values_of(result)) for result in answer.values()] for answer in answers] == [[1, 3]]


def test_what_a_partition_may_not_answer_does_not_count_for_min_bytes(cluster) -> None:
    cluster.lead_alone()
    answers, _ = cluster[1].fetch([(TP, 0)], min_bytes=800, partition_bytes=500, max_wait_ms=10_000)
    for _ in range(5):
        cluster[1].produce("x" * 300)
    assert answers == []


def test_a_log_that_cannot_be_measured_ends_the_wait_and_harms_no_producer(cluster, monkeypatch) -> None:
    cluster.lead_alone()
    waiting = cluster[1].consume(0, max_wait_ms=500, min_bytes=1000)

    def fail(*_: object) -> None:
        raise LogStorageError(None, "an I/O error")

    monkeypatch.setattr(cluster[1].log(), "bytes_between", fail)
    assert cluster[1].produce("a", acks=1)[0].error is ErrorCode.NONE
    assert len(waiting) == 1


def test_a_fault_while_a_wait_ends_is_an_answer_too(cluster, monkeypatch, caplog) -> None:
    def fault(*_: object) -> None:
        raise RuntimeError("nobody foresaw this")

    cluster.lead_alone()
    answers = cluster[1].consume(0, max_wait_ms=500, min_bytes=1000)
    monkeypatch.setattr(FetchPath, "read_again", fault)
    cluster.advance(500)
    assert [answer.error for answer in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert "nobody foresaw this" in caplog.text


def test_an_error_is_answered_at_once(cluster) -> None:
    cluster.lead_alone()
    (answer,), _ = cluster[1].fetch([(TP, 0), (OTHER, 0)], max_wait_ms=10_000)
    assert [result.error for result in answer.values()] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_nothing_to_read_is_answered_at_once(cluster) -> None:
    answers, _ = cluster[1].fetch([], max_wait_ms=10_000)
    assert answers == [{}]


@pytest.mark.parametrize(
    ("epoch", "leader", "error"),
    [
        (-1, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (0, 2, ErrorCode.FENCED_LEADER_EPOCH),
        (0, 1, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_a_change_of_leader_ends_the_wait(cluster, epoch, leader, error) -> None:
    cluster.lead(1)
    answers = cluster[1].consume(0, max_wait_ms=60_000, epoch=epoch)
    cluster.decide(leader)
    cluster.tell(1)
    assert [answer.error for answer in answers] == [error]


def test_a_consumer_without_epoch_goes_on_waiting_when_the_leader_stays(cluster) -> None:
    cluster.lead_alone()
    answers = cluster[1].consume(0, max_wait_ms=60_000)
    cluster.decide(1, (1,), replicas=(1,))
    cluster.tell(1)
    assert answers == []
    cluster[1].produce("a")
    assert len(answers) == 1


def test_a_withdrawn_fetch_is_never_answered(cluster) -> None:
    cluster.lead_alone()
    answers, cancel = cluster[1].fetch([(TP, 0)], max_wait_ms=5_000)
    cancel()
    cancel()
    cluster[1].produce("a")
    cluster.advance(6_000)
    assert answers == []
    assert len(cluster[1].manager._hosting.fetches) == 0


def test_a_wait_that_is_over_reads_again_without_counting_the_follower_again(cluster) -> None:
    cluster.decide(1, (1, 2))
    cluster.tell(1)
    waiting = cluster[1].consume(0, replica=2, epoch=0, max_wait_ms=5_000)
    replica = cluster[1].partition().remotes[2]
    cluster.clock.advance(1_000)
    cluster[1].produce("a", acks=1)
    assert len(waiting) == 1
    assert replica.last_fetch_ms == 0


def test_data_in_the_next_segment_counts_for_min_bytes(make_cluster) -> None:
    cluster = make_cluster(segment_bytes=600)
    cluster.lead_alone()
    cluster[1].produce("x" * 300)
    answers = cluster[1].consume(0, max_wait_ms=60_000, min_bytes=1_000)
    cluster[1].produce("y" * 300)
    assert answers == []
    cluster[1].produce("z" * 300)
    assert len(cluster[1].log().segment_base_offsets) > 1
    assert len(answers) == 1
