"""Brokers that do as they are told, and a bench: what tests of the simulated clients need."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from regency.broker_agent.control.metadata_cache import BrokerNode, MetadataSnapshot, PartitionMetadata, TopicMetadata
from regency.broker_agent.log.append_rules import check_produced
from regency.broker_agent.log.errors import RecordsRejected
from regency.broker_agent.log.producer_state import ProducerStates
from regency.broker_agent.replication.api import ProduceResult
from regency.judge.operations import Send
from regency.kafka.fetching.values import FetchedPartition, FetchPartition, ListedOffset
from regency.kafka.record_batch import iter_batches, read_header, stamp
from regency.model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
    ZkVersion,
)
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.log_config import LogConfig
from simulation.clients.consumer import Consumer, ConsumerConfig
from simulation.clients.history import History
from simulation.clients.producer import Producer, ProducerConfig
from simulation.clients.records import values_in
from simulation.cluster.agent import ListAsked, MetadataAsked, PollAsked, ProduceAsked, ProducerIdAsked
from simulation.cluster.channels import KAFKA, endpoints_of, host_of
from simulation.kernel.scheduler import Process, Scheduler
from simulation.network import Network, Respond

TP = TopicPartition("flights", 0)
OTHER = TopicPartition("flights", 1)
ONE, TWO = BrokerId(1), BrokerId(2)

Twist = Callable[[TopicPartition, int], str | ErrorCode | None]
"""What befalls the n-th produce to a partition.

Nothing; an error instead of the append, though NOT_ENOUGH_REPLICAS_AFTER_APPEND follows it; "lost", neither written nor
answered; "written, no answer"; or "deposed", written and answered NOT_LEADER_OR_FOLLOWER.
"""


class Brokers:
    """Brokers that share one log per partition; `twist` says what goes wrong with a produce."""

    def __init__(self, scheduler: Scheduler, network: Network) -> None:
        self.scheduler = scheduler
        self.network = network
        self.logs: dict[TopicPartition, bytearray] = {TP: bytearray(), OTHER: bytearray()}
        self.states = {TP: ProducerStates(), OTHER: ProducerStates()}
        self.ends = {TP: Offset(0), OTHER: Offset(0)}
        self.start = Offset(0)
        self.topic_id = TopicId(UUID(int=7))
        self.leader = ONE
        self.epoch = LeaderEpoch(3)
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
        """Make another broker the leader of both partitions, or the same one anew."""
        self.leader, self.epoch = broker, LeaderEpoch(self.epoch + 1)
        for wake in list(self.waiting):
            wake()

    def recreate(self) -> None:
        self.topic_id = TopicId(UUID(int=self.topic_id.int + 1))
        self.epoch = LeaderEpoch(0)
        for partition in (TP, OTHER):
            self.logs[partition].clear()
            self.states[partition] = ProducerStates()
            self.ends[partition] = Offset(0)
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
        row = PartitionMetadata(0, self.leader, self.epoch, ZkVersion(0), (ONE, TWO), (ONE, TWO))
        rows = dict.fromkeys((0, 1), row)
        nodes = {broker: BrokerNode(broker, BrokerEpoch(1), endpoints_of(broker)) for broker in (ONE, TWO)}
        topics = {"flights": TopicMetadata("flights", self.topic_id, rows)}
        return MetadataSnapshot(self.epoch, ONE, ControllerEpoch(1), nodes, topics, {self.topic_id: "flights"})

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
        stamp(batch, base, self.epoch)
        self.states[partition].update(read_header(batch))
        self.logs[partition] += batch
        self.ends[partition] = Offset(base + header.record_count)
        for wake in list(self.waiting):
            wake()
        return ProduceResult(ErrorCode.NONE, base)

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

    def row(self, broker: BrokerId, wanted: FetchPartition) -> FetchedPartition:
        partition = wanted.topic_partition
        error = self.refusal(broker, wanted.current_leader_epoch)
        if wanted.topic_id != self.topic_id:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        if error is None and not self.start <= wanted.fetch_offset <= self.ends[partition]:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        if error is not None:
            return FetchedPartition(error)
        log = self.logs[partition]
        records = bytearray()
        for at, header in iter_batches(log):
            if header.last_offset >= wanted.fetch_offset and (not records or len(records) < wanted.max_bytes):
                records += log[at : at + header.size]
        return FetchedPartition(ErrorCode.NONE, self.ends[partition], self.start, bytes(records))

    def listed(self, broker: BrokerId, asked: ListAsked) -> ListedOffset:
        error = self.refusal(broker, asked.leader_epoch)
        if error is not None:
            return ListedOffset(error)
        offset = self.start if asked.timestamp == -2 else self.ends[asked.topic_partition]
        return ListedOffset(ErrorCode.NONE, -1, offset, self.epoch)

    def refusal(self, broker: BrokerId, epoch: int) -> ErrorCode | None:
        """Why a broker does not answer for a leader epoch."""
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
        """One that neither seeks nor restarts, unless told to."""
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
