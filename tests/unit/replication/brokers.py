"""Builders of brokers: logs, ReplicaManager and fetchers of one, over a network that a cluster moves by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.ports import IsrChange, IsrNotWritten, IsrOutcome, IsrUnknown
from regency.broker_agent.replication.api import AppliedState, LeaderAddress, PartitionState, ProduceResult
from regency.broker_agent.replication.fetch_sessions import FetchSessionCache
from regency.broker_agent.replication.fetcher.fetcher_pool import FetcherPool, TransportSpec
from regency.broker_agent.replication.fetcher.fetcher_thread import Command, Failed, Outcome
from regency.broker_agent.replication.fetcher.throttle import Throttles
from regency.broker_agent.replication.partition import Partition
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.broker_agent.steps import at_once
from regency.kafka.fetching.values import (
    CONSUMER,
    FetchedPartition,
    FetchParams,
    FetchPartition,
    FetchPlan,
    ListedOffset,
    OffsetsPlan,
    Pause,
)
from regency.kafka.record_batch import iter_batches
from regency.model.clock import ManualClock
from regency.model.ids import (
    NO_BROKER_EPOCH,
    NO_LEADER_EPOCH,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.dynamic import ThrottleRates
from regency.model.settings.log_config import LogConfig

T = TypeVar("T")

TP = TopicPartition("flights", 0)


def make_batch(*values: str, producer: tuple[int, int, int] = (-1, -1, -1), timestamp: int = 1_000) -> bytes:
    """One uncompressed batch with a record per value, a millisecond apart, as a producer sends it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        batch_size=1 << 20,
    )
    for number, value in enumerate(values):
        builder.append(number, timestamp=timestamp + number, key=None, value=value.encode(), headers=[])
    return bytes(builder.build())


def values_in(records: bytes | memoryview) -> list[str]:
    """Values of the records of uncompressed batches."""
    from aiokafka.record.default_records import DefaultRecordBatch

    data = bytes(records)
    found = []
    for position, header in iter_batches(data):
        batch = DefaultRecordBatch(data[position : position + header.size])
        found.extend(record.value.decode() for record in batch)
    return found


class InlineWorker:
    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        outcome: T | BaseException
        try:
            outcome = work()
        except OSError as error:
            outcome = error
        done(outcome)


class ManualTimer:
    """Remembers when to wake its owner."""

    def __init__(self) -> None:
        self.due: int | None = None

    def wake_by(self, monotonic_ms: int) -> None:
        if self.due is None or monotonic_ms < self.due:
            self.due = monotonic_ms


class FakePeers:
    """Metadata: registered incarnations, who is leaving, and what there is; and which incarnations were asked about."""

    def __init__(self) -> None:
        self.asked: list[tuple[BrokerId, BrokerEpoch]] = []
        self.known: set[TopicPartition] = set()
        self.epochs: dict[BrokerId, BrokerEpoch] = {}
        self.leaving: set[BrokerId] = set()

    def broker_epoch(self, broker: BrokerId) -> BrokerEpoch | None:
        return self.epochs.get(broker)

    def confirm(self, broker: BrokerId, epoch: BrokerEpoch) -> None:
        self.asked.append((broker, epoch))

    def is_shutting_down(self, broker: BrokerId) -> bool:
        return broker in self.leaving

    def has_partition(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self.known


class Link:
    """A fetcher's transport: what it sends waits until the cluster moves."""

    def __init__(self, spec: TransportSpec, deliver: Callable[[Outcome], None], clock: ManualClock) -> None:
        self.spec = spec
        self.address = spec.address
        self.deliver = deliver
        self.outbox: FetchPlan | OffsetsPlan | None = None
        self.inbox: list[Outcome] = []
        self.rested_at: int | None = None
        self.closed = False
        self.busy = False
        self.round = 0
        self._clock = clock

    def send(self, command: Command) -> None:
        self.rested_at = None
        if isinstance(command, Pause):
            if command.milliseconds is not None:
                self.rested_at = self._clock.monotonic_ms() + command.milliseconds
        else:
            assert not self.busy
            self.busy = True
            self.round += 1
            self.outbox = command

    @property
    def alive(self) -> bool:
        return True

    def redirect(self, address: LeaderAddress) -> None:
        self.address = address
        self.break_exchange("the connection was closed")

    def break_exchange(self, why: str) -> None:
        """Whatever is on its way is lost."""
        if not self.busy or self.closed:
            return
        self.outbox = None
        self.round += 1
        self.inbox = [Failed(why)]

    def close(self) -> None:
        self.closed = True
        self.outbox = None
        self.inbox = []


class FakeIsrStore:
    """Compare-and-set on the cluster's state znodes; `held` keeps changes until `release`.

    `refuse`: the outcome stays unknown; `away`: nothing is sent.
    """

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.held = False
        self.refuse = False
        self.away = False
        self.waiting: list[tuple[IsrChange, Callable[[IsrOutcome], None]]] = []
        self.submitted: list[IsrChange] = []
        self.asked: list[TopicPartition] = []

    def submit(self, change: IsrChange, done: Callable[[IsrOutcome], None]) -> None:
        self.submitted.append(change)
        self.waiting.append((change, done))

    def withdraw(self, topic_partition: TopicPartition) -> bool:
        return not any(change.topic_partition == topic_partition for change, _ in self.waiting)

    def ask(self, topic_partition: TopicPartition) -> None:
        self.asked.append(topic_partition)

    def settle(self) -> bool:
        """Write what waits, unless held; whether there was anything."""
        if self.held or not self.waiting:
            return False
        waiting, self.waiting = self.waiting, []
        for change, done in waiting:
            done(self._outcome(change))
        return True

    def _outcome(self, change: IsrChange) -> IsrOutcome:
        if self.away:
            return IsrNotWritten("not registered")
        return IsrUnknown("refused") if self.refuse else self.cluster.write_isr(change)


class Broker:
    """One broker: log directories, ReplicaManager, fetch sessions, fetchers."""

    def __init__(self, cluster: Any, number: int, root: Path) -> None:
        self.cluster = cluster
        self.id = BrokerId(number)
        self.dir = root / f"broker-{number}"
        self.dirs = [self.dir, *(root / f"broker-{number}-{each}" for each in range(1, cluster.directories))]
        self.dir_failures: list[tuple[Path, str]] = []
        self.start()

    def start(self) -> None:
        cluster = self.cluster
        cluster.last_broker_epoch += 1
        self.epoch = BrokerEpoch(cluster.last_broker_epoch)
        cluster.peers.epochs[self.id] = self.epoch
        self.up = True
        self.links: list[Link] = []
        self.timer = ManualTimer()
        self.isr_store = FakeIsrStore(cluster)
        self.sessions = FetchSessionCache(100, new_id=cluster.new_session_id)
        self.logs = LogManager.open(
            self.dirs,
            cluster.config,
            broker_id=self.id,
            cluster_id="test",
            clock=cluster.clock,
            worker=InlineWorker(),
            recovery_threads=1,
            on_dir_failure=self._dir_failed,
        )
        settings = msgspec.structs.replace(cluster.settings, broker_id=self.id)
        static = ThrottleRates(moves=settings.replica_alter_log_dirs_io_max_bytes_per_second)
        throttles = Throttles(settings, lambda: cluster.rates.get(self.id, static), self._topic_config)
        self.fetchers = FetcherPool(
            settings, cluster.clock, lambda: self.epoch, self._link, self.logs.settle, throttles.follower
        )
        self.manager = ReplicaManager(
            self.id,
            settings,
            self.logs,
            cluster.clock,
            self.timer,
            self.isr_store,
            cluster.peers,
            self.fetchers,
            self._topic_config,
            throttles,
        )

    def _topic_config(self, topic: str) -> LogConfig:
        return self.cluster.configs.get(topic, self.cluster.config)

    def stop(self, *, clean: bool) -> None:
        """End the process; unclean: as SIGKILL does, which loses nothing that was written."""
        self.up = False
        for link in self.links:
            link.close()
        if clean:
            self.manager.shutdown()
            self.logs.close()
        else:
            self.logs._services.files.close_all()
            for directory in self.logs._directories:
                directory.unlock()

    def log(self, partition: TopicPartition = TP) -> PartitionLog:
        return self.manager.partitions[partition].log

    def partition(self, partition: TopicPartition = TP) -> Partition:
        return self.manager.partitions[partition]

    def values(self, partition: TopicPartition = TP) -> list[str]:
        """Every record of the log, in order."""
        log = self.log(partition)
        read = log.read(log.log_start_offset, 1 << 30, max_offset=log.log_end_offset, min_one_batch=True)
        return values_in(read.records)

    def other_dir(self, partition: TopicPartition = TP) -> Path:
        """The first directory its replica is not in."""
        return next(path for path in self.dirs if path != self.log(partition).home.path)

    def move(self, target: Path, partition: TopicPartition = TP) -> ErrorCode:
        """Ask for the replica to be moved to that directory."""
        return self.manager.alter_log_dirs({partition: target})[partition]

    def apply(self, *states: PartitionState, addresses: bool = True) -> dict[TopicPartition, AppliedState]:
        leaders = self.cluster.addresses() if addresses else {}
        return self.manager.apply_states(states, leaders)

    def produce(
        self,
        *values: str,
        acks: int = -1,
        timeout_ms: int = 30_000,
        partition: TopicPartition = TP,
        producer: tuple[int, int, int] = (-1, -1, -1),
    ) -> list[ProduceResult]:
        """Append one batch; the list gets the result when there is one."""
        results: list[ProduceResult] = []
        self.manager.append(
            acks,
            timeout_ms,
            {partition: make_batch(*values, producer=producer, timestamp=self.cluster.record_timestamp)},
            lambda answered: results.append(answered[partition]),
        )
        return results

    def consume(
        self,
        offset: int = 0,
        *,
        partition: TopicPartition = TP,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        replica: int = CONSUMER,
        replica_epoch: int | None = None,
        epoch: int = NO_LEADER_EPOCH,
        last_epoch: int = NO_LEADER_EPOCH,
        log_start: int = 0,
        topic_id: TopicId | None = None,
    ) -> list[FetchedPartition]:
        """Fetch one partition as a consumer or, with `replica`, as a follower; the list gets the result."""
        results: list[FetchedPartition] = []
        if replica_epoch is None:
            replica_epoch = self.cluster.peers.epochs.get(BrokerId(replica), NO_BROKER_EPOCH)
        params = FetchParams(BrokerId(replica), BrokerEpoch(replica_epoch), max_wait_ms, min_bytes, 1 << 20)
        wanted = FetchPartition(
            partition, topic_id, Offset(offset), 1 << 20, LeaderEpoch(epoch), LeaderEpoch(last_epoch), Offset(log_start)
        )
        self.manager.fetch(params, [wanted], lambda answered: results.append(answered[partition]))
        return results

    def fetch(
        self,
        wanted: Sequence[tuple[TopicPartition, int]],
        *,
        max_bytes: int = 1 << 20,
        min_bytes: int = 1,
        max_wait_ms: int = 0,
        partition_bytes: int = 1 << 20,
    ) -> tuple[list[dict[TopicPartition, FetchedPartition]], Callable[[], None]]:
        """Consume several partitions from these offsets; the list gets the results. Also what withdraws the fetch."""
        answers: list[dict[TopicPartition, FetchedPartition]] = []
        params = FetchParams(BrokerId(CONSUMER), NO_BROKER_EPOCH, max_wait_ms, min_bytes, max_bytes)
        partitions = [FetchPartition(name, None, Offset(offset), partition_bytes) for name, offset in wanted]
        cancel = self.manager.fetch(params, partitions, answers.append)
        return answers, cancel

    def latest(self, *, replica: int = CONSUMER, timestamp: int = -1, epoch: int = NO_LEADER_EPOCH) -> ListedOffset:
        return at_once(self.manager.list_offset(TP, timestamp, LeaderEpoch(epoch), BrokerId(replica)))

    def run_due(self) -> bool:
        """Wake the manager if it asked for that; whether it did."""
        now = self.cluster.clock.monotonic_ms()
        if self.timer.due is None or self.timer.due > now:
            return False
        self.timer.due = None
        self.manager.run_due(now)
        return True

    def _link(self, spec: TransportSpec, deliver: Callable[[Outcome], None]) -> Link:
        link = Link(spec, deliver, self.cluster.clock)
        self.links.append(link)
        return link

    def _dir_failed(self, path: Path, reason: str) -> None:
        self.dir_failures.append((path, reason))
        self.manager.handle_dir_failure(path, reason)
