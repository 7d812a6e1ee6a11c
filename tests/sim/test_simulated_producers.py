"""Simulated producers against brokers that do as they are told."""

from __future__ import annotations

import pytest
from simulation.clients.records import RecordsCorrupt, build_batch, runs_of, values_in
from simulation.clients.scripted import OTHER, TP, TWO, Bench
from simulation.kernel.scheduler import Process

from regency.broker_agent.log.append_rules import check_produced
from regency.judge.operations import ALL, EpochBumped, Outcome, Run, Send
from regency.model.ids import BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.log_config import LogConfig


@pytest.fixture
def bench() -> Bench:
    return Bench()


# Records


def test_records_are_read_as_they_were_built() -> None:
    records = build_batch([7, 123456], timestamp_ms=5, producer_id=1, producer_epoch=0, sequence=9)
    header = check_produced(records, LogConfig())
    assert (header.producer_id, header.base_sequence, header.record_count) == (1, 9, 2)
    assert values_in(records + records[:70]) == [(0, 7), (1, 123456)]
    assert runs_of([(3, 7), (4, 8), (9, 1)]) == (Run(3, (7, 8)), Run(9, (1,)))


def test_a_damaged_record_is_not_taken_for_another_one() -> None:
    records = bytearray(build_batch([7], timestamp_ms=5))
    records[-2] ^= 1
    with pytest.raises(RecordsCorrupt, match="offset 0 is damaged"):
        values_in(bytes(records))


# Producers


def test_a_producer_writes_down_where_its_records_are(bench: Bench) -> None:
    producer = bench.producer()
    producer.send(TP, 2)
    producer.send(OTHER)
    bench.run(100)
    assert bench.outcomes() == [(1, "acknowledged", 0), (2, "acknowledged", 1), (3, "acknowledged", 0)]
    send = bench.of(Send)[0]
    assert (send.client, send.session, send.number, send.acks, send.leader) == ("p", 0, 0, ALL, 1)
    assert (send.invoked_ms, producer.drained, producer.acknowledged) == (1_000, True, 3)
    assert 1_000 < send.completed_ms < 1_010


def test_a_record_whose_answer_was_lost_is_sent_again_and_written_once(bench: Bench) -> None:
    producer = bench.producer()
    bench.brokers.twist = lambda _, number: "written, no answer" if number == 1 else None
    producer.send(TP)
    bench.run(6_000)
    assert bench.outcomes() == [(1, "acknowledged", 0)]
    assert bench.brokers.attempts == [(101, 0, 0, 1)] * 2
    assert bench.brokers.values() == [1]


def test_records_behind_a_lost_one_wait_for_it_and_keep_their_order(bench: Bench) -> None:
    producer = bench.producer()
    bench.brokers.twist = lambda _, number: "lost" if number == 1 else None
    for _ in range(4):
        producer.send(TP)
    bench.run(8_000)
    assert bench.brokers.values() == [1, 2, 3, 4]
    assert bench.outcomes() == [(value, "acknowledged", value - 1) for value in (1, 2, 3, 4)]
    assert {send.session for send in bench.of(Send)} == {0}


def test_no_more_batches_are_unanswered_than_a_leader_remembers(bench: Bench) -> None:
    producer = bench.producer()
    bench.brokers.twist = lambda _partition, _number: "lost"
    for _ in range(9):
        producer.send(TP)
    bench.run(1_000)
    assert len(bench.brokers.attempts) == 5


def test_a_deposed_leaders_record_is_recognized_by_the_next_one(bench: Bench) -> None:
    producer = bench.producer()
    bench.brokers.twist = lambda _, number: "deposed" if number == 1 else None
    producer.send(TP)
    bench.run(2)
    bench.brokers.lead(TWO)
    bench.run(1_000)
    assert bench.outcomes() == [(1, "acknowledged", 0)]
    assert (bench.of(Send)[0].leader, bench.brokers.values()) == (2, [1])


def test_a_duplicate_is_a_success_at_an_unknown_place(bench: Bench) -> None:
    producer = bench.producer()
    bench.brokers.twist = lambda _partition, _number: ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    producer.send(TP)
    bench.run(100)
    assert bench.outcomes() == [(1, "acknowledged", -1)]


def test_a_gap_that_nothing_explains_ends_the_session(bench: Bench) -> None:
    producer = bench.producer()
    bench.brokers.twist = lambda _, number: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if number == 2 else None
    producer.send(TP)
    bench.run(100)
    producer.send(TP)
    bench.run(1_000)
    producer.send(TP)
    bench.run(1_000)
    assert bench.outcomes() == [(1, "acknowledged", 0), (2, "failed", -1), (3, "acknowledged", 1)]
    assert [(send.session, send.number) for send in bench.of(Send)] == [(0, 0), (0, 1), (1, 0)]
    first, last = bench.brokers.attempts[0], bench.brokers.attempts[-1]
    assert last[:2] in ((first[0], 1), (first[0] + 1, 0))
    assert last[2] == 0


def test_what_had_no_answer_in_time_is_neither_written_nor_lost(bench: Bench) -> None:
    producer = bench.producer()
    bench.brokers.twist = lambda _partition, _number: "written, no answer"
    producer.send(TP)
    bench.run(22_000)
    bench.brokers.twist = lambda _partition, _number: None
    producer.send(TP)
    bench.run(1_000)
    assert bench.outcomes() == [(1, "indeterminate", -1), (2, "acknowledged", 1)]
    assert [send.session for send in bench.of(Send)] == [0, 1]
    assert 20_000 <= bench.of(Send)[0].completed_ms - bench.of(Send)[0].invoked_ms <= 21_100


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(ErrorCode.NOT_ENOUGH_REPLICAS, "failed"), (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "indeterminate")],
)
def test_only_what_was_refused_before_the_append_has_failed(bench: Bench, error: ErrorCode, outcome: str) -> None:
    producer = bench.producer()
    bench.brokers.twist = lambda _partition, _number: error
    producer.send(TP)
    bench.run(22_000)
    assert bench.outcomes() == [(1, outcome, -1)]
    assert len(bench.brokers.attempts) > 10


def test_records_without_a_leader_wait_and_fail_in_the_end(bench: Bench) -> None:
    bench.brokers.leader = BrokerId(9)
    producer = bench.producer()
    producer.send(TP)
    bench.run(5_000)
    assert (bench.outcomes(), producer.drained) == ([], False)
    bench.run(16_000)
    assert (bench.outcomes(), producer.drained) == ([(1, "failed", -1)], True)


def test_a_dead_producers_records_are_indeterminate_and_its_successor_is_a_new_session(bench: Bench) -> None:
    producer = bench.producer()
    bench.brokers.twist = lambda _, number: "lost" if number == 1 else None
    producer.send(TP)
    bench.run(100)
    bench.process.kill()
    successor = bench.producer(Process(bench.scheduler, "client"))
    successor.send(TP)
    bench.run(9_000)
    assert bench.outcomes() == [(1, "indeterminate", -1), (2, "acknowledged", 0)]
    assert [send.session for send in bench.of(Send)] == [0, 1]


@pytest.mark.parametrize("twist", ["lost", "written, no answer", "deposed"])
def test_a_plain_producer_may_write_twice(bench: Bench, twist: str) -> None:
    producer = bench.producer(idempotent=False)
    bench.brokers.twist = lambda _, number: twist if number == 1 else None
    producer.send(TP)
    bench.run(8_000)
    assert [send.outcome for send in bench.of(Send)] == [Outcome.ACKNOWLEDGED]
    assert bench.brokers.values() == ([1] if twist == "lost" else [1, 1])
    assert bench.brokers.attempts[0] == (-1, -1, -1, 1)


def test_with_acks_0_nobody_waits(bench: Bench) -> None:
    producer = bench.producer(idempotent=False, acks=0)
    bench.brokers.twist = lambda _partition, _number: "lost"
    producer.send(TP)
    assert bench.outcomes() == [(1, "acknowledged", -1)]
    bench.run(10_000)
    assert len(bench.brokers.attempts) == 1


def double_fault(bench: Bench, *, like_librdkafka: bool) -> None:
    """A leader is deposed after it appended; meanwhile another partition has a gap."""
    producer = bench.producer(like_librdkafka=like_librdkafka, retry_backoff_ms=300)
    twists: dict[TopicPartition, str | ErrorCode] = {TP: "deposed", OTHER: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
    bench.brokers.twist = lambda partition, number: twists[partition] if number == 1 else None
    producer.send(TP)
    producer.send(OTHER)
    bench.run(5_000)


def test_a_producer_like_librdkafka_writes_twice_when_another_partition_bumps_its_epoch(bench: Bench) -> None:
    double_fault(bench, like_librdkafka=True)
    assert bench.brokers.values() == [1, 1]
    assert [(each.partition, each.client) for each in bench.of(EpochBumped)] == [(TP.partition, "p")]
    assert bench.outcomes() == [(1, "acknowledged", 1), (2, "acknowledged", 0)]


def test_a_producer_like_javas_does_not(bench: Bench) -> None:
    double_fault(bench, like_librdkafka=False)
    assert bench.brokers.values() == [1]
    assert bench.of(EpochBumped) == []
