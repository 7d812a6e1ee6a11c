"""A cluster in memory: agents that obey, candidates driven step by step, terms on their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from regency.controller.admin.services import ControllerService
from regency.controller.channel.channel_manager import NoSnapshot, backlog_of
from regency.controller.channel.log_questions import NO_LOG, LogEnds
from regency.controller.channel.metadata import MetadataLog
from regency.controller.channel.sender import Sender
from regency.controller.controller import Controller
from regency.controller.events import EventLoop, EventQueue, ShutDown
from regency.controller.request_gate import RequestGate
from regency.controller.state.invariants import violations
from regency.controller.store.access import Fence, Retry
from regency.controller.store.cluster_store import ClusterStore
from regency.controller.store.elector import Elector
from regency.controller.store.topics import TopicWatches
from regency.controller.term import Term
from regency.history.files import HistoryWriter
from regency.model import znodes
from regency.model.clock import ManualClock
from regency.model.facts import (
    Broker,
    Endpoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicAssignment,
)
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings
from regency.model.znodes import paths
from regency.protos import control_pb2 as pb
from regency.runtime.zookeeper.session import Create, Delete, SetData


class SteppedChannels:
    """Channels without threads: `pump` lets every sender talk until it has nothing more to say."""

    def __init__(self, origin, tell, agents: Mapping[int, Any], clock: ManualClock) -> None:
        self.metadata = MetadataLog()
        self.senders: dict[int, Sender] = {}
        self.closed = False
        self._origin, self._tell, self._agents, self._clock = origin, tell, agents, clock
        self._brokers: Mapping[int, Broker] = {}
        self._reached: dict[int, tuple[int, int]] = {}
        self.questions: list[tuple[Broker, tuple[TopicPartition, ...]]] = []
        """Who is asked how far which logs go, and has not answered."""

    def ask_log_ends(self, broker, partitions):
        self.questions.append((broker, tuple(partitions)))

    def answer_questions(self) -> None:
        asked = [each for each in self.questions if not self._agents[each[0].id].silent]
        self.questions = [each for each in self.questions if each not in asked]
        for broker, partitions in asked:
            told = self._agents[broker.id].log_ends
            ends = {each: told.get(each, NO_LOG) for each in partitions}
            self._tell(LogEnds(broker.id, broker.epoch, partitions, ends))

    @property
    def unacknowledged(self) -> int:
        return sum(sender.desired.unacknowledged for sender in self.senders.values())

    def owed(self, broker):
        return self.senders[broker].desired.owed() if broker in self.senders else frozenset()

    def backlogs(self):
        now = self._clock.monotonic_ms()
        return [backlog_of(broker, sender, now) for broker, sender in sorted(self.senders.items())]

    def set_brokers(self, brokers):
        self._brokers = brokers

    def add(self, broker):
        self.remove(broker.id)
        epoch, seq = self._reached.get(broker.id, (broker.epoch, 0))
        last_seq = seq if epoch == broker.epoch else 0
        self.senders[broker.id] = Sender(self._origin, broker.id, broker.epoch, self.metadata, last_seq=last_seq)

    def remove(self, broker):
        sender = self.senders.pop(broker, None)
        if sender is not None:
            self._reached[broker] = sender.reached

    def forget(self, gone) -> None:
        for sender in self.senders.values():
            sender.desired.forget(gone)

    def start(self, broker):
        self.senders[broker].start()

    def send(self, requests):
        for broker, request in requests.items():
            if broker in self.senders:
                request.apply_to(self.senders[broker].desired)

    def close(self):
        self.closed = True
        self.senders.clear()

    def pump(self) -> None:
        self.answer_questions()
        for broker, sender in sorted(self.senders.items()):
            while (outgoing := sender.next(self._clock.monotonic_ms())) is not None:
                message = sender.encode(outgoing, self._brokers, "PLAINTEXT")
                trouble = sender.on_answer(self._agents[broker].call(message), self._clock.monotonic_ms())
                if trouble is not None:
                    self._tell(trouble)
                deleted = sender.take_deleted()
                if deleted is not None:
                    self._tell(deleted)
            if sender.snapshot_wanted:
                self._tell(NoSnapshot())


class Candidate:
    """A controller process of one broker, driven by hand."""

    def __init__(self, world: World, broker: int, history: HistoryWriter | None = None, **settings: object) -> None:
        self.broker = broker
        self.session = world.fakes.Session(world.ensemble)
        self.queue = EventQueue(world.clock)
        self.channels: SteppedChannels | None = None
        self._world = world
        self.config = BrokerSettings(broker_id=broker, num_partitions=2, **settings)
        self.controller = Controller(
            self.config, self.session, self.queue, open_channels=self._open, clock=world.clock, history=history
        )
        self.loop = EventLoop(self.queue, self.controller.process)
        self.controller.start(f"host{broker}:9999")

    def _open(self, origin, tell):
        self.channels = SteppedChannels(origin, tell, self._world.agents, self._world.clock)
        return self.channels

    def settle(self) -> None:
        """Process everything that waits, and let the senders talk, until there is nothing left."""
        while True:
            event = self.queue.poll()
            if event is not None:
                self.loop.process(event)
            elif self.channels is not None and not self.channels.closed:
                self.channels.pump()
                if not len(self.queue):
                    return
            else:
                return

    def ask(self, event):
        """Put a request, settle, and give its answer."""
        self.queue.put(event)
        self.settle()
        return event.reply.result(0)

    @property
    def term(self) -> Term:
        assert self.controller._term is not None, "does not rule"
        return self.controller._term

    @property
    def rules(self) -> bool:
        return self.controller.view.ruling


class World:
    """Ensemble, clock, agents, and the words of a test."""

    def __init__(self, fakes: SimpleNamespace) -> None:
        self.fakes = fakes
        self.ensemble = fakes.Ensemble()
        self.clock = ManualClock(monotonic_ms=1000)
        self.agents: dict[int, Any] = {}
        self.candidates: list[Candidate] = []
        for path in (*paths.PERSISTENT_PARENTS, paths.CLUSTER_ID):
            self.ensemble.put(path, znodes.encode_cluster_id("cluster") if path == paths.CLUSTER_ID else b"")

    def candidate(self, broker: int, history: HistoryWriter | None = None, **settings: object) -> Candidate:
        candidate = Candidate(self, broker, history, **settings)
        self.candidates.append(candidate)
        self.settle()
        return candidate

    def settle(self) -> None:
        for _ in range(3):
            for candidate in self.candidates:
                candidate.settle()
        for candidate in self.candidates:
            if candidate.rules:
                assert list(violations(candidate.term.context)) == []

    def start_broker(
        self,
        broker: int,
        *,
        control: bool = True,
        rack: str | None = None,
        agent: object = None,
        whole: bool = True,
        process: str = "first",
    ) -> None:
        self.agents[broker] = agent or self.fakes.Agent()
        endpoints = [Endpoint("PLAINTEXT", f"host{broker}", 9000 + broker)]
        endpoints += [Endpoint("CONTROL", f"host{broker}", 7000 + broker)] if control else []
        data = znodes.encode_broker(Broker(broker, 0, tuple(endpoints), rack), timestamp_ms=0)
        mark = self.mark_of(broker, whole=whole, process=process)
        self.ensemble.multi(broker, [Create(paths.broker(broker), data, ephemeral=True), mark])
        self.settle()

    def mark_of(self, broker: int, *, whole: bool = True, process: str = "") -> Create | SetData:
        """What a registration writes besides: the cluster knows the broker from then on, and what it has lost."""
        path = paths.incarnation(broker)
        held = self.ensemble.nodes.get(path)
        if held is None:
            return Create(path, znodes.encode_incarnation(whole=True, lost_epoch=znodes.NO_LOSS, process=process))
        lost = znodes.decode_incarnation(held.data, epoch=held.mzxid)
        known, since = znodes.decode_process(held.data, epoch=held.mzxid)
        said = znodes.encode_incarnation(
            whole=whole, lost_epoch=lost, process=process, since=since if process == known else None
        )
        return SetData(path, said, held.version)

    def start_brokers(self, *brokers: int) -> None:
        for broker in brokers:
            self.start_broker(broker)

    def kill_broker(self, broker: int) -> None:
        self.ensemble.multi(0, [Delete(paths.broker(broker), None)])
        self.settle()

    @property
    def term(self) -> Term:
        """The term of whoever rules."""
        return next(each for each in self.candidates if each.rules).term

    def bounce(self, broker: int, process: str = "second") -> None:
        """The broker restarts before a controller looks; as process `first` it registers again without a restart."""
        self.ensemble.multi(0, [Delete(paths.broker(broker), None)])
        self.start_broker(broker, process=process)

    def hold_stops(self, *brokers: int) -> Callable[..., None]:
        """These brokers do not do what a StopReplica asks for, until what is returned is called with them."""
        calls = {broker: self.agents[broker].call for broker in brokers}
        for broker, call in calls.items():
            self.agents[broker].call = partial(_refuse_stops, self.agents[broker], call)

        def release(*those: int) -> None:
            for broker in those:
                self.agents[broker].call = calls[broker]
            self.clock.advance(20_000)
            self.settle()

        return release

    def mark(self, *topics: str) -> None:
        """Ask for the deletion of topics as another tool does."""
        for name in topics:
            self.ensemble.put(paths.delete_topic(name), b"")
        self.settle()

    def is_gone(self, topic: str = "t") -> bool:
        """Whether nothing of the topic is left, neither in ZooKeeper nor in the controller's memory."""
        roots = (paths.topic(topic), paths.topic_config(topic), paths.delete_topic(topic))
        left = [path for path in self.ensemble.nodes if path.startswith(tuple(f"{root}/" for root in roots))]
        context = self.term.context
        known = topic in {*context.topics, *context.topics_to_delete, *context.topics_deletion_started}
        there = any(root in self.ensemble.nodes for root in roots)
        return not left and not there and not known and topic not in context.topics_ineligible

    def write_topic(self, name: str, assignments: Mapping[int, Sequence[int]]) -> None:
        """Create a topic as another tool does."""
        partitions = {p: ReplicaAssignment(tuple(replicas)) for p, replicas in assignments.items()}
        self.ensemble.put(paths.topic(name), znodes.encode_topic(TopicAssignment(name, partitions)))
        self.settle()

    def write_state(self, topic: str, partition: int, leader: int, isr, *, epoch: int = 0, controller: int = 1) -> None:
        state = LeaderIsrAndControllerEpoch(LeaderAndIsr(leader, epoch, tuple(isr)), controller)
        self.ensemble.put(paths.partition_state(TopicPartition(topic, partition)), znodes.encode_state(state))

    def state(self, topic: str, partition: int = 0) -> tuple[int, tuple[int, ...], int, int]:
        """Leader, ISR, leader epoch and controller epoch as ZooKeeper has them."""
        path = paths.partition_state(TopicPartition(topic, partition))
        read = znodes.decode_state(path, self.ensemble.nodes[path].data, zk_version=0)
        now = read.leader_and_isr
        return now.leader, now.isr, now.leader_epoch, read.controller_epoch

    def notify_isr_change(self, *partitions: TopicPartition) -> None:
        create = Create(paths.isr_change_prefix(), znodes.encode_isr_change(partitions), sequential=True)
        self.ensemble.multi(0, [create])
        self.settle()

    def rejoin(self, topic: str, isr: Sequence[int], partitions: int = 1) -> None:
        """Leaders take replicas in, and say so."""
        for number in range(partitions):
            leader, now, epoch, controller = self.state(topic, number)
            whole = (*now, *(each for each in isr if each not in now))
            self.write_state(topic, number, leader, whole, epoch=epoch, controller=controller)
            self.notify_isr_change(TopicPartition(topic, number))

    def moved_away(self, topic: str = "t", replicas: Sequence[int] = (2, 3), partitions: int = 1) -> None:
        """A topic that its preferred replica does not lead, and is in sync again."""
        self.write_topic(topic, {number: replicas for number in range(partitions)})  # noqa: C420
        self.kill_broker(replicas[0])
        self.start_broker(replicas[0])
        self.rejoin(topic, replicas, partitions)

    def leaderless(self, *, allowed: bool, replicas: Sequence[int] = (1, 2, 3)) -> None:
        """Topic t, whose first replica was the last in sync and is dead; `allowed`: another may lead all the same."""
        if allowed:
            config = znodes.encode_config({"unclean.leader.election.enable": "true"})
            self.ensemble.put(paths.topic_config("t"), config)
        self.write_topic("t", {0: replicas})
        leader, _, epoch, controller = self.state("t")
        assert leader == replicas[0]
        self.write_state("t", 0, leader, (leader,), epoch=epoch, controller=controller)
        self.notify_isr_change(TopicPartition("t", 0))
        self.kill_broker(leader)

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass, and whatever is due happen."""
        self.clock.advance(milliseconds)
        self.settle()


@pytest.fixture(scope="session")
def new_world(zookeeper_fakes: SimpleNamespace) -> Callable[[], World]:
    """Makes empty worlds, for tests that need many."""
    return lambda: World(zookeeper_fakes)


@pytest.fixture
def world(new_world: Callable[[], World]) -> World:
    return new_world()


@pytest.fixture
def ruled(world: World) -> World:
    """Brokers 1, 2 and 3, and a candidate of broker 1 that rules in epoch 1."""
    world.start_brokers(1, 2, 3)
    world.candidate(1)
    return world


@dataclass
class Machines:
    """A term on its own, in epoch 50, for tests of the state machines."""

    ensemble: object
    session: object
    term: Term
    channels: SteppedChannels


@pytest.fixture
def machines(zookeeper_fakes: SimpleNamespace) -> Machines:
    ensemble = zookeeper_fakes.Ensemble()
    ensemble.put(paths.TOPICS, b"")
    ensemble.put(paths.CONFIG_TOPICS, b"")
    ensemble.put(paths.CONTROLLER_EPOCH, b"50")
    session = zookeeper_fakes.Session(ensemble)
    clock = ManualClock()
    agents = {broker: zookeeper_fakes.Agent() for broker in range(200)}
    channels = SteppedChannels(None, None, agents, clock)
    patience, queue = Retry(session), EventQueue(clock)
    store = ClusterStore(session, patience, Fence(50, ensemble.nodes[paths.CONTROLLER_EPOCH].version, 1))
    term = Term(
        BrokerSettings(broker_id=5),
        store,
        cluster_id="cluster",
        watches=TopicWatches(session, lambda _: None),
        queue=queue,
        elector=Elector(session, patience, 5, clock),
        channels=channels,
        history=None,
        clock=clock,
    )
    return Machines(ensemble, session, term, channels)


def _refuse_stops(agent: Any, call, message) -> pb.ControlResponse:
    if isinstance(message, pb.StopReplicaRequest):
        agent.answers.append(pb.ControlResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
    return call(message)


class Served:
    """A candidate whose loop runs on a thread, with its service."""

    def __init__(self, world: World, candidate: Candidate) -> None:
        self.world, self.candidate = world, candidate
        self.gate = RequestGate(candidate.controller, candidate.queue, candidate.loop, timeout_ms=5000)
        self.service = ControllerService(
            candidate.controller,
            self.gate,
            candidate.loop,
            broker=candidate.broker,
            session_id=lambda: candidate.session.session_id,
            clock=world.clock,
        )
        self.thread = threading.Thread(target=candidate.loop.run, daemon=True)

    def epoch(self, broker: int) -> int:
        return self.world.ensemble.nodes[paths.broker(broker)].czxid


@pytest.fixture
def served(ruled):
    served = Served(ruled, ruled.candidates[0])
    served.thread.start()
    yield served
    served.candidate.queue.put(ShutDown())
    served.thread.join(5)


@pytest.fixture
def idle(ruled):
    """A candidate that does not rule."""
    return Served(ruled, ruled.candidate(2))


@pytest.fixture
def serving(ruled):
    """serving(candidate): its service, without a thread that runs its loop."""
    return partial(Served, ruled)
