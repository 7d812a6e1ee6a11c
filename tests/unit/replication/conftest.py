"""Builders for tests of replication: brokers with real logs in one process, and a network and a clock moved by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import msgspec
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from regency.broker_agent.log.log_manager import LogManager
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.ports import IsrChange, IsrUnknown, IsrWritten
from regency.broker_agent.replication.api import (
    CONSUMER,
    AppliedState,
    FetchedPartition,
    FetchParams,
    FetchPartition,
    LeaderAddress,
    ListedOffset,
    PartitionState,
    ProduceResult,
)
from regency.broker_agent.replication.fetch_plans import FetchPlan, FetchReply, OffsetsPlan, OffsetsReply, Pause
from regency.broker_agent.replication.fetch_sessions import FetchSessionCache
from regency.broker_agent.replication.fetcher_pool import FetcherPool, TransportSpec
from regency.broker_agent.replication.fetcher_thread import Command, Failed, Outcome, Rested
from regency.broker_agent.replication.partition import Partition
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.model.clock import ManualClock
from regency.model.ids import (
    NO_BROKER_EPOCH,
    NO_LEADER_EPOCH,
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
from regency.model.log_config import LogConfig
from regency.model.record_batch import iter_batches
from regency.model.settings import BrokerSettings

T = TypeVar("T")

TP = TopicPartition("flights", 0)
LAG_MS = 10_000
BACKOFF_MS = 1_000
WAIT_MS = 500


def topic_id_of(topic: str) -> TopicId:
    return TopicId(UUID(bytes=topic.encode().ljust(16, b"\0")[:16]))


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
        done(work())


class ManualTimer:
    """Remembers when to wake its owner."""

    def __init__(self) -> None:
        self.due: int | None = None

    def wake_by(self, monotonic_ms: int) -> None:
        if self.due is None or monotonic_ms < self.due:
            self.due = monotonic_ms


class FakePeers:
    """Metadata: registered incarnations, who is leaving, and what there is."""

    def __init__(self) -> None:
        self.known: set[TopicPartition] = set()
        self.epochs: dict[BrokerId, BrokerEpoch] = {}
        self.leaving: set[BrokerId] = set()

    def broker_epoch(self, broker: BrokerId) -> BrokerEpoch | None:
        return self.epochs.get(broker)

    def is_shutting_down(self, broker: BrokerId) -> bool:
        return broker in self.leaving

    def has_partition(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self.known


class Znode(msgspec.Struct):
    """A state znode."""

    state: PartitionState


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
    """Compare-and-set on the cluster's state znodes; `held` keeps changes until `release`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.held = False
        self.refuse = False
        self.waiting: list[tuple[IsrChange, Callable[[IsrWritten | IsrUnknown], None]]] = []
        self.submitted: list[IsrChange] = []

    def submit(self, change: IsrChange, done: Callable[[IsrWritten | IsrUnknown], None]) -> None:
        self.submitted.append(change)
        self.waiting.append((change, done))

    def settle(self) -> bool:
        """Write what waits, unless held; whether there was anything."""
        if self.held or not self.waiting:
            return False
        waiting, self.waiting = self.waiting, []
        for change, done in waiting:
            done(IsrUnknown("refused") if self.refuse else self.cluster.write_isr(change))
        return True


class Broker:
    """One broker: log directory, ReplicaManager, fetch sessions, fetchers."""

    def __init__(self, cluster: Cluster, number: int, root: Path) -> None:
        self.cluster = cluster
        self.id = BrokerId(number)
        self.dir = root / f"broker-{number}"
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
            [self.dir],
            cluster.config,
            broker_id=self.id,
            cluster_id="test",
            clock=cluster.clock,
            worker=InlineWorker(),
            recovery_threads=1,
            on_dir_failure=self._dir_failed,
        )
        settings = msgspec.structs.replace(cluster.settings, broker_id=self.id)
        self.fetchers = FetcherPool(settings, cluster.clock, lambda: self.epoch, self._link)
        self.manager = ReplicaManager(
            self.id,
            settings,
            self.logs,
            cluster.clock,
            self.timer,
            self.isr_store,
            cluster.peers,
            self.fetchers,
            lambda topic: cluster.configs.get(topic, cluster.config),
        )

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

    def apply(self, *states: PartitionState, addresses: bool = True) -> dict[TopicPartition, AppliedState]:
        leaders = self.cluster.addresses() if addresses else {}
        return self.manager.apply_states(states, leaders)

    def produce(
        self, *values: str, acks: int = -1, timeout_ms: int = 30_000, partition: TopicPartition = TP
    ) -> list[ProduceResult]:
        """Append one batch; the list gets the result when there is one."""
        results: list[ProduceResult] = []
        self.manager.append(
            acks,
            timeout_ms,
            {partition: make_batch(*values, timestamp=self.cluster.record_timestamp)},
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
        topic_id: TopicId | None = None,
    ) -> list[FetchedPartition]:
        """Fetch one partition as a consumer or, with `replica`, as a follower; the list gets the result."""
        results: list[FetchedPartition] = []
        if replica_epoch is None:
            replica_epoch = self.cluster.peers.epochs.get(BrokerId(replica), NO_BROKER_EPOCH)
        params = FetchParams(BrokerId(replica), BrokerEpoch(replica_epoch), max_wait_ms, min_bytes, 1 << 20)
        wanted = FetchPartition(
            partition, topic_id, Offset(offset), 1 << 20, LeaderEpoch(epoch), LeaderEpoch(last_epoch), Offset(0)
        )
        self.manager.fetch(params, [wanted], lambda answered: results.append(answered[partition]))
        return results

    def latest(self, *, replica: int = CONSUMER, timestamp: int = -1, epoch: int = NO_LEADER_EPOCH) -> ListedOffset:
        return self.manager.list_offset(TP, timestamp, LeaderEpoch(epoch), BrokerId(replica))

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


class Cluster:
    """Brokers, their state znodes and the network between them. Nothing moves by itself."""

    def __init__(self, root: Path, brokers: int = 3, **config: object) -> None:
        self.clock = ManualClock()
        self.config = msgspec.structs.replace(LogConfig(), **config)
        self.configs: dict[str, LogConfig] = {}
        self.settings = BrokerSettings(
            replica_lag_time_max_ms=LAG_MS,
            replica_fetch_backoff_ms=BACKOFF_MS,
            replica_fetch_wait_max_ms=WAIT_MS,
        )
        self.peers = FakePeers()
        self.last_broker_epoch = 100
        self.record_timestamp = 1_000
        self.states: dict[TopicPartition, PartitionState] = {}
        self.cut: set[tuple[BrokerId, BrokerId]] = set()
        self._session_ids = 0
        self.brokers = {BrokerId(number): Broker(self, number, root) for number in range(1, brokers + 1)}

    def __getitem__(self, number: int) -> Broker:
        return self.brokers[BrokerId(number)]

    def new_session_id(self) -> int:
        self._session_ids += 1
        return self._session_ids

    def addresses(self) -> dict[BrokerId, LeaderAddress]:
        return {
            broker.id: LeaderAddress(broker.id, broker.epoch, f"host-{broker.id}", 9092 + broker.epoch)
            for broker in self.brokers.values()
        }

    # The controller and ZooKeeper

    def decide(
        self,
        leader: int,
        isr: Sequence[int] = (1, 2, 3),
        *,
        replicas: Sequence[int] = (1, 2, 3),
        partition: TopicPartition = TP,
        epoch: int | None = None,
        is_new: bool = False,
    ) -> PartitionState:
        """Write the state znode; nobody is told."""
        held = self.states.get(partition)
        next_epoch = (held.leader_epoch + 1 if held else 0) if epoch is None else epoch
        state = PartitionState(
            partition,
            topic_id_of(partition.topic),
            ControllerEpoch(1),
            BrokerId(leader),
            LeaderEpoch(next_epoch),
            tuple(BrokerId(member) for member in isr),
            ZkVersion(held.zk_version + 1 if held else 0),
            tuple(BrokerId(replica) for replica in replicas),
            is_new=is_new or held is None,
        )
        self.states[partition] = state
        return state

    def tell(self, *numbers: int, partition: TopicPartition = TP) -> dict[int, AppliedState]:
        """Send the state znode to those brokers, or to all that are up."""
        state = self.states[partition]
        told = {}
        for number in numbers or sorted(self.brokers):
            if self[number].up:
                told[number] = self[number].apply(state)[partition]
        return told

    def lead(self, leader: int, isr: Sequence[int] = (1, 2, 3), **options: object) -> PartitionState:
        """Decide, tell everybody, and let the network come to rest."""
        partition = options.get("partition", TP)
        state = self.decide(leader, isr, **options)  # type: ignore[arg-type]
        self.tell(partition=partition)  # type: ignore[arg-type]
        self.run()
        return state

    def write_isr(self, change: IsrChange) -> IsrWritten | IsrUnknown:
        held = self.states[change.topic_partition]
        if held.zk_version != change.zk_version or held.leader != change.leader:
            return IsrUnknown("another version")
        version = ZkVersion(held.zk_version + 1)
        self.states[change.topic_partition] = msgspec.structs.replace(held, isr=change.isr, zk_version=version)
        return IsrWritten(version)

    # Time and the network

    def run(self, *, rounds: int = 1_000) -> None:
        """Let everything that can move move, without time passing."""
        for _ in range(rounds):
            moved = False
            for number in sorted(self.brokers):
                broker = self.brokers[number]
                if broker.up:
                    moved = self._move(broker) or moved
            if not moved:
                return
        raise AssertionError("the network does not come to rest")

    def advance(self, milliseconds: int, *, step: int = 100) -> None:
        """Let time pass in steps, and everything happen that is due."""
        end = self.clock.monotonic_ms() + milliseconds
        self.run()
        while self.clock.monotonic_ms() < end:
            self.clock.advance(min(step, end - self.clock.monotonic_ms()))
            self.run()

    def _move(self, broker: Broker) -> bool:
        moved = broker.run_due()
        moved = broker.isr_store.settle() or moved
        for link in list(broker.links):
            moved = self.carry(broker, link) or moved
        return moved

    def carry(self, broker: Broker, link: Link) -> bool:
        """One step of one link: an answer in, a request out, or the end of a pause; whether there was one."""
        if link.closed:
            return False
        if link.rested_at is not None and link.rested_at <= self.clock.monotonic_ms():
            link.rested_at = None
            link.deliver(Rested())
            return True
        if link.inbox:
            link.busy = False
            link.deliver(link.inbox.pop(0))
            return True
        if link.outbox is None:
            return False
        plan, link.outbox = link.outbox, None
        target = self.brokers[link.address.broker]
        if not target.up or target.epoch != link.address.broker_epoch or (broker.id, target.id) in self.cut:
            link.inbox.append(Failed(f"broker {target.id} is unreachable."))
        elif isinstance(plan, FetchPlan):
            self._fetch(broker, link, target, plan)
        else:
            self._list(broker, link, target, plan)
        return True

    def _fetch(self, broker: Broker, link: Link, target: Broker, plan: FetchPlan) -> None:
        now = self.clock.monotonic_ms()
        forgotten = [name for name, _ in plan.forgotten]
        context = target.sessions.resolve(plan.session_id, plan.session_epoch, plan.partitions, forgotten, True, now)
        if isinstance(context, ErrorCode):
            link.inbox.append(FetchReply(context, 0, ()))
            return
        limits = plan.limits
        params = FetchParams(broker.id, plan.replica_epoch, limits.max_wait_ms, limits.min_bytes, limits.max_bytes)
        number = link.round

        def respond(results: Mapping[TopicPartition, FetchedPartition]) -> None:
            session, told = context.finish(results)
            if link.round == number and not link.closed and (broker.id, target.id) not in self.cut and target.up:
                link.inbox.append(FetchReply(ErrorCode.NONE, session, list(told.items())))

        target.manager.fetch(params, context.partitions, respond)

    def _list(self, broker: Broker, link: Link, target: Broker, plan: OffsetsPlan) -> None:
        answers = [
            (
                name,
                target.manager.list_offset(name, plan.timestamp, epoch, broker.id),
            )
            for name, epoch in plan.partitions
        ]
        link.inbox.append(OffsetsReply(answers))

    def sever(self, a: int, b: int) -> None:
        """No fetch gets through between two brokers, and what is under way fails."""
        for one, other in ((BrokerId(a), BrokerId(b)), (BrokerId(b), BrokerId(a))):
            self.cut.add((one, other))
            for link in self[one].links:
                if link.address.broker == other:
                    link.break_exchange("the network is cut")

    def heal(self) -> None:
        self.cut.clear()

    def crash(self, number: int, *, clean: bool = False) -> None:
        """End a broker; exchanges with it fail, and metadata says that it is gone."""
        broker = self[number]
        broker.stop(clean=clean)
        self.peers.epochs.pop(broker.id, None)
        for other in self.brokers.values():
            for link in other.links:
                if other.up and link.address.broker == broker.id:
                    link.break_exchange("the broker is gone")
            if other.up:
                other.manager.on_metadata_changed()

    def restart(self, number: int) -> None:
        self[number].start()
        for other in self.brokers.values():
            if other.up:
                other.manager.on_metadata_changed()

    def close(self) -> None:
        for broker in self.brokers.values():
            if broker.up:
                broker.stop(clean=False)


@pytest.fixture
def batch() -> Callable[..., bytes]:
    return make_batch


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    made: list[Cluster] = []

    def make(**options: object) -> Cluster:
        cluster = Cluster(tmp_path / f"cluster-{len(made)}", **options)  # type: ignore[arg-type]
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Three brokers; partition flights-0 is not created yet."""
    return make_cluster()
