"""Simulated consumers, the final read, and all clients together, against brokers that do as they are told."""

from __future__ import annotations

from typing import Any

import pytest
from simulation.clients.history import FinalReader
from simulation.clients.scripted import ONE, OTHER, TP, TWO, Bench
from simulation.cluster.channels import CLIENTS, host_of

from regency.judge.operations import Drained, Outcome, Poll, Run, Seek, Send
from regency.judge.table import Anomaly, Configuration, Facts, allowed_anomalies
from regency.judge.verdict import judge
from regency.model.kafka_errors import ErrorCode


@pytest.fixture
def bench() -> Bench:
    return Bench()


# Consumers


def test_a_consumer_reads_everything_once_in_order_over_changes_of_leader(bench: Bench) -> None:
    producer = bench.producer()
    consumer = bench.consumer()
    for number in range(30):
        producer.send(TP, 2)
        bench.run(300)
        if number % 10 == 5:
            bench.brokers.lead(TWO if bench.brokers.leader == ONE else ONE)
    bench.run(3_000)
    consumer.finish()
    polls = [poll for poll in bench.of(Poll) if poll.partition == TP.partition]
    runs = [run for poll in polls for run in poll.runs]
    read = [(run.offset + index, value) for run in runs for index, value in enumerate(run.values)]
    assert read == list(enumerate(bench.brokers.values()))
    assert [poll.number for poll in polls] == list(range(len(polls)))
    assert [poll.position for poll in polls[1:]] == [poll.next_position for poll in polls[:-1]]
    assert {poll.leader_epoch for poll in polls} == {3, 4, 5, 6}
    assert consumer.position(TP) == 60


def test_a_position_out_of_range_is_reset_and_says_so(bench: Bench) -> None:
    producer = bench.producer()
    consumer = bench.consumer()
    producer.send(TP, 3)
    bench.run(2_000)
    bench.brokers.start = 4
    producer.send(TP, 3)
    bench.run(2_000)
    consumer.finish()
    operations = [each for each in bench.of((Poll, Seek)) if each.partition == TP.partition]
    (at,) = [index for index, each in enumerate(operations) if isinstance(each, Seek)]
    assert (operations[at - 1].next_position, operations[at].position, operations[at + 1].position) == (3, 4, 4)
    assert [value for each in operations[at + 1 :] for run in each.runs for value in run.values] == [5, 6]
    assert [each.number for each in operations] == list(range(len(operations)))


def test_a_topic_made_anew_is_read_from_its_start(bench: Bench) -> None:
    producer = bench.producer(idempotent=False)
    consumer = bench.consumer(list_every_ms=0)
    producer.send(TP, 3)
    bench.run(2_000)
    bench.brokers.recreate()
    bench.run(1_000)
    producer.send(TP, 3)
    bench.run(2_000)
    consumer.finish()
    operations = [each for each in bench.of((Poll, Seek)) if each.partition == TP.partition]
    (at,) = [index for index, each in enumerate(operations) if isinstance(each, Seek)]
    assert (operations[at].position, operations[at + 1].position) == (0, 0)
    assert [value for each in operations[at + 1 :] for run in each.runs for value in run.values] == [4, 5, 6]
    assert [each.topic_id[-1] for each in operations if isinstance(each, Poll)] == ["7"] * at + ["8"] * (
        len(operations) - at - 1
    )


def test_a_consumer_seeks_back_and_begins_anew_until_it_is_told_to_settle(bench: Bench) -> None:
    producer = bench.producer(records_per_s=8.0)
    consumer = bench.consumer(seek_chance=0.2, restart_chance=0.2)
    bench.run(20_000)
    seeks, sessions = len(bench.of(Seek)), {poll.session for poll in bench.of(Poll)}
    assert seeks > 3
    assert len(sessions) > 3
    consumer.settle()
    producer.stop()
    bench.run(10_000)
    assert len(bench.of(Seek)) == seeks
    assert [consumer.position(TP), consumer.position(OTHER)] == [bench.brokers.ends[TP], bench.brokers.ends[OTHER]]


# The end


def final_read(bench: Bench) -> FinalReader:
    reader = FinalReader(bench.scheduler, bench.network, bench.process, [TP, OTHER], [ONE, TWO], within_ms=5_000)
    bench.scheduler.spawn(bench.process, "final-read", reader.run)
    bench.run(8_000)
    assert reader.done
    return reader


def test_the_final_read_is_everything(bench: Bench) -> None:
    producer = bench.producer()
    producer.send(TP, 3)
    bench.run(1_000)
    reader = final_read(bench)
    assert [(read.topic, read.partition, read.log_start, read.high_watermark, read.runs) for read in reader.reads] == [
        ("flights", 0, 0, 3, (Run(0, (1, 2, 3)),)),
        ("flights", 1, 0, 0, ()),
    ]


# All together


def troubled_run(seed: int, **config: Any) -> Bench:
    """A minute in which produces get lost, are refused or answered wrongly, links lose messages and leaders change."""
    bench = Bench(seed)
    chance = bench.scheduler.random
    brokers = bench.brokers
    trouble: list[str | ErrorCode] = [
        "lost",
        "written, no answer",
        "deposed",
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ]
    brokers.twist = lambda _partition, _number: chance.choice(trouble) if chance.random() < 0.2 else None
    producer = bench.producer(records_per_s=4.0, **config)
    consumer = bench.consumer(seek_chance=0.05, restart_chance=0.05, list_every_ms=2_000)
    for number in range(30):
        bench.run(2_000)
        if number % 5 == 0:
            brokers.lead(TWO if brokers.leader == ONE else ONE)
        bench.network.link(CLIENTS, host_of(brokers.leader)).loss = 0.1 if number % 3 == 0 else 0.0
        bench.network.link(host_of(brokers.leader), CLIENTS).blocked = number % 7 == 0
    bench.network.heal()
    brokers.twist = lambda _partition, _number: None
    producer.stop()
    consumer.settle()
    bench.run(25_000)
    bench.history.record(Drained(bench.scheduler.now_us // 1000))
    bench.run(5_000)
    assert producer.drained
    bench.history.operations += final_read(bench).reads
    producer.finish()
    consumer.finish()
    return bench


@pytest.mark.parametrize("seed", range(12))
def test_what_an_idempotent_producer_and_a_consumer_saw_is_one_log(seed: int) -> None:
    bench = troubled_run(seed)
    verdict = judge(bench.history.operations)
    assert verdict.clean, verdict.summary()
    assert verdict.sends > 100
    sends = bench.of(Send)
    assert len({send.value for send in sends}) == len(sends)
    assert sum(send.outcome is Outcome.ACKNOWLEDGED for send in sends) > len(sends) * 0.6


def test_a_plain_producers_anomalies_are_those_the_table_allows() -> None:
    configuration = Configuration(idempotent=False)
    allowed = allowed_anomalies(configuration, Facts())
    for seed in range(4):
        verdict = judge(troubled_run(seed, idempotent=False).history.operations, allowed)
        assert verdict.clean, verdict.summary()
        assert verdict.tolerated[Anomaly.RETRY_DUPLICATE] > 0
