"""Simulated clients against a broker that does as it is told."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from simulation.clients.consumer import Consumer, ConsumerConfig
from simulation.clients.final_read import FinalReader
from simulation.clients.history import History
from simulation.clients.producer import Producer, ProducerConfig
from simulation.clients.records import RecordsCorrupt, build_batch, runs_of, values_in
from simulation.cluster.addresses import CLIENTS, KAFKA, endpoints_of, host_of
from simulation.cluster.agent import ListAsked, MetadataAsked, PollAsked, ProduceAsked, ProducerIdAsked
from simulation.kernel.scheduler import Process, Scheduler
from simulation.network import Network, Respond

from regency.broker_agent.log.append_rules import check_produced
from regency.broker_agent.log.errors import RecordsRejected
from regency.broker_agent.log.producer_state import ProducerStates
from regency.broker_agent.metadata import BrokerNode, MetadataSnapshot, PartitionMetadata, TopicMetadata
from regency.broker_agent.replication.api import FetchedPartition, ListedOffset, ProduceResult
from regency.history.judge import judge
from regency.history.judge_table import Anomaly, Configuration, Facts, allowed_anomalies
from regency.history.operations import ALL, Drained, EpochBumped, ListedEnd, Outcome, Poll, Run, Seek, Send
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, TopicId, TopicPartition, ZkVersion
from regency.model.kafka_errors import ErrorCode
from regency.model.log_config import LogConfig
from regency.model.record_batch import iter_batches, read_header, stamp

TP = TopicPartition("flights", 0)
OTHER = TopicPartition("flights", 1)
TOPIC_ID = TopicId(UUID(int=7))
ONE, TWO = BrokerId(1), BrokerId(2)

Twist = Callable[[TopicPartition, int], str | ErrorCode | None]
"""What befalls the n-th produce to a partition: an error code, "lost" (no answer), "written, no answer"…"""


class Brokers:
    """Brokers that share one log per partition; `twist` says what goes wrong with a produce."""

    def __init__(self, scheduler: Scheduler, network: Network) -> None:
        self.scheduler = scheduler
        self.network = network
        self.logs: dict[TopicPartition, bytearray] = {TP: bytearray(), OTHER: bytearray()}
        self.states = {TP: ProducerStates(), OTHER: ProducerStates()}
        self.ends = {TP: 0, OTHER: 0}
        self.start = 0
        self.leader, self.epoch = ONE, 3
        self.produces: dict[TopicPartition, int] = {TP: 0, OTHER: 0}
        self.attempts: list[tuple[int, int, int, int]] = []
        """(producer id, epoch, sequence, records) of every produce that arrived for TP."""
        self.twist: Twist = lambda _partition, _number: None
        self.waiting: list[Callable[[], bool]] = []
        self.ids = 100
        self.snapshots: dict[BrokerId, MetadataSnapshot] = {}
        self.processes = {broker: Process(scheduler, f"broker-{broker}") for broker in (ONE, TWO)}
        for broker, process in self.processes.items():
            host = host_of(broker)
            network.listen(f"{host}:{KAFKA}", host, process, partial(self.serve, broker))

    def lead(self, broker: BrokerId) -> None:
        self.leader, self.epoch = broker, self.epoch + 1
        for wake in list(self.waiting):
            wake()

    def serve(self, broker: BrokerId, asked: Any, respond: Respond) -> None:
        match asked:
            case MetadataAsked():
                respond(self.snapshots.get(broker) or self.snapshot())
            case ProducerIdAsked():
                self.ids += 1
                respond(self.ids)
            case ProduceAsked():
                self.produce(broker, asked, respond)
            case PollAsked():
                self.poll(broker, asked, respond)
            case ListAsked():
                respond(self.listed(broker, asked))

    def snapshot(self) -> MetadataSnapshot:
        row = PartitionMetadata(0, self.leader, LeaderEpoch(self.epoch), ZkVersion(0), (ONE, TWO), (ONE, TWO))
        rows = dict.fromkeys((0, 1), row)
        nodes = {broker: BrokerNode(broker, BrokerEpoch(1), endpoints_of(broker)) for broker in (ONE, TWO)}
        topics = {"flights": TopicMetadata("flights", TOPIC_ID, rows)}
        return MetadataSnapshot(self.epoch, ONE, ControllerEpoch(1), nodes, topics, {TOPIC_ID: "flights"})

    def produce(self, broker: BrokerId, asked: ProduceAsked, respond: Respond) -> None:
        ((partition, records),) = asked.batches.items()
        header = check_produced(records, LogConfig())
        self.produces[partition] += 1
        if partition == TP:
            self.attempts.append((header.producer_id, header.producer_epoch, header.base_sequence, header.record_count))
        twist = self.twist(partition, self.produces[partition])
        if twist == "lost":
            return
        if isinstance(twist, ErrorCode) and twist is not ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            result = ProduceResult(twist)
        elif broker != self.leader:
            result = ProduceResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            result = self.append(partition, records)
        if twist is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            result = ProduceResult(twist)
        if twist == "deposed" and result.error is ErrorCode.NONE:
            result = ProduceResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if twist != "written, no answer":
            respond({partition: result})

    def append(self, partition: TopicPartition, records: bytes) -> ProduceResult:
        batch = bytearray(records)
        header = read_header(batch)
        if header.producer_id >= 0:
            try:
                duplicate = self.states[partition].check(header, all_known=True)
            except RecordsRejected as error:
                return ProduceResult(error.error)
            if duplicate is not None:
                return ProduceResult(ErrorCode.NONE, duplicate.first_offset)
        base = self.ends[partition]
        stamp(batch, base, LeaderEpoch(self.epoch))  # type: ignore[arg-type]
        self.states[partition].update(read_header(batch))
        self.logs[partition] += batch
        self.ends[partition] = base + header.record_count
        for wake in list(self.waiting):
            wake()
        return ProduceResult(ErrorCode.NONE, base)  # type: ignore[arg-type]

    def poll(self, broker: BrokerId, asked: PollAsked, respond: Respond) -> None:
        def look() -> bool:
            rows = {wanted.topic_partition: self.row(broker, wanted) for wanted in asked.partitions}
            if any(row.error is not ErrorCode.NONE or row.records for row in rows.values()):
                finish(rows)
                return True
            return False

        def finish(rows: dict[TopicPartition, FetchedPartition] | None = None) -> None:
            if look in self.waiting:
                self.waiting.remove(look)
            if not answered:
                answered.append(True)
                respond(rows or {wanted.topic_partition: self.row(broker, wanted) for wanted in asked.partitions})

        answered: list[bool] = []
        if not look():
            self.waiting.append(look)
            self.scheduler.at(asked.params.max_wait_ms * 1000, finish)

    def row(self, broker: BrokerId, wanted: Any) -> FetchedPartition:
        partition = wanted.topic_partition
        error = self.refusal(broker, wanted.current_leader_epoch)
        if error is None and not self.start <= wanted.fetch_offset <= self.ends[partition]:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        if error is not None:
            return FetchedPartition(error)
        log = self.logs[partition]
        records = bytearray()
        for at, header in iter_batches(log):
            if header.last_offset >= wanted.fetch_offset and (not records or len(records) < wanted.max_bytes):
                records += log[at : at + header.size]
        return FetchedPartition(ErrorCode.NONE, self.ends[partition], self.start, bytes(records))  # type: ignore[arg-type]

    def listed(self, broker: BrokerId, asked: ListAsked) -> ListedOffset:
        error = self.refusal(broker, asked.leader_epoch)
        if error is not None:
            return ListedOffset(error)
        offset = self.start if asked.timestamp == -2 else self.ends[asked.topic_partition]
        return ListedOffset(ErrorCode.NONE, -1, offset, LeaderEpoch(self.epoch))  # type: ignore[arg-type]

    def refusal(self, broker: BrokerId, epoch: int) -> ErrorCode | None:
        if broker != self.leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > self.epoch else None

    def values(self, partition: TopicPartition = TP) -> list[int]:
        return [value for _, value in values_in(bytes(self.logs[partition]))]


class Bench:
    """Two brokers, a network and one process for clients."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler(seed)
        self.network = Network(self.scheduler)
        self.brokers = Brokers(self.scheduler, self.network)
        self.history = History()
        self.process = Process(self.scheduler, "client")

    def producer(self, process: Process | None = None, **config: Any) -> Producer:
        """One that sends only what it is told to."""
        config = {"records_per_s": 1e-9, **config}
        producer = Producer(
            self.scheduler,
            self.network,
            process or self.process,
            self.history,
            "p",
            [TP, OTHER],
            [ONE, TWO],
            ProducerConfig(**config),
        )
        producer.start()
        self.run(1_000)
        return producer

    def consumer(self, **config: Any) -> Consumer:
        config = {"seek_chance": 0.0, "restart_chance": 0.0, **config}
        consumer = Consumer(
            self.scheduler,
            self.network,
            self.process,
            self.history,
            "c",
            [TP, OTHER],
            [ONE, TWO],
            ConsumerConfig(**config),
        )
        consumer.start()
        return consumer

    def run(self, milliseconds: int) -> None:
        self.scheduler.run_until(self.scheduler.now_us + milliseconds * 1000)

    def of(self, kind: type[Any] | tuple[type[Any], ...]) -> list[Any]:
        return [each for each in self.history.operations if isinstance(each, kind)]

    def outcomes(self) -> list[tuple[int, str, int]]:
        return sorted((send.value, send.outcome.value, send.offset) for send in self.of(Send))


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


def test_a_producer_does_not_follow_a_broker_that_is_behind(bench: Bench) -> None:
    producer = bench.producer()
    behind = bench.brokers.snapshot()
    bench.brokers.lead(TWO)
    producer.send(TP)
    bench.run(2_000)
    bench.brokers.snapshots = {ONE: behind, TWO: behind}
    producer.send(TP)
    bench.run(100)
    assert [send.leader for send in bench.of(Send)] == [2, 2]


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


def test_the_other_partitions_end_in_the_session_in_which_they_are(bench: Bench) -> None:
    producer = bench.producer()
    twists: dict[TopicPartition, str | ErrorCode] = {TP: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, OTHER: "lost"}
    bench.brokers.twist = lambda partition, number: twists[partition] if number == 1 else None
    producer.send(OTHER)
    producer.send(TP)
    bench.run(1_000)
    producer.send(OTHER)
    bench.run(8_000)
    producer.send(OTHER)
    bench.run(1_000)
    others = [send for send in bench.of(Send) if send.partition == OTHER.partition]
    assert [(send.session, send.number, send.outcome) for send in others] == [
        (0, 0, Outcome.ACKNOWLEDGED),
        (1, 0, Outcome.ACKNOWLEDGED),
        (1, 1, Outcome.ACKNOWLEDGED),
    ]
    assert bench.brokers.values(OTHER) == [1, 3, 4]


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


def test_a_paused_producer_goes_on_where_it_was(bench: Bench) -> None:
    producer = bench.producer()
    producer.send(TP)
    bench.process.pause()
    bench.run(10_000)
    assert bench.outcomes() == []
    bench.process.resume()
    bench.run(1_000)
    assert bench.outcomes() == [(1, "acknowledged", 0)]


def test_a_record_still_under_way_at_the_end_is_indeterminate(bench: Bench) -> None:
    producer = bench.producer()
    bench.brokers.twist = lambda _partition, _number: "lost"
    producer.send(TP)
    bench.run(100)
    producer.finish()
    producer.finish()
    bench.run(10_000)
    assert bench.outcomes() == [(1, "indeterminate", -1)]


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


def test_of_polls_that_bring_nothing_only_the_last_is_written_down(bench: Bench) -> None:
    bench.producer().send(TP)
    consumer = bench.consumer()
    bench.run(20_000)
    consumer.finish()
    polls = [poll for poll in bench.of(Poll) if poll.partition == TP.partition]
    assert [(poll.position, poll.next_position, poll.number) for poll in polls] == [(0, 1, 0), (1, 1, 1)]
    assert polls[1].completed_ms > 19_000


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


def test_listed_ends_are_written_down(bench: Bench) -> None:
    bench.producer().send(TP, 3)
    bench.consumer(list_every_ms=500)
    bench.run(10_000)
    assert {(end.partition, end.end, end.leader_epoch, end.leader) for end in bench.of(ListedEnd)} == {
        (0, 3, 3, 1),
        (1, 0, 3, 1),
    }


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


def test_the_final_read_gives_up_after_its_time(bench: Bench) -> None:
    bench.brokers.leader = BrokerId(9)
    reader = final_read(bench)
    assert (reader.reads, reader.unread) == ([], [TP, OTHER])


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


def test_the_same_seed_gives_the_same_history() -> None:
    assert troubled_run(3).history.operations == troubled_run(3).history.operations
