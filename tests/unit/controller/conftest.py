"""A cluster in memory for the controller's tests: a ZooKeeper, agents that obey, candidates driven step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from regency.controller.cluster_store import ClusterStore, Fence
from regency.controller.config import ControllerConfig
from regency.controller.controller import Controller
from regency.controller.event_loop import EventLoop, EventQueue
from regency.controller.invariants import violations
from regency.controller.metadata_log import MetadataLog
from regency.controller.patience import Patience
from regency.controller.sender import Sender
from regency.controller.term import Term
from regency.controller.topic_watches import TopicWatches
from regency.history.writer import HistoryWriter
from regency.model import znode_paths as paths
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
from regency.protos import control_pb2 as pb
from regency.runtime.zk_session import (
    Check,
    Children,
    Create,
    Delete,
    MultiOutcome,
    OpOutcome,
    SessionEvent,
    SetData,
    Stat,
    WatchEvent,
    WatchEventType,
    WatchMode,
    ZkCode,
    ZkConnectionLost,
    ZkSessionLost,
    Znode,
)


@dataclass
class _Node:
    data: bytes
    czxid: int
    mzxid: int
    owner: int = 0
    version: int = 0
    sequence: int = 0


class FakeEnsemble:
    """ZooKeeper in memory: znodes, zxids, ephemerals, watches that stay, atomic multis."""

    def __init__(self) -> None:
        self.nodes: dict[str, _Node] = {"/": _Node(b"", 0, 0)}
        self.zxid = 0
        self.sessions: dict[int, FakeSession] = {}
        self.writes: list[list[object]] = []
        """Operations of every multi that took effect."""

    def multi(self, owner: int, ops: Sequence[object]) -> MultiOutcome:
        kept = {path: _Node(**vars(node)) for path, node in self.nodes.items()} if len(ops) > 1 else None
        zxid = self.zxid + 1
        results: list[OpOutcome] = []
        events: list[tuple[WatchEventType, str]] = []
        for op in ops:
            code, outcome = self._apply(owner, op, zxid, events)
            if code is not ZkCode.OK:
                if kept is not None:
                    self.nodes = kept
                failed = [OpOutcome(ZkCode.ROLLED_BACK)] * len(ops)
                failed[len(results)] = OpOutcome(code)
                return MultiOutcome(tuple(failed))
            results.append(outcome)
        self.zxid = zxid
        self.writes.append(list(ops))
        for event in events:
            for session in list(self.sessions.values()):
                session.fire(*event)
        return MultiOutcome(tuple(results))

    def _apply(self, owner, op, zxid, events):
        node = self.nodes.get(op.path)
        if isinstance(op, Check):
            if node is None:
                return ZkCode.NO_NODE, None
            return (ZkCode.OK if op.version in (None, node.version) else ZkCode.BAD_VERSION), OpOutcome(ZkCode.OK)
        if isinstance(op, Create):
            return self._create(owner, op, zxid, events)
        if node is None:
            return ZkCode.NO_NODE, None
        if op.version not in (None, node.version):
            return ZkCode.BAD_VERSION, None
        if isinstance(op, SetData):
            node.data, node.mzxid, node.version = op.data, zxid, node.version + 1
            events.append((WatchEventType.DATA_CHANGED, op.path))
            return ZkCode.OK, OpOutcome(ZkCode.OK, stat=self.stat(op.path))
        assert isinstance(op, Delete)
        if self.names(op.path):
            return ZkCode.NOT_EMPTY, None
        del self.nodes[op.path]
        events += [(WatchEventType.DELETED, op.path), (WatchEventType.CHILDREN_CHANGED, _parent(op.path))]
        return ZkCode.OK, OpOutcome(ZkCode.OK)

    def _create(self, owner, op, zxid, events):
        parent = self.nodes.get(_parent(op.path))
        if parent is None:
            return ZkCode.NO_NODE, None
        path = op.path
        if op.sequential:
            path, parent.sequence = f"{path}{parent.sequence:010d}", parent.sequence + 1
        if path in self.nodes:
            return ZkCode.NODE_EXISTS, None
        self.nodes[path] = _Node(op.data, zxid, zxid, owner if op.ephemeral else 0)
        events += [(WatchEventType.CREATED, path), (WatchEventType.CHILDREN_CHANGED, _parent(path))]
        return ZkCode.OK, OpOutcome(ZkCode.OK, path)

    def stat(self, path: str) -> Stat:
        node = self.nodes[path]
        return Stat(node.czxid, node.mzxid, node.version, node.owner, len(self.names(path)))

    def names(self, path: str) -> tuple[str, ...]:
        prefix = path.rstrip("/") + "/"
        below = [path[len(prefix) :] for path in self.nodes if path.startswith(prefix)]
        return tuple(sorted(name for name in below if name and "/" not in name))

    def expire(self, session_id: int) -> None:
        for path in sorted((p for p, node in self.nodes.items() if node.owner == session_id), reverse=True):
            self.multi(0, [Delete(path, None)])

    def put(self, path: str, data: bytes) -> None:
        """Write as an administrator does, with the parents."""
        for parent in [path[: i or 1] for i, c in enumerate(path) if c == "/"][1:]:
            if parent not in self.nodes:
                self.multi(0, [Create(parent)])
        if path in self.nodes:
            self.multi(0, [SetData(path, data, self.nodes[path].version)])
        else:
            self.multi(0, [Create(path, data)])

    def delete(self, path: str) -> None:
        for each in sorted((p for p in self.nodes if p == path or p.startswith(path + "/")), reverse=True):
            self.multi(0, [Delete(each, None)])


class FakeSession:
    """ZkSession over a FakeEnsemble. Faults are set by hand."""

    _ids = 0x1000

    def __init__(self, ensemble: FakeEnsemble) -> None:
        self.ensemble = ensemble
        self.generation = 0
        self.session_timeout_ms = 6000
        self.connected = True
        self.before_write: Callable[[], None] | None = None
        """Runs once, before the next multi is applied: what somebody else does at that moment."""
        self.lose_replies = 0
        """So many of the next multis are applied, and their reply is lost."""
        self._watches: dict[str, tuple[WatchMode, Callable[[WatchEvent], None]]] = {}
        self._listeners: list[Callable[[SessionEvent, int], None]] = []
        self._begin()

    def _begin(self) -> None:
        FakeSession._ids += 1
        self.session_id = FakeSession._ids
        self.generation += 1
        self.ensemble.sessions[self.session_id] = self

    def expire(self, *, server_knows: bool = True) -> None:
        """The session is lost; a new one begins. `server_knows` False: its ephemerals are still there."""
        old = self.session_id
        self.ensemble.sessions.pop(old)
        for listener in self._listeners:
            listener(SessionEvent.LOST, self.generation)
        if server_knows:
            self.ensemble.expire(old)
        self._begin()
        self.reconnect()

    def reconnect(self) -> None:
        """Contact is back: everything watched is to be looked at again."""
        self.connected = True
        for path, (_, callback) in list(self._watches.items()):
            callback(WatchEvent(WatchEventType.LOOK_AGAIN, path, path))
        for listener in self._listeners:
            listener(SessionEvent.CONNECTED, self.generation)

    def read(self, path):
        return self.read_many([path])[0]

    def read_many(self, wanted):
        self._check(None)
        nodes = self.ensemble.nodes
        return [Znode(path, nodes[path].data, self.ensemble.stat(path)) if path in nodes else None for path in wanted]

    def children(self, path):
        self._check(None)
        return Children(path, self.ensemble.names(path)) if path in self.ensemble.nodes else None

    def children_many(self, wanted):
        return [self.children(path) for path in wanted]

    def multi(self, ops, *, generation=None):
        self._check(generation)
        hook, self.before_write = self.before_write, None
        if hook is not None:
            hook()
        outcome = self.ensemble.multi(self.session_id, ops)
        if self.lose_replies:
            self.lose_replies -= 1
            raise ZkConnectionLost("The reply was lost.")
        return outcome

    def multi_pipelined(self, batches, *, generation=None):
        outcomes = []
        for ops in batches:
            try:
                outcomes.append(self.multi(ops, generation=generation))
            except ZkConnectionLost as error:
                outcomes.append(error)
        return outcomes

    def sync(self, path):
        self._check(None)

    def watch(self, path, mode, callback):
        self._watches[path] = (mode, callback)

    def unwatch(self, path):
        self._watches.pop(path, None)

    @property
    def watched(self) -> set[str]:
        return set(self._watches)

    def listen(self, callback):
        self._listeners.append(callback)

    def close(self):
        self.ensemble.sessions.pop(self.session_id, None)
        self.ensemble.expire(self.session_id)
        self.connected = False

    def fire(self, kind: WatchEventType, path: str) -> None:
        for watched, (mode, callback) in list(self._watches.items()):
            recursive = mode is WatchMode.PERSISTENT_RECURSIVE
            below = recursive and kind is not WatchEventType.CHILDREN_CHANGED and path.startswith(watched + "/")
            if path == watched or below:
                callback(WatchEvent(kind, path, watched))

    def _check(self, generation: int | None) -> None:
        if generation is not None and generation != self.generation:
            raise ZkSessionLost("Another session.")
        if not self.connected:
            raise ZkConnectionLost("No contact.")


@dataclass
class FakeAgent:
    """Answers every request with NONE, unless told otherwise, and remembers what it was sent."""

    received: list[object] = field(default_factory=list)
    answers: list[pb.ControlResponse] = field(default_factory=list)
    states: dict[TopicPartition, tuple[int, int, tuple[int, ...]]] = field(default_factory=dict)
    """Leader, leader epoch and ISR of every partition it was told to host."""

    def call(self, message) -> pb.ControlResponse:
        self.received.append(message)
        answer = self.answers.pop(0) if self.answers else pb.ControlResponse()
        if answer.error_code == 0 and isinstance(message, pb.LeaderAndIsrRequest):
            self.states.update(_decode(message))
        return answer

    def of(self, kind) -> list:
        return [message for message in self.received if isinstance(message, kind)]


class SteppedChannels:
    """Channels without threads: `pump` lets every sender talk until it has nothing more to say."""

    def __init__(self, origin, listener, agents: Mapping[int, FakeAgent], clock: ManualClock) -> None:
        self.metadata = MetadataLog()
        self.senders: dict[int, Sender] = {}
        self.closed = False
        self._origin, self._listener, self._agents, self._clock = origin, listener, agents, clock
        self._brokers: Mapping[int, Broker] = {}

    @property
    def unacknowledged(self) -> int:
        return sum(sender.desired.unacknowledged for sender in self.senders.values())

    def set_brokers(self, brokers):
        self._brokers = brokers

    def add(self, broker):
        self.senders[broker.id] = Sender(self._origin, broker.id, broker.epoch, self.metadata)

    def remove(self, broker):
        self.senders.pop(broker, None)

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
        for broker, sender in sorted(self.senders.items()):
            while (outgoing := sender.next(self._clock.monotonic_ms())) is not None:
                message = sender.encode(outgoing, self._brokers, "PLAINTEXT")
                trouble = sender.on_answer(self._agents[broker].call(message), self._clock.monotonic_ms())
                if trouble is not None:
                    self._listener.on_trouble(trouble)
            if sender.snapshot_wanted:
                self._listener.on_snapshot_wanted()


class Candidate:
    """A controller process of one broker, driven by hand."""

    def __init__(self, world: World, broker: int, history: HistoryWriter | None = None) -> None:
        self.broker = broker
        self.session = FakeSession(world.ensemble)
        self.queue = EventQueue(world.clock)
        self.channels: SteppedChannels | None = None
        self._world = world
        self.config = ControllerConfig(broker_id=broker, num_partitions=2)
        self.controller = Controller(
            self.config, self.session, self.queue, open_channels=self._open, clock=world.clock, history=history
        )
        self.loop = EventLoop(self.queue, self.controller.process)
        self.controller.start(f"host{broker}:9999")

    def _open(self, origin, listener):
        self.channels = SteppedChannels(origin, listener, self._world.agents, self._world.clock)
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

    def __init__(self) -> None:
        self.ensemble = FakeEnsemble()
        self.clock = ManualClock(monotonic_ms=1000)
        self.agents: dict[int, FakeAgent] = {}
        self.candidates: list[Candidate] = []
        for path in (*paths.PERSISTENT_PARENTS, paths.CLUSTER_ID):
            self.ensemble.put(path, znodes.encode_cluster_id("cluster") if path == paths.CLUSTER_ID else b"")

    def candidate(self, broker: int, history: HistoryWriter | None = None) -> Candidate:
        candidate = Candidate(self, broker, history)
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

    def start_broker(self, broker: int, *, control: bool = True, rack: str | None = None) -> None:
        self.agents[broker] = FakeAgent()
        endpoints = [Endpoint("PLAINTEXT", f"host{broker}", 9000 + broker)]
        endpoints += [Endpoint("CONTROL", f"host{broker}", 7000 + broker)] if control else []
        data = znodes.encode_broker(Broker(broker, 0, tuple(endpoints), rack), timestamp_ms=0)
        self.ensemble.multi(broker, [Create(paths.broker(broker), data, ephemeral=True)])
        self.settle()

    def start_brokers(self, *brokers: int) -> None:
        for broker in brokers:
            self.start_broker(broker)

    def kill_broker(self, broker: int) -> None:
        self.ensemble.multi(0, [Delete(paths.broker(broker), None)])
        self.settle()

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


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def ruled(world: World) -> World:
    """Brokers 1, 2 and 3, and a candidate of broker 1 that rules in epoch 1."""
    world.start_brokers(1, 2, 3)
    world.candidate(1)
    return world


@dataclass
class Machines:
    """A term on its own, in epoch 50, for tests of the state machines."""

    ensemble: FakeEnsemble
    session: FakeSession
    term: Term
    channels: SteppedChannels


@pytest.fixture
def machines() -> Machines:
    ensemble = FakeEnsemble()
    ensemble.put(paths.TOPICS, b"")
    ensemble.put(paths.CONFIG_TOPICS, b"")
    ensemble.put(paths.CONTROLLER_EPOCH, b"50")
    session = FakeSession(ensemble)
    clock = ManualClock()
    agents = {broker: FakeAgent() for broker in range(200)}
    channels = SteppedChannels(None, None, agents, clock)
    store = ClusterStore(session, Patience(session), Fence(50, ensemble.nodes[paths.CONTROLLER_EPOCH].version, 1))
    term = Term(
        ControllerConfig(broker_id=5),
        store,
        cluster_id="cluster",
        watches=TopicWatches(session, lambda _: None),
        channels=channels,
        history=None,
        clock=clock,
    )
    return Machines(ensemble, session, term, channels)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _decode(message: pb.LeaderAndIsrRequest) -> dict[TopicPartition, tuple[int, int, tuple[int, ...]]]:
    states = {}
    for topic in message.topics:
        position = 0
        for row, partition in enumerate(topic.partition):
            isr = tuple(topic.isr[position : position + topic.isr_len[row]])
            position += topic.isr_len[row]
            states[TopicPartition(topic.topic, partition)] = (topic.leader[row], topic.leader_epoch[row], isr)
    return states
