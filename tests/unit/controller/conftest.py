"""A ZooKeeper in memory for the controller's tests, and agents that obey."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from regency.controller.state.election import LogEnd
from regency.model.ids import TopicPartition
from regency.protos import control_pb2 as pb
from regency.runtime.zookeeper.session import (
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
        self._below: dict[str, set[str]] = {}
        """Names of children by path."""
        self.zxid = 0
        self.sessions: dict[int, FakeSession] = {}
        self.writes: list[list[object]] = []
        """Operations of every multi that took effect."""

    def multi(self, owner: int, ops: Sequence[object]) -> MultiOutcome:
        touched = {path for op in ops for path in (op.path, _parent(op.path))} if len(ops) > 1 else ()
        kept = {path: _Node(**vars(self.nodes[path])) if path in self.nodes else None for path in touched}
        zxid = self.zxid + 1
        results: list[OpOutcome] = []
        events: list[tuple[WatchEventType, str]] = []
        for op in ops:
            code, outcome = self._apply(owner, op, zxid, events)
            if code is not ZkCode.OK:
                self._restore(kept, {result.path for result in results})
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
        self._below[_parent(op.path)].discard(op.path.rpartition("/")[2])
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
        self._below.setdefault(_parent(path), set()).add(path.rpartition("/")[2])
        events += [(WatchEventType.CREATED, path), (WatchEventType.CHILDREN_CHANGED, _parent(path))]
        return ZkCode.OK, OpOutcome(ZkCode.OK, path)

    def stat(self, path: str) -> Stat:
        node = self.nodes[path]
        return Stat(node.czxid, node.mzxid, node.version, node.owner, len(self.names(path)))

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(self._below.get(path, ())))

    def _restore(self, kept, created) -> None:
        for path in created.difference(kept, ("",)):
            del self.nodes[path]
        for path, node in kept.items():
            if node is not None:
                self.nodes[path] = node
            else:
                self.nodes.pop(path, None)
        if not kept:
            return
        self._below = {}
        for path in self.nodes:
            if path != "/":
                self._below.setdefault(_parent(path), set()).add(path.rpartition("/")[2])

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
        self.lose_reads = 0
        """So many of the next reads and syncs are lost, although the session says it is connected."""
        self.lose_outcome_of = ""
        """The next multi with this path is applied, and contact is lost until a fenced write gives up."""
        self.round_trips: list[str] = []
        """Calls that wait for the server; what is pipelined is one."""
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
        self.round_trips.append(f"read {len(wanted)}")
        self._answer_or_lose()
        nodes = self.ensemble.nodes
        return [Znode(path, nodes[path].data, self.ensemble.stat(path)) if path in nodes else None for path in wanted]

    def children(self, path):
        return self.children_many([path])[0]

    def children_many(self, wanted):
        self.round_trips.append(f"children of {len(wanted)}")
        self._check(None)
        nodes = self.ensemble.nodes
        return [Children(path, self.ensemble.names(path)) if path in nodes else None for path in wanted]

    def multi(self, ops, *, generation=None):
        self._check(generation)
        hook, self.before_write = self.before_write, None
        if hook is not None:
            hook()
        outcome = self.ensemble.multi(self.session_id, ops)
        if any(op.path == self.lose_outcome_of for op in ops):
            self.lose_outcome_of, self.lose_reads = "", 2
            raise ZkConnectionLost("The reply was lost.")
        if self.lose_replies:
            self.lose_replies -= 1
            raise ZkConnectionLost("The reply was lost.")
        return outcome

    def multi_pipelined(self, batches, *, generation=None):
        self.round_trips.append(f"{len(batches)} multis")
        outcomes = []
        for ops in batches:
            try:
                outcomes.append(self.multi(ops, generation=generation))
            except ZkConnectionLost as error:
                outcomes.append(error)
        return outcomes

    def sync(self, path):
        self._answer_or_lose()

    def _answer_or_lose(self) -> None:
        self._check(None)
        if self.lose_reads:
            self.lose_reads -= 1
            raise ZkConnectionLost("The answer was lost.")

    def watch(self, path, mode, callback):
        self.watch_many([path], mode, callback)

    def watch_many(self, wanted, mode, callback):
        self._watches.update(dict.fromkeys(wanted, (mode, callback)))
        self._check(None)

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
        watched = path
        while watched != "/":
            mode, callback = self._watches.get(watched, (WatchMode.PERSISTENT, None))
            recursive = mode is WatchMode.PERSISTENT_RECURSIVE
            below = recursive and kind is not WatchEventType.CHILDREN_CHANGED
            if callback is not None and (path == watched or below):
                callback(WatchEvent(kind, path, watched))
            watched = _parent(watched)

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
    seen: tuple[int, int] = (0, 0)
    """Controller epoch and number of the last request: they never go back, and no number is left out."""
    states: dict[TopicPartition, tuple[int, int, tuple[int, ...]]] = field(default_factory=dict)
    """Leader, leader epoch and ISR of every partition it was told to host."""
    log_ends: dict[TopicPartition, LogEnd] = field(default_factory=dict)
    """What it says when asked how far its logs go."""
    silent: bool = False
    """It does not answer such a question."""

    def call(self, message) -> pb.ControlResponse:
        term, last = self.seen
        epoch, seq = message.header.controller_epoch, message.header.seq
        assert epoch > term or (epoch == term and seq in (last, last + 1)), (
            f"request {seq} of {epoch} after {self.seen}"
        )
        self.seen = (epoch, seq)
        self.received.append(message)
        answer = self.answers.pop(0) if self.answers else pb.ControlResponse()
        if answer.error_code == 0 and isinstance(message, pb.LeaderAndIsrRequest):
            refused = {TopicPartition(topic.topic, number) for topic in answer.topics for number in topic.partition}
            self.states.update((each, state) for each, state in _decode(message).items() if each not in refused)
        return answer

    def of(self, kind) -> list:
        return [message for message in self.received if isinstance(message, kind)]

    def deletes(self) -> list[TopicPartition]:
        """Partitions it was told to delete, in order."""
        return [
            TopicPartition(topic.topic, number)
            for message in self.of(pb.StopReplicaRequest)
            for topic in message.topics
            for number, delete in zip(topic.partition, topic.delete_partition, strict=True)
            if delete
        ]

    def topics(self) -> set[str]:
        """Topics it was told to host."""
        return {topic.topic for message in self.of(pb.LeaderAndIsrRequest) for topic in message.topics}


@pytest.fixture(scope="session")
def zookeeper_fakes() -> SimpleNamespace:
    """The classes `Ensemble`, `Session` and `Agent`."""
    return SimpleNamespace(Ensemble=FakeEnsemble, Session=FakeSession, Agent=FakeAgent)


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
