"""Builders for tests of replication: brokers with real logs in one process, and a network and a clock moved by hand."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from uuid import UUID

import msgspec
import pytest

from regency.broker_agent.ports import IsrChange, IsrUnknown, IsrWritten
from regency.broker_agent.replication.api import AppliedState, LeaderAddress, PartitionState
from regency.broker_agent.replication.fetcher.fetcher_thread import Failed, Rested
from regency.broker_agent.steps import at_once
from regency.kafka.fetching.values import (
    FetchedPartition,
    FetchParams,
    FetchPlan,
    FetchReply,
    OffsetsPlan,
    OffsetsReply,
)
from regency.model.clock import ManualClock
from regency.model.ids import BrokerId, ControllerEpoch, LeaderEpoch, TopicId, TopicPartition, ZkVersion
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings
from regency.model.settings.dynamic import ThrottleRates
from regency.model.settings.log_config import LogConfig

LAG_MS = 10_000
BACKOFF_MS = 1_000
WAIT_MS = 500


def _load_brokers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("replication_brokers", Path(__file__).with_name("brokers.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_brokers = _load_brokers()
Broker, FakePeers, Link = _brokers.Broker, _brokers.FakePeers, _brokers.Link
make_batch = _brokers.make_batch
TP = _brokers.TP


def topic_id_of(topic: str) -> TopicId:
    return TopicId(UUID(bytes=topic.encode().ljust(16, b"\0")[:16]))


class Cluster:
    """Brokers, their state znodes and the network between them. Nothing moves by itself."""

    def __init__(self, root: Path, brokers: int = 3, directories: int = 1, **config: object) -> None:
        self.directories = directories
        self.clock = ManualClock()
        self.config = msgspec.structs.replace(LogConfig(), **config)
        self.configs: dict[str, LogConfig] = {}
        self.rates: dict[BrokerId, ThrottleRates] = {}
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

    def lead_alone(self, *partitions: TopicPartition) -> None:
        """Broker 1 is told to lead these, or flights-0, and has no follower."""
        for partition in partitions or (TP,):
            self.decide(1, (1,), replicas=(1,), partition=partition)
            self.tell(1, partition=partition)

    def values_of(self, answer: FetchedPartition) -> list[str]:
        """Values of the records that were answered."""
        return _brokers.values_in(answer.records)

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
            session, told = at_once(context.finish(results))
            if link.round == number and not link.closed and (broker.id, target.id) not in self.cut and target.up:
                link.inbox.append(FetchReply(ErrorCode.NONE, session, list(told.items())))

        target.manager.fetch(params, context.partitions, respond)

    def _list(self, broker: Broker, link: Link, target: Broker, plan: OffsetsPlan) -> None:
        answers = [
            (
                name,
                at_once(target.manager.list_offset(name, plan.timestamp, epoch, broker.id)),
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


@pytest.fixture
def moving(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Two brokers with two directories each; broker 1 leads flights-0, with some records."""
    cluster = make_cluster(brokers=2, directories=2)
    cluster.lead(1, (1, 2), replicas=(1, 2))
    for value in "abc":
        cluster[1].produce(value)
    cluster.advance(1_000)
    return cluster
