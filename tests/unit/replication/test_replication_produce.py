"""acks 0, 1 and all: what is written, when it is answered, and with what."""

from __future__ import annotations

import msgspec
import pytest

from regency.broker_agent.log.errors import LogStorageError
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode

TP = TopicPartition("flights", 0)
OTHER = TopicPartition("flights", 1)
LAG_MS = 10_000


def errors(results):
    return [result.error for result in results]


@pytest.mark.parametrize("acks", [0, 1])
def test_acks_0_and_1_answer_when_the_leader_has_the_records(cluster, acks) -> None:
    cluster.decide(1)
    cluster.tell(1)
    cluster[1].produce("a", acks=acks)
    (result,) = cluster[1].produce("b", acks=acks)
    assert (result.error, result.base_offset, result.log_start_offset) == (ErrorCode.NONE, 1, 0)
    assert cluster[1].log().high_watermark == 0


@pytest.mark.parametrize("acks", [2, -2, 3])
def test_other_acks_are_refused_and_nothing_is_written(cluster, acks) -> None:
    cluster.lead(1)
    assert errors(cluster[1].produce("a", acks=acks)) == [ErrorCode.INVALID_REQUIRED_ACKS]
    assert cluster[1].log().log_end_offset == 0


def test_acks_all_waits_for_every_member_of_the_isr(cluster) -> None:
    cluster.lead(1)
    cluster.sever(1, 3)
    results = cluster[1].produce("a")
    cluster.run()
    assert results == []
    cluster[1].consume(1, replica=3, epoch=0)
    assert errors(results) == [ErrorCode.NONE]


def test_a_lone_in_sync_leader_answers_acks_all_at_once(cluster) -> None:
    cluster.decide(1, (1,))
    cluster.tell(1)
    assert errors(cluster[1].produce("a")) == [ErrorCode.NONE]


def test_acks_all_with_too_few_in_sync_writes_nothing(make_cluster) -> None:
    cluster = make_cluster(min_insync_replicas=2)
    cluster.decide(1, (1,))
    cluster.tell(1)
    (result,) = cluster[1].produce("a")
    assert result.error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert "1 in-sync replicas, min.insync.replicas is 2" in result.message
    assert cluster[1].log().log_end_offset == 0
    assert errors(cluster[1].produce("a", acks=1)) == [ErrorCode.NONE]


def test_a_topics_own_min_insync_replicas_counts(cluster) -> None:
    cluster.configs["flights"] = msgspec.structs.replace(cluster.config, min_insync_replicas=3)
    cluster.decide(1, (1, 2))
    cluster.tell(1)
    assert errors(cluster[1].produce("a")) == [ErrorCode.NOT_ENOUGH_REPLICAS]


def test_the_committed_isr_counts_before_the_append_while_a_shrink_is_on_its_way(make_cluster) -> None:
    cluster = make_cluster(min_insync_replicas=3)
    cluster.lead(1)
    cluster[1].isr_store.held = True
    cluster.sever(1, 3)
    first = cluster[1].produce("a", timeout_ms=5 * LAG_MS)
    cluster.advance(2 * LAG_MS)
    second = cluster[1].produce("b")
    assert (first, second) == ([], [])
    cluster[1].isr_store.held = False
    cluster.run()
    assert errors(cluster[1].produce("c")) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert first == []


def test_records_that_all_have_but_too_few_are_in_sync_for_are_answered_so(cluster) -> None:
    cluster.lead(1)
    results = cluster[1].produce("a")
    cluster.configs["flights"] = msgspec.structs.replace(cluster.config, min_insync_replicas=4)
    partition = cluster[1].partition()
    partition.log.set_high_watermark(1)
    cluster[1].manager._hosting.changed(TP)
    cluster.run()
    assert errors(results) == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


def test_acks_all_times_out_while_a_member_is_silent(cluster) -> None:
    cluster.lead(1)
    cluster.sever(1, 3)
    results = cluster[1].produce("a", timeout_ms=1_500)
    cluster.advance(1_400)
    assert results == []
    cluster.advance(100)
    assert [(result.error, result.base_offset) for result in results] == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
    cluster.heal()
    cluster.advance(3_000)
    assert len(results) == 1


def test_becoming_follower_answers_waiting_produces(cluster) -> None:
    cluster.lead(1)
    cluster.sever(1, 3)
    results = cluster[1].produce("a")
    cluster.decide(2)
    cluster.tell(1)
    assert errors(results) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_waiting_produces_outlive_a_new_epoch_of_the_same_leader_and_complete_by_its_high_watermark(cluster) -> None:
    cluster.lead(1)
    cluster.sever(1, 2)
    cluster.sever(1, 3)
    results = cluster[1].produce("a")
    cluster.decide(1)
    cluster.tell(1)
    cluster[1].consume(1, replica=2, epoch=1)
    assert results == []
    cluster[1].consume(1, replica=3, epoch=1)
    assert errors(results) == [ErrorCode.NONE]


def test_each_partition_of_a_produce_has_its_own_outcome(cluster, batch) -> None:
    cluster.lead(1)
    cluster.decide(2, partition=OTHER)
    cluster.tell(partition=OTHER)
    answers = []
    batch = batch("a")
    cluster[1].manager.append(-1, 1_000, {TP: batch, OTHER: batch, TopicPartition("no", 1): batch}, answers.append)
    cluster.run()
    (answer,) = answers
    assert {name: result.error for name, result in answer.items()} == {
        TP: ErrorCode.NONE,
        OTHER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        TopicPartition("no", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_produce_over_two_partitions_is_answered_when_both_are_there(cluster, batch) -> None:
    cluster.lead(1, (1, 2))
    cluster.lead(1, (1, 3), partition=OTHER)
    cluster.sever(1, 2)
    cluster.sever(1, 3)
    answers = []
    cluster[1].manager.append(-1, 10_000, {TP: batch("a"), OTHER: batch("b")}, answers.append)
    cluster[1].consume(1, replica=2, epoch=0)
    cluster[1].consume(1, replica=2, epoch=0, partition=OTHER)
    assert answers == []
    cluster[1].consume(1, replica=3, epoch=0)
    cluster[1].consume(1, replica=3, epoch=0, partition=OTHER)
    assert [sorted(result.error for result in answer.values()) for answer in answers] == [[ErrorCode.NONE] * 2]


def test_a_refused_batch_tells_why_and_where_the_log_begins(cluster, batch) -> None:
    cluster.lead(1)
    answers = []
    broken = bytearray(batch("a"))
    broken[-1] ^= 1
    cluster[1].manager.append(1, 1_000, {TP: bytes(broken)}, answers.append)
    (result,) = answers[0].values()
    assert (result.error, result.log_start_offset) == (ErrorCode.CORRUPT_MESSAGE, 0)
    assert result.message


def test_a_failing_disk_is_a_storage_error_of_that_partition(cluster, monkeypatch) -> None:
    cluster.lead(1)

    def fail(*_: object) -> None:
        raise LogStorageError(cluster[1].dir, "no space left")

    monkeypatch.setattr(cluster[1].log(), "append_as_leader", fail)
    assert errors(cluster[1].produce("a")) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_repeated_batch_is_answered_with_its_old_place_once_it_is_committed(cluster, batch) -> None:
    cluster.lead(1)
    cluster.sever(1, 2)
    answers = []
    batch = batch("a", producer=(7, 0, 0))
    for _ in range(2):
        cluster[1].manager.append(-1, 10_000, {TP: batch}, answers.append)
    assert answers == []
    cluster[1].consume(1, replica=2, epoch=0)
    cluster.run()
    assert [answer[TP].base_offset for answer in answers] == [0, 0]
    assert cluster[1].log().log_end_offset == 1


def test_an_answer_may_come_back_in(cluster, batch) -> None:
    """Nothing is half changed while answers are given: the one called may produce and fetch again."""
    cluster.lead(1, (1,), replicas=(1,))
    answers = []

    def again(answer) -> None:
        answers.append(answer[TP])
        if len(answers) < 3:
            cluster[1].manager.append(-1, 1_000, {TP: batch("x")}, again)

    cluster[1].manager.append(-1, 1_000, {TP: batch("x")}, again)
    assert [answer.base_offset for answer in answers] == [0, 1, 2]


def test_an_answer_that_cannot_be_delivered_does_not_keep_others_from_theirs(cluster, caplog, batch) -> None:
    cluster.lead(1)
    cluster.sever(1, 2)

    def broken(_: object) -> None:
        raise ConnectionResetError

    cluster[1].manager.append(-1, 1_000, {TP: batch("a")}, broken)
    results = cluster[1].produce("b")
    cluster[1].consume(2, replica=2, epoch=0)
    cluster.run()
    assert errors(results) == [ErrorCode.NONE]
    assert "could not be delivered" in caplog.text


def test_flush_ms_of_a_topic_syncs_its_logs_though_the_broker_says_nothing_about_it(make_cluster) -> None:
    cluster = make_cluster(flush_ms=500)
    cluster.lead(1)
    cluster[1].produce("a", "b")
    cluster.advance(2_000)
    assert [cluster[number].log().recovery_point for number in (1, 2, 3)] == [2, 2, 2]
